//! Copies from and to application memory.
//!
//! The application may look at its memory, and peers may write to it, while a provider copies. So there is never a
//! Rust reference to such memory: all access goes through raw pointers, and a race between peers gives torn bytes in
//! their buffers and nothing worse.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dat_plugin::Segment;

/// A range of memory of this process, with the promise that it may be read, and written where the right was checked.
///
/// The promise lasts as long as what it was made from: for a [`Segment`] until the post that named it completed or
/// its channel stopped (the engine keeps its registration for so long), for [`Stretch::new`] what the caller said.
/// A provider drops its stretches at that point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stretch {
    addr: usize,
    len: usize,
}

impl Stretch {
    /// A range of memory.
    ///
    /// # Safety
    /// As long as the result, a copy or a part of it is used for a copy, the range is mapped and readable, and
    /// writable if anything is copied to it; and nobody holds a Rust reference to it while a copy may write to it.
    #[inline]
    pub unsafe fn new(addr: usize, len: usize) -> Stretch {
        Stretch { addr, len }
    }

    /// Address of the first byte.
    #[inline]
    pub fn addr(&self) -> usize {
        self.addr
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte in it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `addr..addr + len`, addresses and not offsets, or `None` when it does not lie inside.
    pub fn part(&self, addr: u64, len: u64) -> Option<Stretch> {
        let offset = addr.checked_sub(self.addr as u64)?;
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then_some(Stretch { addr: addr as usize, len: len as usize })
    }

    /// The first `len` bytes, or all when there are fewer.
    #[inline]
    pub fn first(&self, len: usize) -> Stretch {
        Stretch { addr: self.addr, len: self.len.min(len) }
    }

    /// What is left after the first `len` bytes.
    fn rest(&self, len: usize) -> Stretch {
        let len = len.min(self.len);
        Stretch { addr: self.addr + len, len: self.len - len }
    }
}

impl From<&Segment> for Stretch {
    #[inline]
    fn from(segment: &Segment) -> Stretch {
        Stretch { addr: segment.addr() as usize, len: segment.len() as usize }
    }
}

/// Bytes in all of `list`; saturates.
pub fn total(list: &[Stretch]) -> usize {
    list.iter().fold(0, |sum, stretch| sum.saturating_add(stretch.len))
}

/// Copies from `from` to `to`, front to back over both lists, until one is used up. Returns the bytes copied. The lists
/// may overlap; what arrives then is not defined, as with hardware.
pub fn copy(from: &[Stretch], to: &[Stretch]) -> usize {
    each_piece(from, to, |from, to, len| {
        // SAFETY: both ranges are parts of stretches, whose makers vouch for them; `ptr::copy` allows overlap.
        unsafe { ptr::copy(from as *const u8, to as *mut u8, len) }
    })
}

/// As [`copy`], but the bytes become visible in address order, and the last one with release ordering: whoever polls
/// for it and acquires it sees all others.
pub fn copy_ordered(from: &[Stretch], to: &[Stretch]) -> usize {
    each_piece(from, to, |from, to, len| {
        // SAFETY: as in `copy`.
        unsafe { store_in_order(from as *const u8, to as *mut u8, len) }
    })
}

/// Adds to the word `at` and gives what it was before; `None` when it is no aligned word of eight bytes. Atomic with
/// respect to every other access of eight bytes by a processor of this machine.
pub fn fetch_add(at: Stretch, operand: u64) -> Option<u64> {
    word(at).map(|word| word.fetch_add(operand, Ordering::AcqRel))
}

/// Makes the word `at` `swap` if it is `expected`, and gives what it was before; otherwise as [`fetch_add`].
pub fn compare_swap(at: Stretch, expected: u64, swap: u64) -> Option<u64> {
    let exchanged =
        |word: &AtomicU64| word.compare_exchange(expected, swap, Ordering::AcqRel, Ordering::Acquire);
    word(at).map(|word| exchanged(word).unwrap_or_else(|found| found))
}

fn word<'a>(at: Stretch) -> Option<&'a AtomicU64> {
    let aligned = at.len == 8 && at.addr.is_multiple_of(align_of::<AtomicU64>());
    // SAFETY: the range is a stretch of eight bytes, whose maker vouches that it is mapped and writable; aligned, just
    // checked. An atomic may be shared with whoever else writes to it. The reference does not leave this module's
    // functions, which are called while the stretch is good.
    aligned.then(|| unsafe { AtomicU64::from_ptr(at.addr as *mut u64) })
}

/// Copies from `list`, leaving out its first `skip` bytes, to `out`. Returns the bytes copied.
pub fn gather(list: &[Stretch], skip: usize, out: &mut [u8]) -> usize {
    let room = out.len();
    let base = out.as_mut_ptr();
    walk(list, skip, room, |at, addr, len| {
        // SAFETY: the source is part of a stretch, whose maker vouches for it; `at + len` is at most `out.len()`.
        unsafe { ptr::copy(addr as *const u8, base.add(at), len) }
    })
}

/// Copies `bytes` to `list`, leaving out its first `skip` bytes. Returns the bytes copied.
pub fn scatter(bytes: &[u8], list: &[Stretch], skip: usize) -> usize {
    walk(list, skip, bytes.len(), |at, addr, len| {
        // SAFETY: the sink is part of a stretch, whose maker vouches for it; `at + len` is at most `bytes.len()`.
        unsafe { ptr::copy(bytes.as_ptr().add(at), addr as *mut u8, len) }
    })
}

/// Calls `f(at, addr, len)` for each piece of `list` after its first `skip` bytes, `room` bytes at most.
fn walk(list: &[Stretch], mut skip: usize, room: usize, mut f: impl FnMut(usize, usize, usize)) -> usize {
    let mut done = 0;
    for stretch in list {
        let piece = stretch.rest(skip).first(room - done);
        skip -= skip.min(stretch.len);
        if !piece.is_empty() {
            f(done, piece.addr, piece.len);
            done += piece.len;
        }
    }
    done
}

/// Calls `f(from, to, len)` for each pair of ranges that face each other.
#[inline]
fn each_piece(from: &[Stretch], to: &[Stretch], mut f: impl FnMut(usize, usize, usize)) -> usize {
    let (mut sources, mut sinks) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut sink) = (Stretch::default(), Stretch::default());
    let mut done = 0;
    loop {
        while source.is_empty() {
            let Some(next) = sources.next() else { return done };
            source = next;
        }
        while sink.is_empty() {
            let Some(next) = sinks.next() else { return done };
            sink = next;
        }
        let len = source.len.min(sink.len);
        f(source.addr, sink.addr, len);
        (source, sink) = (source.rest(len), sink.rest(len));
        done += len;
    }
}

