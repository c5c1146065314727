//! Completion queues: one of each child that is in use, seen as one.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_kit::EventFd;
use dat_plugin::host::BelowQueue;
use dat_plugin::{Completion, Device as _, Failure, Queue};
use rustix::event::epoll;

use crate::child::Child;
use crate::far::{Far, OWN};

/// A queue of a route.
pub struct RouteQueue {
    children: Arc<[Child]>,
    depth: u32,
    lanes: Box<[Lane]>,
    /// Bit N: child N is in use.
    active: AtomicU32,
    /// The child to begin with, so that none is polled less than others.
    turn: AtomicU32,
    /// The application is armed.
    armed: AtomicBool,
    epoll: OwnedFd,
    /// Has the device look at reads of the route's own.
    progress: Arc<Progress>,
}

/// The queue of one child.
#[derive(Default)]
struct Lane {
    below: OnceLock<Arc<BelowQueue>>,
    /// Reads of the route's own complete here too, so completions are taken under the lock.
    shared: AtomicBool,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// Completions for the engine that were taken on the way to one of the route's own.
    waiting: VecDeque<Completion>,
    /// By the number in completions of requests.
    channels: HashMap<u64, Arc<Far>>,
    /// Reads of the route's own under way. Below 0 while a read completes before it is counted.
    reads: i32,
}

/// Queues with reads of the route's own. The device takes them: the application may never poll.
pub(crate) struct Progress {
    /// The device's descriptor: an epoll set of the children's, of `wake`, and of the queues below.
    pub(crate) epoll: OwnedFd,
    wake: EventFd,
    queues: Mutex<Vec<(Arc<RouteQueue>, usize)>>,
}

impl Progress {
    pub(crate) fn new() -> Result<Progress, Failure> {
        let wake = EventFd::new().map_err(|error| Failure::os("eventfd", &error))?;
        let progress = Progress { epoll: new_set()?, wake, queues: Mutex::default() };
        add(&progress.epoll, progress.wake.as_fd())?;
        Ok(progress)
    }

    fn queues(&self) -> MutexGuard<'_, Vec<(Arc<RouteQueue>, usize)>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what completed.
    pub(crate) fn run(&self) {
        self.wake.drain();
        let queues = self.queues().clone();
        for (queue, child) in queues {
            queue.drive(child);
        }
    }

    /// From now on the queue of this child wakes the device.
    fn watch(&self, queue: &Arc<RouteQueue>, child: usize, below: &BelowQueue) {
        let mut queues = self.queues();
        if queues.iter().any(|(other, its)| Arc::ptr_eq(other, queue) && *its == child) {
            return;
        }
        queues.push((queue.clone(), child));
        if let Some(fd) = below.borrowed_fd()
            && let Err(failure) = add(&self.epoll, fd)
        {
            tracing::error!(%failure, "a route's read completes when the application polls, not before");
        }
    }

    fn forget(&self, queue: &RouteQueue, child: usize, below: &BelowQueue) {
        self.queues().retain(|(other, its)| !(std::ptr::eq(&**other, queue) && *its == child));
        if let Some(fd) = below.borrowed_fd() {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }
}

/// An empty epoll set.
fn new_set() -> Result<OwnedFd, Failure> {
    epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| Failure::os("epoll_create", &error.into()))
}

