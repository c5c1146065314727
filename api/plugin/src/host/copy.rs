//! Copies from and to memory that other threads, devices and peers access at the same time.
//!
//! The compiler has no wide copy that it knows to be atomic. The processor's string copy is one: for the language it stands
//! for a relaxed atomic access of each byte. Where there is none, and under miri, a loop makes these accesses.

/// Copies `len` bytes out of shared memory, each of them atomically, in any order.
///
/// # Safety
/// `len` bytes are readable at `from`. `len` bytes are writable at `to`, and no other thread accesses those.
pub(super) unsafe fn copy_out(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's ranges.
    unsafe {
        move_bytes(from, to, len)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..len {
        // SAFETY: `at` is inside of the caller's ranges, and a byte is always aligned.
        unsafe { to.add(at).write((*from.add(at).cast::<AtomicU8>()).load(Ordering::Relaxed)) }
    }
}

/// Copies `len` bytes into shared memory, each of them atomically, in any order.
///
/// # Safety
/// `len` bytes are readable at `from`, and no other thread writes them. `len` bytes are writable at `to`.
pub(super) unsafe fn copy_in(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's ranges.
    unsafe {
        move_bytes(from, to, len)
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    for at in 0..len {
        // SAFETY: `at` is inside of the caller's ranges, and a byte is always aligned.
        unsafe { (*to.add(at).cast::<AtomicU8>()).store(from.add(at).read(), Ordering::Relaxed) }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::{AtomicU8, Ordering};

/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn move_bytes(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's ranges; the ABI keeps the direction flag clear.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
}
