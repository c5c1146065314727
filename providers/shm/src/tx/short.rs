//! Messages in one frame: in the ring when they are posted.

use std::sync::atomic::Ordering;

use dat_plugin::{CompletionStatus, PostFlag, Request, Segment};

use super::{AHEAD, Hint, SOLICITED, State, Tx, kind};
use crate::bytes;
use crate::channel::{Chan, SEND};
use crate::link::Link;
use crate::one_sided::Part;

impl Tx {
    /// A send of one segment and a few bytes, while nothing is out of the ordinary. `None`: nothing was done, and
    /// [`Tx::post`] is to be asked; else whether somebody may want to be told ([`Chan::posted`]).
    #[inline(always)]
    pub(crate) fn post_at_once(&mut self, chan: &Chan, link: &Link, request: &Request) -> Option<bool> {
        let [one] = request.segments() else { return None };
        let (index, len) = (self.tail, one.len());
        let fenced = request.flags.contains(PostFlag::FENCE);
        if fenced || len > self.at_once || self.sent != index || index - self.head >= self.capacity {
            return None;
        }
        let place = index as usize & (self.entries.len() - 1);
        let entry = self.entries.get_mut(place)?;
        let rings = self.ring.as_mut()?;
        let (memory, len) = (rings.memory, len as usize);
        let slot = rings.out.reserve_here(&memory, len)?;
        // SAFETY: a reserved slot has room for `len` bytes; the source is the segment's, which has as many.
        unsafe { bytes::copy_short(one.addr() as *const u8, memory.at(slot.payload), len) }
        let flags = if request.flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 };
        let arg = (len as u64) << 32 | chan.rx_completed.load(Ordering::Relaxed) as u64;
        rings.out.publish(&memory, slot, kind::SEND, flags, arg);
        memory.prefetch((slot.at + AHEAD) & (4 * rings.chunk - 1));
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        self.tail = index + 1;
        self.sent = index + 1;
        entry.token = request.token;
        entry.flags = request.flags;
        entry.total = len as u64;
        entry.seq = seq;
        entry.state = State::Ring;
        entry.status = CompletionStatus::SUCCESS;
        let oldest = self.done == index;
        if oldest && !self.has_completion() {
            chan.hint.set(Hint::Counter, seq);
        }
        Some(link.receiver_sleeps() || oldest && chan.is_parked(SEND))
    }

    /// Puts a short message into the ring, if there is room. `false`: nothing was done.
    #[inline(always)]
    pub(super) fn post_short(&mut self, chan: &Chan, link: &Link, request: &Request) -> bool {
        let Some(rings) = self.ring.as_mut() else { return false };
        if request.flags.contains(PostFlag::FENCE) {
            return false;
        }
        if request.total > rings.short {
            return self.post_longer(chan, link, request);
        }
        let len = request.total as usize;
        let Some(slot) = rings.room(link, len) else { return false };
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
        self.taken_in(chan, request);
        true
    }

    /// A longer message of one segment, if one frame is all of it: in memory that the receiver can map, the frame says where;
    /// in other memory it has the bytes, if there is room. `false`: nothing was done.
    #[inline(never)]
    fn post_longer(&mut self, chan: &Chan, link: &Link, request: &Request) -> bool {
        let Some(rings) = self.ring.as_mut() else { return false };
        let [one] = request.segments() else { return false };
        let (addr, len) = (one.addr(), u64::from(one.len()));
        if request.total != len {
            return false;
        }
        let mapped = match len >= chan.dev.params.map_threshold && link.pull(len) {
            true => chan.dev.keys.home(one.lkey(), addr, len),
            false => None,
        };
        let (kind, bytes) = match mapped {
            Some(_) => (kind::PULL, Part::BYTES),
            None => (kind::SEND, len as usize),
        };
        if bytes > rings.chunk {
            return false;
        }
        let Some(slot) = rings.room(link, bytes) else { return false };
        let to = rings.memory.at(slot.payload);
        // SAFETY: a reserved slot has room for `bytes` bytes; the source is the segment's, which has as many.
        unsafe {
            match mapped {
                Some((map, offset)) => Part { addr, len, map, offset }.store(to),
                None => bytes::copy(addr as *const u8, to, bytes),
            }
        }
        let flags = if request.flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 };
        rings.publish(chan, link, slot, kind, flags, len as u32);
        self.taken_in(chan, request);
        true
    }

    /// The request posted last is in the ring.
    #[inline(always)]
    fn taken_in(&mut self, chan: &Chan, request: &Request) {
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
