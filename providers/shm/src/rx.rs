//! The receiving half of a channel: posted receives, the peer's frames, what is executed for the peer.
//!
//! A message is matched with the oldest receive and copied once, from the ring to where it belongs. Without a receive
//! it stays in the ring, and what is behind it too.

mod extended;
mod long;
mod run;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use dat_kit::Stretch;
use dat_plugin::{Access, ChannelAttr, Completion, CompletionStatus, PostFlag, RecvRequest, Status};

use crate::bytes;
use crate::channel::Chan;
use crate::link::Link;
use crate::one_sided::{Near, Target};
use crate::ring::{Consumer, Frame, Nonsense, Producer};
use crate::segment::RingMemory;
use crate::srq::Shared;
use crate::tx::{UNFINISHED, kind};

/// What [`Chan::peek`] points to when there is certainly something to do, or certainly not.
pub(crate) static READY: AtomicU32 = AtomicU32::new(1);
pub(crate) static NEVER: AtomicU32 = AtomicU32::new(0);

/// Completions kept of a channel whose receives are shared, while its application is away.
const SHARED: u32 = 64;

/// Bytes of a cache line.
const LINE: usize = 64;

pub(crate) struct Rx {
    on: bool,
    stopped: bool,
    rings: Option<Rings>,
    recvs: Box<[Recv]>,
    segs: Box<[Stretch]>,
    max_segs: usize,
    capacity: u64,
    /// How many of them may be posted here: none if they are shared.
    places: u64,
    head: u64,
    tail: u64,
    /// Completions made while the application was away.
    done: VecDeque<Completion>,
    /// The peer's requests finished; wraps.
    completed: u32,
    /// `completed` or the position changed since they were published.
    dirty: bool,
    /// The message or write that arrives in parts.
    current: Option<Current>,
    /// The oldest message found no receive.
    blocked: bool,
    blocked_since: Option<Instant>,
    /// Reads to be answered, oldest first.
    reads: VecDeque<Reading>,
    reads_max: usize,
    /// Receives are taken out of it one by one, into `recvs`, when there is a message for them.
    srq: Option<Arc<Shared>>,
    /// What the message that comes next in parts carries.
    note: Note,
    /// What the frame taken last said of the peer's counter.
    told: u32,
    /// Memory of the peer's that was copied from last.
    near: Near,
    /// All that may come next is a frame, and nothing that came before changes what it means: see [`Rx::messages`].
    plain: bool,
}

struct Rings {
    from: Consumer,
    memory: RingMemory,
    answers: Producer,
    answer_memory: RingMemory,
}

/// A posted receive: half a cache line.
#[derive(Clone, Copy, Default)]
pub(crate) struct Recv {
    token: u64,
    /// Where its bytes go, if that is one segment.
    one: Stretch,
    /// One more than the bytes it has room for; 0 if it is to fail.
    room: u32,
    nsegs: u32,
}

impl Recv {
    #[inline]
    pub(crate) fn new(request: &RecvRequest) -> Recv {
        let segments = request.segments();
        let (one, total) = match segments {
            [one] => (Stretch::from(one), u64::from(one.len())),
            _ => (Stretch::default(), segments.iter().map(|segment| u64::from(segment.len())).sum::<u64>()),
        };
        let poison = request.flags.contains(PostFlag::POISON);
        let room = if poison { 0 } else { (total + 1).min(u32::MAX.into()) as u32 };
        Recv { token: request.token, one, room, nsegs: segments.len() as u32 }
    }

    /// Where its bytes go, of several segments those at `first`.
    #[inline]
    fn list<'a>(&'a self, segs: &'a [Stretch], first: usize) -> &'a [Stretch] {
        match self.nsegs {
            1 => std::slice::from_ref(&self.one),
            several => &segs[first..first + several as usize],
        }
    }
}

/// What a message carries beyond its bytes: the flag of the frame, 0 for nothing, and the value.
#[derive(Clone, Copy, Default)]
struct Note {
    flags: u8,
    value: u32,
}

#[derive(Clone, Copy)]
struct Current {
    /// Where a write goes; `None` for a message.
    write: Option<Target>,
    flags: u8,
    note: Note,
    got: u64,
    total: u64,
}

#[derive(Clone, Copy)]
struct Reading {
    target: Target,
    tag: u32,
    sent: u64,
    /// The answer itself, where it is no memory.
    value: Option<u64>,
}

enum Step {
    Completion(Completion),
    /// Something was done that completes nothing here.
    Again,
    Idle,
}

