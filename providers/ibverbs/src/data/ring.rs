//! Work a device has of one direction of a channel: what its completions will be matched with.
//!
//! One producer (posts, which the engine serialises), one consumer (the thread that polls the completion queue, under the
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
    /// Of a request its flags at the device; of a receive not 0 when it must fail as soon as it is used.
    pub(crate) mark: u32,
}

pub(crate) struct Ring {
    /// A power of two of them.
    slots: Box<[Slot]>,
    /// One less than there are slots.
    mask: u32,
    /// How much work there may be: nothing while it is closed.
    limit: AtomicU32,
    /// The number of the next post. Of the numbers, here and in `tail`, the bits of [`SEQUENCE`] count.
    head: AtomicU32,
    /// The number of the oldest post that is not done.
    tail: AtomicU32,
    /// The limit while it is open.
    open: u32,
}

/// A post, with the fields of [`Posted`].
#[derive(Default)]
pub(crate) struct Slot {
    token: AtomicU64,
    length: AtomicU32,
    mark: AtomicU32,
}

impl Slot {
    #[inline]
    pub(crate) fn token(&self) -> u64 {
        self.token.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn posted(&self) -> Posted {
        Posted { token: self.token(), length: self.length(), mark: self.mark.load(Ordering::Relaxed) }
    }
}

impl Ring {
    /// A closed ring.
    pub(crate) fn new(limit: u32) -> Ring {
        let slots = limit.max(1).next_power_of_two();
        Ring {
            slots: std::iter::repeat_with(Slot::default).take(slots as usize).collect(),
            mask: slots - 1,
            limit: AtomicU32::new(0),
            head: AtomicU32::new(0),
            tail: AtomicU32::new(0),
            open: limit,
        }
    }

    /// Takes posts from now on.
    pub(crate) fn open(&self) {
        self.limit.store(self.open, Ordering::Release);
    }

    /// Takes posts no longer.
    pub(crate) fn close(&self) {
        self.limit.store(0, Ordering::Release);
    }

    /// Producer: takes a post in and gives its sequence number; `None` when it is full or closed.
    #[inline]
    pub(crate) fn push(&self, posted: Posted) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        let work = head.wrapping_sub(self.tail.load(Ordering::Acquire)) & SEQUENCE;
        if work >= self.limit.load(Ordering::Acquire) {
            return None;
        }
        let slot = self.slot(head);
        slot.token.store(posted.token, Ordering::Relaxed);
        slot.length.store(posted.length, Ordering::Relaxed);
        slot.mark.store(posted.mark, Ordering::Relaxed);
        self.head.store(head.wrapping_add(1), Ordering::Release);
        Some(head & SEQUENCE)
    }

    /// Producer: the mark of the last post, 0 if there was none.
    pub(crate) fn last_mark(&self) -> u32 {
        self.slot(self.head.load(Ordering::Relaxed).wrapping_sub(1)).mark.load(Ordering::Relaxed)
    }

    /// Producer: takes back the last `count` posts, which the device did not take.
    pub(crate) fn unpush(&self, count: u32) {
        self.head.fetch_sub(count, Ordering::AcqRel);
    }

    /// Consumer: the post of this sequence number, now done as are all before it.
    #[inline]
    pub(crate) fn complete(&self, sequence: u32) -> &Slot {
        self.tail.store(sequence + 1, Ordering::Release);
        self.slot(sequence)
    }

    /// Consumer: all posts before this sequence number are done; the last of them, if that is news.
    pub(crate) fn complete_before(&self, sequence: u32) -> Option<&Slot> {
        if self.tail.load(Ordering::Relaxed).wrapping_sub(sequence) & SEQUENCE == 0 {
            return None;
        }
        self.tail.store(sequence, Ordering::Release);
        Some(self.slot(sequence.wrapping_sub(1)))
    }

