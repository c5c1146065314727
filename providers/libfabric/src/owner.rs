//! A word that a child made by fork does not inherit: libfabric's objects belong to the process that opened them.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Whether this is the process that opened the device; asking costs a load.
#[derive(Debug)]
pub struct Owner(*const AtomicU32);

// SAFETY: an atomic in memory of its own.
unsafe impl Send for Owner {}
// SAFETY: as above.
unsafe impl Sync for Owner {}

const PAGE: usize = 4096;

impl Owner {
    pub fn new() -> io::Result<Owner> {
        // SAFETY: a new private mapping.
        let page = unsafe {
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE, prot, MapFlags::PRIVATE)?
        };
        let owner = Owner(page.cast_const().cast());
        // SAFETY: the page just mapped.
        unsafe { rustix::mm::madvise(page, PAGE, Advice::LinuxWipeOnFork)? };
        owner.word().store(1, Ordering::Relaxed);
        Ok(owner)
    }

    #[inline]
    pub fn here(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped until drop, aligned to a page.
        unsafe { &*self.0 }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: mapped by this value, and nobody looks at it any more.
        let _ = unsafe { rustix::mm::munmap(self.0.cast_mut().cast(), PAGE) };
    }
}
