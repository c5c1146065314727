//! The requesting half of a channel: posted sends, writes and reads, their way into the ring, their completion.
//!
//! Requests wait in one queue, in post order. Most go into the ring at once; those that find no room stay and are
//! pushed on by later posts, polls and the event thread. A request is complete when the peer says it consumed it (its
//! counter in the control page, or in the header of a frame the other way), or when its answers are here.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

mod direct;
mod extended;
mod lend;
mod push;
mod reap;
mod short;

use dat_kit::Stretch;
use dat_plugin::{Completion, CompletionStatus, Opcode, PostFlag, Request, Status};

use crate::bytes;
use crate::channel::{Chan, SEND};
use crate::link::Link;
use crate::one_sided;
use crate::ring::{Consumer, Nonsense, Producer, Slot};
use crate::segment::RingMemory;
use crate::stage::HELD;

/// Kinds of frames in the rings. 0 is no frame, 1 the wrap marker.
pub(crate) mod kind {
    /// A whole message.
    pub(crate) const SEND: u8 = 2;
    /// The first part of a message; the argument has its length.
    pub(crate) const HEAD: u8 = 3;
    /// A further part of a message or write.
    pub(crate) const MORE: u8 = 4;
    /// A message that lies in the sender's memory; the payload lists where.
    pub(crate) const PULL: u8 = 5;
    /// A write: [`crate::one_sided::Target`], its bytes follow in parts.
    pub(crate) const WRITE: u8 = 6;
    /// A read: [`crate::one_sided::Target`].
    pub(crate) const READ: u8 = 7;
    /// Bytes that were read; in the ring of answers.
    pub(crate) const DATA: u8 = 8;
    /// What the message that follows in parts carries beyond bytes; the argument has it.
    pub(crate) const NOTE: u8 = 9;
    /// A write with an immediate value is done; the argument has the value, the payload the length.
    pub(crate) const WRITTEN: u8 = 10;
    /// An atomic operation: [`crate::one_sided::Atomic`].
    pub(crate) const ATOMIC: u8 = 11;
}

/// How far ahead of a frame its ring is fetched for writing.
const AHEAD: usize = 256;

/// Flag of a frame: the receive is to be marked.
pub(crate) const SOLICITED: u8 = 1;
/// The argument is an immediate value, or the key of a window to be ended.
pub(crate) const IMMEDIATE: u8 = 2;
pub(crate) const INVALIDATE: u8 = 4;
/// Of a write: the request goes on after it.
pub(crate) const UNFINISHED: u8 = 8;
/// The bytes are elsewhere: the payload is a [`one_sided::Part`] of a staging area.
pub(crate) const LENT: u8 = 16;

pub(crate) struct Tx {
    /// Connected and not stopped.
    on: bool,
    ring: Option<Rings>,
    entries: Box<[Entry]>,
    segs: Box<[Stretch]>,
    /// The local keys of `segs`.
    lkeys: Box<[u32]>,
    max_segs: usize,
    capacity: u64,
    /// Handed out, complete, in the ring, posted: four marks in the sequence of posts.
    head: u64,
    done: u64,
    sent: u64,
    tail: u64,
    /// Bytes of the request at `sent` that are in the ring already, and whether it was begun.
    part: u64,
    begun: bool,
    /// Requests begun in the ring, and finished by the peer; both wrap.
    seq: u32,
    acked: u32,
    reads_open: u32,
    reads_max: u32,
    /// A request failed at this end: none after it is started.
    halted: bool,
    /// The longest message that [`Tx::post_at_once`] takes; 0 while nothing may be started.
    at_once: u32,
    /// How far the request at `sent` is, of those that take several steps.
    stage: Stage,
    /// The last success that was kept silent since a completion, and the completion made of one when asked for.
    silent: Option<Completion>,
    settled: Option<Completion>,
    /// Memory of the peer's that was written to or read last.
    near: one_sided::Near,
    /// Pieces of the staging area that hold bytes of messages, and where in the ring the frames end that name them.
    lent: VecDeque<(u64, u32)>,
}

/// Steps of a request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Fresh,
    /// What goes ahead of its bytes is in the ring.
    Noted,
    /// Its first frame with bytes is in the ring.
    Headed,
    /// Its bytes are written.
    Written,
}

