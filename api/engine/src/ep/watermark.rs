//! High watermarks of an endpoint's receives, and how many there are (spec: shared_receive).

use std::sync::Arc;

use dat_types::{AsyncReason, BreakReason, Result};

use super::inner::{Ep, EpInner};
use crate::base::deferred;
use crate::base::deferred::Incident;

/// What `dat_ep_recv_query` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpRecvParam {
    /// Receives at the endpoint that have not completed.
    pub nbufs_allocated: u32,
    /// Messages it would still complete if all of them are used.
    pub bufs_alloc_span: u32,
}

impl Ep {
    /// `dat_ep_recv_query`. Receives of a shared queue are the endpoint's only between being taken and completing, which
    /// no provider of this interface leaves a time between.
    pub fn recv_query(&self) -> Result<EpRecvParam> {
        let control = self.0.control("dat_ep_recv_query")?;
        drop(control);
        let recvs = self.0.post.lock().recvs.outstanding();
        Ok(EpRecvParam { nbufs_allocated: recvs, bufs_alloc_span: recvs })
    }

    /// `dat_ep_set_watermark`: with more than `soft` receives posted one asynchronous event, with more than `hard` the
    /// connection breaks. `None` is off. Both are looked at at once.
    pub fn set_watermark(&self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        let control = self.0.control("dat_ep_set_watermark")?;
        {
            let mut side = self.0.post.lock();
            side.soft_mark = soft.unwrap_or(u32::MAX);
            side.hard_mark = hard.unwrap_or(u32::MAX);
        }
        drop(control);
        self.0.check_marks();
        Ok(())
    }
}

impl EpInner {
    /// A mark may have been passed.
    #[cold]
    pub(super) fn check_marks(self: &Arc<EpInner>) {
        let (soft, hard) = {
            let mut side = self.post.lock();
            let held = side.recvs.outstanding();
            let soft = held > side.soft_mark;
            if soft {
                side.soft_mark = u32::MAX;
            }
            (soft, held > side.hard_mark)
        };
        if soft && let Some(ia) = self.owner.upgrade() {
            ia.raise(self.id, AsyncReason::EpSoftHighWatermark);
        }
        if hard {
            let attempt = self.control.lock().attempt;
            deferred::run(self.deferred(attempt, Incident::Broken(BreakReason::HardWatermark)));
        }
    }
}
