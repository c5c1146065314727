//! Noticing a fork, at the price of a load.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Tells whether this process is a fork of the one that made the guard.
#[derive(Clone, Copy, Debug)]
pub struct ForkGuard(u32);

impl ForkGuard {
    /// A guard for this process.
    pub fn new() -> ForkGuard {
        static WATCH: Once = Once::new();
        // Miri has no fork, and no pthread_atfork.
        #[cfg(not(miri))]
        WATCH.call_once(|| {
            // SAFETY: the handler only changes an atomic, which is allowed in a child between fork and exec.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            if failed != 0 {
                tracing::warn!("forks will not be noticed: no memory for a fork handler");
            }
        });
        #[cfg(miri)]
        let _ = &WATCH;
        ForkGuard(GENERATION.load(Ordering::Relaxed))
    }

    /// Whether a fork lies between.
    #[inline]
    pub fn forked(&self) -> bool {
        GENERATION.load(Ordering::Relaxed) != self.0
    }
}

impl Default for ForkGuard {
    fn default() -> ForkGuard {
        ForkGuard::new()
    }
}

#[cfg(not(miri))]
unsafe extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
