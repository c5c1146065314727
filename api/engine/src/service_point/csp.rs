//! Common service points: a listener in socket terms. Its port is the connection qualifier, so that a peer reaches it
//! with `dat_ep_common_connect` and with `dat_ep_connect` alike.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use dat_types::{Comm, Error, ObjectId, Result, ReturnType, Subtype};

use super::point::{Kind, Point, check_evd};
use crate::adapter::inner::Ia;
use crate::adapter::object::object;
use crate::base::comm::check_comm;
use crate::base::error;
use crate::evd::inner::Evd;

/// A common service point: requests for its address arrive on its dispatcher; acceptors name the endpoint.
#[derive(Clone)]
pub struct Csp(Arc<Point>);

/// What `dat_csp_query` tells.
#[derive(Clone, Debug)]
pub struct CspParam {
    /// The IA.
    pub ia: ObjectId,
    /// The communicator.
    pub comm: Comm,
    /// The address, with the port it listens on.
    pub address: SocketAddr,
    /// Where requests arrive.
    pub evd: Evd,
}

impl Ia {
    /// `dat_csp_create`: listens on the port of `address`; port 0 stands for a free one, which a query tells.
    pub fn csp_create(&self, comm: Comm, address: SocketAddr, evd: &Evd) -> Result<Csp> {
        const CALL: &str = "dat_csp_create";
        self.device(CALL)?;
        check_evd(CALL, self.inner.id, evd)?;
        check_comm(CALL, comm, address.ip())?;
        if !self.is_own(address.ip())? {
            let message = format!("{} is no address of this adapter", address.ip());
            return Err(Error::new(CALL, ReturnType::InvalidAddress, Subtype::AddressUnsupported, message));
        }
        let point = self.listen(CALL, address.port().into(), evd, Kind::Common(comm, address))?;
        if u16::try_from(point.conn_qual()).is_err() {
            let message = format!("the free port is {}, which no socket address holds", point.conn_qual());
            point.free(CALL)?;
            return Err(error::resources(CALL, Subtype::ResourceDevice, message));
        }
        Ok(Csp(point))
    }

    /// Whether peers reach this adapter by the address.
    fn is_own(&self, ip: IpAddr) -> Result<bool> {
        if ip.is_multicast() || matches!(ip, IpAddr::V4(v4) if v4.is_broadcast()) {
            return Ok(false);
        }
        Ok(ip.is_unspecified()
            || ip.is_loopback()
            || ip == self.query()?.address
            // The system knows its own addresses: only those can be bound; as long as it has none, any can, and none
            // can be sent to.
            || UdpSocket::bind((ip, 0)).and_then(|own| own.connect(own.local_addr()?)).is_ok())
    }
}

impl Csp {
    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.0.conn_qual() as u16
    }

    /// `dat_csp_query`.
    pub fn query(&self) -> Result<CspParam> {
        const CALL: &str = "dat_csp_query";
        self.0.life.check(CALL)?;
        let Kind::Common(comm, mut address) = self.0.kind else { return Err(self.0.life.gone(CALL)) };
        address.set_port(self.port());
        Ok(CspParam { ia: self.0.life.ia, comm, address, evd: self.0.evd.clone() })
    }

    /// `dat_csp_free`: stops listening. Requests that arrived live on.
    pub fn free(&self) -> Result<()> {
        self.0.free("dat_csp_free")
    }
}

object!(Csp);
