//! The requesting half of a channel: posted sends, writes and reads, their way into the ring, their completion.
//!
//! Requests start in post order. Most go into the ring, or are executed, when they are posted. Those that find no room wait;
//! later posts, polls and the event thread continue them.
//!
//! # One way in
//! [`Tx::submit`] classifies a request once ([`crate::data::protocol::Plan`]) and executes the plan. The plan and
//! its progress stay with the request ([`Step`]), so that a request that must wait continues and never begins again.
//!
//! # The hot arm
//! [`Tx::submit_short`] sends up to [`bytes::SHORT`] bytes of one segment, if nothing waits and the ring has room. It makes
//! no call, so no register is spilled: an 8-byte message takes 15 ns less with it.

mod execute;
mod frame;
mod queue;
mod state;

use std::sync::atomic::Ordering;

use dat_plugin::{AtomicRequest, Completion, CompletionStatus, Opcode, PostFlag, Request, Status};

use crate::data::completion::Window;
use crate::data::conn::Conn;
use crate::data::doorbell::SEND;
use crate::data::link::Link;
use crate::data::protocol::kind;
use crate::data::ring::{Consumer, Producer, ProtocolError};
use crate::memory::bytes;
use crate::memory::mapped::MappingCache;
use crate::notify::barrier;
use frame::{Start, solicited};
use queue::{Queue, Work};
use state::{Rings, Step};

pub(crate) use state::Tx;

impl Tx {
    /// The mapping of the peer's memory used last.
    pub(crate) fn mappings(&mut self) -> &mut MappingCache {
        &mut self.near
    }

    pub(crate) fn new(max_requests: u32, max_segs: u32, reads_max: u32, user: u64) -> Tx {
        let capacity = max_requests.max(1) as usize;
        Tx {
            short: 0,
            halted: false,
            rings: None,
            window: Window::new(capacity, user),
            queue: Queue::new(capacity.next_power_of_two(), max_segs.max(1) as usize),
            step: Step::default(),
            reads_max: reads_max.max(1),
            near: MappingCache::default(),
        }
    }

    /// Connected.
    pub(crate) fn start(&mut self, conn: &Conn, link: &Link) {
        let [memory, _] = link.segment.requests();
        let [_, answer_memory] = link.segment.answer_rings();
        let size = link.segment.ring_bytes();
        self.rings = Some(Rings {
            out: Producer::new(size),
            memory,
            answers: Consumer::new(link.segment.answer_bytes()),
            answer_memory,
            chunk: size / 4,
        });
        self.reads_max = self.reads_max.min(link.reads_in.max(1));
        self.window.open();
        let short = (bytes::SHORT as u64).min(conn.thresholds.mapped.saturating_sub(1));
        self.short = if self.halted { 0 } else { short as u32 };
    }

    /// No request is started any more.
    fn halt(&mut self) {
        self.halted = true;
        self.short = 0;
    }

    /// Stopped: nothing completes any more that has not by now.
    pub(crate) fn stop(&mut self, conn: &Conn) {
        self.halt();
        self.window.close();
        self.window.publish_due(&conn.counters);
    }

    /// The hot arm of a send. `None`: nothing was done; else whether a doorbell is to be rung, by [`Tx::ring`], once no
    /// lock is held.
    // See the module's documentation.
    #[inline(always)]
    pub(crate) fn submit_short(&mut self, conn: &Conn, link: &Link, request: &Request) -> Option<bool> {
        let [one] = request.segments() else { return None };
        let len = one.len();
        let fenced = request.flags.contains(PostFlag::FENCE);
        if fenced || len > self.short || !self.window.all_sent() || self.window.is_full() {
            return None;
        }
        let rings = self.rings.as_mut()?;
        let memory = rings.memory;
        let slot = rings.out.reserve_here(&memory, len as usize)?;
        // SAFETY: a reserved slot has room for `len` bytes; the source is the segment's, which has as many.
        unsafe { bytes::copy_short(one.addr() as *const u8, memory.at(slot.payload), len as usize) }
        rings.publish(&conn.counters, slot, kind::SEND, solicited(request.flags), len);
        let oldest = self.window.push_sent(request.token, request.flags, len, &conn.counters);
        Some(link.receiver_sleeps() || oldest && conn.doorbells.is_event_driven(SEND))
    }

