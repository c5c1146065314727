//! Endpoints: making, looking at, ending.

use std::sync::Arc;

use dat_engine::{EpParam, EpStatus, PostNumber};
use dat_types::{CloseFlags, CompletionFlags, DtoCompletion, EpAttr, EpCounter, EpState, ObjectId, Result};

use crate::inflight::InFlight;
use crate::{Buffer, Evd, Ia, Pz, Srq};

/// An endpoint: one end of a connection. Cheap to clone; freed with the last clone, which ends a connection abruptly.
#[derive(Clone, Debug)]
pub struct Ep(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    // Freed in `drop`, before the buffers in flight go.
    pub(super) engine: dat_engine::Ep,
    pub(super) inflight: InFlight<PostNumber>,
    pub(super) ia: Ia,
    // For `Connect::establish`; and all must outlive the endpoint.
    pub(super) connect_evd: Option<Evd>,
    _evds: [Option<Evd>; 2],
    srq: Option<Srq>,
    _pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or it was freed by hand.
        let _ = self.engine.free();
    }
}

/// What an endpoint is to be.
#[derive(Clone, Debug)]
pub struct EpBuilder {
    ia: Ia,
    pz: Pz,
    recv: Option<Evd>,
    request: Option<Evd>,
    connect: Option<Evd>,
    srq: Option<Srq>,
    attr: EpAttr,
}

impl Ia {
    /// Begins to describe an endpoint in this zone.
    pub fn ep(&self, pz: &Pz) -> EpBuilder {
        EpBuilder::new(self, pz)
    }
}

impl EpBuilder {
    fn new(ia: &Ia, pz: &Pz) -> EpBuilder {
        EpBuilder {
            ia: ia.clone(),
            pz: pz.clone(),
            recv: None,
            request: None,
            connect: None,
            srq: None,
            attr: EpAttr::default(),
        }
    }

    /// One dispatcher for everything.
    pub fn evd(self, evd: &Evd) -> EpBuilder {
        self.recv_evd(evd).request_evd(evd).connect_evd(evd)
    }

    /// Where receives complete. Without one there are no receives.
    pub fn recv_evd(mut self, evd: &Evd) -> EpBuilder {
        self.recv = Some(evd.clone());
        self
    }

    /// Where sends, reads and writes complete. Without one there are none.
    pub fn request_evd(mut self, evd: &Evd) -> EpBuilder {
        self.request = Some(evd.clone());
        self
    }

    /// Where connection events arrive.
    pub fn connect_evd(mut self, evd: &Evd) -> EpBuilder {
        self.connect = Some(evd.clone());
        self
    }

    /// Receives come out of a shared queue, for the life of the endpoint.
    pub fn srq(mut self, srq: &Srq) -> EpBuilder {
        self.srq = Some(srq.clone());
        self
    }

    /// Most receives outstanding; 16 by default.
    pub fn max_recvs(mut self, count: u32) -> EpBuilder {
        self.attr.max_recv_dtos = count;
        self
    }

    /// Most sends, reads and writes outstanding; 16 by default.
    pub fn max_requests(mut self, count: u32) -> EpBuilder {
        self.attr.max_request_dtos = count;
        self
    }

    /// How completions of receives notify: default, `UNSIGNALLED`, `SOLICITED_WAIT` or `EVD_THRESHOLD`.
    pub fn recv_flags(mut self, flags: CompletionFlags) -> EpBuilder {
        self.attr.recv_completion_flags = flags;
        self
    }

    /// How completions of requests notify: default, `UNSIGNALLED` or `EVD_THRESHOLD`.
    pub fn request_flags(mut self, flags: CompletionFlags) -> EpBuilder {
        self.attr.request_completion_flags = flags;
        self
    }

    /// One thread uses it: that one takes no lock for its posts and completions ([`EpAttr::SINGLE_THREADED`]).
    pub fn single_threaded(mut self) -> EpBuilder {
        self.attr = self.attr.single_threaded();
        self
    }

