//! The memory a connection shares: a control page, two rings for requests, two for answers.
//!
//! Everything a side writes is on cache lines only it writes. The connecting side is side 0.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::data::ring::Memory;
use crate::data::sizes::{self, CONTROL, SIDE};
use crate::data::slab::Slot;

/// What one side tells the other through memory.
#[repr(C, align(64))]
pub(crate) struct Side {
    /// How far it has consumed the peer's requests, in bytes.
    pub(crate) consumed: AtomicU64,
    /// How far it has consumed the peer's answers.
    pub(crate) answers_consumed: AtomicU64,
    /// How many of the peer's requests it has finished; wraps.
    pub(crate) completed: AtomicU32,
    /// Not 0: the request after those failed with this status.
    pub(crate) fail: AtomicU32,
    _pad0: [u8; 40],
    /// Not 0: its receive or send queue looks here only when its bitmap has the bit. Each time a different value.
    pub(crate) parked: [AtomicU32; 2],
    /// Not 0: it waits for room and does not poll.
    pub(crate) want_room: AtomicU32,
    /// Not 0: this side has stopped; what it still reads of its memory is not to be believed. On a line that is seldom
    /// written, as peers look at it for each message in mapped memory and each write.
    pub(crate) gone: AtomicU32,
    /// Which messages the peer is to leave in its memory: see [`crate::data::select`].
    pub(crate) by_kernel: AtomicU32,
    _pad1: [u8; 44],
    /// Odd while it copies from or to the peer's memory.
    pub(crate) busy: AtomicU32,
    _pad2: [u8; 60],
}

/// A mapped segment.
pub(crate) struct Segment {
    base: *mut u8,
    /// This side's part of the control page, and the peer's.
    sides: [*const Side; 2],
    ring: usize,
    answers: usize,
    /// 0 for the connecting side.
    role: usize,
    /// Keeps the memory, and gives it back.
    slot: Slot,
}

// SAFETY: plain memory, accessed through atomics and copies.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

/// One of the four rings.
#[derive(Clone, Copy)]
pub(crate) struct RingMemory {
    base: *mut u8,
}

// SAFETY: the memory of a `Segment`, which whoever holds a `RingMemory` keeps mapped.
unsafe impl Send for RingMemory {}

impl Segment {
    pub(crate) fn new(slot: Slot) -> Segment {
        let ring = slot.ring();
        let role = usize::from(slot.is_accepting());
        let sides = [role, 1 - role].map(|side| slot.base().wrapping_add(side * SIDE).cast_const().cast());
        Segment { base: slot.base(), sides, ring, answers: sizes::answers(ring), role, slot }
    }

    /// The memory it is in.
    pub(crate) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(crate) fn slot_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }

    /// What this side writes.
    #[inline]
    pub(crate) fn own(&self) -> &Side {
        self.side(0)
    }

    /// What the peer writes.
    #[inline]
    pub(crate) fn peer(&self) -> &Side {
        self.side(1)
    }

    #[inline]
    fn side(&self, index: usize) -> &Side {
        // SAFETY: inside the control page, aligned, all atomics; mapped as long as `self`.
        unsafe { &*self.sides[index] }
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring
    }

    pub(crate) fn answer_bytes(&self) -> usize {
        self.answers
    }

    /// The rings of requests: this side's, the peer's.
    pub(crate) fn requests(&self) -> [RingMemory; 2] {
        [self.role, 1 - self.role].map(|side| self.at(CONTROL + side * self.ring))
    }

    /// The rings of answers: this side's, the peer's.
    pub(crate) fn answer_rings(&self) -> [RingMemory; 2] {
        [self.role, 1 - self.role].map(|side| self.at(CONTROL + 2 * self.ring + side * self.answers))
    }

    fn at(&self, offset: usize) -> RingMemory {
        // SAFETY: inside the slot by construction of its length.
        RingMemory { base: unsafe { self.base.add(offset) } }
    }
}

impl RingMemory {
    /// Address of the byte at `at`.
    #[inline]
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        self.base.wrapping_add(at)
    }

    /// The header's first word, to look at without the lock.
    #[inline]
    pub(crate) fn word_ptr(&self, at: usize) -> *mut AtomicU32 {
        self.base.wrapping_add(at).cast()
    }

    /// A line that is written soon.
    #[inline]
    pub(crate) fn prefetch(&self, at: usize) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch never faults.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) self.base.wrapping_add(at), options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }
}

impl Memory for RingMemory {
    #[inline]
    fn word(&self, at: usize, order: Ordering) -> u32 {
        // SAFETY: `at` is inside the ring (see `Memory`), which is mapped as long as its segment.
        unsafe { (*self.word_ptr(at)).load(order) }
    }

    #[inline]
    fn set_word(&self, at: usize, word: u32, order: Ordering) {
        // SAFETY: as above.
        unsafe { (*self.word_ptr(at)).store(word, order) }
    }

    #[inline]
    fn rest(&self, at: usize) -> (u32, u64) {
        // SAFETY: as above; a header is 16 bytes, aligned to 16. Atomic, because a hostile peer may write meanwhile.
        unsafe {
            let header = self.base.add(at);
            let len = (*header.add(4).cast::<AtomicU32>()).load(Ordering::Relaxed);
            (len, (*header.add(8).cast::<AtomicU64>()).load(Ordering::Relaxed))
        }
    }

    #[inline]
    fn set_rest(&self, at: usize, len: u32, arg: u64) {
        // SAFETY: as above.
        unsafe {
            let header = self.base.add(at);
            (*header.add(4).cast::<AtomicU32>()).store(len, Ordering::Relaxed);
            (*header.add(8).cast::<AtomicU64>()).store(arg, Ordering::Relaxed);
        }
    }
}
