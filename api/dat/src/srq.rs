//! Shared receive queues.

use std::sync::Arc;

use dat_engine::{SrqParam, SrqPostNumber};
use dat_types::{DtoCompletion, ObjectId, Result, SrqAttr};

use crate::inflight::InFlight;
use crate::local;
use crate::refused::Refused;
use crate::{Buffer, Pz, Slice};

/// Receives that several endpoints share ([`crate::EpBuilder::srq`]). Cheap to clone; freed with the last clone and the
/// last endpoint that uses it.
#[derive(Clone, Debug)]
pub struct Srq(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    // Freed in `drop`, before the buffers in flight go.
    engine: dat_engine::Srq,
    inflight: InFlight<SrqPostNumber>,
    pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or it was freed by hand.
        let _ = self.engine.free();
    }
}

impl Pz {
    /// A shared receive queue for at most `max_recvs` receives of at most `max_segments` segments each.
    pub fn srq(&self, max_recvs: u32, max_segments: u32) -> Result<Srq> {
        Srq::new(self, max_recvs, max_segments)
    }
}

impl Srq {
    fn new(pz: &Pz, max_recvs: u32, max_segments: u32) -> Result<Srq> {
        let attr = SrqAttr { max_recv_dtos: max_recvs, max_recv_iov: max_segments, low_watermark: 0 };
        let engine = pz.0.ia.engine.srq_create(pz.inner(), &attr)?;
        let inflight = InFlight::new(max_recvs as usize);
        Ok(Srq(Arc::new(Inner { engine, inflight, pz: pz.clone() })))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// Posts a buffer; whichever endpoint takes it completes with it, and [`crate::Ep::reclaim`] gives it back. On
    /// failure it comes back at once.
    pub fn recv(&self, buffer: Buffer) -> std::result::Result<(), Refused> {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let engine = &self.0.engine;
        self.0.inflight.post(buffer, |buffer, cookie| engine.post_exclusive(buffer.lmr(), length, cookie))
    }

    /// Posts a receive into regions. The cookie comes back in the completion; its highest bit must be 0.
    pub fn recv_into(&self, segments: &[Slice], cookie: u64) -> Result<()> {
        local::check_cookie(cookie)?;
        self.0.engine.post_recv(&local::triplets(&self.0.pz.0.ia, segments)?, cookie)
    }

    /// One asynchronous event when fewer than this many receives are left (`dat_srq_set_lw`).
    pub fn low_watermark(&self, receives: u32) -> Result<()> {
        self.0.engine.set_low_watermark(receives)
    }

    /// Changes how many receives it holds (`dat_srq_resize`).
    pub fn resize(&self, max_recvs: u32) -> Result<()> {
        self.0.engine.resize(max_recvs)
    }

    /// Attributes and counts (`dat_srq_query`).
    pub fn query(&self) -> Result<SrqParam> {
        self.0.engine.query()
    }

    pub(crate) fn reclaim(&self, completion: &DtoCompletion) -> Option<Buffer> {
        self.0.inflight.take(completion.cookie, |post| self.0.engine.has_completed(post))
    }

    pub(crate) fn inner(&self) -> &dat_engine::Srq {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`crate::Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Srq {
        &self.0.engine
    }
}
