//! A channel and the faults it has met.

use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dat_kit::Timer;
use dat_plugin::host::BelowChannel;

/// A channel and the faults it has met.
pub struct FaultyChannel {
    pub(super) number: u64,
    pub(super) user: u64,
    pub(super) below: Weak<BelowChannel>,
    /// The timers of the queues that hold its completions back.
    pub(super) timers: Vec<Weak<Timer>>,
    pub(super) posts: AtomicU64,
    pub(super) completions: [AtomicU64; 2],
    /// Its completions are not held back any more.
    pub(super) stopped: AtomicBool,
    /// Dropped; the provider reports when it has stopped.
    pub(super) breaking: AtomicBool,
}

impl FaultyChannel {
    /// Hands out what is held back, and wakes threads that wait for it.
    pub(super) fn stop(&self) {
        if !self.stopped.swap(true, Ordering::AcqRel) {
            for timer in self.timers.iter().filter_map(Weak::upgrade) {
                if let Err(error) = timer.set(Duration::ZERO) {
                    tracing::error!(%error, "completions that are held back may be noticed late");
                }
            }
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}
