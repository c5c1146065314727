//! The work of the thread of an IA: timers, deferred incidents, dispatchers to look at, calls of agents.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::host::Device;
use dat_types::ObjectId;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::alarm::Alarm;
use super::inbox::Inbox;
use crate::base::agent::Agent;
use crate::base::deferred::DeferredList;
use crate::base::interest::{ONE_SHOT, READABLE};

/// How often dispatchers are looked at on behalf of a graceful disconnect, or because they can overflow.
const TICK: Duration = Duration::from_millis(1);

/// Which threads watch the provider's descriptor, see [`crate::adapter::driver::Driver`].
#[derive(Default)]
pub(crate) struct Watch {
    pub(in crate::adapter) drivers: usize,
    /// The IA's thread does not watch.
    pub(in crate::adapter) away: bool,
    /// It does from then on, if there are no drivers.
    pub(in crate::adapter) back: Option<Instant>,
}

/// A dispatcher to be looked at regularly.
pub(crate) trait Watched: Send + Sync {
    fn id(&self) -> ObjectId;

    /// Takes what the provider has. Gives whether there is a reason to look again.
    fn tick(&self) -> bool;
}

pub(crate) struct Progress {
    pub(crate) wake: OwnedFd,
    pub(crate) poller: OwnedFd,
    /// `None` where the system has none; then the thread is woken to look at a new timer.
    pub(crate) alarm: Option<Alarm>,
    pub(crate) stop: AtomicBool,
    pub(crate) timers: Mutex<BinaryHeap<Reverse<(Instant, u64)>>>,
    pub(crate) later: Mutex<DeferredList>,
    /// Dispatchers to look at on every tick.
    pub(crate) watched: Mutex<Vec<Arc<dyn Watched>>>,
    /// Agents of notification objects to be called, each with its dispatcher.
    pub(crate) agents: Mutex<Vec<(Agent, Option<ObjectId>)>>,
    /// The thread that holds it takes the provider's events: one at a time, by the plugin ABI.
    pub(crate) events: Mutex<Inbox>,
    /// An event of unknown kind was reported.
    pub(crate) reported_unknown: AtomicBool,
    /// Who watches the provider's descriptor.
    pub(crate) watch: Mutex<Watch>,
    pub(crate) fork: dat_plugin::host::ForkGuard,
}

/// How many descriptors one sleep reports at most.
pub(crate) const READY: usize = 16;

/// What the poller's descriptors stand for; from `OWN` on they are of dispatchers' queues.
const WAKE: u64 = 0;
pub(in crate::adapter) const EVENTS: u64 = 1;
const ALARM: u64 = 2;
pub(crate) const OWN: u64 = 3;

impl Progress {
    pub(crate) fn new(device: &Device) -> io::Result<Progress> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poller, &wake, epoll::EventData::new_u64(WAKE), READABLE)?;
        if let Some(fd) = device.event_fd() {
            epoll::add(&poller, fd, epoll::EventData::new_u64(EVENTS), READABLE)?;
        }
        // Miri has none.
        let alarm = if cfg!(miri) { None } else { Some(Alarm::new()?) };
        if let Some(alarm) = &alarm {
            epoll::add(&poller, alarm, epoll::EventData::new_u64(ALARM), READABLE)?;
        }
        Ok(Progress {
            wake,
            poller,
            alarm,
            stop: AtomicBool::new(false),
            timers: Mutex::default(),
            later: Mutex::default(),
            watched: Mutex::default(),
            agents: Mutex::default(),
            events: Mutex::new(Inbox::new()),
            reported_unknown: AtomicBool::new(false),
            watch: Mutex::default(),
            fork: dat_plugin::host::ForkGuard::new(),
        })
    }

    pub(crate) fn is_own_process(&self) -> bool {
        !self.fork.forked()
    }

    /// The attempt's time is up then.
    pub(crate) fn add_timer(&self, at: Instant, attempt: u64) {
        let mut timers = self.timers.lock();
        let first = timers.peek().is_none_or(|Reverse((first, _))| at < *first);
        timers.push(Reverse((at, attempt)));
        drop(timers);
        // Otherwise the thread looks before that anyway.
        if first && !self.alarm.as_ref().is_some_and(|alarm| alarm.by(at)) {
            self.wake();
        }
    }

    pub(crate) fn later(&self, deferred: DeferredList) {
        self.later.lock().extend(deferred);
        self.wake();
    }

    /// Looks at `evd` on every tick, as long as it has a reason to be.
    pub(crate) fn watch(&self, evd: Arc<dyn Watched>) {
        let mut watched = self.watched.lock();
        if watched.iter().any(|known| known.id() == evd.id()) {
            // The next tick is near.
            return;
        }
        watched.push(evd);
        drop(watched);
        self.wake();
    }

    /// Looks at all dispatchers that have a reason to be looked at.
    pub(crate) fn tick(&self) {
        let watched = self.watched.lock().clone();
        for evd in watched {
            if !evd.tick() {
                self.watched.lock().retain(|other| other.id() != evd.id());
            }
        }
    }

    /// Wakes the thread once `fd`, of a queue of dispatcher `evd`, is readable.
    pub(crate) fn attend(&self, fd: BorrowedFd<'_>, evd: ObjectId) {
        let data = epoll::EventData::new_u64(OWN + evd.0);
        if epoll::modify(&self.poller, fd, data, ONE_SHOT) == Err(Errno::NOENT) {
            // Without it the notification object learns of completions when a thread waits on it.
            let _ = epoll::add(&self.poller, fd, data, ONE_SHOT);
        }
    }

    pub(crate) fn call_later(&self, agent: Agent, evd: Option<ObjectId>) {
        self.agents.lock().push((agent, evd));
        self.wake();
    }

    /// Calls the agents whose time has come. No lock is held.
    pub(crate) fn call_agents(&self) {
        let agents = std::mem::take(&mut *self.agents.lock());
        for (agent, evd) in agents {
            agent.run(evd);
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        // Only fails when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Takes what woke the thread, before it looks at what that was for.
    pub(crate) fn heard(&self, ready: &[epoll::Event]) {
        for event in ready {
            match (event.data.u64(), &self.alarm) {
                (WAKE, _) => {
                    let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
                }
                (ALARM, Some(alarm)) => alarm.off(),
                _ => {}
            }
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Duration> {
        let timer =
            self.timers.lock().peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        let tick = (!self.watched.lock().is_empty()).then_some(TICK);
        match (timer, tick) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// Sleeps until `poller` has something, the time is up (`Ok`), or a signal came (`Errno::INTR`).
pub(crate) fn sleep_on(poller: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<(), Errno> {
    wait_on(poller, timeout, &mut [NOTHING; 2]).map(|_| ())
}

/// The same; gives how many of `ready` tell what it has.
pub(crate) fn wait_on(
    poller: BorrowedFd<'_>,
    timeout: Option<Duration>,
    ready: &mut [epoll::Event],
) -> Result<usize, Errno> {
    let timeout = timeout.map(|left| rustix::event::Timespec {
        tv_sec: left.as_secs() as _,
        tv_nsec: left.subsec_nanos() as _,
    });
    epoll::wait(poller, ready, timeout.as_ref())
}

pub(crate) const NOTHING: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
