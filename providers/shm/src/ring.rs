//! The arithmetic and the protocol of a ring: one producer, one consumer, frames packed in units of 16 bytes.
//!
//! A frame is a header of one unit and its payload, in one piece; a wrap marker skips what is left at the end of the
//! ring. A payload of some length begins at a cache line, for copies across lines cost; others right behind their header.
//! The first word of a header says that the frame is there: it is written last, with release ordering. Before that the
//! producer cleared the word of the header that will follow, so the consumer only ever looks at a word that was cleared or
//! published, and one cache line carries header and a short payload together.
//!
//! Nothing here trusts the other side: a header that makes no sense is [`Nonsense`], and so is a consumer position the
//! producer cannot have come to.

use std::sync::atomic::Ordering;

/// Bytes of a unit, and of a header.
pub(crate) const UNIT: usize = 16;

/// Bytes of a cache line, and of a payload that begins at one: what is shorter is best on the line of its header; what is
/// longer was slower so, by measurement.
const LINE: usize = 64;
const ALIGNED: std::ops::RangeInclusive<usize> = 256..=2048;

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
    head: u64,
    tail: u64,
}

/// The reading end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consumer {
    size: usize,
    tail: u64,
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

/// Bytes of a payload with what is left of its last unit.
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
    /// The header that will follow is cleared here rather than when the frame is published: often it is on another line,
    /// which is fetched while the payload is written, and nothing then stands between the payload's store and the
    /// header's, for the consumer to take their line away.
    #[inline(always)]
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

    /// Publishes a frame whose payload is in place.
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

    /// Where the next frame begins, counted from the beginning; and how far the consumer has come, as far as is known.
    pub(crate) fn marks(&self) -> (u64, u64) {
        (self.head, self.tail)
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
            let payload = at + lead(at, len);
            if word & 0xFFFF_0000 != MARK || len > self.size || payload + whole(len) > self.size {
                return Err(Nonsense);
            }
            if word as u8 != WRAP {
                let (kind, flags) = (word as u8, (word >> 8) as u8);
                return Ok(Some(Frame { at, payload, kind, flags, len, arg }));
            }
            if at == 0 {
                return Err(Nonsense);
            }
            self.tail += (self.size - at) as u64;
        }
    }

    /// The next frame, if it is there, sound, of this kind, and has no flags but `flags`; what else there is,
    /// [`Consumer::peek`] tells.
    #[inline]
    pub(crate) fn next_if(&self, memory: &impl Memory, kind: u8, flags: u8) -> Option<Frame> {
        let at = self.at();
        let word = memory.word(at, Ordering::Acquire);
        if word & !((flags as u32) << 8) != MARK | kind as u32 {
            return None;
        }
        let (len, arg) = memory.rest(at);
        let len = len as usize;
        let payload = at + lead(at, len);
        if len > self.size || payload + whole(len) > self.size {
            return None;
        }
        Some(Frame { at, payload, kind, flags: (word >> 8) as u8, len, arg })
    }

    /// [`Consumer::next_if`], if its payload is of at most `most` bytes, too few to be aligned.
    #[inline(always)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(loom)]
    use loom::sync::atomic::{AtomicU32, AtomicU64};
    #[cfg(not(loom))]
    use std::sync::atomic::{AtomicU32, AtomicU64};

    /// A ring of atomics: the payload of a frame is the rest of its header.
    struct Cells {
        words: Vec<AtomicU32>,
        lens: Vec<AtomicU32>,
        args: Vec<AtomicU64>,
    }

    impl Cells {
        fn new(size: usize) -> Cells {
            let count = size / UNIT;
            Cells {
                words: (0..count).map(|_| AtomicU32::new(0)).collect(),
                lens: (0..count).map(|_| AtomicU32::new(0)).collect(),
                args: (0..count).map(|_| AtomicU64::new(0)).collect(),
            }
        }
    }

    impl Memory for Cells {
        fn word(&self, at: usize, order: Ordering) -> u32 {
            self.words[at / UNIT].load(order)
        }
        fn set_word(&self, at: usize, word: u32, order: Ordering) {
            self.words[at / UNIT].store(word, order);
        }
        fn rest(&self, at: usize) -> (u32, u64) {
            (self.lens[at / UNIT].load(Ordering::Relaxed), self.args[at / UNIT].load(Ordering::Relaxed))
        }
        fn set_rest(&self, at: usize, len: u32, arg: u64) {
            self.lens[at / UNIT].store(len, Ordering::Relaxed);
            self.args[at / UNIT].store(arg, Ordering::Relaxed);
        }
    }

    /// Producer and consumer at the same time, round the ring and through wrap markers: each frame arrives once, in
    /// order, with what was written to it.
    #[cfg(loom)]
    #[test]
    fn every_interleaving_delivers_frames_in_order_and_whole() {
        use loom::sync::Arc;
        // 4 units; a payload of one unit makes frames of 2, so that the ring goes round and positions come back.
        for lens in [[0, 0, 0, 0], [16, 0, 16, 0]] {
            let mut model = loom::model::Builder::new();
            model.preemption_bound = Some(3);
            model.check(move || {
                let shared = Arc::new((Cells::new(4 * UNIT), AtomicU64::new(0)));
                let theirs = shared.clone();
                let producer = loom::thread::spawn(move || {
                    let (cells, tail) = &*theirs;
                    let mut producer = Producer::new(4 * UNIT);
                    for (index, len) in lens.into_iter().enumerate() {
                        loop {
                            if let Some(slot) =
                                producer.reserve_here(cells, len).or_else(|| producer.reserve(cells, len))
                            {
                                producer.publish(cells, slot, 2, 0, index as u64 + 100);
                                break;
                            }
                            producer.credit(tail.load(Ordering::Acquire)).unwrap();
                            loom::thread::yield_now();
                        }
                    }
                });
                let (cells, tail) = &*shared;
                let mut consumer = Consumer::new(4 * UNIT);
                for (index, len) in lens.into_iter().enumerate() {
                    let frame = loop {
                        match consumer.peek(cells).unwrap() {
                            Some(frame) => break frame,
                            None => loom::thread::yield_now(),
                        }
                    };
                    assert_eq!((frame.arg, frame.len, frame.kind), (index as u64 + 100, len, 2));
                    consumer.advance(&frame);
                    tail.store(consumer.tail(), Ordering::Release);
                }
                assert_eq!(consumer.peek(cells), Ok(None));
                producer.join().unwrap();
            });
        }
    }

    #[cfg(not(loom))]
    mod plain {
        use super::*;
        use proptest::prelude::*;

        const SIZE: usize = 1024;

        #[test]
        fn a_full_ring_takes_nothing_until_something_was_consumed() {
            let (cells, mut producer, mut consumer) =
                (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
            let mut count = 0;
            while let Some(slot) = producer.reserve(&cells, 8) {
                producer.publish(&cells, slot, 2, 3, count);
                count += 1;
            }
            assert_eq!(count, (SIZE / UNIT - 1) as u64 / 2, "one unit stays free for the next header");
            let frame = consumer.peek(&cells).unwrap().unwrap();
            assert_eq!((frame.kind, frame.flags, frame.len, frame.arg), (2, 3, 8, 0));
            consumer.advance(&frame);
            assert!(producer.reserve(&cells, 8).is_none(), "not known yet");
            producer.credit(consumer.tail()).unwrap();
            assert!(producer.reserve(&cells, 8).is_some());
        }

        #[test]
        fn the_longest_payload_fits_at_every_position_of_an_empty_ring() {
            for start in 0..SIZE / UNIT {
                let (cells, mut producer, mut consumer) =
                    (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
                for _ in 0..start {
                    let slot = producer.reserve(&cells, 0).unwrap();
                    producer.publish(&cells, slot, 2, 0, 0);
                    let frame = consumer.peek(&cells).unwrap().unwrap();
                    consumer.advance(&frame);
                    producer.credit(consumer.tail()).unwrap();
                }
                let longest = SIZE / 2 - 2 * LINE;
                let slot = producer.reserve(&cells, longest).unwrap_or_else(|| panic!("at unit {start}"));
                producer.publish(&cells, slot, 2, 0, 9);
                assert_eq!(consumer.peek(&cells).unwrap().unwrap().len, longest);
            }
        }

        #[test]
        fn positions_no_consumer_can_have_are_nonsense() {
            let (cells, mut producer) = (Cells::new(SIZE), Producer::new(SIZE));
            for _ in 0..3 {
                let slot = producer.reserve(&cells, 0).unwrap();
                producer.publish(&cells, slot, 2, 0, 0);
            }
            assert_eq!(producer.credit(32), Ok(()));
            for wrong in [16, 33, 64, u64::MAX, 1 << 63] {
                assert_eq!(producer.credit(wrong), Err(Nonsense), "{wrong}");
            }
            assert_eq!(producer.credit(48), Ok(()));
        }

        #[test]
        fn a_wrap_marker_at_the_start_is_nonsense_and_no_endless_loop() {
            let cells = Cells::new(SIZE);
            cells.set_word(0, MARK | WRAP as u32, Ordering::Relaxed);
            assert_eq!(Consumer::new(SIZE).peek(&cells), Err(Nonsense));
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]

            /// Against a queue as the model: any mixture of frames and consumption delivers all, in order, and no
            /// frame lies over one that is not consumed.
            #[test]
            fn a_ring_is_a_queue(steps in prop::collection::vec((any::<bool>(), 0usize..=SIZE / 2 - 2 * LINE), 1..200)) {
                let (cells, mut producer, mut consumer) = (Cells::new(SIZE), Producer::new(SIZE), Consumer::new(SIZE));
                let mut model = std::collections::VecDeque::new();
                for (number, (produce, len)) in steps.into_iter().enumerate() {
                    if produce {
                        let here = number % 2 == 0 && len < *ALIGNED.start();
                        let slot = if here { producer.reserve_here(&cells, len) } else { None };
                        if let Some(slot) = slot.or_else(|| producer.reserve(&cells, len)) {
                            let range = slot.at..slot.at + span(slot.at, len);
                            prop_assert!(slot.payload >= slot.at + UNIT && slot.payload + len <= range.end);
                            prop_assert!(!ALIGNED.contains(&len) || slot.payload % LINE == 0);
                            prop_assert!(range.end <= SIZE);
                            for (at, len, _) in &model {
                                prop_assert!(at + span(*at, *len) <= range.start || range.end <= *at);
                            }
                            producer.publish(&cells, slot, 2, number as u8, number as u64);
                            model.push_back((slot.at, len, number));
                        } else {
                            prop_assert!(!model.is_empty(), "an empty ring has room");
                        }
                    } else if let Some((at, len, number)) = model.pop_front() {
                        let frame = consumer.peek(&cells).unwrap().unwrap();
                        prop_assert_eq!((frame.at, frame.len, frame.arg), (at, len, number as u64));
                        prop_assert_eq!(consumer.next_if(&cells, 2, u8::MAX), Some(frame));
                        prop_assert_eq!(consumer.next_if(&cells, 3, u8::MAX), None);
                        prop_assert_eq!(consumer.next_short(&cells, 2, u8::MAX, 64), (len <= 64).then_some(frame));
                        prop_assert_eq!(consumer.next_short(&cells, 3, u8::MAX, 64), None);
                        prop_assert_eq!(consumer.next_if(&cells, 2, 0).is_some(), number as u8 == 0);
                        prop_assert_eq!(frame.payload, at + lead(at, len));
                        consumer.advance(&frame);
                        prop_assert_eq!(producer.credit(consumer.tail()), Ok(()));
                    } else {
                        prop_assert_eq!(consumer.peek(&cells), Ok(None));
                    }
                }
            }

            /// Whatever a hostile producer writes, a frame that is believed lies inside the ring.
            #[test]
            fn garbage_is_nonsense_or_inside(words in prop::collection::vec((0u32..4, any::<u32>(), any::<u64>()), SIZE / UNIT)) {
                let cells = Cells::new(SIZE);
                for (index, (kind, len, arg)) in words.iter().enumerate() {
                    let word = if *kind == 3 { *len } else { MARK | kind };
                    cells.set_word(index * UNIT, word, Ordering::Relaxed);
                    cells.set_rest(index * UNIT, len % (4 * SIZE as u32), *arg);
                }
                let mut consumer = Consumer::new(SIZE);
                for _ in 0..100 {
                    if let Some(frame) = consumer.next_if(&cells, 2, u8::MAX) {
                        prop_assert_eq!(consumer.peek(&cells), Ok(Some(frame)));
                    }
                    if let Some(frame) = consumer.next_short(&cells, 2, u8::MAX, 64) {
                        prop_assert_eq!(consumer.peek(&cells), Ok(Some(frame)));
                    }
                    match consumer.peek(&cells) {
                        Ok(Some(frame)) => {
                            prop_assert!(frame.at + span(frame.at, frame.len) <= SIZE);
                            consumer.advance(&frame);
                        }
                        Ok(None) | Err(Nonsense) => break,
                    }
                }
            }
        }
    }
}
