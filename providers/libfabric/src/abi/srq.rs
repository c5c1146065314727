//! The engine's calls on a shared receive queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{PostFlag, RecvRequest, Srq, Status};

use crate::channel::ring::Recv;
use crate::channel::shared_pool::SharedPool;
use crate::device::DeviceInner;

/// A shared receive queue as the engine holds it.
pub struct FabricSrq {
    pub device: Arc<DeviceInner>,
    pub pool: Arc<SharedPool>,
}

impl FabricSrq {
    fn is_forked(&self) -> bool {
        !self.device.core.fork_guard.here()
    }
}

impl Srq for FabricSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        if self.is_forked() {
            return Status::FORKED;
        }
        let segments = request.segments();
        if segments.len() > self.pool.max_segments as usize || request.total > u64::from(u32::MAX) {
            return Status::INVALID;
        }
        let recv = Recv {
            token: request.token,
            len: request.total as u32,
            poisoned: request.flags.contains(PostFlag::POISON),
            ..Recv::default()
        };
        match self.pool.post(recv, segments) {
            Err(status) => return status,
            Ok(true) => self.pool.serve(),
            Ok(false) => {}
        }
        Status::OK
    }

    fn arm(&self, limit: u32) -> Status {
        if self.is_forked() {
            return Status::FORKED;
        }
        self.pool.arm(limit);
        Status::OK
    }

    fn resize(&self, depth: u32) -> Status {
        if self.is_forked() {
            return Status::FORKED;
        }
        self.pool.resize(depth)
    }

    fn close(&self) {
        if self.pool.close() {
            self.device.open_srqs.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
