//! Connection requests.

use std::net::SocketAddr;

use dat_engine::CrParam;
use dat_types::{ObjectId, Result};

use crate::Ia;

/// A peer's request to connect. Dropping it rejects it, so that no peer waits for an answer that never comes.
#[derive(Debug)]
pub struct Request {
    engine: dat_engine::Cr,
    /// In a box, so that events are small.
    param: Box<CrParam>,
    decided: bool,
}

impl Request {
    pub(crate) fn new(ia: &Ia, id: ObjectId) -> Result<Request> {
        let engine = ia.engine.cr(id)?;
        let param = Box::new(engine.query()?);
        Ok(Request { engine, param, decided: false })
    }

    /// The peer's private data.
    pub fn private_data(&self) -> &[u8] {
        &self.param.private_data
    }

    /// Address of the peer's adapter, as far as the provider knows it.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.param.remote_address
    }

    /// Port qualifier of the peer's endpoint.
    pub fn peer_port(&self) -> u64 {
        self.param.remote_port_qual
    }

    /// Decides the request with `decide`, unless that fails.
    pub(crate) fn decide(&mut self, decide: impl FnOnce(&dat_engine::Cr) -> Result<()>) -> Result<()> {
        decide(&self.engine)?;
        self.decided = true;
        Ok(())
    }

    /// Delivers the request anew to the service point of this adapter that listens on `conn_qual`. On failure it is
    /// still there to be decided.
    pub fn hand_off(&mut self, conn_qual: u64) -> Result<()> {
        self.decide(|engine| engine.handoff(conn_qual))
    }

    /// The connection qualifier it arrived at.
    pub fn conn_qual(&self) -> u64 {
        self.param.conn_qual
    }

    /// Refuses: the peer sees `PeerRejected` with the private data.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.decided = true;
        self.engine.reject(private_data)
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Cr {
        &self.engine
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if !self.decided {
            let _ = self.engine.reject(&[]);
        }
    }
}
