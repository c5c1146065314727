//! The completions of channels, until the engine takes them. The fabric has one completion queue for the whole device; a
//! thread that polls takes what is there and hands each completion to the queue it belongs to.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use dat_kit::EventFd;
use dat_plugin::{Completion, Failure, Status};
use dat_sync::Lock;
use rustix::event::epoll;

use crate::core::Core;

/// Most completions of a queue.
pub const MAX_DEPTH: u32 = 1 << 20;

/// A completion queue.
pub struct QueueInner {
    core: Arc<Core>,
    completions: Lock<VecDeque<Completion>>,
    /// The number of completions, readable without the lock.
    count: AtomicUsize,
    armed: AtomicBool,
    doorbell: EventFd,
    /// Epoll over the doorbell, and over the fabric's descriptors if this queue watches them.
    epoll: OwnedFd,
    watch: AtomicU8,
    closed: AtomicBool,
}

/// What wakes a queue's sleepers: not decided yet, the doorbell, or the fabric too.
const UNDECIDED: u8 = 0;
const DOORBELL: u8 = 1;
const FABRIC: u8 = 2;

impl QueueInner {
    pub fn new(core: &Arc<Core>, depth: u32) -> Result<Arc<QueueInner>, Failure> {
        let refuse =
            |why: &str| Failure::new(Status::NO_RESOURCE, format!("queue of {depth} completions: {why}"));
        if depth > MAX_DEPTH {
            return Err(refuse(&format!("the most is {MAX_DEPTH}")));
        }
        let mut completions = VecDeque::new();
        completions.try_reserve_exact(depth as usize).map_err(|_| refuse("not enough memory"))?;
        let os = |error: io::Error| Failure::os("descriptors of a queue", &error);
        let doorbell = EventFd::new().map_err(os)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| os(error.into()))?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &doorbell, epoll::EventData::new_u64(0), flags)
            .map_err(|error| os(error.into()))?;
        Ok(Arc::new(QueueInner {
            core: core.clone(),
            completions: Lock::new(completions),
            count: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            doorbell,
            epoll,
            watch: AtomicU8::new(UNDECIDED),
            closed: AtomicBool::new(false),
        }))
    }

    /// Adds a completion. Beyond its depth the queue grows, because a completion must not be lost.
    pub fn push(&self, completion: Completion) {
        {
            let mut completions = self.completions.lock();
            completions.push_back(completion);
            self.count.store(completions.len(), Ordering::Release);
        }
        if self.armed.load(Ordering::SeqCst) && self.disarm() {
            self.doorbell.signal();
        }
    }

    pub fn take(&self, out: &mut [Completion]) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut completions = self.completions.lock();
        let count = completions.len().min(out.len());
        for (to, completion) in out.iter_mut().zip(completions.drain(..count)) {
            *to = completion;
        }
        self.count.store(completions.len(), Ordering::Release);
        count
    }

    /// Announces a sleeper.
    pub fn arm(&self) {
        if self.watch.load(Ordering::Relaxed) == UNDECIDED {
            self.decide_watch();
        }
        if !self.armed.swap(true, Ordering::SeqCst) {
            self.core.count_sleeper(true);
        }
    }

    /// Whether the queue is empty; if not, withdraws the sleeper. Takes the lock: `push` stores the count before it reads
    /// `armed`, and only the lock orders that store before this look.
    pub fn may_sleep(&self) -> bool {
        let empty = self.completions.lock().is_empty();
        if !empty {
            self.disarm();
        }
        empty
    }

    /// Withdraws the sleeper. Returns whether there was one.
    pub fn disarm(&self) -> bool {
        let was = self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.core.count_sleeper(false);
        }
        was
    }

    pub fn drain_doorbell(&self) {
        self.doorbell.drain();
    }

    pub fn fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }

    /// Closes it; `false` if it was closed before.
    pub fn close(&self) -> bool {
        self.disarm();
        if self.closed.swap(true, Ordering::Relaxed) {
            return false;
        }
        if self.watch.swap(DOORBELL, Ordering::AcqRel) == FABRIC {
            self.stop_watching();
        }
        true
    }

    /// At the first sleep: lets the fabric wake this queue's sleepers, if it is among the first
    /// [`crate::core::WATCHERS`].
    #[cold]
    fn decide_watch(&self) {
        let first =
            self.watch.compare_exchange(UNDECIDED, DOORBELL, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !first || !self.core.fabric.wakes() || !self.core.add_watcher() {
            return;
        }
        let watch = |fd| epoll::add(&self.epoll, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        if self.core.fabric.wait_fds().all(|fd| watch(fd).is_ok()) {
            self.watch.store(FABRIC, Ordering::Release);
        } else {
            self.stop_watching();
        }
    }

    fn stop_watching(&self) {
        for fd in self.core.fabric.wait_fds() {
            // After a failed `decide_watch` some are not in the set.
            let _ = epoll::delete(&self.epoll, fd);
        }
        self.core.remove_watcher();
    }
}
