//! The `membarrier` system call: one thread makes a full barrier on behalf of others, who pay a compiler fence only.
//!
//! Two scopes exist. [`process_barrier`] covers the threads of this process; [`global_barrier`] covers the threads of
//! every process that called [`join_global`]. A process must register for a scope before it uses it. Registration may
//! take milliseconds in a process with several threads, so do it when a device is opened.
//!
//! # Pairing
//! The fast side writes, calls [`light`], then reads. The slow side writes, makes the barrier, then reads. One of the
//! two then sees the other's write, as if both sides had made a full fence.

#[cfg(not(any(miri, loom)))]
use std::sync::atomic::{AtomicU8, Ordering};

/// The fast side's half: keeps the compiler from exchanging the accesses around it.
#[inline]
pub fn light() {
    #[cfg(not(any(miri, loom)))]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    // Checkers of memory models know no system calls. For them both halves are full fences.
    full_for_checkers();
}

/// Registers this process for [`process_barrier`], once. `false`: the system has no such barrier.
pub fn join_process() -> bool {
    #[cfg(not(any(miri, loom)))]
    {
        use rustix::thread::MembarrierCommand::{PrivateExpedited, RegisterPrivateExpedited};
        if STATE.load(Ordering::Relaxed) == UNKNOWN {
            let joined = register(PrivateExpedited, RegisterPrivateExpedited);
            STATE.store(if joined { PRESENT } else { ABSENT }, Ordering::Relaxed);
        }
    }
    process_joined()
}

/// Whether [`process_barrier`] works: this process is registered and the call has not failed since.
#[inline]
pub fn process_joined() -> bool {
    #[cfg(not(any(miri, loom)))]
    {
        STATE.load(Ordering::Relaxed) == PRESENT
    }
    #[cfg(any(miri, loom))]
    true
}

/// A full barrier in every thread of this process, which must be registered. `false`: the kernel refused the call,
/// and [`process_joined`] is `false` from now on. Only a filter of system calls installed later does that.
#[cold]
pub fn process_barrier() -> bool {
    #[cfg(not(any(miri, loom)))]
    {
        std::sync::atomic::fence(Ordering::SeqCst);
        let made = rustix::thread::membarrier(rustix::thread::MembarrierCommand::PrivateExpedited).is_ok();
        if !made {
            STATE.store(ABSENT, Ordering::Relaxed);
        }
        made
    }
    #[cfg(any(miri, loom))]
    {
        full_for_checkers();
        true
    }
}

/// Registers this process for [`global_barrier`]. `false`: the system has no such barrier.
pub fn join_global() -> bool {
    #[cfg(not(any(miri, loom)))]
    {
        use rustix::thread::MembarrierCommand::{GlobalExpedited, RegisterGlobalExpedited};
        register(GlobalExpedited, RegisterGlobalExpedited)
    }
    #[cfg(any(miri, loom))]
    true
}

/// A full barrier in every thread of every process that joined. The error is the kernel's; a filter of system calls
/// installed after [`join_global`] is the only known reason.
#[cold]
pub fn global_barrier() -> std::io::Result<()> {
    #[cfg(not(any(miri, loom)))]
    {
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(rustix::thread::membarrier(rustix::thread::MembarrierCommand::GlobalExpedited)?)
    }
    #[cfg(any(miri, loom))]
    {
        full_for_checkers();
        Ok(())
    }
}

#[inline]
fn full_for_checkers() {
    #[cfg(miri)]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(loom)]
    loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
}

#[cfg(not(any(miri, loom)))]
fn register(
    barrier: rustix::thread::MembarrierCommand,
    registration: rustix::thread::MembarrierCommand,
) -> bool {
    let query = rustix::thread::membarrier_query();
    query.contains_command(barrier)
        && query.contains_command(registration)
        && rustix::thread::membarrier(registration).is_ok()
}

#[cfg(not(any(miri, loom)))]
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
#[cfg(not(any(miri, loom)))]
const UNKNOWN: u8 = 0;
#[cfg(not(any(miri, loom)))]
const PRESENT: u8 = 1;
#[cfg(not(any(miri, loom)))]
const ABSENT: u8 = 2;