struct Rings {
    out: Producer,
    memory: RingMemory,
    answers: Consumer,
    answer_memory: RingMemory,
    chunk: usize,
    /// The longest message that goes into the ring without a look at where it lies.
    short: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Entry {
    token: u64,
    pub(crate) total: u64,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    opcode: Opcode,
    flags: PostFlag,
    nsegs: u32,
    seq: u32,
    /// Bytes of a read still to come.
    left: u32,
    imm: u32,
    state: State,
    status: CompletionStatus,
    /// Of an atomic operation.
    pub(crate) operands: [u64; 2],
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Waiting,
    /// In the ring; complete when the peer's counter passes `seq`.
    Ring,
    /// A read executed by the peer.
    Reading,
    Done,
}

/// Outcome of an attempt to start a request.
pub(crate) enum Start {
    /// It is in the ring or done.
    Gone,
    /// Something must happen first.
    Later,
    /// The peer broke the protocol.
    Fault,
}

impl Tx {
    pub(crate) fn new(max_requests: u32, max_segs: u32, reads_max: u32) -> Tx {
        let capacity = max_requests.max(1) as usize;
        let places = capacity.next_power_of_two();
        let max_segs = max_segs.max(1) as usize;
        Tx {
            on: false,
            ring: None,
            entries: vec![Entry::default(); places].into_boxed_slice(),
            segs: vec![Stretch::default(); places * max_segs].into_boxed_slice(),
            lkeys: vec![0; places * max_segs].into_boxed_slice(),
            max_segs,
            capacity: capacity as u64,
            head: 0,
            done: 0,
            sent: 0,
            tail: 0,
            part: 0,
            begun: false,
            seq: 0,
            acked: 0,
            reads_open: 0,
            reads_max: reads_max.max(1),
            halted: false,
            at_once: 0,
            stage: Stage::Fresh,
            silent: None,
            settled: None,
            near: one_sided::Near::default(),
            lent: VecDeque::with_capacity(HELD),
        }
    }

    /// Connected.
    pub(crate) fn start(&mut self, chan: &Chan, link: &Link) {
        let [memory, _] = link.segment.requests();
        let [_, answer_memory] = link.segment.answer_rings();
        let size = link.segment.ring_bytes();
        self.ring = Some(Rings {
            out: Producer::new(size),
            memory,
            answers: Consumer::new(link.segment.answer_bytes()),
            answer_memory,
            chunk: size / 4,
            short: (size as u64 / 4).min(chan.dev.params.map_threshold.saturating_sub(1)),
        });
        self.reads_max = self.reads_max.min(link.hello.reads_in.max(1));
        self.on = true;
        if !self.halted {
            self.at_once = self.ring.as_ref().map_or(0, |rings| rings.short.min(bytes::SHORT as u64) as u32);
        }
    }

    /// No request is started any more.
    fn halt(&mut self) {
        self.halted = true;
        self.at_once = 0;
    }

    /// Stopped: nothing completes any more that has not by now.
    pub(crate) fn stop(&mut self, chan: &Chan) {
        self.on = false;
        self.halt();
        self.settle(chan);
    }

    #[inline(always)]
    pub(crate) fn post(&mut self, chan: &Chan, link: Option<&Link>, request: &Request) -> Status {
        let Some(link) = link.filter(|_| self.on) else { return Status::NOT_CONNECTED };
        if self.tail - self.head >= self.capacity {
            return Status::NO_RESOURCE;
        }
        let idle = self.sent == self.tail && !self.halted;
        if idle && request.opcode == Opcode::SEND && self.post_short(chan, link, request) {
            return Status::OK;
        }
        if idle && request.opcode != Opcode::SEND && self.post_another_direct(chan, link, request) {
            return Status::OK;
        }
        self.post_slowly(chan, link, request)
    }

