//! Receives that several channels share.
//!
//! The queue is kept here and not by the fabric, so that every fabric has one. A peer of such a channel has no credit of
//! its own: it says how many messages it has to send ([`crate::wire::Bell::Want`]), so many receives are drawn for the
//! channel, and only then it sends. So a receive is with a channel only while a message is on its way to it, no idle
//! connection holds any back from a busy one, and what a message finds is known before it is sent: its length is checked
//! and fails as it does without a shared queue, and an empty queue holds up nothing but messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::{Event, EventKind, Failure, PostFlag, RecvRequest, Srq, SrqAttr, Status};
use parking_lot::Mutex;

use crate::channel::{Chan, State};
use crate::device::Dev;
use crate::endpoint::MAX_SEGMENTS;
use crate::flow::Lull;
use crate::wire::reached;
use crate::work::{Recv, RecvStage, Ring, Seg};

/// Most receives of a shared queue.
pub const MAX_DEPTH: u32 = 1 << 16;

/// Most receives one channel holds of a shared queue.
pub const SHARE: u32 = 64;

/// A shared receive queue as the engine holds it.
pub struct FabricSrq(pub(crate) Arc<Shared>);

/// A shared receive queue.
pub struct Shared {
    dev: Arc<Dev>,
    user: u64,
    pub max_segments: u32,
    pool: Mutex<Pool>,
    closed: AtomicBool,
}

/// What is posted and not drawn for a channel.
struct Pool {
    /// Each with its number of segments; the segments have places of the same size.
    recvs: VecDeque<(Recv, usize)>,
    segs: VecDeque<Seg>,
    per: usize,
    depth: u32,
    /// Receives posted and not used, drawn ones included.
    left: u32,
    /// An event is due once fewer are left; 0 is never.
    limit: u32,
    /// Channels that wait for a receive.
    line: VecDeque<Weak<Chan>>,
}

impl Pool {
    fn reserve(&mut self, depth: u32) -> bool {
        let (recvs, segs) = (self.recvs.len(), self.segs.len());
        let more = (depth as usize).saturating_sub(recvs);
        let more_segs = (depth as usize).saturating_mul(self.per).saturating_sub(segs);
        self.recvs.try_reserve_exact(more).is_ok() && self.segs.try_reserve_exact(more_segs).is_ok()
    }

    fn push(&mut self, recv: Recv, segments: &[dat_plugin::Segment]) {
        self.recvs.push_back((recv, segments.len()));
        let unused = self.per - segments.len();
        self.segs.extend(segments.iter().map(Seg::from));
        self.segs.extend(std::iter::repeat_n(Seg::default(), unused));
    }

    /// Puts a receive back as the next one.
    fn put_back(&mut self, recv: Recv, segs: &[Seg]) {
        self.recvs.push_front((recv, segs.len()));
        for at in (0..self.per).rev() {
            self.segs.push_front(segs.get(at).copied().unwrap_or_default());
        }
    }

    /// Moves the next receive to a channel's ring, which has room. `false`: there is none.
    fn draw(&mut self, to: &mut Ring<Recv>) -> bool {
        let Some((recv, count)) = self.recvs.pop_front() else { return false };
        let mut segs = [Seg::default(); MAX_SEGMENTS];
        for (place, seg) in segs.iter_mut().zip(self.segs.drain(..self.per)) {
            *place = seg;
        }
        to.push(recv, &segs[..count.min(MAX_SEGMENTS)])
    }

    /// Whether the event is due; it is told once.
    fn few(&mut self) -> bool {
        let few = self.left < self.limit;
        if few {
            self.limit = 0;
        }
        few
    }
}

impl Shared {
    pub fn new(dev: &Arc<Dev>, attr: &SrqAttr) -> Result<Arc<Shared>, Failure> {
        let refuse = |status, why: &str| {
            let (ia, depth) = (&dev.params.ia_name, attr.depth);
            Err(Failure::new(status, format!("{ia}: a shared queue of {depth} receives: {why}")))
        };
        let most = dev.fabric.limits.iov.min(MAX_SEGMENTS);
        if attr.depth > MAX_DEPTH || attr.max_segments as usize > most {
            return refuse(Status::INVALID, "more is asked for than the device's attributes offer");
        }
        let mut pool = Pool {
            recvs: VecDeque::new(),
            segs: VecDeque::new(),
            per: attr.max_segments.max(1) as usize,
            depth: attr.depth,
            left: 0,
            limit: 0,
            line: VecDeque::new(),
        };
        if !pool.reserve(attr.depth) {
            return refuse(Status::NO_RESOURCE, "not enough memory");
        }
        Ok(Arc::new(Shared {
            dev: dev.clone(),
            user: attr.user,
            max_segments: attr.max_segments.max(1),
            pool: Mutex::new(pool),
            closed: AtomicBool::new(false),
        }))
    }

    /// A channel's receive was used: a message is in it, or it failed.
    pub fn used(&self) {
        let few = {
            let mut pool = self.pool.lock();
            pool.left = pool.left.saturating_sub(1);
            pool.few()
        };
        self.tell(few);
    }

