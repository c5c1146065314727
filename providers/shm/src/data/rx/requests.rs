//! What this side executes for the peer: writes, reads, atomic operations, and the answers to the latter two.

use std::sync::atomic::Ordering;

use dat_plugin::{Access, CompletionFlag, CompletionStatus};

use super::state::{Delivered, Message, Reading, Rx, extra};
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{IMMEDIATE, Note, UNFINISHED, kind};
use crate::data::ring::{Frame, ProtocolError};
use crate::memory::target::{Atomic, Target};

/// The peer's request is refused.
const DENIED: Delivered = Delivered::PeerFault { here: None, there: CompletionStatus::REMOTE_ACCESS };

impl Rx {
    pub(super) fn write(&mut self, conn: &Conn, frame: &Frame) -> Delivered {
        let Some(target) = self.target(frame) else { return Delivered::Protocol };
        if !self.reads.is_empty() {
            // A write does not change what an earlier read has yet to fetch.
            return Delivered::Idle;
        }
        if !conn.keys.allows(&target, Access::REMOTE_WRITE, conn.attr.domain) {
            return DENIED;
        }
        self.advance(frame);
        if target.len != 0 {
            let (flags, note, total) = (frame.flags, Note::default(), target.len);
            self.current = Some(Message { write: Some(target), flags, note, got: 0, total, since: None });
        } else if frame.flags & UNFINISHED == 0 {
            self.finish_request(conn);
        }
        Delivered::Progress
    }

    pub(super) fn read(&mut self, conn: &Conn, frame: &Frame) -> Delivered {
        let Some(target) = self.target(frame) else { return Delivered::Protocol };
        if self.reads.len() >= self.reads_max || target.len > u32::MAX as u64 || target.len == 0 {
            return Delivered::Protocol;
        }
        if !conn.keys.allows(&target, Access::REMOTE_READ, conn.attr.domain) {
            return self.deny();
        }
        self.await_room(conn, frame, target, None)
    }

    /// The old value is the answer.
    pub(super) fn atomic(&mut self, conn: &Conn, frame: &Frame) -> Delivered {
        let Some(rings) = self.rings.as_ref() else { return Delivered::Protocol };
        if frame.len != Atomic::BYTES || self.reads.len() >= self.reads_max {
            return Delivered::Protocol;
        }
        // SAFETY: the frame's payload lies inside the ring, is as long as checked, and aligned.
        let Atomic { target, operands, swap } = unsafe { Atomic::load(rings.memory.at(frame.payload)) };
        if target.len != 8 {
            return Delivered::Protocol;
        }
        let mut old = None;
        conn.keys.access(&target, Access::REMOTE_ATOMIC, conn.attr.domain, |at| {
            // SAFETY: a live registration, which the table's lock keeps.
            let word = unsafe { dat_kit::MemSpan::new(at as usize, 8) };
            old = match swap {
                true => dat_kit::copy::compare_swap(word, operands[0], operands[1]),
                false => dat_kit::copy::fetch_add(word, operands[0]),
            };
        });
        match old {
            Some(old) => self.await_room(conn, frame, target, Some(old)),
            None => self.deny(),
        }
    }

    /// A write with an immediate value is done: it uses a receive, but not its buffer.
    pub(super) fn written(&mut self, conn: &Conn, frame: &Frame) -> Delivered {
        let Some(rings) = self.rings.as_ref() else { return Delivered::Protocol };
        if frame.len != 8 {
            return Delivered::Protocol;
        }
        // SAFETY: the frame's payload lies inside the ring, is as long as checked, and aligned, as payloads are.
        let length = unsafe { rings.memory.at(frame.payload).cast::<u64>().read_volatile() };
        if let Err(delivered) = self.match_recv(conn, 0) {
            return delivered;
        }
        self.advance(frame);
        let note = Note { flags: IMMEDIATE, value: extra(frame) };
        let mut delivered = self.received(conn, length, frame.flags, note);
        if let Delivered::Completion(completion) = &mut delivered {
            completion.flags = completion.flags | CompletionFlag::WRITTEN;
        }
        delivered
    }

    /// Refuses a request, after the answers to those before it.
    fn deny(&self) -> Delivered {
        if self.reads.is_empty() { DENIED } else { Delivered::Idle }
    }

    /// The request is taken, and its answer waits for room.
    fn await_room(&mut self, conn: &Conn, frame: &Frame, target: Target, value: Option<u64>) -> Delivered {
        let tag = conn.counters.completed.load(Ordering::Relaxed);
        self.reads.push_back(Reading { target, tag, sent: 0, value });
        self.advance(frame);
        self.finish_request(conn);
        Delivered::Progress
    }

    /// Sends answers, as far as there is room.
    pub(super) fn answer(&mut self, conn: &Conn, link: &Link) -> Delivered {
        let Some(rings) = self.rings.as_mut() else { return Delivered::Idle };
        let mut any = false;
        while let Some(reading) = self.reads.front_mut() {
            let Target { addr, len, rkey } = reading.target;
            let piece = (len - reading.sent).min(link.segment.answer_bytes() as u64 / 4);
            let position = || link.segment.peer().answers_consumed.load(Ordering::Acquire);
            let slot = match rings.answers.reserve_or_learn(&rings.answer_memory, piece as usize, position) {
                Ok(Some(slot)) => slot,
                Ok(None) => break,
                Err(ProtocolError) => return Delivered::Protocol,
            };
            let part = Target { addr: addr + reading.sent, len: piece, rkey };
            let to = rings.answer_memory.at(slot.payload);
            let done = match reading.value {
                Some(value) => {
                    // SAFETY: a reserved slot has room for the piece, which is eight bytes.
                    unsafe { to.cast::<u64>().write_unaligned(value) };
                    true
                }
                None => conn.keys.access(&part, Access::REMOTE_READ, conn.attr.domain, |from| {
                    // SAFETY: a reserved slot has room for the piece; the source is a live registration, which the
                    // table's lock keeps.
                    unsafe { std::ptr::copy(from, to, piece as usize) }
                }),
            };
            if !done {
                // The registration ended in the middle. The counter has passed this read, so the peer sees the
                // connection break.
                return DENIED;
            }
            rings.answers.publish(&rings.answer_memory, slot, kind::DATA, 0, u64::from(reading.tag) << 32);
            any = true;
            reading.sent += piece;
            if reading.sent == len {
                self.reads.pop_front();
            }
        }
        if any {
            link.wake_sender();
        }
        if !self.reads.is_empty() {
            conn.schedule_progress();
        }
        Delivered::Progress
    }

    fn target(&self, frame: &Frame) -> Option<Target> {
        let rings = self.rings.as_ref().filter(|_| frame.len == Target::BYTES)?;
        // SAFETY: the frame's payload lies inside the ring and is as long as checked.
        Some(unsafe { Target::load(rings.memory.at(frame.payload)) })
    }
}
