//! Where completions are taken from.

use std::os::fd::{BorrowedFd, RawFd};

use super::{Device, Object, device};
use crate::ops::Ctx;
use crate::wire::Completion;

/// A completion queue; closed on drop.
pub struct Queue {
    object: Object,
    device: Device,
}

impl Queue {
    pub(super) fn new(device: Device, ctx: Ctx) -> Queue {
        let close = device.0.tables.queue.close;
        Queue { object: Object { ctx, close }, device }
    }

    pub(super) fn ctx(&self) -> Ctx {
        self.object.ctx
    }

    /// Takes completions.
    #[inline]
    pub fn poll(&self, out: &mut [Completion]) -> usize {
        // SAFETY: the plugin's own object and initialised places for its answers.
        let n = unsafe { (self.device.0.tables.queue.poll)(self.object.ctx, out.as_mut_ptr(), out.len()) };
        if n > out.len() { self.device.overran("completions", n, out.len()) } else { n }
    }

    /// Makes the descriptor readable on the next completion; `false`: there is one already.
    pub fn arm(&self) -> bool {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.queue.arm)(self.object.ctx) != 0 }
    }

    /// Takes back an arm, and clears the descriptor.
    pub fn disarm(&self) {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.queue.disarm)(self.object.ctx) }
    }

    /// Readable after a completion arrived while armed.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        device::borrow(self.raw_fd())
    }

    pub(super) fn raw_fd(&self) -> RawFd {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.queue.fd)(self.object.ctx) }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}
