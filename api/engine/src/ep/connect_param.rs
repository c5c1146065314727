//! The arguments of a connect.

use std::net::SocketAddr;

use dat_types::{ConnectFlags, Error, Qos, Result, ReturnType, Subtype, Timeout};

use crate::adapter::inner::IaInner;
use crate::base::error;

/// The arguments of `dat_ep_connect` besides the endpoint.
#[derive(Clone, Copy, Debug)]
pub struct ConnectOptions<'a> {
    /// Address of the peer's IA; its port is not looked at.
    pub address: SocketAddr,
    /// Connection qualifier the peer listens on.
    pub conn_qual: u64,
    /// How long the attempt may take; not 0.
    pub timeout: Timeout,
    /// Delivered with the request, at most the provider's `max_private_data_size` bytes.
    pub private_data: &'a [u8],
    /// One quality of service.
    pub qos: Qos,
    /// Multipath wishes.
    pub flags: ConnectFlags,
}

impl ConnectOptions<'_> {
    /// No time-out, no private data, best effort.
    pub fn new(address: SocketAddr, conn_qual: u64) -> ConnectOptions<'static> {
        ConnectOptions {
            address,
            conn_qual,
            timeout: Timeout::INFINITE,
            private_data: &[],
            qos: Qos::BEST_EFFORT,
            flags: ConnectFlags::empty(),
        }
    }
}

/// The other arguments of a connect.
pub(super) struct Wishes<'a> {
    pub(super) timeout: Timeout,
    pub(super) private_data: &'a [u8],
    pub(super) qos: Qos,
}

/// Positions of the arguments all forms of connect have.
pub(super) struct Positions {
    pub(super) timeout: Subtype,
    pub(super) private_data: Subtype,
    pub(super) qos: Subtype,
}

impl Wishes<'_> {
    pub(super) fn check(&self, call: &'static str, ia: &IaInner, at: &Positions) -> Result<()> {
        if self.timeout == Timeout::ZERO {
            return Err(error::parameter(call, at.timeout, "a time-out of 0; it must be positive"));
        }
        ia.check_private_data(call, at.private_data, self.private_data)?;
        if !self.qos.is_defined() {
            let message = format!("quality of service {:#x} is no single defined value", self.qos.0);
            return Err(error::parameter(call, at.qos, message));
        }
        Ok(())
    }
}

/// Where a connect goes, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) conn_qual: u64,
    pub(super) flags: ConnectFlags,
}

impl Target {
    pub(super) fn check(&self, call: &'static str) -> Result<()> {
        if self.conn_qual == 0 {
            return Err(error::parameter(call, Subtype::Arg3, "0 is no connection qualifier"));
        }
        if !ConnectFlags::all().contains(self.flags) {
            let message = format!("connect flags {:#x} have undefined bits", self.flags.bits());
            return Err(error::parameter(call, Subtype::Arg8, message));
        }
        let ip = self.address.ip();
        let broadcast = matches!(ip, std::net::IpAddr::V4(v4) if v4.is_broadcast());
        if ip.is_multicast() || ip.is_unspecified() || broadcast {
            let message = format!("{ip} is no address of a single host");
            return Err(Error::new(call, ReturnType::InvalidAddress, Subtype::AddressUnsupported, message));
        }
        Ok(())
    }
}