    #[inline]
    fn slot(&self, number: u32) -> &Slot {
        // SAFETY: `mask` and `slots` are as `new` made them, so no number behind the mask is as large as there are slots.
        unsafe { self.slots.get_unchecked((number & self.mask) as usize) }
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
        let left = mark.wrapping_sub(self.tail.load(Ordering::Acquire));
        // The sign among the bits that count.
        (left << (u32::BITS - SEQUENCE_BITS)) as i32 <= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(limit: u32) -> Ring {
        let ring = Ring::new(limit);
        ring.open();
        ring
    }

    fn posted(token: u64) -> Posted {
        Posted { token, length: token as u32 * 2, mark: token as u32 % 3 }
    }

    fn complete(ring: &Ring, sequence: u32) -> Posted {
        ring.complete(sequence).posted()
    }

    fn complete_before(ring: &Ring, sequence: u32) -> Option<Posted> {
        ring.complete_before(sequence).map(Slot::posted)
    }

    #[test]
    fn a_completion_takes_all_before_it_along() {
        let ring = open(4);
        let sequences: Vec<u32> = (0..4).map(|token| ring.push(posted(token)).expect("room")).collect();
        assert_eq!(ring.push(posted(9)), None, "full");
        let mark = ring.mark();
        assert_eq!(complete(&ring, sequences[2]), posted(2));
        assert!(!ring.is_past(mark));
        for token in 4..7 {
            ring.push(posted(token)).expect("three were freed");
        }
        assert_eq!(ring.push(posted(9)), None, "full again");
        assert_eq!(complete(&ring, sequences[3]), posted(3));
        assert!(ring.is_past(mark));
    }

    #[test]
    fn silent_successes_are_news_once() {
        let ring = open(4);
        for token in 0..3 {
            ring.push(posted(token)).expect("room");
        }
        let marker = ring.next_sequence();
        ring.push(posted(3)).expect("room");
        assert_eq!(complete_before(&ring, 0), None);
        assert_eq!(complete_before(&ring, 2), Some(posted(1)));
        assert_eq!(complete_before(&ring, marker), Some(posted(2)));
        assert_eq!(complete_before(&ring, marker), None);
        assert_eq!(complete(&ring, marker), posted(3));
        assert!(ring.is_past(ring.mark()));
    }

    #[test]
    fn sequence_numbers_wrap() {
        for start in [u32::MAX - 1, SEQUENCE - 1, 2 * SEQUENCE] {
            let ring = open(3);
            ring.head.store(start, Ordering::Relaxed);
            ring.tail.store(start, Ordering::Relaxed);
            let mut marks = Vec::new();
            for token in 0..9 {
                let sequence = ring.push(posted(token)).expect("room");
                assert!(sequence <= SEQUENCE);
                assert!(!ring.is_past(ring.mark()) && marks.iter().all(|&mark| ring.is_past(mark)));
                assert_eq!(complete_before(&ring, sequence), None);
                assert_eq!(complete(&ring, sequence), posted(token));
                marks.push(ring.mark());
            }
            for token in 0..3 {
                ring.push(posted(token)).expect("room");
            }
            assert_eq!(ring.push(posted(9)), None, "full");
            assert_eq!(complete_before(&ring, ring.next_sequence()), Some(posted(2)));
            assert!(ring.is_past(ring.mark()));
        }
    }

    #[test]
    fn what_was_taken_back_leaves_room() {
        let ring = open(2);
        ring.push(posted(1)).expect("room");
        ring.push(posted(2)).expect("room");
        ring.unpush(1);
        assert_eq!(ring.last_mark(), posted(1).mark);
        let sequence = ring.push(posted(3)).expect("room again");
        assert_eq!((ring.last_mark(), complete(&ring, sequence)), (posted(3).mark, posted(3)));
    }

    #[test]
    fn a_closed_ring_takes_nothing() {
        let ring = Ring::new(2);
        assert_eq!(ring.push(posted(1)), None);
        ring.open();
        let sequence = ring.push(posted(1)).expect("open");
        ring.close();
        assert_eq!(ring.push(posted(2)), None);
        assert_eq!(complete(&ring, sequence), posted(1));
    }
}
