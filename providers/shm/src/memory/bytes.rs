//! Copies between application memory and shared memory, as scatter/gather lists.
//!
//! The application and the peer may write to both meanwhile. So all access goes through raw pointers, and a race gives
//! torn bytes in the buffers of the two that race and nothing worse. `dat_kit::copy` has the copies between two lists;
//! one end of a copy here is always one range.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dat_kit::MemSpan;
use dat_plugin::Segment;

/// A part of a scatter/gather list: memory of this process whose maker vouches that it is mapped.
pub(crate) trait Span {
    fn addr(&self) -> usize;
    fn len(&self) -> usize;
}

impl Span for MemSpan {
    #[inline]
    fn addr(&self) -> usize {
        MemSpan::addr(self)
    }
    #[inline]
    fn len(&self) -> usize {
        MemSpan::len(self)
    }
}

impl Span for Segment {
    #[inline]
    fn addr(&self) -> usize {
        Segment::addr(self) as usize
    }
    #[inline]
    fn len(&self) -> usize {
        Segment::len(self) as usize
    }
}

/// Copies `len` bytes of `list`, after its first `skip`, to `to`.
///
/// # Safety
/// `len` bytes are writable at `to`. The maker of the list vouches for its ranges.
#[inline]
pub(crate) unsafe fn gather<S: Span>(list: &[S], skip: usize, to: *mut u8, len: usize) {
    if let Some(addr) = in_one(list, skip, len) {
        // SAFETY: the caller's promise; the source is part of the list, whose maker vouches for it.
        return unsafe { copy(addr as *const u8, to, len) };
    }
    each(list, skip, len, |at, addr, len| {
        // SAFETY: `at + len` is at most the caller's `len`; the source is part of the list, whose maker vouches for it.
        unsafe { copy(addr as *const u8, to.add(at), len) }
    });
}

/// Copies `len` bytes at `from` to `list`, after its first `skip`.
///
/// # Safety
/// `len` bytes are readable at `from`.
#[inline]
pub(crate) unsafe fn scatter<S: Span>(from: *const u8, len: usize, list: &[S], skip: usize) {
    if let Some(addr) = in_one(list, skip, len) {
        // SAFETY: as in `gather`, the other way.
        return unsafe { copy(from, addr as *mut u8, len) };
    }
    each(list, skip, len, |at, addr, len| {
        // SAFETY: as in `gather`, the other way.
        unsafe { copy(from.add(at), addr as *mut u8, len) }
    });
}

/// Where all of it is, when one range holds it: most lists have one.
#[inline]
fn in_one<S: Span>(list: &[S], skip: usize, len: usize) -> Option<usize> {
    match list {
        [one] if skip <= one.len() && len <= one.len() - skip => Some(one.addr() + skip),
        _ => None,
    }
}

/// Calls `f(at, addr, len)` for the pieces that make up `len` bytes of `list` after the first `skip`.
#[inline]
pub(crate) fn each<S: Span>(list: &[S], mut skip: usize, len: usize, mut f: impl FnMut(usize, usize, usize)) {
    let mut at = 0;
    for span in list {
        if at == len {
            return;
        }
        if skip >= span.len() {
            skip -= span.len();
            continue;
        }
        let piece = (span.len() - skip).min(len - at);
        f(at, span.addr() + skip, piece);
        skip = 0;
        at += piece;
    }
}

/// A copy that is one load and one store for the commonest short lengths.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match len {
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            16 => to.cast::<u128>().write_unaligned(from.cast::<u128>().read_unaligned()),
            _ => ptr::copy(from, to, len),
        }
    }
}

/// Longest copy of [`copy_short`].
pub(crate) const SHORT: usize = 64;

/// A copy of at most [`SHORT`] bytes without a call, in loads and stores that overlap where the length is no power of two.
///
/// # Safety
/// As [`copy`].
// Part of both hot arms: a call would spill registers.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    /// Copies what is in two pieces that may overlap: the first `size_of::<T>()` bytes and the last.
    #[inline]
    unsafe fn ends<T: Copy>(from: *const u8, to: *mut u8, len: usize) {
        let last = len - size_of::<T>();
        // SAFETY: the caller's promise; `len` is at least a `T`.
        unsafe {
            let first = from.cast::<T>().read_unaligned();
            let second = from.add(last).cast::<T>().read_unaligned();
            to.cast::<T>().write_unaligned(first);
            to.add(last).cast::<T>().write_unaligned(second);
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        if len == size_of::<u64>() {
            to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned());
            return;
        }
        match len {
            0 => {}
            1 => *to = *from,
            2..4 => ends::<u16>(from, to, len),
            4..8 => ends::<u32>(from, to, len),
            8..=16 => ends::<u64>(from, to, len),
            17..=32 => ends::<[u64; 2]>(from, to, len),
            _ => ends::<[u64; 4]>(from, to, len),
        }
    }
}

/// A copy whose last byte becomes visible after all others, or together with those of its word.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
#[inline]
pub(crate) unsafe fn copy_last_last(from: *const u8, to: *mut u8, len: usize) {
    /// Blocks are copied in order; inside one, the processor's string operation decides.
    const BLOCK: usize = 64 << 10;
    const WORD: usize = size_of::<u64>();
    // In one store, where a word ends the destination: a poller may take the line away between two.
    let word = len >= WORD && (to as usize).wrapping_add(len).is_multiple_of(WORD);
    let Some(front) = len.checked_sub(if word { WORD } else { 1 }) else { return };
    // SAFETY: the caller's promise; the atomics have the layout of what they replace, and the word is aligned.
    unsafe {
        let mut at = 0;
        while at < front {
            let piece = BLOCK.min(front - at);
            copy(from.add(at), to.add(at), piece);
            at += piece;
        }
        let (last, end) = (from.add(front), to.add(front));
        match word {
            true => (*end.cast::<AtomicU64>()).store(last.cast::<u64>().read_unaligned(), Ordering::Release),
            false => (*end.cast::<AtomicU8>()).store(*last, Ordering::Release),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_copies_are_whole_and_touch_nothing_else() {
        let from: [u8; SHORT] = std::array::from_fn(|i| i as u8 + 1);
        for len in 0..=SHORT {
            let mut to = [0; SHORT + 1];
            // SAFETY: both arrays have `SHORT` bytes.
            unsafe { copy_short(from.as_ptr(), to.as_mut_ptr(), len) };
            assert_eq!((&to[..len], &to[len..]), (&from[..len], &[0; SHORT + 1][len..]), "{len} bytes");
        }
    }
}
