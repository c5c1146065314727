//! The arithmetic and the protocol of a ring: one producer, one consumer, frames packed in units of 16 bytes.
//!
//! A frame is a header of one unit and its payload, in one piece. A wrap marker skips the rest of the ring.
//! A payload of some lengths begins at a cache line, since copies across lines cost; others begin behind their header. One
//! cache line carries the header and a short payload together.
//!
//! # Memory ordering
//! | word | writer | ordering | reader | pairs with |
//! |---|---|---|---|---|
//! | first word of a header | producer, last of its frame | release | consumer, acquire | makes payload and rest of the header visible |
//! | first word of the following header | producer, cleared in [`Producer::reserve`] | relaxed | consumer, acquire | ordered by the release of the frame before it |
//! | rest of a header | producer | relaxed | consumer, relaxed | the first word |
//! | position (`consumed` in the control page) | consumer | release | producer, acquire | the consumer's copies end before the bytes are written again |
//!
//! So the consumer only looks at a word that was cleared or published.
//!
//! # Trust
//! Nothing here trusts the other side. A header is copied once and then checked. What no honest peer writes is a
//! [`ProtocolError`]: a wrong header, a position that the producer cannot have come to, and more than one ring of frames
//! since the consumer last published its position.

use std::sync::atomic::Ordering;

/// Bytes of a unit, and of a header.
pub(crate) const UNIT: usize = 16;

/// Bytes of a cache line, and the lengths of payloads that begin at one. A shorter payload is best on the line of its
/// header; a longer one was measured to be slower so.
const LINE: usize = 64;
const ALIGNED: std::ops::RangeInclusive<usize> = 256..=2048;

/// The kind of the frame that skips to the start of the ring.
const WRAP: u8 = 1;

/// High half of the first word of every header.
const MARK: u32 = 0xDA7A_0000;

/// The other side broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProtocolError;

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

/// A frame to be published: the payload goes to `payload`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) at: usize,
    pub(crate) payload: usize,
    len: usize,
    wrap: Option<usize>,
    head: u64,
}

/// A published frame, its header copied once and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) at: usize,
    pub(crate) payload: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) len: usize,
    pub(crate) arg: u64,
}

/// The writing end.
#[derive(Debug)]
pub(crate) struct Producer {
    size: usize,
    /// Where the next frame begins, counted from the beginning.
    pub(crate) head: u64,
    tail: u64,
}

/// The reading end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer {
    size: usize,
    tail: u64,
    /// The position that the producer knows.
    published: u64,
}

/// Bytes from a header at `at` to a payload of `len` bytes.
#[inline]
fn lead(at: usize, len: usize) -> usize {
    // The shortest first: they are the ones for which every instruction counts.
    if len < *ALIGNED.start() || len > *ALIGNED.end() { UNIT } else { to_line(at) }
}

/// Bytes to the next line. Not inlined into the way of the shortest.
#[cold]
fn to_line(at: usize) -> usize {
    LINE - at % LINE
}

/// Bytes of a payload, rounded up to units.
#[inline]
fn whole(len: usize) -> usize {
    (len + UNIT - 1) & !(UNIT - 1)
}

/// Bytes a frame with this payload takes at `at`.
#[inline]
fn span(at: usize, len: usize) -> usize {
    lead(at, len) + whole(len)
}

/// The most bytes a frame with a payload of up to `len` bytes takes.
pub(crate) fn most(len: usize) -> usize {
    span(0, len.min(*ALIGNED.end())).max(span(0, len))
}

impl Producer {
    /// Of an empty ring; `size` is a power of two of at least 4 units.
    pub(crate) fn new(size: usize) -> Producer {
        debug_assert!(size.is_power_of_two() && size >= 4 * UNIT);
        Producer { size, head: 0, tail: 0 }
    }

    /// Room for a payload, or `None` as far as is known. Up to half the ring less two lines finds room in an empty
    /// ring wherever its head is.
    ///
    /// The header that will follow is cleared here, and not when the frame is published. Often it is on another line, which
    /// is fetched while the payload is written. And the consumer cannot take the frame's line away between the store of
    /// the payload and that of the header.
    #[inline]
    pub(crate) fn reserve(&self, memory: &impl Memory, len: usize) -> Option<Slot> {
        let end = self.head as usize & (self.size - 1);
        let (here, body) = (lead(end, len), whole(len));
        let fits = end + here + body <= self.size;
        let (at, lead, skip) = if fits { (end, here, 0) } else { (0, lead(0, len), self.size - end) };
        let head = self.head + (skip + lead + body) as u64;
        // The next header's unit must be free as well: it is cleared.
        if head + UNIT as u64 - self.tail > self.size as u64 {
            return None;
        }
        let next = head as usize & (self.size - 1);
        let wrap = (!fits).then_some(end);
        memory.set_word(next, 0, Ordering::Relaxed);
        Some(Slot { at, payload: at + lead, len, wrap, head })
    }

