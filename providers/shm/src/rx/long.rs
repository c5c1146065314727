//! Messages and writes that come in parts, and messages that lie in the sender's memory.

use std::sync::atomic::{Ordering, fence};

use dat_plugin::{Access, CompletionStatus};

use super::{Current, Failed, Rings, Rx, Step};
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided::{self, Part, Target};
use crate::ring::{Frame, Nonsense};
use crate::tx::{LENT, UNFINISHED};

/// Where the bytes are that a frame only names, and how many.
fn borrowed(link: &Link, rings: &Rings, frame: &Frame) -> Result<(*const u8, usize), Nonsense> {
    if frame.len != Part::BYTES {
        return Err(Nonsense);
    }
    // SAFETY: the frame's payload lies inside the ring, is aligned and as long as checked.
    let part = unsafe { Part::load(rings.memory.at(frame.payload)) };
    one_sided::lent(link, &part).map(|at| (at, part.len as usize)).ok_or(Nonsense)
}

/// Whether the peer was there after something was copied out of its memory. If not, that may have changed meanwhile: the
/// message was never there.
pub(super) fn still_there(link: &Link) -> bool {
    fence(Ordering::Acquire);
    link.segment.peer().gone.load(Ordering::Acquire) == 0
}

impl Rx {
    /// A part of a message or write.
    pub(super) fn part(
        &mut self,
        chan: &Chan,
        link: &Link,
        frame: &Frame,
        mut current: Current,
    ) -> Result<Result<Step, Failed>, Nonsense> {
        let Some(rings) = self.rings.as_mut() else { return Err(Nonsense) };
        let lent = frame.flags & LENT != 0;
        let (from, len) = if lent {
            borrowed(link, rings, frame)?
        } else {
            (rings.memory.at(frame.payload).cast_const(), frame.len)
        };
        if len == 0 || len as u64 > current.total - current.got {
            return Err(Nonsense);
        }
        let place = self.head as usize & (self.recvs.len() - 1);
        let recv = self.recvs[place];
        match current.write {
            None => {
                let segs = recv.list(&self.segs, place * self.max_segs);
                // SAFETY: the frame's payload lies inside the ring (`Consumer::peek` checked it), or in what the peer lent.
                unsafe { bytes::scatter(from, len, segs, current.got as usize) };
            }
            Some(target) => {
                let part = Target { addr: target.addr + current.got, len: len as u64, rkey: target.rkey };
                let done = chan.dev.keys.access(&part, Access::REMOTE_WRITE, chan.attr.domain, |to| {
                    // SAFETY: as above for the source; the sink is a live registration, which the table's lock keeps.
                    unsafe { bytes::copy_last_last(from, to, len) }
                });
                if !done {
                    return Ok(Err(Failed { here: None, there: CompletionStatus::REMOTE_ACCESS }));
                }
            }
        }
        if lent && !still_there(link) {
            self.on = false;
            return Ok(Ok(Step::Idle));
        }
        rings.from.advance(frame);
        self.dirty = true;
        current.got += len as u64;
        if lent {
            // The sender waits for the piece.
            self.publish(link);
        }
        if current.got < current.total {
            self.current = Some(current);
            return Ok(Ok(Step::Again));
        }
        self.current = None;
        if current.write.is_some() {
            if current.flags & UNFINISHED == 0 {
                self.finish_request(chan);
            }
            return Ok(Ok(Step::Again));
        }
        if let Err(failed) = self.end_window(chan, current.note) {
            return Ok(Err(failed));
        }
        self.finish_request(chan);
        let done = self.received(chan, recv.token, current.total, current.flags, current.note);
        Ok(Ok(Step::Completion(done)))
    }

    /// A message that lies in the peer's memory.
    pub(super) fn pull(
        &mut self,
        chan: &Chan,
        link: &Link,
        frame: &Frame,
        len: u64,
    ) -> Result<Result<Step, Failed>, Nonsense> {
        let recv = match self.match_recv(chan, len) {
            Ok(Some(recv)) => recv,
            Ok(None) => return Ok(Ok(Step::Idle)),
            Err(failed) => return Ok(Err(failed)),
        };
        let Some(rings) = self.rings.as_mut() else { return Err(Nonsense) };
        let place = self.head as usize & (self.recvs.len() - 1);
        let segs = recv.list(&self.segs, place * self.max_segs);
        let list = one_sided::List::load(rings.memory.at(frame.payload), frame.len).ok_or(Nonsense)?;
        if list.total() != len {
            return Err(Nonsense);
        }
        let there = CompletionStatus::REMOTE_ERROR;
        if !one_sided::pull(link, &list, segs) {
            let here = Some(CompletionStatus::PARTIAL);
            return Ok(Err(Failed { here, there }));
        }
        if !still_there(link) {
            self.on = false;
            return Ok(Ok(Step::Idle));
        }
        rings.from.advance(frame);
        let note = std::mem::take(&mut self.note);
        if let Err(failed) = self.end_window(chan, note) {
            return Ok(Err(failed));
        }
        self.finish_request(chan);
        Ok(Ok(Step::Completion(self.received(chan, recv.token, len, frame.flags, note))))
    }
}
