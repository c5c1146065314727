//! Work a device has of one direction of a channel: what its completions will be matched with.
//!
//! One producer (posts, which the engine serialises), one consumer (whoever polls the completion queue, under the
//! queue's lock). A completion names its slot; those before it completed with it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sequence numbers as a completion carries them.
pub(crate) const SEQUENCE_BITS: u32 = 23;
const SEQUENCE: u32 = (1 << SEQUENCE_BITS) - 1;

/// The most work a ring holds: a quarter of the sequence numbers at most, so that old and new cannot be mixed up.
pub(crate) const MAX_WORK: u32 = 1 << 16;

/// What is known of a post.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Posted {
    pub(crate) token: u64,
    pub(crate) length: u32,
    /// A receive that must fail when it is used.
    pub(crate) poisoned: bool,
}

pub(crate) struct Ring {
    slots: Box<[Slot]>,
    limit: u32,
    head: AtomicU32,
    tail: AtomicU32,
}

#[derive(Default)]
struct Slot {
    token: AtomicU64,
    /// Length in the low half, poison above.
    meta: AtomicU64,
}

const POISON: u64 = 1 << 32;

impl Ring {
    pub(crate) fn new(limit: u32) -> Ring {
        let slots = limit.max(1).next_power_of_two() as usize;
        Ring {
            slots: std::iter::repeat_with(Slot::default).take(slots).collect(),
            limit,
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
        }
    }

    /// Producer: takes a post in and gives its sequence number; `None` when it is full.
    #[inline]
    pub(crate) fn push(&self, posted: Posted) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(self.tail.load(Ordering::Acquire)) >= self.limit {
            return None;
        }
        let slot = &self.slots[head as usize & (self.slots.len() - 1)];
        slot.token.store(posted.token, Ordering::Relaxed);
        slot.meta
            .store(u64::from(posted.length) | if posted.poisoned { POISON } else { 0 }, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(head & SEQUENCE)
    }

    /// Producer: takes back the last `count` posts, which the device did not take.
    pub(crate) fn unpush(&self, count: u32) {
        self.head.fetch_sub(count, Ordering::AcqRel);
    }

    /// Consumer: the post of this sequence number, now done as are all before it.
    #[inline]
    pub(crate) fn complete(&self, sequence: u32) -> Posted {
        let number = self.number(sequence);
        self.tail.store(number.wrapping_add(1), Ordering::Release);
        self.slot(number)
    }

    /// Consumer: all posts before this sequence number are done; the last of them, if that is news.
    pub(crate) fn complete_before(&self, sequence: u32) -> Option<Posted> {
        let (tail, number) = (self.tail.load(Ordering::Relaxed), self.number(sequence));
        if number == tail {
            return None;
        }
        self.tail.store(number, Ordering::Release);
        Some(self.slot(number.wrapping_sub(1)))
    }

    /// The full number of a post that is not done, or of the next one.
    #[inline]
    fn number(&self, sequence: u32) -> u32 {
        let tail = self.tail.load(Ordering::Relaxed);
        tail.wrapping_add(sequence.wrapping_sub(tail) & SEQUENCE)
    }

    #[inline]
    fn slot(&self, number: u32) -> Posted {
        let slot = &self.slots[number as usize & (self.slots.len() - 1)];
        let meta = slot.meta.load(Ordering::Relaxed);
        let token = slot.token.load(Ordering::Relaxed);
        Posted { token, length: meta as u32, poisoned: meta & POISON != 0 }
    }

    /// The sequence number the next post will have.
    pub(crate) fn next_sequence(&self) -> u32 {
        self.mark() & SEQUENCE
    }

    /// Where posting stands, for [`Ring::is_past`].
    pub(crate) fn mark(&self) -> u32 {
        self.head.load(Ordering::Acquire)
    }

    /// Whether all posts before `mark` are done.
    pub(crate) fn is_past(&self, mark: u32) -> bool {
        mark.wrapping_sub(self.tail.load(Ordering::Acquire)) as i32 <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posted(token: u64) -> Posted {
        Posted { token, length: token as u32 * 2, poisoned: token.is_multiple_of(3) }
    }

    #[test]
    fn a_completion_takes_all_before_it_along() {
        let ring = Ring::new(4);
        let sequences: Vec<u32> = (0..4).map(|token| ring.push(posted(token)).expect("room")).collect();
        assert_eq!(ring.push(posted(9)), None, "full");
        let mark = ring.mark();
        assert_eq!(ring.complete(sequences[2]), posted(2));
        assert!(!ring.is_past(mark));
        for token in 4..7 {
            ring.push(posted(token)).expect("three were freed");
        }
        assert_eq!(ring.push(posted(9)), None, "full again");
        assert_eq!(ring.complete(sequences[3]), posted(3));
        assert!(ring.is_past(mark));
    }

    #[test]
    fn silent_successes_are_news_once() {
        let ring = Ring::new(4);
        for token in 0..3 {
            ring.push(posted(token)).expect("room");
        }
        let marker = ring.next_sequence();
        ring.push(posted(3)).expect("room");
        assert_eq!(ring.complete_before(0), None);
        assert_eq!(ring.complete_before(2), Some(posted(1)));
        assert_eq!(ring.complete_before(marker), Some(posted(2)));
        assert_eq!(ring.complete_before(marker), None);
        assert_eq!(ring.complete(marker), posted(3));
        assert!(ring.is_past(ring.mark()));
    }

    #[test]
    fn sequence_numbers_wrap() {
        let ring = Ring::new(3);
        ring.head.store(u32::MAX - 1, Ordering::Relaxed);
        ring.tail.store(u32::MAX - 1, Ordering::Relaxed);
        for token in 0..9 {
            let sequence = ring.push(posted(token)).expect("room");
            assert!(sequence <= SEQUENCE);
            assert_eq!(ring.complete(sequence), posted(token));
        }
    }

    #[test]
    fn what_was_taken_back_leaves_room() {
        let ring = Ring::new(1);
        ring.push(posted(1)).expect("room");
        ring.unpush(1);
        let sequence = ring.push(posted(2)).expect("room again");
        assert_eq!(ring.complete(sequence), posted(2));
    }
}