    /// As [`Producer::reserve`]; `position` gives the consumer's when the known one leaves no room.
    #[inline]
    pub(crate) fn reserve_or_learn(
        &mut self,
        memory: &impl Memory,
        len: usize,
        position: impl FnOnce() -> u64,
    ) -> Result<Option<Slot>, ProtocolError> {
        if let Some(slot) = self.reserve(memory, len) {
            return Ok(Some(slot));
        }
        self.credit(position())?;
        Ok(self.reserve(memory, len))
    }

    /// Publishes a frame whose payload is in place.
    // Part of the hot arm of a send.
    #[inline(always)]
    pub(crate) fn publish(&mut self, memory: &impl Memory, slot: Slot, kind: u8, flags: u8, arg: u64) {
        memory.set_rest(slot.at, slot.len as u32, arg);
        memory.set_word(slot.at, MARK | (flags as u32) << 8 | kind as u32, Ordering::Release);
        if let Some(at) = slot.wrap {
            memory.set_rest(at, 0, 0);
            memory.set_word(at, MARK | WRAP as u32, Ordering::Release);
        }
        self.head = slot.head;
    }

    /// As [`Producer::reserve`], for a payload too short to be aligned, if it fits where the ring is now.
    // Part of the hot arm of a send.
    #[inline(always)]
    pub(crate) fn reserve_here(&self, memory: &impl Memory, len: usize) -> Option<Slot> {
        debug_assert!(len < *ALIGNED.start());
        let (at, body) = (self.head as usize & (self.size - 1), UNIT + whole(len));
        let head = self.head + body as u64;
        if at + body > self.size || head + UNIT as u64 - self.tail > self.size as u64 {
            return None;
        }
        memory.set_word(head as usize & (self.size - 1), 0, Ordering::Relaxed);
        Some(Slot { at, payload: at + UNIT, len, wrap: None, head })
    }

    /// Learns how far the consumer has come.
    #[inline]
    pub(crate) fn credit(&mut self, tail: u64) -> Result<(), ProtocolError> {
        if tail < self.tail || tail > self.head || !tail.is_multiple_of(UNIT as u64) {
            return Err(ProtocolError);
        }
        self.tail = tail;
        Ok(())
    }
}

impl Consumer {
    /// Of an empty ring.
    pub(crate) fn new(size: usize) -> Consumer {
        Consumer { size, tail: 0, published: 0 }
    }

    /// Where the next header is.
    #[inline]
    pub(crate) fn at(&self) -> usize {
        self.tail as usize & (self.size - 1)
    }

    /// The position, which is about to be published.
    #[inline]
    pub(crate) fn publish(&mut self) -> u64 {
        self.published = self.tail;
        self.tail
    }

    /// The next frame, if there is one.
    #[inline]
    pub(crate) fn next(&mut self, memory: &impl Memory) -> Result<Option<Frame>, ProtocolError> {
        loop {
            let at = self.at();
            let word = memory.word(at, Ordering::Acquire);
            if word == 0 {
                return Ok(None);
            }
            let (len, arg) = memory.rest(at);
            let len = len as usize;
            let payload = at + lead(at, len);
            let sound = word & 0xFFFF_0000 == MARK && len <= self.size && payload + whole(len) <= self.size;
            // An honest producer waits for the published position: these bytes were read before.
            if !sound || self.tail - self.published > self.size as u64 {
                return Err(ProtocolError);
            }
            if word as u8 != WRAP {
                let (kind, flags) = (word as u8, (word >> 8) as u8);
                return Ok(Some(Frame { at, payload, kind, flags, len, arg }));
            }
            if at == 0 {
                return Err(ProtocolError);
            }
            self.tail += (self.size - at) as u64;
        }
    }

    /// The next frame, if it is sound, of this kind, has no flags but `flags`, and a payload of at most `most` bytes, too
    /// few to be aligned. `None`: [`Consumer::next`] says what is there.
    #[inline]
    pub(crate) fn next_short(&self, memory: &impl Memory, kind: u8, flags: u8, most: usize) -> Option<Frame> {
        debug_assert!(most < *ALIGNED.start());
        let at = self.at();
        let word = memory.word(at, Ordering::Acquire);
        let (len, arg) = memory.rest(at);
        let (payload, len) = (at + UNIT, len as usize);
        let other = word & !((flags as u32) << 8) != MARK | kind as u32;
        if other || len > most || payload + whole(len) > self.size {
            return None;
        }
        Some(Frame { at, payload, kind, flags: (word >> 8) as u8, len, arg })
    }

    /// Goes past a frame; its bytes may be overwritten once the position is published.
    #[inline]
    pub(crate) fn advance(&mut self, frame: &Frame) {
        self.tail += (frame.payload - frame.at + whole(frame.len)) as u64;
    }
}

// A path, because a benchmark includes this file.
#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
