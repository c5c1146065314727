//! Reserved service points: one request for one endpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_types::{ObjectId, Result, Subtype};

use super::point::{Kind, Point, check_evd};
use crate::adapter::inner::Ia;
use crate::adapter::object::object;
use crate::base::error;
use crate::ep::inner::Ep;
use crate::evd::inner::Evd;

/// A reserved service point: takes one request, for one endpoint. With that request it is gone (decision D-20); its
/// handle can still be freed once.
#[derive(Clone)]
pub struct Rsp(Arc<Point>);

/// What `dat_rsp_query` tells.
#[derive(Clone, Debug)]
pub struct RspParam {
    /// The IA.
    pub ia: ObjectId,
    /// The connection qualifier.
    pub conn_qual: u64,
    /// Where the request arrives.
    pub evd: Evd,
    /// The endpoint; `None` when one is made for the request.
    pub ep: Option<Ep>,
}

impl Ia {
    /// `dat_rsp_create`: `ep` goes from UNCONNECTED to RESERVED and waits for one request on `conn_qual`. Without one
    /// an endpoint is made for the request, as a public service point with [`dat_types::PspFlags::Provider`] does.
    pub fn rsp_create(&self, conn_qual: u64, ep: Option<&Ep>, evd: &Evd) -> Result<Rsp> {
        const CALL: &str = "dat_rsp_create";
        self.device(CALL)?;
        check_evd(CALL, self.inner.id, evd)?;
        if let Some(ep) = ep {
            ep.check(CALL, self.inner.id)?;
        }
        if conn_qual == 0 {
            return Err(error::parameter(CALL, Subtype::Arg2, "0 is no connection qualifier"));
        }
        if let Some(ep) = ep {
            ep.0.reserve(CALL)?;
        }
        let kind = Kind::Reserved(ep.map(|ep| ep.0.clone()));
        self.listen(CALL, conn_qual, evd, kind).map(Rsp).inspect_err(|_| {
            if let Some(ep) = ep {
                ep.0.unreserve();
            }
        })
    }
}

impl Rsp {
    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.0.conn_qual()
    }

    /// `dat_rsp_query`. `DAT_INVALID_HANDLE` once its request has arrived.
    pub fn query(&self) -> Result<RspParam> {
        self.0.life.check("dat_rsp_query")?;
        let ep = match &self.0.kind {
            Kind::Reserved(ep) => ep.clone().map(Ep),
            Kind::Public(_) | Kind::Common(..) => None,
        };
        Ok(RspParam { ia: self.0.life.ia, conn_qual: self.conn_qual(), evd: self.0.evd.clone(), ep })
    }

    /// `dat_rsp_free`: stops listening; the endpoint is UNCONNECTED again. After its request arrived it succeeds once,
    /// without effect.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_rsp_free";
        self.0.life.check_fork(CALL)?;
        match self.0.spent.swap(false, Ordering::AcqRel) {
            true => Ok(()),
            false => self.0.free(CALL),
        }
    }
}

object!(Rsp);
