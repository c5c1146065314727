//! Copies from and to application memory: [`copy`], [`copy_ordered`], and [`gather`] and [`scatter`] for plain bytes.
//!
//! The application may read its memory, and peers may write to it, while a provider copies. So there is never a Rust
//! reference to such memory: all access goes through raw pointers. A race between peers tears bytes in their own buffers.

use std::ptr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use dat_plugin::Segment;

/// A range of memory of this process, with the promise that it may be read, and written where the right was checked.
///
/// The promise of a [`Segment`] lasts until the post that named it completed or its channel stopped; the engine keeps its
/// registration until then. The promise of [`MemSpan::new`] is its caller's. A provider drops its spans at that point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemSpan {
    addr: usize,
    len: usize,
}

impl MemSpan {
    /// A range of memory.
    ///
    /// # Safety
    /// As long as the result, a copy or a part of it is used for a copy, the range is mapped and readable, and
    /// writable if anything is copied to it. No Rust reference to it is used while a copy may write to it.
    #[inline]
    pub unsafe fn new(addr: usize, len: usize) -> MemSpan {
        MemSpan { addr, len }
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

    /// Whether it has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part `addr..addr + len`, addresses and not offsets, or `None` when it does not lie inside.
    pub fn part(&self, addr: u64, len: u64) -> Option<MemSpan> {
        let offset = addr.checked_sub(self.addr as u64)?;
        let end = offset.checked_add(len)?;
        (end <= self.len as u64).then_some(MemSpan { addr: addr as usize, len: len as usize })
    }

    /// The first `len` bytes, or all when there are fewer.
    #[inline]
    pub fn first(&self, len: usize) -> MemSpan {
        MemSpan { addr: self.addr, len: self.len.min(len) }
    }

    /// The part after the first `len` bytes.
    fn rest(&self, len: usize) -> MemSpan {
        let len = len.min(self.len);
        MemSpan { addr: self.addr + len, len: self.len - len }
    }
}

impl From<&Segment> for MemSpan {
    #[inline]
    fn from(segment: &Segment) -> MemSpan {
        MemSpan { addr: segment.addr() as usize, len: segment.len() as usize }
    }
}

/// Bytes in all of `list`; saturates.
pub fn total(list: &[MemSpan]) -> usize {
    list.iter().fold(0, |sum, span| sum.saturating_add(span.len))
}

/// Copies from `from` to `to`, front to back over both lists, until one is used up. Returns the bytes copied. The lists
/// may overlap; what arrives then is not defined, as with hardware.
pub fn copy(from: &[MemSpan], to: &[MemSpan]) -> usize {
    each_piece(from, to, |from, to, len| {
        // SAFETY: both ranges are parts of spans, whose makers promised them; `ptr::copy` allows overlap.
        unsafe { ptr::copy(from as *const u8, to as *mut u8, len) }
    })
}

/// As [`copy`], but the bytes become visible in address order, the last one with release ordering. A thread that polls the
/// last byte with acquire ordering sees all others.
pub fn copy_ordered(from: &[MemSpan], to: &[MemSpan]) -> usize {
    each_piece(from, to, |from, to, len| {
        // SAFETY: both ranges are parts of spans, whose makers promised them.
        unsafe { store_in_order(from as *const u8, to as *mut u8, len) }
    })
}

/// Adds to the word `at` and gives its old value; `None` when it is no aligned word of eight bytes. Atomic with respect to
/// all other accesses of eight bytes by processors of this machine.
pub fn fetch_add(at: MemSpan, operand: u64) -> Option<u64> {
    word(at).map(|word| word.fetch_add(operand, Ordering::AcqRel))
}

/// Sets the word `at` to `swap` if it is `expected`, and gives its old value; otherwise as [`fetch_add`].
pub fn compare_swap(at: MemSpan, expected: u64, swap: u64) -> Option<u64> {
    let exchanged =
        |word: &AtomicU64| word.compare_exchange(expected, swap, Ordering::AcqRel, Ordering::Acquire);
    word(at).map(|word| exchanged(word).unwrap_or_else(|found| found))
}

fn word<'a>(at: MemSpan) -> Option<&'a AtomicU64> {
    let aligned = at.len == 8 && at.addr.is_multiple_of(align_of::<AtomicU64>());
    // SAFETY: the range is a span of eight bytes, whose maker promised that it is mapped and writable; it is aligned, as
    // just checked. Other writers may share an atomic. The reference does not leave this module's functions, which are
    // called while the span is good.
    aligned.then(|| unsafe { AtomicU64::from_ptr(at.addr as *mut u64) })
}

/// Copies `bytes` to `to`. Returns the bytes copied.
pub fn scatter(bytes: &[u8], to: &[MemSpan]) -> usize {
    // SAFETY: readable for this call, which borrows the bytes, and a source only.
    let from = unsafe { MemSpan::new(bytes.as_ptr() as usize, bytes.len()) };
    copy(&[from], to)
}

/// Copies `from` to `out`. Returns the bytes copied.
pub fn gather(from: &[MemSpan], out: &mut [u8]) -> usize {
    // SAFETY: writable for this call, which borrows the bytes exclusively until it returns.
    let to = unsafe { MemSpan::new(out.as_mut_ptr() as usize, out.len()) };
    copy(from, &[to])
}

/// Calls `f(from, to, len)` for each pair of ranges that face each other.
#[inline]
fn each_piece(from: &[MemSpan], to: &[MemSpan], mut f: impl FnMut(usize, usize, usize)) -> usize {
    let (mut sources, mut sinks) = (from.iter().copied(), to.iter().copied());
    let (mut source, mut sink) = (MemSpan::default(), MemSpan::default());
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

/// Stores in ascending order, in words where they are aligned at the sink. The stores are atomic, because the compiler may
/// turn a loop of plain ones into `memcpy`, which writes in any order. The last byte has a store of its own: consumers poll
/// one byte.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`.
unsafe fn store_in_order(from: *const u8, to: *mut u8, len: usize) {
    const WORD: usize = size_of::<u64>();
    let Some(last) = len.checked_sub(1) else { return };
    let head = to.align_offset(WORD).min(last);
    // Miri knows no atomic accesses of two sizes to one place, and consumers poll bytes.
    let words = if cfg!(miri) { 0 } else { (last - head) / WORD };
    let words_end = head + words * WORD;
    // SAFETY: all offsets are below `len`, so inside of the caller's ranges. Words are stored where the sink is aligned, and
    // loaded without alignment.
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

    /// Spans of `memory` at these offsets and lengths.
    fn spans(memory: &Memory, parts: &[(u64, u64)]) -> Vec<MemSpan> {
        // SAFETY: heap memory that the caller keeps, accessed through pointers only.
        let all = unsafe { MemSpan::new(memory.addr() as usize, memory.len() as usize) };
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
            let source = spans(&from, &[(0, 1), (1, 0), (1, 60), (70, 30)]);
            let sink = spans(&to, &[(3, 17), (20, 0), (50, 50)]);
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
                let n = copy_ordered(&spans(&from, &[(3, len)]), &spans(&to, &[(at, 50)]));
                assert_eq!(n as u64, len);
                let got = content(&to);
                assert_eq!(got[at as usize..][..n], bytes[3..][..n], "at {at}, {len} bytes");
                assert!(got[at as usize + n..].iter().all(|byte| *byte == 0));
            }
        }
    }

