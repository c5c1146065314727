//! Where completions are taken from.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use super::inner::{Inner, borrow};
use super::object::Object;
use crate::abi::Completion;
use crate::ops::Ctx;

/// A completion queue; closed on drop.
pub struct Queue {
    object: Object,
    device: Arc<Inner>,
}

impl Queue {
    pub(super) fn new(device: Arc<Inner>, ctx: Ctx) -> Queue {
        let close = device.tables.queue.close;
        Queue { object: Object { ctx, close }, device }
    }

    pub(super) fn ctx(&self) -> Ctx {
        self.object.ctx
    }

    /// Takes completions.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        // SAFETY: `object` keeps the plugin's queue open. All of `out` is initialised, so what the plugin leaves alone is a
        // value, too.
        let n = unsafe { (self.device.tables.queue.poll)(self.object.ctx, out.as_mut_ptr(), out.len()) };
        if n > out.len() { self.device.overran("completions", n, out.len()) } else { n }
    }

    /// Makes the descriptor readable on the next completion; `false`: there is one already.
    pub fn arm(&self) -> bool {
        // SAFETY: `object` keeps the plugin's queue open.
        unsafe { (self.device.tables.queue.arm)(self.object.ctx) != 0 }
    }

    /// Takes back an arm, and clears the descriptor.
    pub fn disarm(&self) {
        // SAFETY: `object` keeps the plugin's queue open.
        unsafe { (self.device.tables.queue.disarm)(self.object.ctx) }
    }

    /// Readable after a completion arrived while armed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        borrow(self.raw_fd())
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        // SAFETY: `object` keeps the plugin's queue open.
        unsafe { (self.device.tables.queue.fd)(self.object.ctx) }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}
