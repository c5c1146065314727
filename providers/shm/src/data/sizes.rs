//! Sizes of the rings of a connection, as the attributes of its endpoint need them.
//!
//! A ring is a power of two between [`LEAST`] and [`MOST`]. It is at least twice [`LEAST`] where messages may be longer than
//! [`FEW`]. It has room for all messages of [`SMALL`] bytes that may be under way in one direction, so that none waits for
//! the receiver. It has room for [`FEW`] bytes of each of the first 32. Endpoints with shorter messages get less.
//!
//! The connecting endpoint decides for both directions, because it makes the memory before it knows the other. If the other
//! has more under way than fits, those messages wait at their sender.

use std::ops::RangeInclusive;

use dat_plugin::ChannelAttr;

use crate::data::ring::most;

/// What a peer, or a parameter, may ask for.
pub(crate) const RANGE: RangeInclusive<usize> = 4096..=16 << 20;

/// Smallest and largest ring for any attributes.
const LEAST: usize = *RANGE.start();
const MOST: usize = 1 << 20;

/// The ring for usual attributes.
pub(crate) const USUAL: usize = 16 << 10;

/// A short message: all that may be under way find room.
const SMALL: usize = 192;
/// Bytes for each of the first messages with its header, and the number of these. With 32 KiB a stream of messages of 4 KiB
/// is twice as fast as with 16 KiB; 64 KiB is no faster.
const FEW: usize = 1024;
const FIRST: usize = 32;

/// Bytes of a ring for an endpoint of these attributes.
pub(crate) fn ring(attr: &ChannelAttr) -> usize {
    let depth = attr.max_requests.max(attr.max_recvs).max(1) as usize;
    let longest = most(usize::try_from(attr.max_message).unwrap_or(usize::MAX).min(MOST));
    let small = longest.min(most(SMALL));
    // One more: the end of a ring may be too short for the next, and a header stays free.
    let many = (depth + 1).saturating_mul(small);
    let few = depth.min(FIRST) * longest.min(FEW);
    let least = if longest > FEW { 2 * LEAST } else { LEAST };
    many.max(few).clamp(least, MOST).next_power_of_two()
}

/// Bytes of a ring of answers beside a ring of requests. It carries what the peer reads for this side.
pub(crate) fn answers(ring: usize) -> usize {
    (ring / 4).clamp(4096, 64 << 10)
}

/// Bytes of the control page, and of the part of each side there.
pub(crate) const CONTROL: usize = 4096;
pub(crate) const SIDE: usize = 1024;
/// Behind both sides' parts: see [`crate::data::slab`].
pub(crate) const LEFT: usize = 2 * SIDE;

/// Bytes of a segment with rings of `ring` bytes.
pub(crate) fn segment(ring: usize) -> usize {
    CONTROL + 2 * ring + 2 * answers(ring)
}

/// Whether a ring may have this size.
pub(crate) fn is_sound(ring: usize) -> bool {
    ring.is_power_of_two() && RANGE.contains(&ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attr(depth: u32, max_message: u64) -> ChannelAttr {
        ChannelAttr { max_requests: depth, max_recvs: depth, max_message, ..ChannelAttr::default() }
    }

    #[test]
    fn rings_follow_depth_and_length() {
        let unlimited = 1 << 31;
        for (depth, longest, expected) in [
            (1, unlimited, 8 << 10),
            (1, 64, 4 << 10),
            (16, unlimited, USUAL),
            (16, 256, 8 << 10),
            (16, 64, 4 << 10),
            (17, unlimited, 32 << 10),
            (64, unlimited, 32 << 10),
            (256, unlimited, 64 << 10),
            (1024, unlimited, 256 << 10),
            (1024, 8, 64 << 10),
            (4096, unlimited, 1 << 20),
            (u32::MAX, u64::MAX, 1 << 20),
            (0, 0, 4 << 10),
        ] {
            assert_eq!(ring(&attr(depth, longest)), expected, "{depth} messages of {longest} bytes");
        }
        let receiver = ChannelAttr { max_requests: 1, ..attr(256, unlimited) };
        assert_eq!(ring(&receiver), 64 << 10, "a direction counts as much as the other");
    }

    #[test]
    fn every_size_is_sound_and_none_shrinks_with_depth() {
        for longest in [0, 8, 64, 1008, 1009, 1 << 31, u64::MAX] {
            let mut last = 0;
            for depth in 0..5000 {
                let size = ring(&attr(depth, longest));
                assert!(is_sound(size) && size >= last, "{depth} messages of {longest} bytes: {size}");
                last = size;
            }
        }
    }

    #[test]
    fn what_is_no_size_of_a_ring() {
        for wrong in [0, 1, 2048, 5000, 12288, 32 << 20, usize::MAX] {
            assert!(!is_sound(wrong), "{wrong}");
        }
    }
}
