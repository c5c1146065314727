//! Where completions are taken from. The fabric has one completion queue for the whole device; whoever polls takes what
//! is there and hands each completion to the queue it belongs to.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use dat_kit::EventFd;
use dat_plugin::{Completion, Failure, Queue, Status};
use dat_sync::Lock;
use rustix::event::epoll;

use crate::device::Dev;
use crate::flow::Lull;

/// The most completions a queue is made for.
pub const MAX_DEPTH: u32 = 1 << 20;

/// How often a fabric that has something to do is driven on before a sleeper leaves it to the event thread.
const TRIES: u32 = 16;

/// How many queues of a device may be woken by the fabric itself. The others are woken by the event thread. Linux refuses
/// to let one descriptor wake more than a few through a chain of epoll descriptors as long as ofi_rxm's (10 through
/// five), and wakes all of them for each message.
pub const WATCHERS: usize = 8;

/// One in so many polls looks after what could wait.
const SELDOM: u64 = 8;

/// A completion queue as the engine holds it.
pub struct FabricQueue(pub(crate) Arc<Que>);

/// A completion queue.
pub struct Que {
    dev: Arc<Dev>,
    completions: Lock<VecDeque<Completion>>,
    /// How many there are, to look at without the lock.
    count: AtomicUsize,
    armed: AtomicBool,
    bell: EventFd,
    /// The bell, and the fabric's descriptors once this is one of the few that watch them.
    all: OwnedFd,
    watch: AtomicU8,
    closed: AtomicBool,
}

/// What a queue's sleepers are woken by.
const UNDECIDED: u8 = 0;
const BELL: u8 = 1;
const FABRIC: u8 = 2;

impl Que {
    pub fn new(dev: &Arc<Dev>, depth: u32) -> Result<Arc<Que>, Failure> {
        let refuse =
            |why: &str| Failure::new(Status::NO_RESOURCE, format!("queue of {depth} completions: {why}"));
        if depth > MAX_DEPTH {
            return Err(refuse(&format!("the most is {MAX_DEPTH}")));
        }
        let mut completions = VecDeque::new();
        completions.try_reserve_exact(depth as usize).map_err(|_| refuse("not enough memory"))?;
        let os = |error: io::Error| Failure::os("descriptors of a queue", &error);
        let bell = EventFd::new().map_err(os)?;
        let all = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| os(error.into()))?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&all, &bell, epoll::EventData::new_u64(0), flags).map_err(|error| os(error.into()))?;
        Ok(Arc::new(Que {
            dev: dev.clone(),
            completions: Lock::new(completions),
            count: AtomicUsize::new(0),
            armed: AtomicBool::new(false),
            bell,
            all,
            watch: AtomicU8::new(UNDECIDED),
            closed: AtomicBool::new(false),
        }))
    }

    /// Adds a completion. Beyond the depth it was made for a queue grows rather than lose one.
    pub fn push(&self, completion: Completion) {
        {
            let mut completions = self.completions.lock();
            completions.push_back(completion);
            self.count.store(completions.len(), Ordering::Release);
        }
        if self.armed.load(Ordering::SeqCst) && self.stand_down() {
            self.bell.signal();
        }
    }

    /// At the first sleep: has the fabric wake this queue's sleepers, if it is one of the first few.
    #[cold]
    fn decide(&self) {
        let first = self.watch.compare_exchange(UNDECIDED, BELL, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !first || !self.dev.fabric.wakes() || !self.dev.may_watch() {
            return;
        }
        let watch = |fd| epoll::add(&self.all, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN);
        if self.dev.fabric.wait_fds().all(|fd| watch(fd).is_ok()) {
            self.watch.store(FABRIC, Ordering::Release);
        } else {
            self.watch_no_more();
        }
    }

    fn watch_no_more(&self) {
        for fd in self.dev.fabric.wait_fds() {
            // Not every one need be watched.
            let _ = epoll::delete(&self.all, fd);
        }
        self.dev.watches_no_more();
    }

    /// Whether it was armed.
    fn stand_down(&self) -> bool {
        let was = self.armed.swap(false, Ordering::SeqCst);
        if was {
            self.dev.sleeper(false);
        }
        was
    }

    fn take(&self, out: &mut [Completion]) -> usize {
        if self.count.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut completions = self.completions.lock();
        let count = completions.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(completions.drain(..count)) {
            *place = completion;
        }
        self.count.store(completions.len(), Ordering::Release);
        count
    }
}

impl Queue for FabricQueue {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let queue = &*self.0;
        let found = queue.take(out);
        if found > 0 || out.is_empty() || !queue.dev.owner.here() {
            return found;
        }
        let polls = queue.dev.polled();
        let nothing = queue.dev.progress() == 0;
        if nothing && queue.dev.has_more_to_do() || polls.is_multiple_of(SELDOM) {
            // Time for what could wait.
            queue.dev.look_after_channels(Lull::Moment);
        }
        queue.take(out)
    }

    fn arm(&self) -> bool {
        let queue = &*self.0;
        if !queue.dev.owner.here() {
            return true;
        }
        if queue.watch.load(Ordering::Relaxed) == UNDECIDED {
            queue.decide();
        }
        if !queue.armed.swap(true, Ordering::SeqCst) {
            queue.dev.sleeper(true);
        }
        queue.dev.look_after_channels(Lull::Long);
        for _ in 0..TRIES {
            // Under the lock: who pushes stores the count before it looks whether this is armed, and nothing else keeps
            // its processor from doing the one after the other.
            if !queue.completions.lock().is_empty() {
                queue.stand_down();
                return false;
            }
            if queue.dev.may_wait() {
                return true;
            }
            queue.dev.progress();
        }
        // The fabric has something to do that is no completion; the event thread goes on with it, and rings.
        queue.dev.hurry();
        true
    }

    fn disarm(&self) {
        self.0.stand_down();
        self.0.bell.drain();
    }

    fn fd(&self) -> RawFd {
        self.0.all.as_raw_fd()
    }

    fn close(&self) {
        self.0.stand_down();
        if !self.0.closed.swap(true, Ordering::Relaxed) {
            if self.0.watch.swap(BELL, Ordering::AcqRel) == FABRIC {
                self.0.watch_no_more();
            }
            self.0.dev.queue_closed();
        }
    }
}
