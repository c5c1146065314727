//! The receiving half of a channel: posted receives, the peer's frames, and what is executed for the peer.
//!
//! `next` copies a header once, and `deliver` does what the frame asks for. A message is matched with the oldest receive
//! and copied once, from the ring to its buffer. Without a receive it stays in the ring, with everything behind it.
//!
//! # The hot arm
//! [`Rx::take_short`] takes a message of up to [`bytes::SHORT`] bytes that carries nothing else, into a receive of one
//! segment. It makes no call, so no register is spilled: an 8-byte message takes 15 ns less with it. Everything else goes
//! through [`Rx::deliver`].
//!
//! # Bounds
//! One call takes [`BUDGET`] frames at most, so that a peer cannot keep a thread here. The ring refuses frames that no
//! honest peer can have written (see [`crate::data::ring`]).

mod message;
mod receives;
mod requests;
mod state;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{ChannelAttr, Completion, CompletionFlag, CompletionStatus, RecvRequest, Status};

use crate::data::completion::Ready;
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{Note, SOLICITED, kind};
use crate::data::ring::{Consumer, Frame, Producer, ProtocolError, UNIT};
use crate::data::select::Selector;
use crate::data::srq::Shared;
use crate::memory::bytes;
use crate::memory::mapped::MappingCache;
use receives::Receives;
use state::{Delivered, Rings};

pub(crate) use state::Rx;

/// Frames that one call takes at most.
const BUDGET: usize = 256;

/// From this length on the sender learns at once of the room that a message leaves, and not after the last of a batch. A
/// few such messages fill a ring, and sender and receiver would take turns.
const EARLY: u32 = 1024;

/// Bytes of a cache line.
const LINE: usize = 64;

const _: () = assert!(SOLICITED as u32 == CompletionFlag::SOLICITED.0);

impl Rx {
    /// The mapping of the peer's memory used last.
    pub(crate) fn mappings(&mut self) -> &mut MappingCache {
        &mut self.near
    }

    pub(crate) fn new(attr: &ChannelAttr, reads_max: u32, srq: Option<Arc<Shared>>) -> Rx {
        let reads_max = reads_max.max(1) as usize;
        let receives = Receives::new(attr, srq);
        Rx {
            on: false,
            plain: false,
            dirty: false,
            blocked: false,
            unfinished: false,
            ahead: 0,
            selector: Selector::default(),
            rings: None,
            saved: VecDeque::with_capacity(receives.capacity() + 1),
            receives,
            current: None,
            note: Note::default(),
            blocked_since: None,
            reads: VecDeque::with_capacity(reads_max),
            reads_max,
            near: MappingCache::default(),
        }
    }

    /// Connected.
    pub(crate) fn start(&mut self, conn: &Conn, link: &Link) {
        let [_, memory] = link.segment.requests();
        let [answer_memory, _] = link.segment.answer_rings();
        self.rings = Some(Rings {
            from: Consumer::new(link.segment.ring_bytes()),
            memory,
            answers: Producer::new(link.segment.answer_bytes()),
            answer_memory,
        });
        self.on = true;
        link.segment.own().by_kernel.store(self.selector.word(), Ordering::Relaxed);
        self.publish_ready(conn);
    }

    /// Stopped: no buffer is touched any more.
    pub(crate) fn stop(&mut self, conn: &Conn) {
        self.close();
        self.publish_ready(conn);
        self.receives.give_back();
    }