    fn tell(&self, few: bool) {
        if few {
            self.dev.event(None, Event::new(EventKind::SRQ_LIMIT, self.user));
        }
    }

    /// Lets channels go on that wait, as long as there are receives. Not for who holds a channel's lock.
    fn serve(&self) {
        while let Some(next) = self.next_in_line() {
            if let Some(chan) = next.upgrade() {
                chan.in_line.store(false, Ordering::Release);
                chan.pump(&mut chan.lock(), Lull::None);
            }
        }
    }

    /// As [`Shared::serve`], from under a channel's lock: others look after them.
    fn serve_later(&self) {
        let mut pool = self.pool.lock();
        let count = pool.line.len().min(pool.recvs.len());
        for chan in pool.line.drain(..count).filter_map(|chan| chan.upgrade()) {
            chan.in_line.store(false, Ordering::Release);
            chan.list();
        }
    }

    fn next_in_line(&self) -> Option<Weak<Chan>> {
        let mut pool = self.pool.lock();
        if pool.recvs.is_empty() { None } else { pool.line.pop_front() }
    }
}

impl Chan {
    /// The peer's receives are in a shared queue: asks for as many as there are messages to send, once those asked for
    /// before are used.
    pub fn want(&self, st: &mut State) {
        if !reached(st.sent, st.begged) {
            return;
        }
        let waiting = st.requests.tail.wrapping_sub(st.requests.next).min(SHARE);
        let next = st.requests.next;
        let messages =
            (0..waiting).filter(|ahead| st.requests.slot(next.wrapping_add(*ahead)).is_message()).count();
        st.begged = st.sent.wrapping_add(messages as u32);
        st.owed.want = Some(st.begged);
    }

    /// The peer has messages up to this one.
    pub fn on_want(&self, st: &mut State, wanted: u32) {
        if reached(wanted, st.wanted) {
            st.wanted = wanted;
        }
    }

    /// Takes receives out of the shared queue for what the peer has to send, or gets in line for them.
    pub fn draw(&self, st: &mut State) {
        let Some(srq) = &self.srq else { return };
        let drawn = st.books.posted.wrapping_add(st.recvs.tail.wrapping_sub(st.recvs.next));
        if reached(drawn, st.wanted) || st.phase != crate::channel::Phase::Up {
            return;
        }
        let mut pool = srq.pool.lock();
        for _ in 0..st.wanted.wrapping_sub(drawn) {
            if !st.recvs.has_room() {
                return;
            }
            if !pool.draw(&mut st.recvs) {
                if !self.in_line.swap(true, Ordering::AcqRel)
                    && let Some(chan) = self.arc()
                {
                    pool.line.push_back(Arc::downgrade(&chan));
                }
                return;
            }
        }
    }

    /// Once the fabric has let go of them: receives this channel drew and did not use are the shared queue's again.
    pub fn give_back(&self, st: &mut State) {
        let Some(srq) = &self.srq else { return };
        if st.recvs.len() == 0 || !self.settled(st) {
            return;
        }
        {
            let mut pool = srq.pool.lock();
            while st.recvs.len() > 0 {
                st.recvs.tail = st.recvs.tail.wrapping_sub(1);
                let recv = *st.recvs.slot(st.recvs.tail);
                if recv.stage != RecvStage::Failed {
                    let fresh = Recv { stage: RecvStage::Queued, ..recv };
                    pool.put_back(fresh, st.recvs.segs(st.recvs.tail));
                }
            }
        }
        st.recvs.next = st.recvs.head;
        srq.serve_later();
    }
}

impl Srq for FabricSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        let shared = &*self.0;
        if !shared.dev.owner.here() {
            return Status::FORKED;
        }
        let segments = request.segments();
        if segments.len() > shared.max_segments as usize || request.total > u64::from(u32::MAX) {
            return Status::INVALID;
        }
        let recv = Recv {
            token: request.token,
            len: request.total as u32,
            poisoned: request.flags.contains(PostFlag::POISON),
            ..Recv::default()
        };
        let somebody_waits = {
            let mut pool = shared.pool.lock();
            if pool.left >= pool.depth {
                return Status::NO_RESOURCE;
            }
            pool.left += 1;
            pool.push(recv, segments);
            !pool.line.is_empty()
        };
        if somebody_waits {
            shared.serve();
        }
        Status::OK
    }

    fn arm(&self, limit: u32) -> Status {
        if !self.0.dev.owner.here() {
            return Status::FORKED;
        }
        let few = {
            let mut pool = self.0.pool.lock();
            pool.limit = limit;
            pool.few()
        };
        self.0.tell(few);
        Status::OK
    }

    fn resize(&self, depth: u32) -> Status {
        if !self.0.dev.owner.here() {
            return Status::FORKED;
        }
        let mut pool = self.0.pool.lock();
        if depth > MAX_DEPTH || depth < pool.left {
            return Status::INVALID;
        }
        if !pool.reserve(depth) {
            return Status::NO_RESOURCE;
        }
        pool.depth = depth;
        Status::OK
    }

    fn close(&self) {
        if !self.0.closed.swap(true, Ordering::AcqRel) {
            self.0.dev.srq_closed();
        }
    }
}