    /// After [`Tx::submit_short`].
    #[cold]
    pub(crate) fn ring(conn: &Conn, link: &Link) {
        link.wake_receiver();
        conn.doorbells.ring(SEND);
    }

    /// Any send, write or read.
    pub(crate) fn submit(&mut self, conn: &Conn, link: &Link, request: &Request) -> Status {
        let status = self.check_room();
        if status != Status::OK {
            return status;
        }
        match Work::of(request, self.queue.max_segs()) {
            Ok(work) => self.accept(conn, link, request.token, &work),
            Err(status) => status,
        }
    }

    pub(crate) fn submit_atomic(&mut self, conn: &Conn, link: &Link, request: &AtomicRequest) -> Status {
        let known = matches!(request.opcode, Opcode::FETCH_ADD | Opcode::CMP_SWAP);
        if !known || request.sink.len() != 8 {
            return Status::INVALID;
        }
        let status = self.check_room();
        if status != Status::OK {
            return status;
        }
        self.accept(conn, link, request.token, &Work::of_atomic(request))
    }

    /// A window was bound; the completion with `status` keeps its turn. [`Tx::check_room`] was asked.
    pub(crate) fn submit_bind(
        &mut self,
        conn: &Conn,
        link: &Link,
        token: u64,
        flags: PostFlag,
        status: CompletionStatus,
    ) {
        self.accept(conn, link, token, &Work::of_bind(flags, status));
    }

    /// Whether a request can be taken in.
    pub(crate) fn check_room(&self) -> Status {
        if !self.window.is_open() {
            Status::NOT_CONNECTED
        } else if self.window.is_full() {
            Status::NO_RESOURCE
        } else {
            Status::OK
        }
    }

    /// Takes in a request, and executes it if nothing is before it.
    fn accept(&mut self, conn: &Conn, link: &Link, token: u64, work: &Work<'_>) -> Status {
        let first = self.window.all_sent() && !self.halted && !self.is_fenced(work);
        let slot = self.window.next_slot_to_post();
        self.window.push(token, work.flags, work.total as u32);
        let start = if first { self.execute(conn, link, work) } else { Start::Later };
        if start != Start::Gone {
            // What waits, and what is answered, outlives the post.
            self.queue.store(slot, work);
        }
        match start {
            Start::Gone | Start::Answer => {
                self.next();
                self.reap(conn, 0);
                self.window.publish_due(&conn.counters);
            }
            Start::Later => self.advance(conn, link),
            Start::Fault => self.broken(conn),
        }
        if !self.window.all_sent() {
            conn.schedule_progress();
        }
        conn.doorbells.ring(SEND);
        Status::OK
    }

    /// Takes completions.
    pub(crate) fn poll(&mut self, conn: &Conn, link: Option<&Link>, out: &mut [Completion]) -> usize {
        let mut n = match self.window.credit(conn.counters.acked.load(Ordering::Relaxed)) {
            Ok(()) => self.window.take(out),
            Err(ProtocolError) => 0,
        };
        if n == 0 || !self.window.all_sent() {
            n += self.poll_rest(conn, link, &mut out[n..]);
        }
        self.window.publish_due(&conn.counters);
        n
    }

    /// The cold arm of [`Tx::poll`]: looks at what only the peer's control page says, and continues what waits.
    // Not inlined, so that a poll which finds completions spills fewer registers.
    #[inline(never)]
    fn poll_rest(&mut self, conn: &Conn, link: Option<&Link>, out: &mut [Completion]) -> usize {
        if let Some(link) = link {
            self.advance(conn, link);
        }
        self.window.take(out)
    }