    #[inline(never)]
    fn post_slowly(&mut self, chan: &Chan, link: &Link, request: &Request) -> Status {
        let segments = request.segments();
        let sum: u64 = segments.iter().map(|segment| segment.len() as u64).sum();
        if segments.len() > self.max_segs || sum != request.total || request.total > u32::MAX as u64 {
            return Status::INVALID;
        }
        let total = match request.opcode {
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE => request.total,
            Opcode::WRITE | Opcode::WRITE_IMM => request.total,
            Opcode::READ if request.remote_len as u64 <= request.total => request.remote_len as u64,
            Opcode::READ => return Status::INVALID,
            _ => return Status::NOT_SUPPORTED,
        };
        let base = self.place(self.tail) * self.max_segs;
        for (place, segment) in self.segs[base..].iter_mut().zip(segments) {
            *place = Stretch::from(segment);
        }
        for (place, segment) in self.lkeys[base..].iter_mut().zip(segments) {
            *place = segment.lkey();
        }
        let entry = Entry {
            token: request.token,
            total,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            opcode: request.opcode,
            flags: request.flags,
            nsegs: segments.len() as u32,
            imm: request.imm,
            ..Entry::default()
        };
        self.enqueue(chan, link, entry);
        Status::OK
    }

    /// Takes in a request whose segments are in place.
    fn enqueue(&mut self, chan: &Chan, link: &Link, entry: Entry) {
        *self.entry(self.tail) = entry;
        self.tail += 1;
        self.advance(chan, link);
        if self.sent != self.tail {
            chan.watch();
        }
        chan.tell(SEND);
    }

    /// Takes completions.
    #[inline]
    pub(crate) fn poll(&mut self, chan: &Chan, link: Option<&Link>, out: &mut [Completion]) -> usize {
        if self.sent == self.tail
            && self.on
            && self.reads_open == 0
            && self.settled.is_none()
            && self.lent.is_empty()
            && let Some(link) = link
        {
            let n = self.poll_plain(chan, link, out);
            if n > 0 {
                return n;
            }
        }
        self.poll_rarer(chan, link, out)
    }

    /// [`Tx::poll`], whatever there is.
    #[inline(never)]
    fn poll_rarer(&mut self, chan: &Chan, link: Option<&Link>, out: &mut [Completion]) -> usize {
        // What is done already is handed out first.
        if let Some(link) = link
            && self.on
            && (self.head == self.done || self.sent != self.tail)
        {
            self.advance(chan, link);
        }
        let mut n = 0;
        if let Some(settled) = self.settled.take() {
            out[0] = settled;
            n = 1;
        }
        while self.head != self.done && n < out.len() {
            let (completion, silent) = self.next_done(chan);
            if silent {
                self.silent = Some(completion);
                continue;
            }
            self.silent = None;
            out[n] = completion;
            n += 1;
        }
        self.hint(chan);
        n
    }

    /// The oldest completion, and whether it is to be kept silent.
    #[inline]
    fn next_done(&mut self, chan: &Chan) -> (Completion, bool) {
        let entry = &self.entries[self.place(self.head)];
        let success = entry.status == CompletionStatus::SUCCESS;
        let completion = Completion {
            token: entry.token,
            user: chan.attr.send_user,
            status: entry.status,
            length: if success { entry.total as u32 } else { 0 },
            ..Completion::default()
        };
        let silent = success && entry.flags.contains(PostFlag::UNSIGNALLED);
        self.head += 1;
        (completion, silent)
    }

