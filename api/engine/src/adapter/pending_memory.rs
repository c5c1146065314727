//! Memory of freed regions, kept until nothing outstanding names it.

use std::sync::Arc;

use dat_plugin::host::Memory;
use parking_lot::Mutex;

use crate::base::ring::WorkRing;

#[derive(Default)]
pub(crate) struct PendingMemory(Mutex<Vec<Kept>>);

/// Memory, and the outstanding work that may still name it.
struct Kept {
    _memory: Memory,
    pending: Vec<(Arc<WorkRing>, u64)>,
}

impl PendingMemory {
    /// Keeps `memory` until all work that is outstanding now has completed. Costs only when a region is freed, nothing
    /// when work is posted.
    pub(crate) fn keep(&self, memory: Memory, rings: impl Iterator<Item = Arc<WorkRing>>) {
        let marked = rings.map(|ring| (ring.mark(), ring)).filter(|(mark, ring)| !ring.is_past(*mark));
        let pending: Vec<_> = marked.map(|(mark, ring)| (ring, mark)).collect();
        if !pending.is_empty() {
            self.0.lock().push(Kept { _memory: memory, pending });
        }
    }

    /// Lets go of memory that nothing names any more.
    pub(crate) fn release(&self) {
        self.0.lock().retain_mut(|kept| {
            kept.pending.retain(|(ring, mark)| !ring.is_past(*mark));
            !kept.pending.is_empty()
        });
    }

    /// Lets go of all memory: the device is about to be closed.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}