/// Why a channel fails: the status for the receive, and the one the peer's request gets.
struct Failed {
    here: Option<CompletionStatus>,
    there: CompletionStatus,
}

impl Rx {
    pub(crate) fn new(attr: &ChannelAttr, reads_max: u32, srq: Option<Arc<Shared>>) -> Rx {
        let (max_recvs, max_segs) = match &srq {
            None => (attr.max_recvs, attr.max_recv_segments),
            Some(srq) => (SHARED, srq.max_segs),
        };
        let capacity = max_recvs.max(1) as usize;
        let places = if srq.is_none() { capacity.next_power_of_two() } else { 1 };
        let max_segs = max_segs.max(1) as usize;
        Rx {
            on: false,
            stopped: false,
            rings: None,
            recvs: vec![Recv::default(); places].into_boxed_slice(),
            segs: vec![Stretch::default(); places * max_segs].into_boxed_slice(),
            max_segs,
            capacity: capacity as u64,
            places: if srq.is_none() { capacity as u64 } else { 0 },
            head: 0,
            tail: 0,
            done: VecDeque::with_capacity(capacity + 1),
            completed: 0,
            dirty: false,
            current: None,
            blocked: false,
            blocked_since: None,
            reads: VecDeque::with_capacity(reads_max.max(1) as usize),
            reads_max: reads_max.max(1) as usize,
            srq,
            note: Note::default(),
            told: 0,
            near: Near::default(),
            plain: false,
        }
    }

    /// Connected.
    pub(crate) fn start(&mut self, chan: &Chan, link: &Link) {
        let [_, memory] = link.segment.requests();
        let [answer_memory, _] = link.segment.answer_rings();
        self.rings = Some(Rings {
            from: Consumer::new(link.segment.ring_bytes()),
            memory,
            answers: Producer::new(link.segment.answer_bytes()),
            answer_memory,
        });
        self.on = true;
        self.aim(chan);
    }

    /// Stopped: no buffer is touched any more.
    pub(crate) fn stop(&mut self, chan: &Chan) {
        self.on = false;
        self.stopped = true;
        self.aim(chan);
        self.give_back();
    }

