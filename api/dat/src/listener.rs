//! The passive side: service points, and accepting.

use std::net::SocketAddr;

use dat_types::{Comm, PspFlags, Result};

use crate::{Ep, Evd, Ia, Request};

impl Ia {
    /// Listens on a connection qualifier: requests arrive on `evd`, acceptors name the endpoint.
    pub fn listen(&self, conn_qual: u64, evd: &Evd) -> Result<Psp> {
        Ok(Psp::new(self, evd, self.engine.psp_create(conn_qual, evd.inner(), PspFlags::Consumer)?))
    }

    /// Listens on a free connection qualifier; [`Psp::conn_qual`] tells which.
    pub fn listen_any(&self, evd: &Evd) -> Result<Psp> {
        Ok(Psp::new(self, evd, self.engine.psp_create_any(evd.inner(), PspFlags::Consumer)?))
    }

    /// Reserves `ep` for one request to this connection qualifier, which it alone can accept
    /// ([`crate::Request::accept_reserved`]). Keep the endpoint until that request is decided.
    pub fn reserve(&self, conn_qual: u64, ep: &Ep, evd: &Evd) -> Result<Rsp> {
        Ok(Rsp::new(self, ep, evd, self.engine.rsp_create(conn_qual, Some(ep.inner()), evd.inner())?))
    }

    /// Listens on the port of a socket address of this host, for [`Ep::connect_to`]; port 0 stands for a free one.
    pub fn listen_on(&self, address: SocketAddr, evd: &Evd) -> Result<Csp> {
        let comm = Comm::of(address.ip());
        Ok(Csp::new(self, evd, self.engine.csp_create(comm, address, evd.inner())?))
    }
}

impl Request {
    /// Begins to connect `ep`: `Established`, or `AcceptCompletionError` when the peer has gone, arrives on its connect
    /// dispatcher. On failure the request is still there to be decided.
    pub fn accept(&mut self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        self.decide(|engine| engine.accept(Some(ep.inner()), private_data))
    }

    /// The same for the endpoint the request holds: that of a reserved service point ([`Ia::reserve`]).
    pub fn accept_reserved(&mut self, private_data: &[u8]) -> Result<()> {
        self.decide(|engine| engine.accept(None, private_data))
    }
}

/// A public service point: listens until dropped.
#[derive(Debug)]
pub struct Psp {
    engine: dat_engine::Psp,
    _evd: Evd,
    _ia: Ia,
}

impl Psp {
    fn new(ia: &Ia, evd: &Evd, engine: dat_engine::Psp) -> Psp {
        Psp { engine, _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.engine.conn_qual()
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Psp {
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
    fn new(ia: &Ia, ep: &Ep, evd: &Evd, engine: dat_engine::Rsp) -> Rsp {
        Rsp { engine, _ep: ep.clone(), _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The connection qualifier it listens on.
    pub fn conn_qual(&self) -> u64 {
        self.engine.conn_qual()
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Rsp {
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
    fn new(ia: &Ia, evd: &Evd, engine: dat_engine::Csp) -> Csp {
        Csp { engine, _evd: evd.clone(), _ia: ia.clone() }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.engine.port()
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Csp {
        &self.engine
    }
}

impl Drop for Csp {
    fn drop(&mut self) {
        let _ = self.engine.free();
    }
}
