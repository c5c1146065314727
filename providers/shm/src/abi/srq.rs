//! Calls of the engine on a shared receive queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_plugin::{Event, EventKind, Failure, RecvRequest, Srq, SrqAttr, Status};

use crate::control::device::Dev;
use crate::data::srq::{MAX_DEPTH, Shared};

/// A shared receive queue.
pub struct ShmSrq {
    pub(crate) shared: Arc<Shared>,
    dev: Arc<Dev>,
    closed: AtomicBool,
}

impl ShmSrq {
    pub(crate) fn new(dev: &Arc<Dev>, attr: &SrqAttr) -> Result<ShmSrq, Failure> {
        let (events, user) = (dev.clone(), attr.user);
        let low = Box::new(move || events.push_event(None, Event::new(EventKind::SRQ_LIMIT, user)));
        let Some(shared) = Shared::new(attr, low) else {
            return Err(Failure::new(
                Status::NO_RESOURCE,
                "not enough memory for the receives of a shared queue",
            ));
        };
        Ok(ShmSrq { shared: Arc::new(shared), dev: dev.clone(), closed: AtomicBool::new(false) })
    }
}

impl Srq for ShmSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        if !self.dev.owner.here() {
            return Status::FORKED;
        }
        self.shared.post(request)
    }

    fn arm(&self, limit: u32) -> Status {
        if !self.dev.owner.here() {
            return Status::FORKED;
        }
        self.shared.arm(limit);
        Status::OK
    }

    fn resize(&self, depth: u32) -> Status {
        if !self.dev.owner.here() {
            return Status::FORKED;
        }
        if depth > MAX_DEPTH {
            return Status::INVALID;
        }
        self.shared.resize(depth as usize)
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.dev.srq_closed();
        }
    }
}
