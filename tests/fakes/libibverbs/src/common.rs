//! What every stand-in for a library of C has: objects the application holds, and descriptors it sleeps on.

use std::ffi::c_int;

/// An object of the C interface. Made by one call and freed by another, both of the library's user.
pub struct Object<T>(pub *mut T);

// SAFETY: only looked into under the library's lock.
unsafe impl<T> Send for Object<T> {}

/// A counter one can sleep on.
pub fn event_fd() -> c_int {
    // SAFETY: a plain call.
    unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) }
}

/// Adds one.
pub fn signal(fd: c_int) {
    let one = 1u64;
    // SAFETY: eight bytes of this frame.
    unsafe { libc::write(fd, (&raw const one).cast(), 8) };
}

/// Takes one; `false` when there was none and the descriptor does not block.
pub fn take(fd: c_int) -> bool {
    let mut count = 0u64;
    // SAFETY: eight bytes of this frame.
    unsafe { libc::read(fd, (&raw mut count).cast(), 8) == 8 }
}
