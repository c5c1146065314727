//! Noticing a fork, at the price of a load.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Distinguishes the process that made it from its children: one page that the kernel clears in a child.
///
/// The kernel does it, so a child made by `clone` or `_Fork` is noticed too, which runs no handler of `pthread_atfork`.
#[derive(Debug)]
pub struct ForkGuard(NonNull<AtomicU32>);

// SAFETY: an atomic in memory that this value alone maps and unmaps.
unsafe impl Send for ForkGuard {}
// SAFETY: the only access through a shared reference is an atomic load.
unsafe impl Sync for ForkGuard {}

const PAGE: usize = 4096;

impl ForkGuard {
    /// A guard for this process.
    pub fn new() -> io::Result<ForkGuard> {
        // SAFETY: a new private mapping at an address the kernel chooses.
        let page = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, prot, MapFlags::PRIVATE)?
        };
        let guard = ForkGuard(NonNull::new(page.cast()).ok_or(io::ErrorKind::OutOfMemory)?);
        // SAFETY: the page mapped above; no other code uses it.
        unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)? };
        guard.word().store(1, Ordering::Relaxed);
        Ok(guard)
    }

    /// Whether this is the process that made the guard.
    #[inline]
    pub fn here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: `new` mapped the page, aligned and writable; it stays mapped until drop, in a child as well.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, in a child inherited at the same address; no reference outlives this value.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), PAGE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no fork")]
    fn a_child_notices_that_it_is_one() {
        let guard = ForkGuard::new().unwrap();
        assert!(guard.here());
        // SAFETY: the child calls nothing but a load and `_exit`.
        let status = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::_exit(guard.here() as i32);
            }
            let mut status = -1;
            libc::waitpid(pid, &raw mut status, 0);
            status
        };
        assert_eq!(status, 0, "the child takes itself for its parent");
        assert!(guard.here());
    }
}
