//! Plain messages, taken several at once.

use std::sync::atomic::Ordering;

use dat_kit::Stretch;
use dat_plugin::{Completion, CompletionFlag, CompletionStatus};

use super::Rx;
use super::long::still_there;
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided::Part;
use crate::tx::{SOLICITED, kind};

const _: () = assert!(SOLICITED as u32 == CompletionFlag::SOLICITED.0);

/// From so many bytes on the sender hears of the room a message leaves at once, and not after the last of a run: a few of
/// them fill a ring, and sender and receiver would take turns.
const EARLY: u32 = 1024;

impl Rx {
    /// Messages in one frame each that carry nothing but bytes and have a receive with room, as long as there are some:
    /// what [`Rx::poll_rarer`] would do, without asking each time for what is rare. With none, nothing was done.
    #[inline]
    pub(super) fn messages(
        &mut self,
        chan: &Chan,
        link: &Link,
        out: &mut [Completion],
        burst: bool,
    ) -> usize {
        let user = chan.attr.recv_user;
        let mut n = 0;
        while let Some(place) = out.get_mut(n) {
            if !self.message_for(chan, place, user) && !self.mapped_for(chan, link, place, user) {
                break;
            }
            n += 1;
            if place.length >= EARLY {
                self.make_room(link);
            }
            if !burst && self.at_new_line() {
                break;
            }
        }
        if n > 0 {
            self.completed = self.completed.wrapping_add(n as u32);
            chan.rx_completed.store(self.completed, Ordering::Relaxed);
            chan.acked.store(self.told, Ordering::Relaxed);
            self.dirty = true;
            self.publish(link);
            self.aim_plain(chan);
        }
        n
    }

    /// A lone message of a few bytes of those that [`Rx::messages`] takes, into a receive of one segment. `None`: nothing
    /// was done; else whether somebody may want to be told ([`Chan::took`]).
    #[inline(always)]
    pub(crate) fn take_one(&mut self, chan: &Chan, link: &Link, place: &mut Completion) -> Option<bool> {
        let rings = self.rings.as_mut().filter(|_| self.plain)?;
        let memory = rings.memory;
        let frame = rings.from.next_short(&memory, kind::SEND, SOLICITED, bytes::SHORT)?;
        let recv = self.recvs.get(self.head as usize & (self.recvs.len() - 1))?;
        if self.head == self.tail || frame.len as u64 >= recv.room.into() || recv.nsegs != 1 {
            return None;
        }
        *place = Completion {
            token: recv.token,
            user: chan.attr.recv_user,
            status: CompletionStatus::SUCCESS,
            length: frame.len as u32,
            flags: CompletionFlag(frame.flags.into()),
            imm: 0,
        };
        // SAFETY: as in `message_for`.
        unsafe { bytes::copy_short(memory.at(frame.payload), recv.one.addr() as *mut u8, frame.len) }
        self.head += 1;
        rings.from.advance(&frame);
        chan.peek.store(memory.word_ptr(rings.from.at()), Ordering::Release);
        let completed = self.completed.wrapping_add(1);
        self.completed = completed;
        chan.rx_completed.store(completed, Ordering::Relaxed);
        chan.acked.store(frame.arg as u32, Ordering::Relaxed);
        let own = link.segment.own();
        own.consumed.store(rings.from.tail(), Ordering::Release);
        own.completed.store(completed, Ordering::Release);
        Some(link.sender_sleeps())
    }

    /// After [`Rx::take_one`], when the peer sleeps or waits for room.
    pub(crate) fn took_one(&mut self, link: &Link) {
        self.dirty = true;
        self.publish(link);
    }

    /// Says how far the ring was read, and nothing else.
    #[inline]
    fn make_room(&self, link: &Link) {
        if let Some(rings) = &self.rings {
            link.segment.own().consumed.store(rings.from.tail(), Ordering::Release);
        }
    }

    /// Takes one such message, if there is one. By itself, and with the copy at the end, so that what it has in hand stays
    /// in registers.
    #[inline(never)]
    fn message_for(&mut self, chan: &Chan, place: &mut Completion, user: u64) -> bool {
        let Some(rings) = self.rings.as_mut() else { return false };
        let Some(frame) = rings.from.next_if(&rings.memory, kind::SEND, SOLICITED) else { return false };
        if self.head == self.tail {
            return self.take_shared(chan) && self.message_for(chan, place, user);
        }
        let at = self.head as usize & (self.recvs.len() - 1);
        let recv = &self.recvs[at];
        if frame.len as u64 >= recv.room.into() {
            return false;
        }
        *place = Completion {
            token: recv.token,
            user,
            status: CompletionStatus::SUCCESS,
            length: frame.len as u32,
            flags: CompletionFlag(frame.flags.into()),
            imm: 0,
        };
        self.told = frame.arg as u32;
        self.head += 1;
        rings.from.advance(&frame);
        let from = rings.memory.at(frame.payload);
        // SAFETY: the frame's payload lies inside the ring (`Consumer::next_if` checked it) and is not given back to the peer
        // yet; it is no longer than what the receive has room for.
        unsafe {
            match recv.nsegs {
                1 => bytes::copy(from, recv.one.addr() as *mut u8, frame.len),
                _ => scatter(from, frame.len, recv.list(&self.segs, at * self.max_segs)),
            }
        }
        true
    }

    /// Takes one such message that lies in memory of the peer's which is mapped here, if there is one.
    #[inline(never)]
    fn mapped_for(&mut self, chan: &Chan, link: &Link, place: &mut Completion, user: u64) -> bool {
        let Some(rings) = self.rings.as_mut() else { return false };
        let Some(frame) = rings.from.next_if(&rings.memory, kind::PULL, SOLICITED) else { return false };
        if self.head == self.tail {
            return self.take_shared(chan) && self.mapped_for(chan, link, place, user);
        }
        let recv = &self.recvs[self.head as usize & (self.recvs.len() - 1)];
        let len = frame.arg >> 32;
        if len >= recv.room.into() || recv.nsegs != 1 || frame.len != Part::BYTES {
            return false;
        }
        // SAFETY: the frame's payload lies inside the ring, is aligned and as long as checked.
        let part = unsafe { Part::load(rings.memory.at(frame.payload)) };
        if part.map == 0 || part.len != len {
            return false;
        }
        let (map, offset) = (part.map, part.offset);
        let Some(from) = self.near.address(&link.peer.maps, map, offset, len, false) else { return false };
        // SAFETY: the mapping has as many bytes there and stays as long as the peer object, which `link` holds; they are no
        // more than what the receive has room for.
        unsafe { bytes::copy(from, recv.one.addr() as *mut u8, len as usize) };
        if !still_there(link) {
            return false;
        }
        *place = Completion {
            token: recv.token,
            user,
            status: CompletionStatus::SUCCESS,
            length: len as u32,
            flags: CompletionFlag(frame.flags.into()),
            imm: 0,
        };
        self.told = frame.arg as u32;
        self.head += 1;
        rings.from.advance(&frame);
        true
    }
}

/// [`bytes::scatter`], out of the way of receives of one segment.
///
/// # Safety
/// As there.
#[inline(never)]
unsafe fn scatter(from: *const u8, len: usize, list: &[Stretch]) {
    // SAFETY: the caller's promise.
    unsafe { bytes::scatter(from, len, list, 0) }
}
