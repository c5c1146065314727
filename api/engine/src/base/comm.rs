//! Communicators: how connections by socket address are made.

use std::net::IpAddr;

use dat_types::{Comm, Error, Result, ReturnType, Subtype};

/// Fails unless connections can be had from `comm`, and `ip` is of its family.
pub(crate) fn check_comm(call: &'static str, comm: Comm, ip: IpAddr) -> Result<()> {
    if !comm.is_known() {
        let message = format!("{comm:?}: streams over IPv4 and IPv6 are what there is");
        return Err(Error::new(call, ReturnType::CommNotSupported, Subtype::None, message));
    }
    if !comm.covers(ip) {
        let message = format!("{ip} is not of the communicator's address family {}", comm.domain);
        return Err(Error::new(call, ReturnType::InvalidAddress, Subtype::AddressMalformed, message));
    }
    Ok(())
}
