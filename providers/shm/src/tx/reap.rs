//! What became of requests: the peer's counter, its answers.

use std::sync::atomic::Ordering;

use dat_plugin::{Completion, CompletionStatus, PostFlag};

use super::{Hint, State, Tx, kind};
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::ring::Nonsense;
use crate::wait;

impl Tx {
    /// [`Tx::poll`] while all that is outstanding is in the ring or done: takes completions of successes. With none, the
    /// rest of what [`Tx::poll_rarer`] does is to be done as well.
    #[inline]
    pub(super) fn poll_plain(&mut self, chan: &Chan, link: &Link, out: &mut [Completion]) -> usize {
        if self.credit(chan.acked.load(Ordering::Relaxed)).is_err() {
            return 0;
        }
        let (user, status) = (chan.attr.send_user, CompletionStatus::SUCCESS);
        let (mut n, mut head, mut looked) = (0, self.head, self.head != self.done);
        let (hint, need) = loop {
            if head == self.tail {
                break (Hint::Idle, 0);
            }
            let entry = &self.entries[head as usize & (self.entries.len() - 1)];
            let (state, seq) = (entry.state, entry.seq);
            let passed = state == State::Ring && self.acked.wrapping_sub(seq) as i32 > 0;
            if !passed && state != State::Done {
                if !std::mem::replace(&mut looked, true) && self.look(link) {
                    continue;
                }
                break (if state == State::Ring { Hint::Counter } else { Hint::Now }, seq);
            }
            let Some(place) = out.get_mut(n).filter(|_| entry.status == status) else { break (Hint::Now, 0) };
            let length = entry.total as u32;
            let done = Completion { token: entry.token, user, status, length, ..Completion::default() };
            head += 1;
            if entry.flags.contains(PostFlag::UNSIGNALLED) {
                self.silent = Some(done);
            } else {
                self.silent = None;
                *place = done;
                n += 1;
            }
            looked = true;
        };
        self.head = head;
        self.done = self.done.max(head);
        if n > 0 {
            self.tell_hint(chan, hint, need);
        }
        n
    }

    /// The completion of the oldest request, if it succeeded, nothing that is known to be finished is behind it, and there
    /// is nothing out of the ordinary. `false`: nothing was done, and [`Tx::poll`] is to be asked.
    #[inline(always)]
    pub(crate) fn take_one(&mut self, chan: &Chan, place: &mut Completion) -> bool {
        let (head, mask, known) = (self.head, self.entries.len() - 1, chan.acked.load(Ordering::Relaxed));
        let [entry, next] = [head, head + 1].map(|index| self.entries.get(index as usize & mask));
        let (Some(entry), Some(next)) = (entry, next) else { return false };
        let rest = if head + 1 != self.tail { Some(next) } else { None };
        let finished = match entry.state {
            State::Ring => known.wrapping_sub(entry.seq) == 1,
            state => state == State::Done,
        };
        let ordinary = finished
            && head != self.tail
            && rest.is_none_or(|next| next.state == State::Ring && known.wrapping_sub(next.seq) as i32 <= 0)
            && entry.status == CompletionStatus::SUCCESS
            && !entry.flags.contains(PostFlag::UNSIGNALLED)
            && self.on
            && self.sent == self.tail
            && self.reads_open == 0
            && self.settled.is_none()
            && self.lent.is_empty()
            && self.seq.wrapping_sub(known) as i32 >= 0;
        if !ordinary {
            return false;
        }
        *place = Completion {
            token: entry.token,
            user: chan.attr.send_user,
            status: CompletionStatus::SUCCESS,
            length: entry.total as u32,
            ..Completion::default()
        };
        match rest {
            Some(next) => chan.hint.set(Hint::Counter, next.seq),
            None => chan.hint.set(Hint::Idle, self.seq),
        }
        if known.wrapping_sub(self.acked) as i32 > 0 {
            self.acked = known;
        }
        self.silent = None;
        self.head = head + 1;
        self.done = self.done.max(self.head);
        true
    }

    /// Looks at the peer's counter. `false`: it says nothing new, or there is more to be looked at.
    #[inline(never)]
    fn look(&mut self, link: &Link) -> bool {
        let (peer, before) = (link.segment.peer(), self.acked);
        // First `fail`: see `reap`.
        peer.fail.load(Ordering::Acquire) == 0
            && self.credit(peer.completed.load(Ordering::Acquire)).is_ok()
            && self.acked != before
    }