    /// Reports the last unsignalled success, unless a later completion covers it.
    pub(crate) fn flush(&mut self, conn: &Conn) {
        self.window.flush();
        self.window.publish_due(&conn.counters);
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completion(&self) -> bool {
        self.window.has_completion()
    }

    /// Whether posted requests are under way.
    pub(crate) fn busy(&self) -> bool {
        self.window.is_open() && !self.window.all_done()
    }

    /// Whether requests wait for room in the ring.
    pub(crate) fn wants_room(&self) -> bool {
        self.window.is_open() && !self.window.all_sent()
    }

    /// Grows with every progress.
    pub(crate) fn progress(&self) -> u64 {
        self.window.progress().wrapping_add(self.step.part)
    }

    /// Makes all progress there is to be made.
    pub(crate) fn advance(&mut self, conn: &Conn, link: &Link) {
        if self.window.is_open()
            && let Err(ProtocolError) = self.try_advance(conn, link)
        {
            self.broken(conn);
        }
        self.window.publish_due(&conn.counters);
    }

    fn try_advance(&mut self, conn: &Conn, link: &Link) -> Result<(), ProtocolError> {
        let fail = self.learn(conn, link)?;
        self.reap(conn, fail);
        if !self.window.all_sent() && !self.halted {
            let queue = std::mem::take(&mut self.queue);
            let result = self.continue_with(conn, link, &queue);
            self.queue = queue;
            result?;
            // What was executed on the spot is complete now.
            self.reap(conn, 0);
        }
        Ok(())
    }

    /// Starts what waits, in order.
    fn continue_with(&mut self, conn: &Conn, link: &Link, queue: &Queue) -> Result<(), ProtocolError> {
        while !self.window.all_sent() && !self.halted {
            let work = queue.work(self.window.next_slot());
            if self.step.plan.is_none() && self.is_fenced(&work) {
                break;
            }
            match self.execute(conn, link, &work) {
                Start::Gone | Start::Answer => self.next(),
                Start::Later => break,
                Start::Fault => return Err(ProtocolError),
            }
        }
        Ok(())
    }

    /// Whether a request waits for the answers to earlier ones.
    fn is_fenced(&self, work: &Work<'_>) -> bool {
        work.flags.contains(PostFlag::FENCE) && self.window.reads_open > 0
    }

    /// The oldest request is started.
    fn next(&mut self) {
        self.window.advance_sent();
        self.step = Step::default();
    }

    /// Learns from the peer's counter and its answers; gives the status with which it refused a request, or 0.
    fn learn(&mut self, conn: &Conn, link: &Link) -> Result<u32, ProtocolError> {
        if self.window.all_done() {
            return Ok(0);
        }
        let peer = link.segment.peer();
        self.window.credit(conn.counters.acked.load(Ordering::Relaxed))?;
        let mut fail = 0;
        // Only then: the look takes the line away from the peer, which writes it before each of its answers.
        if self.window.needs_counter() {
            // First `fail`: it is written after the counter it belongs to.
            fail = peer.fail.load(Ordering::Acquire);
            self.window.credit(peer.completed.load(Ordering::Acquire))?;
        }
        if self.window.reads_open > 0 {
            self.take_answers(conn, link)?;
        }
        Ok(fail)
    }

    fn reap(&mut self, conn: &Conn, fail: u32) {
        if self.window.reap(fail) {
            // Everything posted after it is the engine's to flush.
            self.halt();
            self.window.close();
            conn.fault("a request failed");
        }
    }

    /// The peer broke the protocol.
    #[cold]
    fn broken(&mut self, conn: &Conn) {
        self.stop(conn);
        conn.fault("the peer broke the protocol of the ring");
    }

    /// Takes what was read.
    fn take_answers(&mut self, conn: &Conn, link: &Link) -> Result<(), ProtocolError> {
        let Some(rings) = self.rings.as_mut() else { return Ok(()) };
        let mut any = false;
        while let Some(frame) = rings.answers.next(&rings.answer_memory)? {
            let Some((slot, entry)) = self.window.next_answer() else { return Err(ProtocolError) };
            let sound = frame.kind == kind::DATA && (frame.arg >> 32) as u32 == entry.seq && frame.len != 0;
            if !sound || frame.len as u64 > entry.left as u64 {
                return Err(ProtocolError);
            }
            let skip = (entry.len - entry.left) as usize;
            entry.left -= frame.len as u32;
            self.window.reads_open -= u32::from(entry.left == 0);
            // SAFETY: the frame's payload lies inside the ring (`Consumer::next` checked it).
            unsafe {
                let from = rings.answer_memory.at(frame.payload);
                bytes::scatter(from, frame.len, self.queue.work(slot).segs, skip);
            }
            rings.answers.advance(&frame);
            any = true;
        }
        if any {
            link.segment.own().answers_consumed.store(rings.answers.publish(), Ordering::Release);
            barrier::light_barrier(link.fence);
            if link.segment.peer().want_room.load(Ordering::Relaxed) != 0 {
                conn.kick();
            }
        }
        Ok(())
    }
}
