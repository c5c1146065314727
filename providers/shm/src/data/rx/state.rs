//! The state of the receiving half, and how it is published.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Completion, CompletionFlag, CompletionStatus};

use super::receives::Receives;
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{IMMEDIATE, INVALIDATE, Note, SOLICITED};
use crate::data::ring::{Consumer, Frame, Producer, ProtocolError};
use crate::data::segment::RingMemory;
use crate::data::select::{Selector, Way};
use crate::memory::mapped::MappingCache;
use crate::memory::target::Target;

pub(crate) struct Rx {
    /// Connected and not stopped.
    pub(super) on: bool,
    /// Nothing but a frame can be next, and nothing that came before changes what it means.
    pub(super) plain: bool,
    /// Something changed since the position and the counter were published.
    pub(super) dirty: bool,
    /// The oldest message found no receive.
    pub(super) blocked: bool,
    /// The budget of a call without the application was used up.
    pub(super) unfinished: bool,
    /// How far behind its header the next message is expected to have bytes.
    pub(super) ahead: u32,
    /// How the peer's long messages are carried.
    pub(super) selector: Selector,
    pub(super) rings: Option<Rings>,
    pub(super) receives: Receives,
    /// Completions made while the application was away.
    pub(super) saved: VecDeque<Completion>,
    /// The message or write that arrives in parts.
    pub(super) current: Option<Message>,
    /// What goes with the message that comes next in parts.
    pub(super) note: Note,
    pub(super) blocked_since: Option<Instant>,
    /// Reads and atomic operations to be answered, oldest first.
    pub(super) reads: VecDeque<Reading>,
    pub(super) reads_max: usize,
    /// Memory of the peer's that was copied from last.
    pub(super) near: MappingCache,
}

pub(super) struct Rings {
    pub(super) from: Consumer,
    pub(super) memory: RingMemory,
    pub(super) answers: Producer,
    pub(super) answer_memory: RingMemory,
}

/// What became of a frame.
pub(super) enum Delivered {
    /// A receive completed.
    Completion(Completion),
    /// Something was done that completes nothing here.
    Progress,
    /// There is no frame, or it must wait.
    Idle,
    /// The connection ends: the status for the receive, if one is concerned, and the one that the peer's request gets.
    PeerFault { here: Option<CompletionStatus>, there: CompletionStatus },
    /// The peer broke the protocol.
    Protocol,
}

impl From<ProtocolError> for Delivered {
    fn from(_: ProtocolError) -> Delivered {
        Delivered::Protocol
    }
}

/// A message or write that arrives in parts.
#[derive(Clone, Copy)]
pub(super) struct Message {
    /// Where a write goes; `None` for a message.
    pub(super) write: Option<Target>,
    pub(super) flags: u8,
    pub(super) note: Note,
    pub(super) got: u64,
    pub(super) total: u64,
    /// When it began, if it is measured.
    pub(super) since: Option<Instant>,
}

/// An answer that is under way.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    pub(super) target: Target,
    pub(super) tag: u32,
    pub(super) sent: u64,
    /// The answer itself, where it is no memory.
    pub(super) value: Option<u64>,
}

impl Rx {
    /// No frame is taken any more, and no receive is posted.
    pub(super) fn close(&mut self) {
        self.on = false;
        self.plain = false;
        self.receives.close();
    }

    /// Goes past a frame.
    #[inline]
    pub(super) fn advance(&mut self, frame: &Frame) {
        if let Some(rings) = self.rings.as_mut() {
            rings.from.advance(frame);
            self.dirty = true;
        }
    }

    /// When a message of `len` bytes begins, if it is to be measured.
    pub(super) fn begin(&mut self, way: Way, len: u64) -> Option<Instant> {
        self.selector.measures(way, len).then(Instant::now)
    }

    /// A message that came this way is copied.
    #[cold]
    pub(super) fn measured(&mut self, link: &Link, way: Way, len: u64, nanos: u128) {
        if self.selector.measured(way, len, nanos as u64) {
            link.segment.own().by_kernel.store(self.selector.word(), Ordering::Relaxed);
        }
    }

    /// Gives room back to the peer, and nothing else.
    #[inline]
    pub(super) fn publish_position(&mut self, link: &Link) {
        if let Some(rings) = self.rings.as_mut() {
            link.segment.own().consumed.store(rings.from.publish(), Ordering::Release);
        }
    }

    /// Tells the peer how far things are.
    #[inline]
    pub(super) fn publish(&mut self, conn: &Conn, link: &Link) {
        if !self.dirty {
            return;
        }
        self.dirty = false;
        self.publish_position(link);
        link.segment
            .own()
            .completed
            .store(conn.counters.completed.load(Ordering::Relaxed), Ordering::Release);
        link.wake_sender();
        if link.segment.peer().want_room.load(Ordering::Relaxed) != 0 {
            self.give_room(conn);
        }
    }

    /// The peer's application is away and its event thread waits for room: it is woken when all is used up.
    #[cold]
    pub(super) fn give_room(&mut self, conn: &Conn) {
        if let Some(rings) = self.rings.as_mut()
            && let Ok(None) = rings.from.next(&rings.memory)
        {
            conn.kick();
        }
    }
}

/// The frame's own value.
pub(super) fn extra(frame: &Frame) -> u32 {
    (frame.arg >> 32) as u32
}

/// The flags of a receive's completion.
pub(super) fn marks(note: Note, frame_flags: u8) -> CompletionFlag {
    let mut marks = CompletionFlag::NONE;
    for (set, mark) in [
        (frame_flags & SOLICITED, CompletionFlag::SOLICITED),
        (note.flags & IMMEDIATE, CompletionFlag::IMMEDIATE),
        (note.flags & INVALIDATE, CompletionFlag::INVALIDATED),
    ] {
        if set != 0 {
            marks = marks | mark;
        }
    }
    marks
}
