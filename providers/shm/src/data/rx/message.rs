//! Messages: in one frame, in parts, or out of the sender's memory. Writes in parts take the same way.

use std::sync::atomic::{Ordering, fence};

use dat_plugin::{Access, Completion, CompletionStatus};

use super::LINE;
use super::state::{Delivered, Message, Rx, extra, marks};
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::one_sided;
use crate::data::protocol::{IMMEDIATE, INVALIDATE, Note, UNFINISHED};
use crate::data::recv::Recv;
use crate::data::ring::{Frame, UNIT};
use crate::data::select::Way;
use crate::memory::bytes;
use crate::memory::target::{List, Target};

/// What a frame says goes with its message. No honest peer sets both flags.
fn note(frame: &Frame) -> Note {
    Note { flags: frame.flags & (IMMEDIATE | INVALIDATE), value: extra(frame) }
}

/// Whether the peer was there after something was copied out of its memory. If not, the bytes may be others already, and the
/// message was never there.
fn still_there(link: &Link) -> bool {
    fence(Ordering::Acquire);
    link.segment.peer().gone.load(Ordering::Acquire) == 0
}

impl Rx {
    /// The receive that the next message goes to. `Err`: there is none yet, or it cannot take the message.
    pub(super) fn match_recv(&mut self, conn: &Conn, len: u64) -> Result<Recv, Delivered> {
        let recv = self.receives.front(conn);
        self.blocked = recv.is_none();
        let Some(recv) = recv else { return Err(Delivered::Idle) };
        let refused = |status| {
            let there = CompletionStatus::REMOTE_ERROR;
            Err(Delivered::PeerFault { here: Some(status), there })
        };
        if recv.room == 0 {
            return refused(CompletionStatus::LOCAL_ACCESS);
        }
        if len >= recv.room.into() {
            return refused(CompletionStatus::LOCAL_LENGTH);
        }
        Ok(recv)
    }

    /// A message in one frame.
    pub(super) fn message(&mut self, conn: &Conn, link: &Link, frame: &Frame) -> Delivered {
        if let Err(delivered) = self.match_recv(conn, frame.len as u64) {
            return delivered;
        }
        let note = note(frame);
        if let Err(delivered) = self.end_window(conn, note) {
            return delivered;
        }
        let since = self.begin(Way::Ring, frame.len as u64);
        let Some(rings) = self.rings.as_mut() else { return Delivered::Idle };
        // SAFETY: the frame's payload lies inside the ring (`Consumer::next` checked it).
        unsafe { bytes::scatter(rings.memory.at(frame.payload), frame.len, self.receives.list(), 0) };
        if let Some(since) = since {
            // The sender copied too. Its copy counts half of this one, whose lines all change their processor.
            self.measured(link, Way::Ring, frame.len as u64, since.elapsed().as_nanos() * 3 / 2);
        }
        self.advance(frame);
        self.ahead = (UNIT + frame.len).min(LINE) as u32;
        self.received(conn, frame.len as u64, frame.flags, note)
    }

    /// Keeps what goes with the next message.
    pub(super) fn noted(&mut self, frame: &Frame) -> Delivered {
        let note = note(frame);
        if ![IMMEDIATE, INVALIDATE].contains(&note.flags) || frame.len != 0 {
            return Delivered::Protocol;
        }
        self.note = note;
        self.advance(frame);
        Delivered::Progress
    }

    /// The first part of a message.
    pub(super) fn head(&mut self, conn: &Conn, link: &Link, frame: &Frame) -> Delivered {
        let total = u64::from(extra(frame));
        if frame.len as u64 > total {
            return Delivered::Protocol;
        }
        if let Err(delivered) = self.match_recv(conn, total) {
            return delivered;
        }
        let note = std::mem::take(&mut self.note);
        let since = self.begin(Way::Ring, total);
        let message = Message { write: None, flags: frame.flags, note, got: 0, total, since };
        self.part(conn, link, frame, message)
    }

