//! How large the rings of a connection are: what the attributes of its endpoint ask for.
//!
//! A ring is a power of two between [`LEAST`] and [`MOST`], and twice [`LEAST`] at least where messages may be longer than
//! [`FEW`]. It has room for as many messages of [`SMALL`] bytes as may be under way in one direction, so that none of them
//! waits for the receiver, and for [`FEW`] bytes of each of the first 32. Endpoints that say that their messages are
//! shorter get less.
//!
//! The connecting endpoint decides for both directions, because it makes the memory before it knows the other. It speaks
//! for the other as well: what that one has under way beyond the receives of the connecting endpoint would wait in the ring
//! for a receive, and waits at its sender's instead.

use std::ops::RangeInclusive;

use dat_plugin::ChannelAttr;

use crate::ring::most;

/// What a peer, or a parameter, may ask for.
pub(crate) const RANGE: RangeInclusive<usize> = 4096..=16 << 20;

/// Smallest and largest ring that attributes lead to.
const LEAST: usize = *RANGE.start();
const MOST: usize = 1 << 20;

/// What usual attributes lead to.
pub(crate) const USUAL: usize = 16 << 10;

/// A short message, of which all that may be under way find room.
const SMALL: usize = 192;
/// What one of the first takes, header and all, and how many these are: with 32 KiB a stream of messages of 4 KiB is twice
/// as fast as with 16, and not faster with 64.
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

/// Bytes of a ring of answers beside a ring of requests: for what one side reads of the other's memory where it cannot reach
/// that itself.
pub(crate) fn answers(ring: usize) -> usize {
    (ring / 4).clamp(4096, 64 << 10)
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