    /// The shared queue its receives come from.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.srq.clone()
    }

    /// Takes a receive of one segment while nothing waits for it. `false`: nothing was done, [`Rx::post`] is to be asked.
    #[inline(always)]
    pub(crate) fn post_plain(&mut self, request: &RecvRequest) -> bool {
        let [segment] = request.segments() else { return false };
        let place = self.tail as usize & (self.recvs.len() - 1);
        // `plain` says that it is neither stopped nor blocked, and that there are no completions that take places.
        if !self.plain || self.tail - self.head >= self.places || request.flags.contains(PostFlag::POISON) {
            return false;
        }
        let Some(recv) = self.recvs.get_mut(place) else { return false };
        let room = segment.len().saturating_add(1);
        *recv = Recv { token: request.token, one: Stretch::from(segment), room, nsegs: 1 };
        self.tail += 1;
        true
    }

    pub(crate) fn post(&mut self, request: &RecvRequest) -> Status {
        if self.stopped {
            return Status::NOT_CONNECTED;
        }
        let segments = request.segments();
        if segments.len() > self.max_segs || self.srq.is_some() {
            return Status::INVALID;
        }
        if self.tail - self.head + self.done.len() as u64 >= self.capacity {
            return Status::NO_RESOURCE;
        }
        let place = self.tail as usize & (self.recvs.len() - 1);
        self.recvs[place] = Recv::new(request);
        if segments.len() > 1 {
            for (to, segment) in self.segs[place * self.max_segs..].iter_mut().zip(segments) {
                *to = Stretch::from(segment);
            }
        }
        self.tail += 1;
        Status::OK
    }

    /// Whether a message waits for a receive.
    pub(crate) fn blocked(&self) -> bool {
        self.blocked
    }

    /// Since when a message waits, as far as somebody looked.
    pub(crate) fn waits_since(&mut self) -> Option<Instant> {
        if !self.blocked {
            self.blocked_since = None;
            return None;
        }
        Some(*self.blocked_since.get_or_insert_with(Instant::now))
    }

    /// The oldest message has waited too long.
    pub(crate) fn not_ready(&mut self, chan: &Chan, link: &Link) {
        self.fail(chan, link, Failed { here: None, there: CompletionStatus::NOT_READY });
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completion(&self) -> bool {
        !self.done.is_empty()
    }

    /// Whether work for the peer is left that needs room in a ring.
    pub(crate) fn wants_room(&self) -> bool {
        self.on && !self.reads.is_empty()
    }

    /// Takes completions. Unless it is a `burst`, a lone message is handed out before the line of the next header is
    /// fetched from the peer's cache.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        chan: &Chan,
        link: Option<&Link>,
        out: &mut [Completion],
        burst: bool,
    ) -> usize {
        if self.plain
            && let Some(link) = link
        {
            let n = self.messages(chan, link, out, burst);
            if n > 0 {
                return n;
            }
        }
        self.poll_rarer(chan, link, out, burst)
    }

    /// [`Rx::poll`], whatever there is.
    #[inline(never)]
    fn poll_rarer(&mut self, chan: &Chan, link: Option<&Link>, out: &mut [Completion], burst: bool) -> usize {
        let mut n = 0;
        while n < out.len() {
            if let Some(completion) = self.done.pop_front() {
                out[n] = completion;
                n += 1;
                continue;
            }
            let Some(link) = link.filter(|_| self.on) else { break };
            match self.step(chan, link) {
                Step::Completion(completion) => {
                    out[n] = completion;
                    n += 1;
                    if !burst && self.at_new_line() {
                        break;
                    }
                }
                Step::Again => {}
                Step::Idle => break,
            }
        }
        if let Some(link) = link {
            self.publish(link);
        }
        self.aim(chan);
        n
    }

    /// Whether the next header is on a line of its own, or on one that was not read yet.
    #[inline]
    fn at_new_line(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.from.at() % LINE == 0)
    }

    /// Does the application's part while it is away; `true`: there are completions to be taken.
    pub(crate) fn pump(&mut self, chan: &Chan, link: &Link) -> bool {
        while self.on && (self.done.len() as u64) < self.capacity {
            match self.step(chan, link) {
                Step::Completion(completion) => self.done.push_back(completion),
                Step::Again => {}
                Step::Idle => break,
            }
        }
        self.publish(link);
        self.aim(chan);
        !self.done.is_empty()
    }

    /// One frame.
    #[inline]
    fn step(&mut self, chan: &Chan, link: &Link) -> Step {
        match self.try_step(chan, link) {
            Ok(Ok(step)) => step,
            Ok(Err(failed)) => self.fail(chan, link, failed),
            Err(Nonsense) => {
                self.on = false;
                self.stopped = true;
                chan.fault("the peer broke the protocol of the ring");
                Step::Idle
            }
        }
    }

    #[inline]
    fn try_step(&mut self, chan: &Chan, link: &Link) -> Result<Result<Step, Failed>, Nonsense> {
        if !self.reads.is_empty() {
            match self.answer(chan, link)? {
                Ok(()) => {}
                Err(failed) => return Ok(Err(failed)),
            }
        }
        let Some(rings) = self.rings.as_mut() else { return Ok(Ok(Step::Idle)) };
        let Some(frame) = rings.from.peek(&rings.memory)? else { return Ok(Ok(Step::Idle)) };
        chan.acked.store(frame.arg as u32, Ordering::Relaxed);
        if frame.kind == kind::SEND && self.current.is_none() && self.note.flags == 0 {
            return Ok(self.message(chan, &frame));
        }
        self.rarer(chan, link, &frame)
    }

    /// The receive the next message goes to, if it can.
    #[inline]
    fn match_recv(&mut self, chan: &Chan, len: u64) -> Result<Option<Recv>, Failed> {
        if self.head == self.tail && !self.take_shared(chan) {
            self.blocked = true;
            return Ok(None);
        }
        self.blocked = false;
        let recv = self.recvs[self.head as usize & (self.recvs.len() - 1)];
        let there = CompletionStatus::REMOTE_ERROR;
        if recv.room == 0 {
            return Err(Failed { here: Some(CompletionStatus::LOCAL_ACCESS), there });
        }
        if len >= recv.room.into() {
            return Err(Failed { here: Some(CompletionStatus::LOCAL_LENGTH), there });
        }
        Ok(Some(recv))
    }

    /// A message in one frame.
    #[inline]
    fn message(&mut self, chan: &Chan, frame: &Frame) -> Result<Step, Failed> {
        let Some(recv) = self.match_recv(chan, frame.len as u64)? else { return Ok(Step::Idle) };
        let note = Note::of(frame);
        if note.flags != 0 {
            self.end_window(chan, note)?;
        }
        let Some(rings) = self.rings.as_mut() else { return Ok(Step::Idle) };
        let place = self.head as usize & (self.recvs.len() - 1);
        let segs = recv.list(&self.segs, place * self.max_segs);
        // SAFETY: the frame's payload lies inside the ring (`Consumer::peek` checked it).
        unsafe { bytes::scatter(rings.memory.at(frame.payload), frame.len, segs, 0) };
        rings.from.advance(frame);
        self.finish_request(chan);
        Ok(Step::Completion(self.received(chan, recv.token, frame.len as u64, frame.flags, note)))
    }

    /// A receive was used.
    #[inline]
    fn received(&mut self, chan: &Chan, token: u64, len: u64, flags: u8, note: Note) -> Completion {
        self.head += 1;
        let status = CompletionStatus::SUCCESS;
        let imm = if note.flags != 0 { note.value } else { 0 };
        Completion {
            token,
            user: chan.attr.recv_user,
            status,
            length: len as u32,
            flags: note.marks(flags),
            imm,
        }
    }

    /// One of the peer's requests is finished.
    #[inline]
    fn finish_request(&mut self, chan: &Chan) {
        self.completed = self.completed.wrapping_add(1);
        chan.rx_completed.store(self.completed, Ordering::Relaxed);
        self.dirty = true;
    }

    /// Everything but a message in one frame.
    fn rarer(&mut self, chan: &Chan, link: &Link, frame: &Frame) -> Result<Result<Step, Failed>, Nonsense> {
        let extra = (frame.arg >> 32) as u32 as u64;
        match (frame.kind, self.current) {
            (kind::MORE, Some(current)) => self.part(chan, link, frame, current),
            (kind::NOTE, None) => Ok(Ok(self.noted(frame)?)),
            (kind::HEAD, None) if frame.len as u64 <= extra => {
                match self.match_recv(chan, extra) {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(Ok(Step::Idle)),
                    Err(failed) => return Ok(Err(failed)),
                }
                let note = std::mem::take(&mut self.note);
                let current = Current { write: None, flags: frame.flags, note, got: 0, total: extra };
                self.part(chan, link, frame, current)
            }
            (kind::PULL, None) => self.pull(chan, link, frame, extra),
            _ if self.note.flags != 0 => Err(Nonsense),
            (kind::WRITTEN, None) => self.written(chan, frame),
            (kind::ATOMIC, None) => self.atomic(chan, frame),
            (kind::WRITE, None) => {
                let target = self.target(frame)?;
                let right = Access::REMOTE_WRITE;
                if !self.reads.is_empty() {
                    return Ok(Ok(Step::Idle));
                }
                if !chan.dev.keys.allows(&target, right, chan.attr.domain) {
                    return Ok(Err(Failed { here: None, there: CompletionStatus::REMOTE_ACCESS }));
                }
                self.advance(frame);
                if target.len != 0 {
                    let (total, flags, note) = (target.len, frame.flags, Note::default());
                    self.current = Some(Current { write: Some(target), flags, note, got: 0, total });
                } else if frame.flags & UNFINISHED == 0 {
                    self.finish_request(chan);
                }
                Ok(Ok(Step::Again))
            }
            (kind::READ, None) => {
                let target = self.target(frame)?;
                if self.reads.len() >= self.reads_max || target.len > u32::MAX as u64 || target.len == 0 {
                    return Err(Nonsense);
                }
                if !chan.dev.keys.allows(&target, Access::REMOTE_READ, chan.attr.domain) {
                    if !self.reads.is_empty() {
                        return Ok(Ok(Step::Idle));
                    }
                    return Ok(Err(Failed { here: None, there: CompletionStatus::REMOTE_ACCESS }));
                }
                self.reads.push_back(Reading { target, tag: self.completed, sent: 0, value: None });
                self.advance(frame);
                self.finish_request(chan);
                Ok(Ok(Step::Again))
            }
            _ => Err(Nonsense),
        }
    }

    /// Sends what was asked for, as far as there is room.
    fn answer(&mut self, chan: &Chan, link: &Link) -> Result<Result<(), Failed>, Nonsense> {
        let Some(rings) = self.rings.as_mut() else { return Ok(Ok(())) };
        let mut any = false;
        while let Some(reading) = self.reads.front_mut() {
            let Target { addr, len, rkey } = reading.target;
            let piece = (len - reading.sent).min(link.segment.answer_bytes() as u64 / 4);
            let mut slot = rings.answers.reserve(&rings.answer_memory, piece as usize);
            if slot.is_none() {
                rings.answers.credit(link.segment.peer().answers_consumed.load(Ordering::Acquire))?;
                slot = rings.answers.reserve(&rings.answer_memory, piece as usize);
            }
            let Some(slot) = slot else { break };
            let part = Target { addr: addr + reading.sent, len: piece, rkey };
            let to = rings.answer_memory.at(slot.payload);
            if let Some(value) = reading.value {
                // SAFETY: a reserved slot has room for the piece, which is eight bytes.
                unsafe { to.cast::<u64>().write_unaligned(value) };
            }
            let done = reading.value.is_some()
                || chan.dev.keys.access(&part, Access::REMOTE_READ, chan.attr.domain, |from| {
                    // SAFETY: a reserved slot has room for the piece; the source is a live registration, which the
                    // table's lock keeps.
                    unsafe { std::ptr::copy(from, to, piece as usize) }
                });
            if !done {
                // The registration ended in the middle. The counter has passed this read, so the peer sees the
                // connection break.
                return Ok(Err(Failed { here: None, there: CompletionStatus::REMOTE_ACCESS }));
            }
            let arg = (reading.tag as u64) << 32;
            rings.answers.publish(&rings.answer_memory, slot, kind::DATA, 0, arg);
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
            chan.watch();
        }
        Ok(Ok(()))
    }

    fn target(&mut self, frame: &Frame) -> Result<Target, Nonsense> {
        let rings = self.rings.as_ref().ok_or(Nonsense)?;
        if frame.len != Target::BYTES {
            return Err(Nonsense);
        }
        // SAFETY: the frame's payload lies inside the ring and is as long as checked.
        Ok(unsafe { Target::load(rings.memory.at(frame.payload)) })
    }

    fn advance(&mut self, frame: &Frame) {
        if let Some(rings) = self.rings.as_mut() {
            rings.from.advance(frame);
            self.dirty = true;
        }
    }

    /// The connection ends with an error at this request of the peer's.
    #[cold]
    fn fail(&mut self, chan: &Chan, link: &Link, failed: Failed) -> Step {
        self.publish(link);
        link.segment.own().fail.store(failed.there.0, Ordering::Release);
        link.wake_sender();
        self.on = false;
        self.stopped = true;
        self.plain = false;
        chan.fault("a request of the peer failed here");
        let Some(status) = failed.here else { return Step::Idle };
        let token = self.recvs[self.head as usize & (self.recvs.len() - 1)].token;
        self.head += 1;
        Step::Completion(Completion { token, user: chan.attr.recv_user, status, ..Completion::default() })
    }

    /// Tells the peer how far things are.
    #[inline(always)]
    fn publish(&mut self, link: &Link) {
        if !self.dirty {
            return;
        }
        self.dirty = false;
        let Some(rings) = self.rings.as_mut() else { return };
        let own = link.segment.own();
        own.consumed.store(rings.from.tail(), Ordering::Release);
        own.completed.store(self.completed, Ordering::Release);
        link.wake_sender();
        if link.segment.peer().want_room.load(Ordering::Relaxed) != 0 {
            self.give_room(link);
        }
    }

    /// The peer's application is away and its event thread waits for room: it is woken when all is used up.
    #[cold]
    fn give_room(&mut self, link: &Link) {
        if let Some(rings) = self.rings.as_mut()
            && let Ok(None) = rings.from.peek(&rings.memory)
        {
            link.kick();
        }
    }

    /// [`Rx::aim`], when nothing but a frame can be next.
    #[inline]
    fn aim_plain(&self, chan: &Chan) {
        if let Some(rings) = &self.rings {
            chan.peek.store(rings.memory.word_ptr(rings.from.at()), Ordering::Release);
        }
    }

    /// Points [`Chan::peek`] to the word the next look is for.
    fn aim(&mut self, chan: &Chan) {
        let quiet = self.done.is_empty() && self.reads.is_empty() && !self.blocked;
        self.plain = self.on && quiet && self.current.is_none() && self.note.flags == 0;
        let word = match &self.rings {
            _ if !self.done.is_empty() => &raw const READY,
            Some(rings) if self.on => {
                if !self.reads.is_empty() {
                    &raw const READY
                } else if self.blocked && self.head == self.tail {
                    &raw const NEVER
                } else {
                    rings.memory.word_ptr(rings.from.at()).cast_const()
                }
            }
            _ => &raw const NEVER,
        };
        chan.peek.store(word.cast_mut(), Ordering::Release);
    }
}
