//! What an adapter counted.

use std::sync::atomic::Ordering;

use dat_types::{IaCounter, Result};

use super::inner::{Ia, IaInner};

impl IaInner {
    /// It happened once more.
    pub(crate) fn count(&self, counter: IaCounter) {
        self.count_by(counter, 1);
    }

    pub(crate) fn count_by(&self, counter: IaCounter, more: u64) {
        self.counts.counts[counter as usize].fetch_add(more, Ordering::Relaxed);
    }
}

impl Ia {
    /// What happened on it since it was opened or the counters were last reset, by [`IaCounter`]. What only hardware
    /// could count stays 0.
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        self.device("dat_extension_op")?;
        let ia = &self.inner;
        let out = ia.counts.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Ok(ia.counts.base.since(out, reset))
    }
}
