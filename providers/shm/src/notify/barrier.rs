//! Barriers between processes, for sleepers.
//!
//! A sleeper sets a flag, makes a barrier in all processes that take part, and looks once more. A peer publishes and
//! then reads the flag with a plain load. So the thread that is about to sleep pays, and a post to a polling peer makes
//! no fence. Where the system call is missing, the posting side makes the fence.

use std::sync::atomic::{Ordering, compiler_fence, fence};

use dat_sync::membarrier;

/// Makes this process take part in barriers of others. `false`: it cannot.
pub(crate) fn join_barriers() -> bool {
    dat_sync::prepare();
    membarrier::join_global()
}

/// A full barrier here, and in every thread of every process that joined.
pub(crate) fn barrier(joined: bool) {
    fence(Ordering::SeqCst);
    if joined && let Err(error) = membarrier::global_barrier() {
        // The call worked when the process joined; the kernel has no reason to refuse later.
        tracing::error!(%error, "membarrier");
    }
}

/// The publishing side's half: orders its stores before its read of the flag.
#[inline]
pub(crate) fn light_barrier(must_fence: bool) {
    if must_fence {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}
