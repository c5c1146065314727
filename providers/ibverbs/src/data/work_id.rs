//! Work request ids: they bring queue pair, direction and post back with a completion.

use crate::data::ring::SEQUENCE_BITS;

/// A work request id.
///
/// Bits 0 to 22 the sequence number, 23 the direction, 24 to 43 the slot in the queue, 44 to 61 the slot's generation,
/// 62 the marker, 63 a receive of a shared queue: its sequence number is its slot there, and it has no slot of a queue pair.
///
/// The bits that identify the queue pair stand above the direction. So one comparison with the slot recognises a completion
/// of the queue pair's own work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkId(pub(crate) u64);

const RECEIVE: u64 = 1 << SEQUENCE_BITS;
const SLOT: u32 = SEQUENCE_BITS + 1;
const MARKER: u64 = 1 << 62;
const SHARED: u64 = 1 << 63;

const GENERATION: u32 = 44;

/// A queue pair's slot in a completion queue, with a generation: the upper bits of its work request ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CqSlot(u64);

impl CqSlot {
    /// The most slots of a queue.
    pub(crate) const MOST: u32 = 1 << 20;

    /// A slot that no queue pair has had.
    pub(crate) fn new(index: u32) -> CqSlot {
        CqSlot(u64::from(index & (CqSlot::MOST - 1)) << SLOT)
    }

    /// The same slot for the next queue pair, so that late completions of the last one are not taken for its work.
    pub(crate) fn renewed(self) -> CqSlot {
        CqSlot(self.0.wrapping_add(1 << GENERATION) & (MARKER - 1))
    }

    pub(crate) fn index(self) -> usize {
        WorkId(self.0).index()
    }

    pub(crate) fn send_base(self) -> u64 {
        self.0
    }

    pub(crate) fn recv_base(self) -> u64 {
        self.0 | RECEIVE
    }
}

impl WorkId {
    /// Of a receive of a shared queue.
    pub(crate) fn shared(slot: u32) -> WorkId {
        WorkId(SHARED | RECEIVE | u64::from(slot))
    }

    /// Of a marker that follows all requests before `sequence`.
    pub(crate) fn marker(base: u64, sequence: u32) -> WorkId {
        WorkId(base | MARKER | u64::from(sequence))
    }

    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self.0 & SHARED != 0
    }

    #[inline]
    pub(crate) fn is_receive(self) -> bool {
        self.0 & RECEIVE != 0
    }

    #[inline]
    pub(crate) fn is_marker(self) -> bool {
        self.0 & MARKER != 0
    }

    /// Whether it is work, no marker, of the channel that has this place.
    #[inline]
    pub(crate) fn is_of(self, slot: CqSlot) -> bool {
        self.0 ^ slot.0 < 1 << SLOT
    }

    /// The same, markers too.
    pub(crate) fn is_of_or_marks(self, slot: CqSlot) -> bool {
        WorkId(self.0 & !MARKER).is_of(slot)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        (self.0 >> SLOT) as usize & (CqSlot::MOST as usize - 1)
    }

    #[inline]
    pub(crate) fn sequence(self) -> u32 {
        self.0 as u32 & ((1 << SEQUENCE_BITS) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u32, generation: usize) -> CqSlot {
        std::iter::successors(Some(CqSlot::new(index)), |place| Some(place.renewed()))
            .nth(generation)
            .expect("endless")
    }

    #[test]
    fn work_ids_keep_their_parts() {
        let place = place(0xA_BCDE, 0x2_FEDC);
        for (base, receive) in [(place.send_base(), false), (place.recv_base(), true)] {
            let id = WorkId(base | 0x7F_FFFF);
            assert_eq!((id.index(), id.sequence(), id.is_receive()), (0xA_BCDE, 0x7F_FFFF, receive));
            assert!(id.is_of(place) && id.is_of_or_marks(place) && !id.is_marker() && !id.is_shared());
        }
        let marker = WorkId::marker(place.send_base(), 77);
        assert_eq!((marker.index(), marker.sequence(), marker.is_receive()), (0xA_BCDE, 77, false));
        assert!(marker.is_marker() && !marker.is_of(place) && marker.is_of_or_marks(place));
        let (shared, first) = (WorkId::shared(0x7F_FFFF), CqSlot::new(0));
        assert_eq!((shared.sequence(), shared.is_receive(), shared.is_shared()), (0x7F_FFFF, true, true));
        assert!(!shared.is_of(first) && !shared.is_of_or_marks(first));
    }

    #[test]
    fn work_of_another_place_or_time_is_not_of_this_one() {
        let here = place(5, 9);
        for other in [place(4, 9), place(5, 8), here.renewed(), place(0, 0)] {
            for id in [other.send_base(), other.recv_base(), WorkId::marker(other.send_base(), 3).0] {
                assert!(!WorkId(id).is_of(here) && !WorkId(id).is_of_or_marks(here), "{id:x}");
            }
        }
    }

    #[test]
    fn generations_begin_anew_after_the_last() {
        let last = place(5, (1 << 18) - 1);
        assert_eq!((last.index(), last.renewed()), (5, CqSlot::new(5)));
        assert!(!WorkId(last.send_base()).is_marker() && !WorkId(last.send_base()).is_shared());
    }
}
