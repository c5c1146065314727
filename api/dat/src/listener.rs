//! The passive side: service points and connection requests.

use std::net::SocketAddr;

use dat_engine::CrParam;
use dat_types::{ObjectId, Result};

use crate::{Ep, Evd, Ia};

/// A public service point: listens until dropped.
#[derive(Debug)]
pub struct Psp {
    engine: dat_engine::Psp,
    _evd: Evd,
    _ia: Ia,
}

impl Psp {
    pub(crate) fn new(ia: &Ia, evd: &Evd, engine: dat_engine::Psp) -> Psp {
        Psp { engine, _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.engine.conn_qual()
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Psp {
        &self.engine
    }
}

impl Drop for Psp {
    fn drop(&mut self) {
        let _ = self.engine.free();
    }
}

/// A reserved service point: one request for one endpoint. Dropping it before the request came frees the endpoint again.
#[derive(Debug)]
pub struct Rsp {
    engine: dat_engine::Rsp,
    _ep: Ep,
    _evd: Evd,
    _ia: Ia,
}

impl Rsp {
    pub(crate) fn new(ia: &Ia, ep: &Ep, evd: &Evd, engine: dat_engine::Rsp) -> Rsp {
        Rsp { engine, _ep: ep.clone(), _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.engine.conn_qual()
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Rsp {
        &self.engine
    }
}

impl Drop for Rsp {
    fn drop(&mut self) {
        let _ = self.engine.free();
    }
}

/// A common service point: listens on a port until dropped.
#[derive(Debug)]
pub struct Csp {
    engine: dat_engine::Csp,
    _evd: Evd,
    _ia: Ia,
}

impl Csp {
    pub(crate) fn new(ia: &Ia, evd: &Evd, engine: dat_engine::Csp) -> Csp {
        Csp { engine, _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.engine.port()
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Csp {
        &self.engine
    }
}

impl Drop for Csp {
    fn drop(&mut self) {
        let _ = self.engine.free();
    }
}

/// A peer's request to connect. Dropping it rejects it, so that no peer waits for an answer that never comes.
#[derive(Debug)]
pub struct Request {
    engine: dat_engine::Cr,
    param: CrParam,
    decided: bool,
}

impl Request {
    pub(crate) fn new(ia: &Ia, id: ObjectId) -> Result<Request> {
        let engine = ia.engine.cr(id)?;
        let param = engine.query()?;
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

    /// Begins to connect `ep`: `Established`, or `AcceptCompletionError` when the peer has gone, arrives on its connect
    /// dispatcher. On failure the request is still there to be decided.
    pub fn accept(&mut self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        self.engine.accept(Some(ep.inner()), private_data)?;
        self.decided = true;
        Ok(())
    }

    /// The same for the endpoint the request holds: that of a reserved service point ([`Ia::reserve`]).
    pub fn accept_reserved(&mut self, private_data: &[u8]) -> Result<()> {
        self.engine.accept(None, private_data)?;
        self.decided = true;
        Ok(())
    }

    /// Delivers the request anew to the service point of this adapter that listens on `conn_qual`. On failure it is
    /// still there to be decided.
    pub fn hand_off(&mut self, conn_qual: u64) -> Result<()> {
        self.engine.handoff(conn_qual)?;
        self.decided = true;
        Ok(())
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
    pub fn engine(&self) -> &dat_engine::Cr {
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