    /// On x86 stores are in order anyway. Miri shows old values of the other bytes where the language allows them, so the
    /// test fails there without the release store of the last byte.
    #[test]
    fn a_poller_that_sees_the_last_byte_sees_all_bytes() {
        const ROUNDS: u32 = if cfg!(miri) { 20 } else { 2000 };
        let (from, bytes) = numbered(77);
        for round in 0..ROUNDS {
            let to = Memory::heap(77);
            let (source, sink) = (spans(&from, &[(0, 77)]), spans(&to, &[(0, 77)]));
            std::thread::scope(|scope| {
                scope.spawn(|| copy_ordered(&source, &sink));
                let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
                while to.read_volatile(76) == 0 {
                    assert!(std::time::Instant::now() < until, "round {round}: no last byte within 20 s");
                    std::thread::yield_now();
                }
                assert_eq!(content(&to), bytes, "round {round}");
            });
        }
    }

    #[test]
    fn gather_and_scatter_stop_at_the_shorter_side() {
        let (memory, bytes) = numbered(30);
        let list = spans(&memory, &[(7, 3), (20, 10)]);
        let mut out = [0; 8];
        assert_eq!(gather(&list, &mut out), 8);
        assert_eq!(out, [&bytes[7..10], &bytes[20..25]].concat()[..]);
        let mut long = [0; 20];
        assert_eq!(gather(&list, &mut long), 13, "the list ends first");
        assert_eq!((&long[..3], &long[3..13], &long[13..]), (&bytes[7..10], &bytes[20..30], &[0; 7][..]));
        assert_eq!(scatter(&[0; 5], &list), 5);
        let got = content(&memory);
        assert_eq!([&got[7..10], &got[20..22]].concat(), [0; 5]);
        assert_eq!((&got[..7], &got[10..20], &got[22..]), (&bytes[..7], &bytes[10..20], &bytes[22..]));
    }

    #[test]
    fn atomic_operations_give_the_old_value() {
        let memory = Memory::heap(32);
        memory.write(8, &5u64.to_ne_bytes());
        let at = |offset, len| spans(&memory, &[(offset, len)])[0];
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
        let all = spans(&memory, &[(0, 16)])[0];
        let base = memory.addr();
        assert!(all.part(base + 16, 0).is_some());
        assert!(all.part(base, 17).is_none());
        assert!(all.part(base - 1, 1).is_none());
        assert!(all.part(base + 1, u64::MAX).is_none());
        assert!(all.part(u64::MAX, 2).is_none());
    }
}