/// Stores in ascending order, in words where they are aligned at the sink. Atomic stores, because the compiler may
/// turn a loop of plain ones into a call of `memcpy`, which writes in any order. The last byte is stored by itself,
/// since that is the width a consumer polls.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
unsafe fn store_in_order(from: *const u8, to: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let Some(last) = len.checked_sub(1) else { return };
    let head = to.align_offset(WORD).min(last);
    let words_end = head + (last - head) / WORD * WORD;
    // SAFETY: all offsets are below `len`, for which the caller vouches; words are stored at offsets where the sink is
    // aligned, and loaded without asking for alignment.
    unsafe {
        let byte = |at: usize, order| (*to.add(at).cast::<AtomicU8>()).store(*from.add(at), order);
        (0..head).for_each(|at| byte(at, Ordering::Relaxed));
        for at in (head..words_end).step_by(WORD) {
            let word = from.add(at).cast::<u64>().read_unaligned();
            (*to.add(at).cast::<AtomicU64>()).store(word, Ordering::Relaxed);
        }
        (words_end..last).for_each(|at| byte(at, Ordering::Relaxed));
        byte(last, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dat_plugin::host::Memory;

    /// Stretches of `memory` at these offsets and lengths.
    fn stretches(memory: &Memory, parts: &[(u64, u64)]) -> Vec<Stretch> {
        // SAFETY: heap memory that the caller keeps, accessed through pointers only.
        let all = unsafe { Stretch::new(memory.addr() as usize, memory.len() as usize) };
        parts.iter().map(|(at, len)| all.part(memory.addr() + at, *len).unwrap()).collect()
    }

    fn numbered(len: usize) -> (Memory, Vec<u8>) {
        let memory = Memory::heap(len);
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
        memory.write(0, &bytes);
        (memory, bytes)
    }

    fn content(memory: &Memory) -> Vec<u8> {
        let mut out = vec![0; memory.len() as usize];
        memory.read(0, &mut out);
        out
    }

    #[test]
    fn lists_of_different_shape_are_copied_front_to_back() {
        let (from, bytes) = numbered(100);
        for routine in [copy, copy_ordered] {
            let to = Memory::heap(100);
            let source = stretches(&from, &[(0, 1), (1, 0), (1, 60), (70, 30)]);
            let sink = stretches(&to, &[(3, 17), (20, 0), (50, 50)]);
            assert_eq!(routine(&source, &sink), 67, "the shorter list decides");
            let expected: Vec<u8> = bytes[..61].iter().chain(&bytes[70..76]).copied().collect();
            let got = content(&to);
            assert_eq!((&got[3..20], &got[50..100]), (&expected[..17], &expected[17..]));
            assert!(got[..3].iter().chain(&got[20..50]).all(|byte| *byte == 0), "nothing else is touched");
        }
    }

    #[test]
    fn an_ordered_copy_is_exact_at_every_alignment_and_length() {
        let (from, bytes) = numbered(64);
        for at in 0..9 {
            for len in 0..40 {
                let to = Memory::heap(64);
                let n = copy_ordered(&stretches(&from, &[(3, len)]), &stretches(&to, &[(at, 50)]));
                assert_eq!(n as u64, len);
                let got = content(&to);
                assert_eq!(got[at as usize..][..n], bytes[3..][..n], "at {at}, {len} bytes");
                assert!(got[at as usize + n..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn the_last_byte_of_an_ordered_copy_comes_after_all_others() {
        let (from, bytes) = numbered(77);
        let to = Memory::heap(77);
        let (source, sink) = (stretches(&from, &[(0, 77)]), stretches(&to, &[(0, 77)]));
        std::thread::scope(|scope| {
            scope.spawn(|| copy_ordered(&source, &sink));
            while to.read_volatile(76) == 0 {
                std::thread::yield_now();
            }
            assert_eq!(content(&to), bytes);
        });
    }

    #[test]
    fn gather_and_scatter_skip_and_stop() {
        let (memory, bytes) = numbered(30);
        let list = stretches(&memory, &[(0, 10), (20, 10)]);
        let mut out = [0; 8];
        assert_eq!(gather(&list, 7, &mut out), 8);
        assert_eq!(out, [&bytes[7..10], &bytes[20..25]].concat()[..]);
        assert_eq!(gather(&list, 18, &mut out), 2, "the list ends first");
        assert_eq!(gather(&list, 21, &mut out), 0);
        assert_eq!(scatter(&[0; 5], &list, 8), 5);
        let got = content(&memory);
        assert_eq!([&got[8..10], &got[20..23]].concat(), [0; 5]);
        assert_eq!((&got[..8], &got[10..20], &got[23..]), (&bytes[..8], &bytes[10..20], &bytes[23..]));
    }

    #[test]
    fn atomic_operations_give_the_old_value() {
        let memory = Memory::heap(32);
        memory.write(8, &5u64.to_ne_bytes());
        let at = |offset, len| stretches(&memory, &[(offset, len)])[0];
        assert_eq!(fetch_add(at(8, 8), 3), Some(5));
        assert_eq!(compare_swap(at(8, 8), 5, 1), Some(8), "not as expected");
        assert_eq!(compare_swap(at(8, 8), 8, u64::MAX), Some(8));
        assert_eq!(fetch_add(at(8, 8), 2), Some(u64::MAX), "wraps");
        assert_eq!(content(&memory)[8..16], 1u64.to_ne_bytes());
        assert_eq!((fetch_add(at(4, 8), 1), fetch_add(at(8, 7), 1)), (None, None));
    }

    #[test]
    fn a_part_outside_is_refused() {
        let memory = Memory::heap(16);
        let all = stretches(&memory, &[(0, 16)])[0];
        let base = memory.addr();
        assert!(all.part(base + 16, 0).is_some());
        assert!(all.part(base, 17).is_none());
        assert!(all.part(base - 1, 1).is_none());
        assert!(all.part(base + 1, u64::MAX).is_none());
        assert!(all.part(u64::MAX, 2).is_none());
    }
}
