//! The two halves of an asymmetric barrier between threads of this process.

#[cfg(not(any(miri, loom)))]
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

/// The cheap half: keeps the compiler from exchanging the accesses around it; the processor is kept by [`heavy`].
#[inline(always)]
pub(crate) fn light() {
    #[cfg(not(any(miri, loom)))]
    compiler_fence(Ordering::SeqCst);
    // Checkers of memory models know no system calls: for them both halves are fences, which is what the barrier
    // amounts to.
    #[cfg(miri)]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// The dear half: a full barrier in every thread of the process. Call it only after [`available`] has said yes.
#[cold]
pub(crate) fn heavy() {
    #[cfg(not(any(miri, loom)))]
    {
        use rustix::thread::{MembarrierCommand, membarrier};
        fence(Ordering::SeqCst);
        if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
            // It worked before, so something was put in its way: a filter of system calls. Nobody becomes a favourite
            // any more. For the one that is: a store leaves its processor within microseconds, and a thread that does
            // not run has no store under way.
            STATE.store(ABSENT, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    #[cfg(miri)]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

/// Whether locks can have favourites.
pub fn available() -> bool {
    #[cfg(not(any(miri, loom)))]
    {
        STATE.load(Ordering::Relaxed) == PRESENT
    }
    #[cfg(any(miri, loom))]
    true
}

/// Lets locks have favourites from now on, where the system can do it. It may take milliseconds in a process with
/// several threads, so it is done when an adapter is opened and not when the first lock could use it.
pub fn prepare() {
    #[cfg(not(any(miri, loom)))]
    {
        use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};
        if STATE.load(Ordering::Relaxed) == UNKNOWN {
            let joined = membarrier_query().contains_command(MembarrierCommand::PrivateExpedited)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            STATE.store(if joined { PRESENT } else { ABSENT }, Ordering::Relaxed);
        }
    }
}

#[cfg(not(any(miri, loom)))]
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(not(any(miri, loom)))]
const UNKNOWN: u8 = 0;
#[cfg(not(any(miri, loom)))]
const PRESENT: u8 = 1;
#[cfg(not(any(miri, loom)))]
const ABSENT: u8 = 2;
