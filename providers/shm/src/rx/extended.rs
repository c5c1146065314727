//! What frames carry beyond messages: values with them, writes that use a receive, atomic operations; and receives out of
//! a shared queue.

use dat_plugin::{Access, CompletionFlag, CompletionStatus};

use super::{Failed, Note, Reading, Rx, Step};
use crate::channel::Chan;
use crate::one_sided::{Atomic, Target};
use crate::ring::{Frame, Nonsense};
use crate::tx::{IMMEDIATE, INVALIDATE, SOLICITED};

impl Note {
    /// What a frame says its message carries. Both at once is nothing an honest peer says.
    #[inline]
    pub(super) fn of(frame: &Frame) -> Note {
        Note { flags: frame.flags & (IMMEDIATE | INVALIDATE), value: (frame.arg >> 32) as u32 }
    }

    /// The marks of the receive.
    #[inline]
    pub(super) fn marks(self, solicited: u8) -> CompletionFlag {
        let mut marks = CompletionFlag::NONE;
        if solicited & SOLICITED != 0 {
            marks = marks | CompletionFlag::SOLICITED;
        }
        if self.flags & IMMEDIATE != 0 {
            marks = marks | CompletionFlag::IMMEDIATE;
        }
        if self.flags & INVALIDATE != 0 {
            marks = marks | CompletionFlag::INVALIDATED;
        }
        marks
    }
}

impl Rx {
    /// Keeps what the next message carries.
    pub(super) fn noted(&mut self, frame: &Frame) -> Result<Step, Nonsense> {
        let note = Note::of(frame);
        if self.note.flags != 0 || ![IMMEDIATE, INVALIDATE].contains(&note.flags) || frame.len != 0 {
            return Err(Nonsense);
        }
        self.note = note;
        self.advance(frame);
        Ok(Step::Again)
    }

    /// Ends the window a message is to end, before its receive completes.
    pub(super) fn end_window(&self, chan: &Chan, note: Note) -> Result<(), Failed> {
        if note.flags & INVALIDATE == 0 || chan.dev.end_window(note.value, chan.attr.domain) {
            return Ok(());
        }
        Err(Failed { here: Some(CompletionStatus::WINDOW), there: CompletionStatus::REMOTE_ACCESS })
    }

    /// A write with an immediate value is done: it uses a receive, but not its buffer.
    pub(super) fn written(&mut self, chan: &Chan, frame: &Frame) -> Result<Result<Step, Failed>, Nonsense> {
        let rings = self.rings.as_ref().ok_or(Nonsense)?;
        if frame.len != 8 {
            return Err(Nonsense);
        }
        // SAFETY: the frame's payload lies inside the ring, is as long as checked, and aligned, as payloads are.
        let length = unsafe { rings.memory.at(frame.payload).cast::<u64>().read_volatile() };
        let recv = match self.match_recv(chan, 0) {
            Ok(Some(recv)) => recv,
            Ok(None) => return Ok(Ok(Step::Idle)),
            Err(failed) => return Ok(Err(failed)),
        };
        self.advance(frame);
        self.finish_request(chan);
        let note = Note { flags: IMMEDIATE, value: (frame.arg >> 32) as u32 };
        let mut done = self.received(chan, recv.token, length, frame.flags, note);
        done.flags = done.flags | CompletionFlag::WRITTEN;
        Ok(Ok(Step::Completion(done)))
    }

    /// Executes an atomic operation; the old value is an answer.
    pub(super) fn atomic(&mut self, chan: &Chan, frame: &Frame) -> Result<Result<Step, Failed>, Nonsense> {
        let rings = self.rings.as_ref().ok_or(Nonsense)?;
        if frame.len != Atomic::BYTES || self.reads.len() >= self.reads_max {
            return Err(Nonsense);
        }
        // SAFETY: the frame's payload lies inside the ring, is as long as checked, and aligned.
        let Atomic { target, operands, swap } = unsafe { Atomic::load(rings.memory.at(frame.payload)) };
        if target.len != 8 {
            return Err(Nonsense);
        }
        let mut old = None;
        chan.dev.keys.access(&target, Access::REMOTE_ATOMIC, chan.attr.domain, |at| {
            // SAFETY: a live registration, which the table's lock keeps.
            let word = unsafe { dat_kit::Stretch::new(at as usize, 8) };
            old = match swap {
                true => dat_kit::copy::compare_swap(word, operands[0], operands[1]),
                false => dat_kit::copy::fetch_add(word, operands[0]),
            };
        });
        let Some(old) = old else {
            // Answers to what came before go first.
            return match self.reads.is_empty() {
                true => Ok(Err(Failed { here: None, there: CompletionStatus::REMOTE_ACCESS })),
                false => Ok(Ok(Step::Idle)),
            };
        };
        self.reads.push_back(Reading {
            target: Target { len: 8, ..target },
            tag: self.completed,
            sent: 0,
            value: Some(old),
        });
        self.advance(frame);
        self.finish_request(chan);
        Ok(Ok(Step::Again))
    }

    /// Takes a receive out of the shared queue, when a message is there for it. `false`: there is none.
    #[cold]
    pub(super) fn take_shared(&mut self, chan: &Chan) -> bool {
        let Some(srq) = &self.srq else { return false };
        let place = self.tail as usize & (self.recvs.len() - 1);
        let to = &mut self.segs[place * self.max_segs..][..self.max_segs];
        let Some(recv) = srq.take(chan, to) else { return false };
        self.recvs[place] = recv;
        self.tail += 1;
        true
    }

    /// Gives back what was taken for a message that never came whole.
    pub(super) fn give_back(&mut self) {
        if let Some(srq) = &self.srq
            && self.head != self.tail
        {
            let place = self.head as usize & (self.recvs.len() - 1);
            let recv = self.recvs[place];
            srq.give_back(recv, recv.list(&self.segs, place * self.max_segs));
            self.head = self.tail;
        }
    }
}