    /// All attributes at once.
    pub fn attr(mut self, attr: EpAttr) -> EpBuilder {
        self.attr = attr;
        self
    }

    /// Creates it (`dat_ep_create`). Limits left alone are clipped to what the adapter has.
    pub fn create(mut self) -> Result<Ep> {
        let limits = self.ia.attr()?;
        let default = EpAttr::default();
        let attr = &mut self.attr;
        if attr.max_message_size == default.max_message_size {
            attr.max_message_size = attr.max_message_size.min(limits.max_message_size);
        }
        if attr.max_rdma_size == default.max_rdma_size {
            attr.max_rdma_size = attr.max_rdma_size.min(limits.max_rdma_size);
        }
        if self.recv.is_none() {
            attr.max_recv_dtos = 0;
        }
        if self.request.is_none() {
            attr.max_request_dtos = 0;
            attr.max_request_iov = 0;
        }
        let engine_of = |evd: &Option<Evd>| evd.as_ref().map(|evd| evd.inner().clone());
        let (recv, request, connect) =
            (engine_of(&self.recv), engine_of(&self.request), engine_of(&self.connect));
        let pz = Some(self.pz.inner());
        let (recv, request, connect) = (recv.as_ref(), request.as_ref(), connect.as_ref());
        let engine = match &self.srq {
            None => self.ia.engine.ep_create(pz, recv, request, connect, Some(attr))?,
            Some(srq) => self.ia.engine.ep_create_with_srq(pz, recv, request, connect, srq.inner(), attr)?,
        };
        Ok(Ep(Arc::new(Inner {
            engine,
            inflight: InFlight::new(attr.max_recv_dtos as usize + attr.max_request_dtos as usize),
            ia: self.ia,
            connect_evd: self.connect,
            _evds: [self.recv, self.request],
            srq: self.srq,
            _pz: self.pz,
        })))
    }
}

impl Ep {
    /// Its id; events carry it.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// The state.
    pub fn state(&self) -> EpState {
        self.0.engine.state()
    }

    /// State, and whether anything is outstanding (`dat_ep_get_status`).
    pub fn status(&self) -> Result<EpStatus> {
        self.0.engine.status()
    }

    /// Everything about it (`dat_ep_query`), except the shared receive queue: a handle of the engine's posts what it is
    /// given without the checks of [`Srq`].
    pub fn query(&self) -> Result<EpParam> {
        Ok(EpParam { srq: None, ..self.0.engine.query()? })
    }

    /// What happened on it since it was made or the counters were last reset.
    pub fn counters(&self, reset: bool) -> Result<Vec<(EpCounter, u64)>> {
        let counts = self.0.engine.counters(reset)?;
        Ok(EpCounter::ALL.iter().copied().zip(counts).collect())
    }

    /// The path the connection takes, as its provider tells it.
    pub fn path(&self) -> String {
        self.0.engine.path()
    }

    /// Ends the connection: `Graceful` after outstanding requests, `Abrupt` at once (`dat_ep_disconnect`).
    pub fn disconnect(&self, flags: CloseFlags) -> Result<()> {
        self.0.engine.disconnect(flags)
    }

    /// From DISCONNECTED back to UNCONNECTED (`dat_ep_reset`).
    pub fn reset(&self) -> Result<()> {
        self.0.engine.reset()
    }

    /// The buffer of a completed operation. `None` when the completion is of another endpoint, of an operation on a
    /// [`crate::Region`], of an operation that has not completed, or was reclaimed before.
    pub fn reclaim(&self, completion: &DtoCompletion) -> Option<Buffer> {
        if completion.ep != self.id() {
            return None;
        }
        match &self.0.srq {
            Some(srq) if completion.operation.is_receive() => srq.reclaim(completion),
            _ => self.0.inflight.take(completion.cookie, |post| self.0.engine.has_completed(post)),
        }
    }

    pub(crate) fn inner(&self) -> &dat_engine::Ep {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`crate::Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Ep {
        &self.0.engine
    }
}
