//! The arithmetic and the protocol of a ring: one producer, one consumer, frames packed in units of 16 bytes.
//!
//! A frame is a header of one unit and its payload, in one piece; a wrap marker skips what is left at the end of the
//! ring. The first word of a header says that the frame is there: it is written last, with release ordering. Before
//! that the producer clears the word of the header that will follow, so the consumer only ever looks at a word that
//! was cleared or published, and one cache line carries header and a short payload together.
//!
//! Nothing here trusts the other side: a header that makes no sense is [`Nonsense`], and so is a consumer position the
//! producer cannot have come to.

use crate::sync::Ordering;

/// Bytes of a unit, and of a header.
pub(crate) const UNIT: usize = 16;

/// The kind of the frame that skips to the start of the ring.
const WRAP: u8 = 1;

/// High half of the first word of every header.
const MARK: u32 = 0xDA7A_0000;

/// The other side broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Nonsense;

/// Where a ring's bytes are. Offsets are multiples of [`UNIT`] below the ring's size.
pub(crate) trait Memory {
    /// The first word of the header at `at`.
    fn word(&self, at: usize, order: Ordering) -> u32;
    /// Stores it.
    fn set_word(&self, at: usize, word: u32, order: Ordering);
    /// The rest of the header.
    fn rest(&self, at: usize) -> (u32, u64);
    /// Stores it.
    fn set_rest(&self, at: usize, len: u32, arg: u64);
}

/// A frame to be published: the payload goes to `at + UNIT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) at: usize,
    len: usize,
    wrap: Option<usize>,
    next: usize,
    head: u64,
}

/// A published frame, its header copied once and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) len: usize,
    pub(crate) arg: u64,
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Producer {
    size: usize,
    head: u64,
    tail: u64,
}

/// The reading end.
#[derive(Debug)]
pub(crate) struct Consumer {
    size: usize,
    tail: u64,
}

/// Bytes a frame of this payload takes.
#[inline]
fn span(len: usize) -> usize {
    UNIT + len.next_multiple_of(UNIT)
}

impl Producer {
    /// Of an empty ring; `size` is a power of two of at least 4 units.
    pub(crate) fn new(size: usize) -> Producer {
        debug_assert!(size.is_power_of_two() && size >= 4 * UNIT);
        Producer { size, head: 0, tail: 0 }
    }

    /// The longest payload that finds room in an empty ring wherever its head is.
    pub(crate) fn max_payload(&self) -> usize {
        self.size / 2 - 2 * UNIT
    }

    /// Room for a payload of `len` bytes at most [`Producer::max_payload`], or `None` as far as is known.
    #[inline]
    pub(crate) fn reserve(&self, len: usize) -> Option<Slot> {
        let at = self.head as usize & (self.size - 1);
        let span = span(len);
        let skip = if at + span <= self.size { 0 } else { self.size - at };
        let head = self.head + (skip + span) as u64;
        // The next header's unit must be free as well: it is cleared.
        if head + UNIT as u64 - self.tail > self.size as u64 {
            return None;
        }
        let next = head as usize & (self.size - 1);
        let wrap = (skip != 0).then_some(at);
        Some(Slot { at: if skip == 0 { at } else { 0 }, len, wrap, next, head })
    }

    /// Publishes a frame whose payload is in place.
    #[inline]
    pub(crate) fn publish(&mut self, memory: &impl Memory, slot: Slot, kind: u8, flags: u8, arg: u64) {
        memory.set_word(slot.next, 0, Ordering::Relaxed);
        memory.set_rest(slot.at, slot.len as u32, arg);
        memory.set_word(slot.at, MARK | (flags as u32) << 8 | kind as u32, Ordering::Release);
        if let Some(at) = slot.wrap {
            memory.set_rest(at, 0, 0);
            memory.set_word(at, MARK | WRAP as u32, Ordering::Release);
        }
        self.head = slot.head;
    }

    /// Learns how far the consumer has come.
    #[inline]
    pub(crate) fn credit(&mut self, tail: u64) -> Result<(), Nonsense> {
        if tail < self.tail || tail > self.head || !tail.is_multiple_of(UNIT as u64) {
            return Err(Nonsense);
        }
        self.tail = tail;
        Ok(())
    }
}

impl Consumer {
    /// Of an empty ring.
    pub(crate) fn new(size: usize) -> Consumer {
        Consumer { size, tail: 0 }
    }

    /// Where the next header is.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.tail as usize & (self.size - 1)
    }

    /// How far it has come.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    /// The next frame, if there is one.
    #[inline]
    pub(crate) fn peek(&mut self, memory: &impl Memory) -> Result<Option<Frame>, Nonsense> {
        loop {
            let at = self.at();
            let word = memory.word(at, Ordering::Acquire);
            if word == 0 {
                return Ok(None);
            }
            let (len, arg) = memory.rest(at);
            let len = len as usize;
            if word & 0xFFFF_0000 != MARK || len > self.size || at + span(len) > self.size {
                return Err(Nonsense);
            }
            if word as u8 != WRAP {
                return Ok(Some(Frame { at, kind: word as u8, flags: (word >> 8) as u8, len, arg }));
            }
            if at == 0 {
                return Err(Nonsense);
            }
            self.tail += (self.size - at) as u64;
        }
    }

    /// Goes past a frame; its bytes may be overwritten once the position is published.
    #[inline]
    pub(crate) fn advance(&mut self, frame: &Frame) {
        self.tail += span(frame.len) as u64;
    }
}