    /// Completes the last success that was kept silent, unless a later completion tells of it.
    pub(crate) fn settle(&mut self, chan: &Chan) {
        while self.head != self.done && self.entries[self.place(self.head)].is_silent() {
            self.silent = Some(self.next_done(chan).0);
        }
        if self.head == self.done
            && let Some(silent) = self.silent.take()
        {
            self.settled = Some(silent);
        }
        self.hint(chan);
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completion(&self) -> bool {
        self.head != self.done || self.settled.is_some()
    }

    /// Whether posted requests are under way.
    pub(crate) fn busy(&self) -> bool {
        self.on && self.done != self.tail
    }

    /// Whether requests wait for room in the ring.
    pub(crate) fn wants_room(&self) -> bool {
        self.on && self.sent != self.tail
    }

    /// Grows with every progress.
    pub(crate) fn progress(&self) -> u64 {
        self.done.wrapping_add(self.sent).wrapping_add(self.part).wrapping_add(self.acked as u64)
    }

    /// All progress there is to be made.
    pub(crate) fn advance(&mut self, chan: &Chan, link: &Link) {
        let result = self.reap(chan, link, true).and_then(|()| {
            let sent = self.sent;
            self.push(chan, link)?;
            // What was executed on the spot is complete now.
            if self.sent != sent { self.reap(chan, link, false) } else { Ok(()) }
        });
        let result = if self.lent.is_empty() { result } else { result.and_then(|()| self.take_back(link)) };
        if result.is_err() {
            self.stop(chan);
            chan.fault("the peer broke the protocol of the ring");
        }
        self.hint(chan);
    }

    /// Tells the queue's poll what to look for, so that it need not take the lock to find nothing.
    #[inline]
    fn hint(&self, chan: &Chan) {
        let oldest = &self.entries[self.place(self.done)];
        let hint = if self.has_completion() || self.on && self.sent != self.tail {
            Hint::Now
        } else if !self.on || self.done == self.tail {
            Hint::Idle
        } else if oldest.state == State::Ring {
            Hint::Counter
        } else {
            Hint::Now
        };
        self.tell_hint(chan, hint, oldest.seq);
    }

    /// See [`crate::link::Hints::set`]; `oldest` is the number of the oldest request that is under way.
    #[inline(always)]
    fn tell_hint(&self, chan: &Chan, hint: Hint, oldest: u32) {
        let need = match hint {
            Hint::Counter => oldest,
            // As many as were begun cannot be exceeded by what is finished of them.
            Hint::Idle => self.seq,
            Hint::Now => chan.acked.load(Ordering::Relaxed).wrapping_sub(1),
        };
        chan.hint.set(hint, need);
    }

    fn chunk(&self) -> usize {
        self.ring.as_ref().map_or(0, |rings| rings.chunk)
    }

    fn segs_of(&self, index: u64, count: u32) -> &[Stretch] {
        &self.segs[self.place(index) * self.max_segs..][..count as usize]
    }

    #[inline]
    fn place(&self, index: u64) -> usize {
        index as usize & (self.entries.len() - 1)
    }

    #[inline]
    fn entry(&mut self, index: u64) -> &mut Entry {
        let place = self.place(index);
        &mut self.entries[place]
    }
}

/// What [`crate::link::Hints`] say.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Hint {
    /// Nothing is under way.
    Idle = 0,
    /// Wait for the peer's counter to pass a number.
    Counter = 1,
    /// Take the lock.
    Now = 2,
}

impl Rings {
    /// Room for a frame. The peer's position is read only when the known one leaves none.
    #[inline]
    fn reserve(&mut self, link: &Link, len: usize) -> Result<Option<Slot>, Nonsense> {
        if let Some(slot) = self.out.reserve(&self.memory, len) {
            return Ok(Some(slot));
        }
        self.out.credit(link.segment.peer().consumed.load(Ordering::Acquire))?;
        Ok(self.out.reserve(&self.memory, len))
    }

    /// Room for a frame, as far as the peer says; nonsense is found out by who needs it to be.
    #[inline(always)]
    fn room(&mut self, link: &Link, len: usize) -> Option<Slot> {
        loop {
            match self.out.reserve(&self.memory, len) {
                Some(slot) => return Some(slot),
                None if self.learn(link) => {}
                None => return None,
            }
        }
    }

    /// Whether the peer is further than was known. Nonsense is found out by who needs it to be.
    #[inline(never)]
    fn learn(&mut self, link: &Link) -> bool {
        let (_, before) = self.out.marks();
        let position = link.segment.peer().consumed.load(Ordering::Acquire);
        position != before && self.out.credit(position).is_ok()
    }

    #[inline(always)]
    fn publish(&mut self, chan: &Chan, link: &Link, slot: Slot, kind: u8, flags: u8, extra: u32) {
        let arg = (extra as u64) << 32 | chan.rx_completed.load(Ordering::Relaxed) as u64;
        self.out.publish(&self.memory, slot, kind, flags, arg);
        // The lines a stream comes to soon are fetched while it goes on.
        self.memory.prefetch((slot.at + AHEAD) & (4 * self.chunk - 1));
        link.wake_receiver();
    }
}
