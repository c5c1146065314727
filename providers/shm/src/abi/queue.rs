//! Calls of the engine on a completion queue.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_plugin::{Completion, Queue};

use crate::control::device::Dev;
use crate::data::queue::CompletionQueue;

/// A completion queue.
pub struct ShmQueue {
    pub(crate) queue: Arc<CompletionQueue>,
    dev: Arc<Dev>,
    closed: AtomicBool,
}

impl ShmQueue {
    pub(crate) fn new(dev: Arc<Dev>, id: u64) -> io::Result<ShmQueue> {
        let queue = CompletionQueue::new(dev.owner.clone(), dev.bitmaps.clone(), dev.id, dev.barriers, id)?;
        Ok(ShmQueue { queue: Arc::new(queue), dev, closed: AtomicBool::new(false) })
    }
}

impl Queue for ShmQueue {
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        if out.is_empty() { 0 } else { self.queue.poll(out) }
    }

    fn arm(&self) -> bool {
        self.queue.arm()
    }

    fn disarm(&self) {
        self.queue.disarm()
    }

    fn fd(&self) -> RawFd {
        self.queue.doorbell.socket.as_raw_fd()
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::Relaxed) {
            self.queue.clear();
            self.dev.queue_closed();
        }
    }
}