    /// The shared queue that its receives come from.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.receives.shared()
    }

    /// The hot arm of a post. `false`: nothing was done.
    #[inline]
    pub(crate) fn post_one(&mut self, request: &RecvRequest) -> bool {
        // `plain`: no message waits for a receive, and nothing is saved.
        self.plain && self.receives.post_one(request, 0)
    }

    /// `Ok`: whether a message may have waited for this receive.
    pub(crate) fn post(&mut self, request: &RecvRequest) -> Result<bool, Status> {
        self.receives.post(request, self.saved.len())?;
        Ok(self.blocked)
    }

    /// Since when a message waits for a receive; counted from the first look at it.
    pub(crate) fn waits_since(&mut self) -> Option<Instant> {
        if !self.blocked {
            self.blocked_since = None;
            return None;
        }
        Some(*self.blocked_since.get_or_insert_with(Instant::now))
    }

    /// The oldest message has waited too long for a receive.
    pub(crate) fn not_ready(&mut self, conn: &Conn, link: &Link) {
        self.fail(conn, link, None, CompletionStatus::NOT_READY);
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completion(&self) -> bool {
        !self.saved.is_empty()
    }

    /// Whether work for the peer is left that needs room in a ring, or another call.
    pub(crate) fn wants_progress(&self) -> bool {
        self.on && (!self.reads.is_empty() || self.unfinished)
    }

    /// The hot arm: takes one short message and publishes that. `None`: nothing was done; else whether the peer is to be
    /// woken, by [`Rx::wake_peer`], once the message is handed out.
    // See the module's documentation.
    #[inline(always)]
    pub(crate) fn take_short(&mut self, conn: &Conn, link: &Link, place: &mut Completion) -> Option<bool> {
        self.short(conn, place)?;
        let rings = self.rings.as_mut()?;
        let word = rings.memory.word_ptr(rings.from.at());
        conn.counters.set_ready(Ready::Word(word));
        conn.counters.expect(word, UNIT as u32 - 1 + place.length);
        let own = link.segment.own();
        own.consumed.store(rings.from.publish(), Ordering::Release);
        own.completed.store(conn.counters.completed.load(Ordering::Relaxed), Ordering::Release);
        Some(link.sender_sleeps())
    }

    /// The copy and the books of a short message.
    // Part of the hot arm, and of each batch.
    #[inline(always)]
    fn short(&mut self, conn: &Conn, place: &mut Completion) -> Option<()> {
        let rings = self.rings.as_mut().filter(|_| self.plain)?;
        let memory = rings.memory;
        let frame = rings.from.next_short(&memory, kind::SEND, SOLICITED, bytes::SHORT)?;
        let (token, to) = self.receives.take_short(frame.len)?;
        *place = Completion {
            token,
            user: conn.attr.recv_user,
            status: CompletionStatus::SUCCESS,
            length: frame.len as u32,
            flags: CompletionFlag(frame.flags.into()),
            imm: 0,
        };
        // SAFETY: the payload lies inside the ring (`next_short` checked it) and is not given back to the peer yet; the
        // receive has room for it (`take_short`).
        unsafe { bytes::copy_short(memory.at(frame.payload), to, frame.len) }
        rings.from.advance(&frame);
        conn.counters.complete_one();
        conn.counters.acked.store(frame.arg as u32, Ordering::Relaxed);
        Some(())
    }

    /// After [`Rx::take_short`].
    #[cold]
    pub(crate) fn wake_peer(&mut self, conn: &Conn, link: &Link) {
        self.dirty = true;
        self.publish(conn, link);
    }

    /// Takes completions. Unless it is a `burst`, a lone message is handed out before the line of the next header is
    /// fetched from the peer's cache.
    pub(crate) fn poll(
        &mut self,
        conn: &Conn,
        link: Option<&Link>,
        out: &mut [Completion],
        burst: bool,
    ) -> usize {
        let (mut n, mut budget) = (0, BUDGET);
        while let Some(place) = out.get_mut(n) {
            if self.short(conn, place).is_some() {
                self.dirty = true;
            } else if let Some(saved) = self.saved.pop_front() {
                *place = saved;
            } else {
                let Some(link) = link.filter(|_| self.on && budget > 0) else { break };
                match self.step(conn, link) {
                    Delivered::Completion(completion) => *place = completion,
                    Delivered::Progress => {
                        budget -= 1;
                        continue;
                    }
                    _ => break,
                }
                if place.length >= EARLY {
                    self.publish_position(link);
                }
            }
            n += 1;
            if !burst && self.at_new_line() {
                break;
            }
        }
        if let Some(link) = link {
            self.publish(conn, link);
        }
        self.publish_ready(conn);
        n
    }

    /// Whether the next header is on a line that was not read yet.
    #[inline]
    fn at_new_line(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.from.at() % LINE == 0)
    }

    /// Does the application's part while it is away; `true`: there are completions to be taken.
    pub(crate) fn pump(&mut self, conn: &Conn, link: &Link) -> bool {
        self.unfinished = true;
        for _ in 0..BUDGET {
            if !self.on || self.saved.len() >= self.receives.capacity() {
                self.unfinished = false;
                break;
            }
            match self.step(conn, link) {
                Delivered::Completion(completion) => {
                    self.saved.push_back(completion);
                    self.plain = false;
                }
                Delivered::Progress => {}
                _ => {
                    self.unfinished = false;
                    break;
                }
            }
        }
        self.publish(conn, link);
        self.publish_ready(conn);
        if self.unfinished {
            // This thread has others to serve; it comes back.
            conn.schedule_progress();
        }
        !self.saved.is_empty()
    }

    /// One frame, with the end of the connection if it comes to that.
    fn step(&mut self, conn: &Conn, link: &Link) -> Delivered {
        if !self.reads.is_empty() {
            match self.answer(conn, link) {
                Delivered::PeerFault { here, there } => return self.fail(conn, link, here, there),
                Delivered::Protocol => return self.broken(conn),
                _ => {}
            }
        }
        let delivered = match self.next(conn) {
            Ok(Some(frame)) => self.deliver(conn, link, &frame),
            Ok(None) => Delivered::Idle,
            Err(ProtocolError) => Delivered::Protocol,
        };
        let delivered = match delivered {
            Delivered::PeerFault { here, there } => self.fail(conn, link, here, there),
            Delivered::Protocol => self.broken(conn),
            other => other,
        };
        self.plain = self.is_plain();
        delivered
    }

    fn is_plain(&self) -> bool {
        let quiet = self.saved.is_empty() && self.reads.is_empty() && !self.blocked;
        self.on && quiet && self.current.is_none() && self.note.flags == 0
    }

    /// The next frame of the peer's requests.
    #[inline]
    fn next(&mut self, conn: &Conn) -> Result<Option<Frame>, ProtocolError> {
        let Some(rings) = self.rings.as_mut() else { return Ok(None) };
        let frame = rings.from.next(&rings.memory)?;
        if let Some(frame) = &frame {
            conn.counters.acked.store(frame.arg as u32, Ordering::Relaxed);
        }
        Ok(frame)
    }

    /// Does what a frame asks for.
    fn deliver(&mut self, conn: &Conn, link: &Link, frame: &Frame) -> Delivered {
        let noted = self.note.flags != 0;
        match (frame.kind, self.current.take()) {
            (kind::MORE, Some(current)) => self.part(conn, link, frame, current),
            (_, Some(_)) => Delivered::Protocol,
            (kind::SEND, None) if !noted => self.message(conn, link, frame),
            (kind::HEAD, None) => self.head(conn, link, frame),
            (kind::PULL, None) => self.pull(conn, link, frame),
            (kind::NOTE, None) if !noted => self.noted(frame),
            (kind::WRITE, None) if !noted => self.write(conn, frame),
            (kind::READ, None) if !noted => self.read(conn, frame),
            (kind::ATOMIC, None) if !noted => self.atomic(conn, frame),
            (kind::WRITTEN, None) if !noted => self.written(conn, frame),
            _ => Delivered::Protocol,
        }
    }

    /// The peer broke the protocol.
    #[cold]
    fn broken(&mut self, conn: &Conn) -> Delivered {
        self.close();
        conn.fault("the peer broke the protocol of the ring");
        Delivered::Idle
    }

    /// The connection ends with an error at this request of the peer's.
    #[cold]
    fn fail(
        &mut self,
        conn: &Conn,
        link: &Link,
        here: Option<CompletionStatus>,
        there: CompletionStatus,
    ) -> Delivered {
        self.publish(conn, link);
        link.segment.own().fail.store(there.0, Ordering::Release);
        link.wake_sender();
        self.close();
        conn.fault("a request of the peer failed here");
        match here {
            Some(status) => {
                let (token, user) = (self.receives.pop(), conn.attr.recv_user);
                Delivered::Completion(Completion { token, user, status, ..Completion::default() })
            }
            None => Delivered::Idle,
        }
    }

    /// Publishes the word that the next look is for.
    #[inline]
    fn publish_ready(&mut self, conn: &Conn) {
        if !self.plain {
            self.plain = self.is_plain();
        }
        let ready = match &self.rings {
            Some(rings) if self.plain => {
                let word = rings.memory.word_ptr(rings.from.at());
                conn.counters.expect(word, self.ahead);
                Ready::Word(word)
            }
            rings => self.ready(rings.as_ref()),
        };
        conn.counters.set_ready(ready);
    }

    #[cold]
    fn ready(&self, rings: Option<&Rings>) -> Ready {
        match rings {
            _ if !self.saved.is_empty() => Ready::Now,
            Some(_) if self.on && !self.reads.is_empty() => Ready::Now,
            Some(_) if self.on && self.blocked && self.receives.is_empty() => Ready::Never,
            Some(rings) if self.on => Ready::Word(rings.memory.word_ptr(rings.from.at())),
            _ => Ready::Never,
        }
    }
}
