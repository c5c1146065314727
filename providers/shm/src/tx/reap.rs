//! What became of requests: the peer's counter, its answers.

use std::sync::atomic::Ordering;

use dat_plugin::CompletionStatus;

use super::{State, Tx, kind};
use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::ring::Nonsense;
use crate::wait;

impl Tx {
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
                self.halted = true;
                chan.fault("a request failed");
                break;
            }
        }
        Ok(())
    }

    /// Learns how many requests the peer has finished; older news are no news.
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
