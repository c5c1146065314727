//! Public service points.

use std::sync::Arc;

use dat_types::{ObjectId, PspFlags, Result, Subtype};

use super::point::{Kind, Point, check_evd};
use crate::adapter::inner::Ia;
use crate::adapter::object::object;
use crate::base::error;
use crate::evd::inner::Evd;

/// A public service point: connection requests for its qualifier arrive on its dispatcher.
#[derive(Clone)]
pub struct Psp(Arc<Point>);

/// What `dat_psp_query` tells.
#[derive(Clone, Debug)]
pub struct PspParam {
    /// The IA.
    pub ia: ObjectId,
    /// The connection qualifier.
    pub conn_qual: u64,
    /// Where requests arrive.
    pub evd: Evd,
    /// Who supplies endpoints.
    pub flags: PspFlags,
}

impl Ia {
    /// `dat_psp_create`: listens on `conn_qual`.
    pub fn psp_create(&self, conn_qual: u64, evd: &Evd, flags: PspFlags) -> Result<Psp> {
        const CALL: &str = "dat_psp_create";
        self.device(CALL)?;
        check_evd(CALL, self.inner.id, evd)?;
        if conn_qual == 0 {
            return Err(error::parameter(CALL, Subtype::Arg2, "0 is no connection qualifier"));
        }
        self.listen(CALL, conn_qual, evd, Kind::Public(flags)).map(Psp)
    }

    /// `dat_psp_create_any`: listens on a free qualifier of at least 1024; [`Psp::conn_qual`] tells which.
    pub fn psp_create_any(&self, evd: &Evd, flags: PspFlags) -> Result<Psp> {
        self.listen("dat_psp_create_any", 0, evd, Kind::Public(flags)).map(Psp)
    }
}

impl Psp {
    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.0.conn_qual()
    }

    /// `dat_psp_query`.
    pub fn query(&self) -> Result<PspParam> {
        self.0.life.check("dat_psp_query")?;
        let flags = match self.0.kind {
            Kind::Public(flags) => flags,
            Kind::Reserved(_) | Kind::Common(..) => PspFlags::Consumer,
        };
        Ok(PspParam { ia: self.0.life.ia, conn_qual: self.conn_qual(), evd: self.0.evd.clone(), flags })
    }

    /// `dat_psp_free`: stops listening. Requests that arrived live on.
    pub fn free(&self) -> Result<()> {
        self.0.free("dat_psp_free")
    }
}

object!(Psp);
