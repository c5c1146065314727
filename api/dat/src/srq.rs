//! Shared receive queues.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dat_engine::SrqParam;
use dat_types::{DtoCompletion, LmrTriplet, ObjectId, Result, SrqAttr};

use crate::ep::{InFlight, MAX_SEGMENTS, Refused, cookie_taken, too_many_segments};
use crate::{Buffer, Pz, Slice};

/// Receives that several endpoints share ([`crate::EpBuilder::srq`]). Cheap to clone; freed with the last clone and the
/// last endpoint that uses it.
#[derive(Clone, Debug)]
pub struct Srq(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    // Freed in `drop`, before the buffers in flight go.
    engine: dat_engine::Srq,
    inflight: InFlight,
    _pz: Pz,
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or it was freed by hand.
        let _ = self.engine.free();
    }
}

impl Srq {
    pub(crate) fn new(pz: &Pz, max_recvs: u32, max_segments: u32) -> Result<Srq> {
        let attr = SrqAttr { max_recv_dtos: max_recvs, max_recv_iov: max_segments, low_watermark: 0 };
        let engine = pz.0.ia.engine.srq_create(pz.engine(), &attr)?;
        let inflight = InFlight::new(max_recvs as usize);
        Ok(Srq(Arc::new(Owner { engine, inflight, _pz: pz.clone() })))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// Posts a buffer; whichever endpoint takes it completes with it, and [`crate::Ep::reclaim`] gives it back. On
    /// failure it comes back at once.
    pub fn recv(&self, buffer: Buffer) -> std::result::Result<(), Refused> {
        let iov = [buffer.triplet(0, u32::try_from(buffer.len()).unwrap_or(u32::MAX))];
        // In before the post: its completion may be taken by another thread before the post returns.
        let cookie = self.0.inflight.put(buffer);
        self.0.engine.post_recv(&iov, cookie).map_err(|error| {
            let buffer =
                self.0.inflight.take(cookie).expect("put there above; its cookie was told to nobody");
            Refused { error, buffer }
        })
    }

    /// Posts a receive into regions. The cookie comes back in the completion; its highest bit must be 0.
    pub fn recv_into(&self, segments: &[Slice], cookie: u64) -> Result<()> {
        if cookie_taken(cookie) {
            return Err(crate::ep::COOKIE);
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(too_many_segments());
        }
        let iov: ArrayVec<LmrTriplet, MAX_SEGMENTS> = segments.iter().map(|slice| slice.0).collect();
        self.0.engine.post_recv(&iov, cookie)
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
        self.0.inflight.take(completion.cookie)
    }

    pub(crate) fn inner(&self) -> &dat_engine::Srq {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// What is posted through it names no memory of a [`Buffer`], and uses no cookie with the highest bit set: both are
    /// the queue's own.
    pub unsafe fn engine(&self) -> &dat_engine::Srq {
        &self.0.engine
    }
}
