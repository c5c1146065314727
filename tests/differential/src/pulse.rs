//! Signs of life of a run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How far a run has come.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    pub(crate) step: AtomicUsize,
    pub(crate) beats: AtomicU64,
}

impl Pulse {
    /// The step with this index begins; one after the last is the clearing up.
    pub(crate) fn at(&self, step: usize) {
        self.step.store(step, Ordering::Relaxed);
        self.beat();
    }

    /// A call returned.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }
}
