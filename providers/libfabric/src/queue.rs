//! Where completions are taken from. The fabric has one completion queue for the whole device; whoever polls takes what
//! is there and hands each completion to the queue it belongs to.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use dat_kit::EventFd;
use dat_plugin::{Completion, Failure, Queue, Status};
use parking_lot::Mutex;
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

/// A completion queue as the engine holds it.
pub struct FabricQueue(pub(crate) Arc<Que>);

/// A completion queue.
pub struct Que {
    dev: Arc<Dev>,
    completions: Mutex<VecDeque<Completion>>,
    armed: AtomicBool,
    bell: EventFd,
    /// The bell, and the fabric's descriptor once this is one of the few that watch it.
    both: OwnedFd,
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
        let both = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| os(error.into()))?;
        let flags = epoll::EventFlags::IN;
        epoll::add(&both, &bell, epoll::EventData::new_u64(0), flags).map_err(|error| os(error.into()))?;
        Ok(Arc::new(Que {
            dev: dev.clone(),
            completions: Mutex::new(completions),
            armed: AtomicBool::new(false),
            bell,
            both,
            watch: AtomicU8::new(UNDECIDED),
            closed: AtomicBool::new(false),
        }))
    }

    /// Adds a completion. Beyond the depth it was made for a queue grows rather than lose one.
    pub fn push(&self, completion: Completion) {
        self.completions.lock().push_back(completion);
        if self.armed.load(Ordering::SeqCst) && self.armed.swap(false, Ordering::SeqCst) {
            self.bell.signal();
        }
    }

    /// At the first sleep: has the fabric wake this queue's sleepers, if it is one of the first few.
    #[cold]
    fn decide(&self) {
        let first = self.watch.compare_exchange(UNDECIDED, BELL, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !first || !self.dev.may_watch() {
            return;
        }
        let data = epoll::EventData::new_u64(1);
        match epoll::add(&self.both, self.dev.fabric.cq_wait(), data, epoll::EventFlags::IN) {
            Ok(()) => self.watch.store(FABRIC, Ordering::Release),
            Err(_) => self.dev.watches_no_more(),
        }
    }

    fn take(&self, out: &mut [Completion]) -> usize {
        let mut completions = self.completions.lock();
        let count = completions.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(completions.drain(..count)) {
            *place = completion;
        }
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
        queue.dev.polled();
        if queue.dev.progress() == 0 {
            // Nothing to do: time for what could wait.
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
        queue.armed.store(true, Ordering::SeqCst);
        queue.dev.look_after_channels(Lull::Long);
        for _ in 0..TRIES {
            if !queue.completions.lock().is_empty() {
                queue.armed.store(false, Ordering::SeqCst);
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
        self.0.armed.store(false, Ordering::SeqCst);
        self.0.bell.drain();
    }

    fn fd(&self) -> RawFd {
        self.0.both.as_raw_fd()
    }

    fn close(&self) {
        if !self.0.closed.swap(true, Ordering::Relaxed) {
            if self.0.watch.swap(BELL, Ordering::AcqRel) == FABRIC {
                let _ = epoll::delete(&self.0.both, self.0.dev.fabric.cq_wait());
                self.0.dev.watches_no_more();
            }
            self.0.dev.queue_closed();
        }
    }
}
