//! The engine's calls on a completion queue.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{Completion, Queue};

use crate::channel::completion_queue::QueueInner;
use crate::core::CreditDelay;
use crate::device::DeviceInner;

/// How often `arm` drives a fabric that has work before it leaves the rest to the event thread.
const TRIES: u32 = 16;

/// The listed channels run every eighth poll, even if the poll found something.
const POLLS_PER_RUN: u64 = 8;

/// A completion queue as the engine holds it.
pub struct FabricQueue {
    pub device: Arc<DeviceInner>,
    pub queue: Arc<QueueInner>,
}

impl Queue for FabricQueue {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let found = self.queue.take(out);
        let core = &*self.device.core;
        if found > 0 || out.is_empty() || !core.fork_guard.here() {
            return found;
        }
        let polls = core.count_poll();
        let nothing = self.device.progress.once() == 0;
        if nothing && core.has_deferred_work() || polls.is_multiple_of(POLLS_PER_RUN) {
            core.run_tasks(CreditDelay::Short);
        }
        self.queue.take(out)
    }

    fn arm(&self) -> bool {
        let core = &*self.device.core;
        if !core.fork_guard.here() {
            return true;
        }
        self.queue.arm();
        core.run_tasks(CreditDelay::None);
        for _ in 0..TRIES {
            if !self.queue.may_sleep() {
                return false;
            }
            if self.device.progress.may_sleep() {
                return true;
            }
            self.device.progress.once();
        }
        // The fabric has work that is no completion. The event thread goes on with it, and signals this queue.
        core.wake.now();
        true
    }

    fn disarm(&self) {
        self.queue.disarm();
        self.queue.drain_doorbell();
    }

    fn fd(&self) -> RawFd {
        self.queue.fd()
    }

    fn close(&self) {
        if self.queue.close() {
            self.device.open_queues.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
