//! Copies between application memory and a ring. Both may change meanwhile; that is why they go through pointers.

use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

use dat_kit::Stretch;

/// Copies `len` bytes of `list`, after its first `skip`, to `to`.
///
/// # Safety
/// `len` bytes are writable at `to`. (The list's maker vouches for its ranges.)
#[inline]
pub(crate) unsafe fn gather(list: &[Stretch], skip: usize, to: *mut u8, len: usize) {
    if let Some(addr) = in_one(list, skip, len) {
        // SAFETY: the caller's promise; the source is part of a stretch.
        return unsafe { copy(addr as *const u8, to, len) };
    }
    each(list, skip, len, |at, addr, len| {
        // SAFETY: `at + len` is at most the caller's `len`; the source is part of a stretch.
        unsafe { copy(addr as *const u8, to.add(at), len) }
    });
}

/// Copies `len` bytes at `from` to `list`, after its first `skip`.
///
/// # Safety
/// `len` bytes are readable at `from`.
#[inline]
pub(crate) unsafe fn scatter(from: *const u8, len: usize, list: &[Stretch], skip: usize) {
    if let Some(addr) = in_one(list, skip, len) {
        // SAFETY: as in `gather`, the other way.
        return unsafe { copy(from, addr as *mut u8, len) };
    }
    each(list, skip, len, |at, addr, len| {
        // SAFETY: as in `gather`, the other way.
        unsafe { copy(from.add(at), addr as *mut u8, len) }
    });
}

/// Where all of it is, when a single stretch holds it: most lists are of one.
#[inline]
fn in_one(list: &[Stretch], skip: usize, len: usize) -> Option<usize> {
    match list {
        [one] if skip <= one.len() && len <= one.len() - skip => Some(one.addr() + skip),
        _ => None,
    }
}

/// Calls `f(at, addr, len)` for the pieces that make up `len` bytes of `list` after the first `skip`.
#[inline]
pub(crate) fn each(list: &[Stretch], mut skip: usize, len: usize, mut f: impl FnMut(usize, usize, usize)) {
    let mut at = 0;
    for stretch in list {
        if at == len {
            return;
        }
        if skip >= stretch.len() {
            skip -= stretch.len();
            continue;
        }
        let piece = (stretch.len() - skip).min(len - at);
        f(at, stretch.addr() + skip, piece);
        skip = 0;
        at += piece;
    }
}

/// A copy that is one load and one store for the commonest short lengths.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
#[inline]
unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            16 => to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()),
            _ => ptr::copy(from, to, len),
        }
    }
}

/// A copy whose last byte becomes visible after all others.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
pub(crate) unsafe fn copy_last_last(from: *const u8, to: *mut u8, len: usize) {
    /// Blocks are copied in order; inside one, the processor's string operation decides.
    const BLOCK: usize = 64 << 10;
    let Some(last) = len.checked_sub(1) else { return };
    // SAFETY: the caller's promise; an `AtomicU8` has the layout of a byte.
    unsafe {
        let mut at = 0;
        while at < last {
            let piece = BLOCK.min(last - at);
            copy(from.add(at), to.add(at), piece);
            at += piece;
        }
        (*to.add(last).cast::<AtomicU8>()).store(*from.add(last), Ordering::Release);
    }
}