    /// Finds out what is complete. Only with `look` by the peer's counter: that takes the line away from the peer, who
    /// writes to it before each of its answers, and an answer's stores wait until it has the line again.
    pub(super) fn reap(&mut self, chan: &Chan, link: &Link, look: bool) -> Result<(), Nonsense> {
        // Once a request failed, or the channel stopped, the rest is the engine's to flush, done or not.
        if self.done == self.tail || !self.on {
            return Ok(());
        }
        let peer = link.segment.peer();
        self.credit(chan.acked.load(Ordering::Relaxed))?;
        let oldest = self.entries[self.place(self.done)];
        let mut fail = 0;
        if look && oldest.state != State::Done && self.acked.wrapping_sub(oldest.seq) as i32 <= 0 {
            // First `fail`: it is written after the counter it belongs to.
            fail = peer.fail.load(Ordering::Acquire);
            self.credit(peer.completed.load(Ordering::Acquire))?;
        }
        if self.reads_open > 0 {
            self.take_answers(link)?;
        }
        let end = if self.begun { self.sent + 1 } else { self.sent };
        while self.done != end {
            let acked = self.acked;
            let whole = self.done != self.sent;
            let entry = self.entry(self.done);
            let complete = match entry.state {
                State::Waiting => false,
                State::Ring => whole && acked.wrapping_sub(entry.seq) as i32 > 0,
                State::Reading => entry.left == 0,
                State::Done => true,
            };
            if !complete {
                if fail == 0 || entry.state == State::Waiting || acked != entry.seq {
                    break;
                }
                entry.status = match CompletionStatus(fail) {
                    known @ (CompletionStatus::REMOTE_ACCESS
                    | CompletionStatus::REMOTE_ERROR
                    | CompletionStatus::NOT_READY) => known,
                    _ => CompletionStatus::BAD_RESPONSE,
                };
            }
            let failed = entry.status != CompletionStatus::SUCCESS;
            self.done += 1;
            if failed {
                // Whatever was posted after it is the engine's to flush.
                self.on = false;
                self.halt();
                chan.fault("a request failed");
                break;
            }
        }
        Ok(())
    }

    /// Learns how many requests the peer has finished; older news are no news.
    #[inline]
    fn credit(&mut self, acked: u32) -> Result<(), Nonsense> {
        if acked.wrapping_sub(self.acked) as i32 <= 0 {
            return Ok(());
        }
        if self.seq.wrapping_sub(acked) as i32 >= 0 {
            self.acked = acked;
            return Ok(());
        }
        Err(Nonsense)
    }

    /// Takes what was read.
    fn take_answers(&mut self, link: &Link) -> Result<(), Nonsense> {
        let Some(rings) = self.ring.as_mut() else { return Ok(()) };
        let mask = self.entries.len() - 1;
        let mut any = false;
        let mut cursor = self.done;
        while let Some(frame) = rings.answers.peek(&rings.answer_memory)? {
            // Answers come in the order of the reads.
            while cursor != self.sent {
                let entry = &self.entries[cursor as usize & mask];
                if entry.state == State::Reading && entry.left > 0 {
                    break;
                }
                cursor += 1;
            }
            let place = cursor as usize & mask;
            let entry = &mut self.entries[place];
            let tag = (frame.arg >> 32) as u32;
            let sound = cursor != self.sent && frame.kind == kind::DATA && tag == entry.seq;
            if !sound || frame.len as u64 > entry.left as u64 || frame.len == 0 {
                return Err(Nonsense);
            }
            let segs = &self.segs[place * self.max_segs..][..entry.nsegs as usize];
            let skip = (entry.total - entry.left as u64) as usize;
            // SAFETY: the frame's payload lies inside the ring (`Consumer::peek` checked it).
            unsafe { bytes::scatter(rings.answer_memory.at(frame.payload), frame.len, segs, skip) };
            entry.left -= frame.len as u32;
            self.reads_open -= (entry.left == 0) as u32;
            rings.answers.advance(&frame);
            any = true;
        }
        if any {
            link.segment.own().answers_consumed.store(rings.answers.tail(), Ordering::Release);
            wait::light_barrier(link.fence);
            if link.segment.peer().want_room.load(Ordering::Relaxed) != 0 {
                link.kick();
            }
        }
        Ok(())
    }
}
