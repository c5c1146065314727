//! The receives of a shared receive queue that no channel has drawn yet.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::{Event, EventKind, Failure, SrqAttr, Status};
use parking_lot::Mutex;

use crate::channel::ring::{Recv, RecvStage, Ring};
use crate::core::{Core, Task};
use crate::endpoint::context::Seg;
use crate::fabric::limits::MAX_SEGMENTS;

/// Most receives of a shared queue.
pub const MAX_DEPTH: u32 = 1 << 16;

/// Most receives one channel holds of a shared queue.
pub const SHARE: u32 = 64;

/// A shared receive queue.
pub struct SharedPool {
    core: Arc<Core>,
    user: u64,
    pub max_segments: u32,
    pool: Mutex<Pool>,
    closed: AtomicBool,
}

/// Receives that are posted and not drawn by a channel.
struct Pool {
    /// Receives with their number of segments. Each has `per` entries in `segs`.
    recvs: VecDeque<(Recv, usize)>,
    segs: VecDeque<Seg>,
    per: usize,
    depth: u32,
    /// Receives posted and not used, drawn ones included.
    left: u32,
    /// An event is due once fewer are left; 0: never.
    limit: u32,
    /// Channels that wait for a receive.
    waiting: VecDeque<Weak<dyn Task>>,
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

    /// Moves the next receive to a channel's ring, which has room; `false` if there is none.
    fn draw(&mut self, to: &mut Ring<Recv>) -> bool {
        let Some((recv, count)) = self.recvs.pop_front() else { return false };
        let mut segs = [Seg::default(); MAX_SEGMENTS];
        for (slot, seg) in segs.iter_mut().zip(self.segs.drain(..self.per)) {
            *slot = seg;
        }
        to.push(recv, &segs[..count.min(MAX_SEGMENTS)])
    }

    /// Whether the event is due. It is due once for each call of `arm`.
    fn few(&mut self) -> bool {
        let few = self.left < self.limit;
        if few {
            self.limit = 0;
        }
        few
    }
}

impl SharedPool {
    pub fn new(core: &Arc<Core>, attr: &SrqAttr) -> Result<Arc<SharedPool>, Failure> {
        let refuse = |status, why: &str| {
            let (ia, depth) = (&core.params.ia_name, attr.depth);
            Err(Failure::new(status, format!("{ia}: a shared queue of {depth} receives: {why}")))
        };
        let most = core.fabric.limits.iov.min(MAX_SEGMENTS);
        if attr.depth > MAX_DEPTH || attr.max_segments as usize > most {
            return refuse(Status::INVALID, "more is requested than the device's attributes offer");
        }
        let mut pool = Pool {
            recvs: VecDeque::new(),
            segs: VecDeque::new(),
            per: attr.max_segments.max(1) as usize,
            depth: attr.depth,
            left: 0,
            limit: 0,
            waiting: VecDeque::new(),
        };
        if !pool.reserve(attr.depth) {
            return refuse(Status::NO_RESOURCE, "not enough memory");
        }
        Ok(Arc::new(SharedPool {
            core: core.clone(),
            user: attr.user,
            max_segments: attr.max_segments.max(1),
            pool: Mutex::new(pool),
            closed: AtomicBool::new(false),
        }))
    }

    /// A receive was used: a message is in it, or it failed.
    pub fn used(&self) {
        let few = {
            let mut pool = self.pool.lock();
            pool.left = pool.left.saturating_sub(1);
            pool.few()
        };
        self.report(few);
    }

    fn report(&self, few: bool) {
        if few {
            self.core.event(None, Event::new(EventKind::SRQ_LIMIT, self.user));
        }
    }

    /// Serves waiting channels while there are receives. The caller holds no channel's lock.
    pub fn serve(&self) {
        while let Some(next) = self.next_waiting() {
            if let Some(channel) = next.upgrade() {
                channel.receives_available(true);
            }
        }
    }

    /// Puts waiting channels on the run list. For callers that hold a channel's lock.
    pub fn serve_later(&self) {
        let mut pool = self.pool.lock();
        let count = pool.waiting.len().min(pool.recvs.len());
        for channel in pool.waiting.drain(..count).filter_map(|channel| channel.upgrade()) {
            channel.receives_available(false);
        }
    }

    fn next_waiting(&self) -> Option<Weak<dyn Task>> {
        let mut pool = self.pool.lock();
        if pool.recvs.is_empty() { None } else { pool.waiting.pop_front() }
    }

    /// Posts a receive. `Ok(true)`: a channel waits for it, and [`SharedPool::serve`] is due.
    pub fn post(&self, recv: Recv, segments: &[dat_plugin::Segment]) -> Result<bool, Status> {
        let mut pool = self.pool.lock();
        if pool.left >= pool.depth {
            return Err(Status::NO_RESOURCE);
        }
        pool.left += 1;
        pool.push(recv, segments);
        Ok(!pool.waiting.is_empty())
    }

    /// Sets the limit below which the event is due.
    pub fn arm(&self, limit: u32) {
        let few = {
            let mut pool = self.pool.lock();
            pool.limit = limit;
            pool.few()
        };
        self.report(few);
    }

    pub fn resize(&self, depth: u32) -> Status {
        let mut pool = self.pool.lock();
        if depth > MAX_DEPTH || depth < pool.left {
            return Status::INVALID;
        }
        if !pool.reserve(depth) {
            return Status::NO_RESOURCE;
        }
        pool.depth = depth;
        Status::OK
    }

    /// Closes it; `false` if it was closed before.
    pub fn close(&self) -> bool {
        !self.closed.swap(true, Ordering::AcqRel)
    }

    /// Moves `count` receives to a channel's ring, as long as the ring holds fewer than `most`. If
    /// there are too few, `waiter` is entered and served later.
    pub fn draw(
        &self,
        to: &mut Ring<Recv>,
        (count, most): (u32, u32),
        waiter: impl FnOnce() -> Option<Weak<dyn Task>>,
    ) {
        let mut pool = self.pool.lock();
        for _ in 0..count {
            if to.len() >= most {
                return;
            }
            if !pool.draw(to) {
                pool.waiting.extend(waiter());
                return;
            }
        }
    }

    /// Takes back the receives that a channel drew and did not use.
    pub fn take_back(&self, from: &mut Ring<Recv>) {
        let mut pool = self.pool.lock();
        while from.len() > 0 {
            from.tail = from.tail.wrapping_sub(1);
            let recv = *from.slot(from.tail);
            if recv.stage != RecvStage::Failed {
                let fresh = Recv { stage: RecvStage::Queued, ..recv };
                pool.put_back(fresh, from.segs(from.tail));
            }
        }
        from.next = from.head;
    }
}
