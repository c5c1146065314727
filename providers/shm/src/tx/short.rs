//! Short messages: in the ring when they are posted.

use dat_plugin::{CompletionStatus, PostFlag, Request, Segment};

use super::{Hint, SOLICITED, State, Tx, kind};
use crate::bytes;
use crate::channel::{Chan, SEND};
use crate::link::Link;

impl Tx {
    /// Puts a short message into the ring, if there is room. `false`: nothing was done.
    #[inline(always)]
    pub(super) fn post_short(&mut self, chan: &Chan, link: &Link, request: &Request) -> bool {
        let Some(rings) = self.ring.as_mut() else { return false };
        if request.total > rings.short || request.flags.contains(PostFlag::FENCE) {
            return false;
        }
        let len = request.total as usize;
        let slot = loop {
            match rings.out.reserve(&rings.memory, len) {
                Some(slot) => break slot,
                None if rings.learn(link) => {}
                None => return false,
            }
        };
        let to = rings.memory.at(slot.payload);
        // SAFETY: a reserved slot has room for `total` bytes, which the copies count.
        unsafe {
            match request.segments() {
                [one] if one.len() as usize == len => bytes::copy(one.addr() as *const u8, to, len),
                several => gather(several, to, len),
            }
        }
        let flags = if request.flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 };
        rings.publish(chan, link, slot, kind::SEND, flags, len as u32);
        let (index, seq) = (self.tail, self.seq);
        self.seq = seq.wrapping_add(1);
        self.tail = index + 1;
        self.sent = index + 1;
        let entry = self.entry(index);
        entry.token = request.token;
        entry.flags = request.flags;
        entry.total = request.total;
        entry.seq = seq;
        entry.state = State::Ring;
        entry.status = CompletionStatus::SUCCESS;
        if self.done == index {
            // The oldest of all; those behind it change nothing of what to look for.
            if !self.has_completion() {
                chan.hint.set(Hint::Counter, seq);
            }
            chan.tell(SEND);
        }
        true
    }
}

/// Copies the first `len` bytes of a list to `to`, out of the way of messages of one segment.
///
/// # Safety
/// `len` bytes are writable at `to`.
#[inline(never)]
unsafe fn gather(segments: &[Segment], mut to: *mut u8, mut left: usize) {
    for segment in segments {
        let len = left.min(segment.len() as usize);
        // SAFETY: the caller's promise, `left` counts the bytes; the source is the segment's.
        unsafe { bytes::copy(segment.addr() as *const u8, to, len) };
        to = to.wrapping_add(len);
        left -= len;
    }
}
