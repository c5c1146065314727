//! Completion queues.

use std::os::fd::RawFd;
use std::sync::Arc;

use dat_plugin::{Completion, Queue};

use crate::data::queue::QueueInner;

/// A completion queue.
pub struct IbQueue(pub(crate) Arc<QueueInner>);

impl Queue for IbQueue {
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        self.0.poll(out)
    }

    fn arm(&self) -> bool {
        self.0.arm()
    }

    fn disarm(&self) {
        self.0.disarm();
    }

    fn fd(&self) -> RawFd {
        self.0.fd()
    }

    fn close(&self) {}
}
