//! Shared receive queues.

use std::sync::Arc;

use dat_plugin::{RecvRequest, Srq, Status};

use crate::data::srq::SrqInner;

/// A shared receive queue.
pub struct IbSrq(pub(crate) Arc<SrqInner>);

impl Srq for IbSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.0.post_recv(request)
    }

    fn arm(&self, limit: u32) -> Status {
        self.0.arm(limit)
    }

    fn resize(&self, depth: u32) -> Status {
        self.0.resize(depth)
    }

    fn close(&self) {}
}
