//! Receives that several channels share.

use std::sync::Arc;

use super::inner::Inner;
use super::object::Object;
use crate::abi::{PostFlag, RecvRequest, Segment, Status};
use crate::ops::Ctx;

/// A shared receive queue; closed on drop.
pub struct Srq {
    object: Object,
    device: Arc<Inner>,
}

impl Srq {
    pub(super) fn new(device: Arc<Inner>, ctx: Ctx) -> Srq {
        let close = device.tables.srq.close;
        Srq { object: Object { ctx, close }, device }
    }

    pub(super) fn ctx(&self) -> Ctx {
        self.object.ctx
    }

    /// Posts a receive; `total` is the sum of the segments' lengths.
    #[inline]
    pub fn post_recv(&self, flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> Status {
        let request = RecvRequest::new(flags, token, segments, total);
        // SAFETY: `object` keeps the plugin's shared queue open; the request and its segments outlive the call.
        unsafe { (self.device.tables.srq.post_recv)(self.object.ctx, &request) }
    }

    /// Asks for one event when fewer than `limit` receives are left.
    pub fn arm(&self, limit: u32) -> Status {
        // SAFETY: `object` keeps the plugin's shared queue open.
        unsafe { (self.device.tables.srq.arm)(self.object.ctx, limit) }
    }

    /// Changes the most receives it holds.
    pub fn resize(&self, depth: u32) -> Status {
        // SAFETY: `object` keeps the plugin's shared queue open.
        unsafe { (self.device.tables.srq.resize)(self.object.ctx, depth) }
    }
}

impl std::fmt::Debug for Srq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Srq")
    }
}
