//! What every device can do, and its limits.

use dat_plugin::{Caps, Segment};

/// What every device can do.
pub const CAPS: Caps = Caps(
    Caps::ALLOC.0
        | Caps::RECEIVER_WAITS.0
        | Caps::WRITE_ORDERED.0
        | Caps::ATOMICS.0
        | Caps::IMMEDIATE.0
        | Caps::SRQ.0
        | Caps::WINDOWS.0
        | Caps::SEND_INVALIDATE.0,
);
/// Private data at request, accept and reject, in bytes.
pub const MAX_PRIVATE_DATA: usize = 256;
/// Segments of one post.
pub const MAX_SEGMENTS: u32 = 16;
/// Requests or receives outstanding on one channel.
pub const MAX_POSTS: u32 = 8192;
/// Bytes of one message, write or read: a completion counts them in 32 bits.
pub const MAX_MESSAGE: u64 = 1 << 31;
/// The longest registration, in bytes.
pub const MAX_REGION: u64 = 1 << 40;
/// The most completions a queue is made for.
pub const MAX_DEPTH: u32 = 1 << 20;

/// Whether the number and the lengths of a post's segments are as declared, and within the limits.
pub(crate) fn well_formed(segments: &[Segment], limit: u32, total: u64) -> bool {
    let sum: u64 = segments.iter().map(|segment| u64::from(segment.len())).sum();
    segments.len() <= limit as usize && sum == total && total <= MAX_MESSAGE
}