/// Adds a descriptor to an epoll set. Which one is readable does not matter: all are looked at.
pub(crate) fn add(set: &OwnedFd, fd: BorrowedFd<'_>) -> Result<(), Failure> {
    epoll::add(set, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
        .map_err(|error| Failure::os("epoll_ctl", &error.into()))
}

impl RouteQueue {
    pub(crate) fn open(
        children: &Arc<[Child]>,
        progress: &Arc<Progress>,
        depth: u32,
    ) -> Result<RouteQueue, Failure> {
        let queue = RouteQueue {
            children: children.clone(),
            depth,
            lanes: children.iter().map(|_| Lane::default()).collect(),
            active: AtomicU32::new(0),
            turn: AtomicU32::new(0),
            armed: AtomicBool::new(false),
            epoll: new_set()?,
            progress: progress.clone(),
        };
        // A depth that is too large fails here, and the first child is the one most used.
        queue.below(0)?;
        Ok(queue)
    }

    /// The queue of a child, opened now if it is not yet.
    pub(crate) fn below(&self, child: usize) -> Result<&Arc<BelowQueue>, Failure> {
        // Held while it is opened, so that it is opened once.
        let _taken = self.lanes[child].taken();
        if let Some(below) = self.lanes[child].below.get() {
            return Ok(below);
        }
        let of = &self.children[child];
        // One read of the route's own for each channel, and a channel has at least one completion.
        let depth = self.depth.saturating_mul(if child == 0 { 1 } else { 2 }).min(of.attr.max_queue_depth);
        let below = of.below.open_queue(depth)?;
        if let Some(fd) = below.borrowed_fd() {
            add(&self.epoll, fd)?;
        }
        let below = self.lanes[child].below.get_or_init(|| below);
        self.active.fetch_or(1 << child, Ordering::AcqRel);
        if self.armed.load(Ordering::Acquire) {
            // Nothing completes there yet: no channel uses it.
            below.arm();
        }
        Ok(below)
    }

    /// Reads of the route's own on this channel complete here.
    pub(crate) fn add(&self, child: usize, send_user: u64, far: Arc<Far>) {
        self.lanes[child].taken().channels.insert(send_user, far);
        self.lanes[child].shared.store(true, Ordering::Release);
    }

    /// The channel is closed.
    pub(crate) fn remove(&self, child: usize, send_user: u64) {
        self.lanes[child].taken().channels.remove(&send_user);
    }

    /// A read of the route's own was posted.
    pub(crate) fn asked(self: &Arc<Self>, child: usize) {
        let Some(below) = self.lanes[child].below.get() else { return };
        self.lanes[child].taken().reads += 1;
        self.progress.watch(self, child, below);
        self.progress.wake.signal();
    }

    /// Takes completions for the sake of the route's own reads.
    fn drive(&self, child: usize) {
        let lane = &self.lanes[child];
        let Some(below) = lane.below.get() else { return };
        let mut taken = lane.taken();
        let mut out = [Completion::default(); 16];
        loop {
            let count = taken.poll(below, &mut out);
            taken.waiting.extend(&out[..count]);
            if taken.reads <= 0 {
                break self.progress.forget(self, child, below);
            }
            // The application's own arm wakes the device as well. It takes it back itself.
            let quiet = count == 0;
            if quiet && (self.armed.load(Ordering::Acquire) || below.arm()) {
                break;
            }
        }
    }

    fn poll_one(&self, child: usize, out: &mut [Completion]) -> usize {
        let lane = &self.lanes[child];
        let Some(below) = lane.below.get() else { return 0 };
        if !lane.shared.load(Ordering::Acquire) {
            return below.poll(out);
        }
        let mut taken = lane.taken();
        let waiting = taken.waiting.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(taken.waiting.drain(..waiting)) {
            *place = completion;
        }
        waiting + taken.poll(below, &mut out[waiting..])
    }
}

impl Lane {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Takes completions and keeps the route's own back.
    fn poll(&mut self, below: &BelowQueue, out: &mut [Completion]) -> usize {
        if out.is_empty() {
            return 0;
        }
        let count = below.poll(out);
        let mut kept = 0;
        for nth in 0..count {
            let completion = out[nth];
            if completion.token != OWN {
                out[kept] = completion;
                kept += 1;
                continue;
            }
            self.reads -= 1;
            let Some(far) = self.channels.get(&completion.user) else { continue };
            let (for_engine, again) = far.answered(&completion);
            self.reads += i32::from(again);
            if let Some(for_engine) = for_engine {
                out[kept] = for_engine;
                kept += 1;
            }
        }
        kept
    }
}

impl Queue for RouteQueue {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let active = self.active.load(Ordering::Acquire);
        if active & active.wrapping_sub(1) == 0 {
            return self.poll_one(active.trailing_zeros() as usize, out);
        }
        let count = self.lanes.len();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) as usize;
        let mut taken = 0;
        for child in (0..count).map(|nth| (turn + nth) % count).filter(|child| active & 1 << child != 0) {
            taken += self.poll_one(child, &mut out[taken..]);
            if taken == out.len() {
                break;
            }
        }
        taken
    }

    fn arm(&self) -> bool {
        self.armed.store(true, Ordering::Release);
        self.lanes.iter().all(|lane| {
            let Some(below) = lane.below.get() else { return true };
            below.arm() && (!lane.shared.load(Ordering::Acquire) || lane.taken().waiting.is_empty())
        })
    }

    fn disarm(&self) {
        self.armed.store(false, Ordering::Release);
        for lane in &self.lanes {
            let Some(below) = lane.below.get() else { continue };
            below.disarm();
            if lane.shared.load(Ordering::Acquire) && lane.taken().reads > 0 {
                // The device needs an arm of its own.
                self.progress.wake.signal();
            }
        }
    }

    fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    fn close(&self) {}
}
