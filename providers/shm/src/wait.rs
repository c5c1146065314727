//! What sleeping and forking need of the system: memory barriers in other processes, and a word that a child does not
//! inherit.
//!
//! A sleeper sets a flag, makes a barrier in all processes that take part, and looks once more; a peer publishes and
//! looks at the flag with a plain load. So the price is paid by the one who is about to sleep, and a post to a peer
//! that polls makes no fence. Where the system call is not to be had, the posting side makes the fence.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

/// Makes this process take part in barriers of others. `false`: it cannot.
pub(crate) fn join_barriers() -> bool {
    dat_sync::prepare();
    let query = membarrier_query();
    query.contains_command(MembarrierCommand::GlobalExpedited)
        && query.contains_command(MembarrierCommand::RegisterGlobalExpedited)
        && membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A full barrier here, and on every processor that runs a process that joined.
pub(crate) fn barrier(joined: bool) {
    fence(Ordering::SeqCst);
    if joined && let Err(error) = membarrier(MembarrierCommand::GlobalExpedited) {
        // The call worked when the process joined; the kernel has no reason to refuse later.
        tracing::error!(%error, "membarrier");
    }
}

/// The publishing side's half: orders its stores before the look at the flag.
#[inline]
pub(crate) fn light_barrier(must_fence: bool) {
    if must_fence {
        fence(Ordering::SeqCst);
    } else {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }
}

/// Tells the process that made it from its children: one page that the kernel clears for a child.
pub(crate) struct Owner {
    word: *mut AtomicU32,
    pid: u32,
}

// SAFETY: an atomic in memory of its own.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

const PAGE: usize = 4096;

impl Owner {
    pub(crate) fn new() -> io::Result<Owner> {
        // SAFETY: a new private mapping.
        let page = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, prot, MapFlags::PRIVATE)?
        };
        let owner = Owner { word: page.cast(), pid: std::process::id() };
        // SAFETY: the page just mapped.
        unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)? };
        owner.word().store(1, Ordering::Relaxed);
        Ok(owner)
    }

    /// Whether this is the process that made it.
    #[inline]
    pub(crate) fn here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped until drop, aligned to a page.
        unsafe { &*self.word }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        crate::segment::unmap(self.word.cast(), PAGE, self.pid);
    }
}