    /// A part of a message or write.
    pub(super) fn part(
        &mut self,
        conn: &Conn,
        link: &Link,
        frame: &Frame,
        mut message: Message,
    ) -> Delivered {
        let Some(rings) = self.rings.as_ref() else { return Delivered::Protocol };
        let (from, len) = (rings.memory.at(frame.payload).cast_const(), frame.len);
        if len == 0 || len as u64 > message.total - message.got {
            return Delivered::Protocol;
        }
        match message.write {
            // SAFETY: the payload lies inside the ring (`Consumer::next` checked it).
            None => unsafe { bytes::scatter(from, len, self.receives.list(), message.got as usize) },
            Some(target) => {
                let part = Target { addr: target.addr + message.got, len: len as u64, rkey: target.rkey };
                let done = conn.keys.access(&part, Access::REMOTE_WRITE, conn.attr.domain, |to| {
                    // SAFETY: as above for the source; the sink is a live registration, which the table's lock keeps.
                    unsafe { bytes::copy_last_last(from, to, len) }
                });
                if !done {
                    return Delivered::PeerFault { here: None, there: CompletionStatus::REMOTE_ACCESS };
                }
            }
        }
        self.advance(frame);
        message.got += len as u64;
        if message.got < message.total {
            self.current = Some(message);
            return Delivered::Progress;
        }
        if message.write.is_some() {
            if message.flags & UNFINISHED == 0 {
                self.finish_request(conn);
            }
            return Delivered::Progress;
        }
        if let Some(since) = message.since {
            self.measured(link, Way::Ring, message.total, since.elapsed().as_nanos());
        }
        match self.end_window(conn, message.note) {
            Ok(()) => self.received(conn, message.total, message.flags, message.note),
            Err(delivered) => delivered,
        }
    }

    /// A message that lies in the peer's memory.
    pub(super) fn pull(&mut self, conn: &Conn, link: &Link, frame: &Frame) -> Delivered {
        let len = u64::from(extra(frame));
        if let Err(delivered) = self.match_recv(conn, len) {
            return delivered;
        }
        let Some(rings) = self.rings.as_ref() else { return Delivered::Protocol };
        // SAFETY: the frame was checked to lie in the ring, and payloads are aligned to units.
        let list = unsafe { List::load(rings.memory.at(frame.payload), frame.len) };
        let Some(list) = list else {
            return Delivered::Protocol;
        };
        if list.total() != len {
            return Delivered::Protocol;
        }
        let mappable = list.parts().iter().any(|part| part.map != 0);
        let since = if mappable { None } else { self.begin(Way::Kernel, len) };
        if !one_sided::pull(conn, link, &mut self.near, &list, self.receives.list()) {
            let here = Some(CompletionStatus::PARTIAL);
            return Delivered::PeerFault { here, there: CompletionStatus::REMOTE_ERROR };
        }
        if !still_there(link) {
            self.close();
            return Delivered::Idle;
        }
        if let Some(since) = since {
            self.measured(link, Way::Kernel, len, since.elapsed().as_nanos());
        }
        self.advance(frame);
        let note = std::mem::take(&mut self.note);
        match self.end_window(conn, note) {
            Ok(()) => self.received(conn, len, frame.flags, note),
            Err(delivered) => delivered,
        }
    }

    /// Invalidates the window that a message names, before its receive completes.
    fn end_window(&self, conn: &Conn, note: Note) -> Result<(), Delivered> {
        if note.flags & INVALIDATE == 0 || conn.end_window(note.value) {
            return Ok(());
        }
        let here = Some(CompletionStatus::WINDOW);
        Err(Delivered::PeerFault { here, there: CompletionStatus::REMOTE_ACCESS })
    }

    /// The oldest receive is used, and the peer's request finished.
    pub(super) fn received(&mut self, conn: &Conn, len: u64, flags: u8, note: Note) -> Delivered {
        self.finish_request(conn);
        Delivered::Completion(Completion {
            token: self.receives.pop(),
            user: conn.attr.recv_user,
            status: CompletionStatus::SUCCESS,
            length: len as u32,
            flags: marks(note, flags),
            imm: if note.flags != 0 { note.value } else { 0 },
        })
    }

    /// One of the peer's requests is finished.
    pub(super) fn finish_request(&mut self, conn: &Conn) {
        conn.counters.complete_one();
        self.dirty = true;
    }
}
