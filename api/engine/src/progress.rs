//! The one thread of an IA: what must go on whatever the application does. Connection events, time-outs, graceful
//! disconnects, overflow of dispatchers nobody looks at.

mod alarm;
mod driver;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::host::Device;
use dat_plugin::{Event, EventKind};
use dat_types::{AsyncReason, ObjectId};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::cno::Agent;
use crate::ep::states::Stimulus;
use crate::evd::{Evd, ONE_SHOT};
use crate::ia::IaInner;
use crate::sequel::{self, Sequels};

use alarm::Alarm;
pub(crate) use driver::Driver;
use driver::Watch;

/// How often dispatchers are looked at on behalf of a graceful disconnect, or because they can overflow.
const TICK: Duration = Duration::from_millis(1);

pub(crate) struct Progress {
    wake: OwnedFd,
    poller: OwnedFd,
    /// `None` where there is none to be had; then the thread is woken to be told of a time.
    alarm: Option<Alarm>,
    stop: AtomicBool,
    timers: Mutex<BinaryHeap<Reverse<(Instant, u64)>>>,
    later: Mutex<Sequels>,
    /// Dispatchers to look at on every tick.
    watched: Mutex<Vec<Evd>>,
    /// Agents of notification objects to be called, with the dispatcher they are told.
    agents: Mutex<Vec<(Agent, Option<ObjectId>)>>,
    /// Whoever holds it takes the provider's events: the contract wants one thread at a time.
    events: Mutex<[Event; BATCH]>,
    /// It was told that the provider raises events nobody knows.
    told_unknown: AtomicBool,
    /// Who watches the provider's descriptor.
    watch: Mutex<Watch>,
    fork: dat_plugin::host::ForkGuard,
}

/// How many events one call into the provider takes at most.
const BATCH: usize = 8;

/// How many of those calls are made in a row. A provider that still has events then is looked at again once the rest of
/// what there is to do was done.
const MOST_CALLS: usize = 256;

/// How many descriptors one sleep tells of at most.
const READY: usize = 16;

/// What the poller's descriptors stand for; from `OWN` on they are of dispatchers' queues.
const WAKE: u64 = 0;
const EVENTS: u64 = 1;
const ALARM: u64 = 2;
const OWN: u64 = 3;

impl Progress {
    pub(crate) fn new(device: &Device) -> io::Result<Progress> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poller, &wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        if let Some(fd) = device.event_fd() {
            epoll::add(&poller, fd, epoll::EventData::new_u64(EVENTS), epoll::EventFlags::IN)?;
        }
        // Miri has none.
        let alarm = if cfg!(miri) { None } else { Some(Alarm::new()?) };
        if let Some(alarm) = &alarm {
            epoll::add(&poller, alarm, epoll::EventData::new_u64(ALARM), epoll::EventFlags::IN)?;
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
            events: Mutex::new([Event::new(EventKind(0), 0); BATCH]),
            told_unknown: AtomicBool::new(false),
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

    pub(crate) fn later(&self, sequels: Sequels) {
        self.later.lock().extend(sequels);
        self.wake();
    }

    /// Looks at `evd` on every tick, as long as it has a reason to be.
    pub(crate) fn watch(&self, evd: &Evd) {
        let mut watched = self.watched.lock();
        if watched.iter().any(|known| known.0.id == evd.0.id) {
            // The next tick is near.
            return;
        }
        watched.push(evd.clone());
        drop(watched);
        self.wake();
    }

    /// Wakes the thread once `fd`, of a queue of dispatcher `evd`, is readable.
    pub(crate) fn attend(&self, fd: BorrowedFd<'_>, evd: ObjectId) {
        let data = epoll::EventData::new_u64(OWN + evd.0);
        if epoll::modify(&self.poller, fd, data, ONE_SHOT) == Err(Errno::NOENT) {
            // Without it the notification object learns of completions when somebody waits on it.
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
    fn heard(&self, ready: &[epoll::Event]) {
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

    fn next_wake(&self) -> Option<Duration> {
        let timer =
            self.timers.lock().peek().map(|Reverse((at, _))| at.saturating_duration_since(Instant::now()));
        let tick = (!self.watched.lock().is_empty()).then_some(TICK);
        match (timer, tick) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}

/// The thread.
pub(crate) fn run(ia: &Arc<IaInner>) {
    let Ok(device) = ia.device("dat_ia_open") else { return };
    while !ia.progress.stop.load(Ordering::Acquire) {
        // An interruption is as good as an event: everything is looked at.
        let mut ready = [NOTHING; READY];
        let poller = std::os::fd::AsFd::as_fd(&ia.progress.poller);
        let n = wait_on(poller, ia.progress.next_wake(), &mut ready).unwrap_or(0);
        ia.progress.heard(&ready[..n]);
        if ia.progress.looks(&device) {
            match ia.progress.events.try_lock() {
                Some(mut events) => take_events(ia, &device, &mut events),
                // A waiter is at it. The descriptor stays readable as long as there is something, so this thread is
                // back at once if need be.
                None => std::thread::yield_now(),
            }
        }
        time_out(ia);
        let later = std::mem::take(&mut *ia.progress.later.lock());
        sequel::perform(later);
        look_at_watched(ia);
        attend_to(ia, &ready[..n]);
        ia.progress.call_agents();
    }
}

/// Dispatchers with a notification object that have completions.
fn attend_to(ia: &Arc<IaInner>, ready: &[epoll::Event]) {
    for event in ready {
        let Some(id) = event.data.u64().checked_sub(OWN) else { continue };
        let evd = ia.objects.lock().evds.get(&ObjectId(id)).cloned();
        if let Some(evd) = evd {
            evd.0.attend();
        }
    }
}

/// Takes the provider's events on the spot, unless another thread is at it.
pub(crate) fn help(ia: &Arc<IaInner>) {
    if let Some(mut events) = ia.progress.events.try_lock()
        && let Ok(device) = ia.device("dat_evd_wait")
    {
        take_events(ia, &device, &mut events);
    }
}

fn take_events(ia: &Arc<IaInner>, device: &Device, events: &mut [Event; BATCH]) {
    for _ in 0..MOST_CALLS {
        let n = device.poll_events(events);
        for event in &events[..n] {
            dispatch(ia, event);
        }
        if n < events.len() {
            return;
        }
    }
}

fn dispatch(ia: &Arc<IaInner>, event: &Event) {
    let stimulus = match event.kind {
        EventKind::REQUEST => return crate::service_point::on_request(ia, event),
        EventKind::DEVICE_LOST => {
            tracing::error!(ia = %ia.id, "the device is lost");
            return ia.raise(ia.id, AsyncReason::IaCatastrophic);
        }
        EventKind::SRQ_LIMIT => {
            return ia.raise(dat_types::ObjectId(event.user), AsyncReason::SrqLowWatermark);
        }
        EventKind::PORT_DOWN | EventKind::PORT_UP => {
            return tracing::warn!(ia = %ia.id, kind = ?event.kind, "a port of the device changed its state");
        }
        EventKind::ESTABLISHED => Stimulus::Established,
        EventKind::REJECTED => Stimulus::PeerRejected,
        EventKind::REFUSED => Stimulus::Refused,
        EventKind::UNREACHABLE => Stimulus::Unreachable,
        EventKind::ACCEPT_FAILED => Stimulus::AcceptFailed,
        EventKind::DISCONNECTED => Stimulus::PeerDisconnected,
        EventKind::BROKEN => Stimulus::Broke,
        other => {
            // Once: it may go on.
            if !ia.progress.told_unknown.swap(true, Ordering::Relaxed) {
                let kind = other;
                tracing::error!(ia = %ia.id, ?kind, "the provider raises events this version does not know");
            }
            return ia.raise(ia.id, AsyncReason::ProviderInternal);
        }
    };
    // An attempt that is gone was ended by the consumer; its late events mean nothing.
    let ep = ia.objects.lock().attempts.get(&event.user).cloned();
    if let Some(ep) = ep {
        sequel::perform(ep.on_stimulus(event.user, stimulus, event.data()));
    }
}

fn time_out(ia: &Arc<IaInner>) {
    loop {
        let due = {
            let mut timers = ia.progress.timers.lock();
            match timers.peek() {
                Some(Reverse((at, _))) if *at <= Instant::now() => timers.pop(),
                _ => None,
            }
        };
        let Some(Reverse((_, attempt))) = due else { return };
        let ep = ia.objects.lock().attempts.get(&attempt).cloned();
        if let Some(ep) = ep {
            sequel::perform(ep.on_stimulus(attempt, Stimulus::TimeUp, &[]));
        }
    }
}

fn look_at_watched(ia: &Arc<IaInner>) {
    let watched = ia.progress.watched.lock().clone();
    for evd in watched {
        let mut sequels = Sequels::new();
        let draining = evd.0.core.lock().draining();
        for ep in draining {
            ep.settle();
        }
        let keep = {
            let mut core = evd.0.core.lock();
            evd.0.harvest(&mut core, &mut sequels);
            if core.unattended {
                core.unattended = core.has_raw() || !core.arm_queue();
            }
            let keep = core.is_watched() || core.unattended;
            if keep && !core.armed {
                // For the provider's sake: to arm is to say that somebody waits, so that a peer whose application is
                // away is made to take what was sent to it.
                core.arm_queue();
            }
            keep
        };
        sequel::perform(sequels);
        if !keep {
            ia.progress.watched.lock().retain(|other| other.0.id != evd.0.id);
        }
    }
}

/// Sleeps until `poller` has something, the time is up (`Ok`), or a signal came (`Errno::INTR`).
pub(crate) fn sleep_on(poller: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<(), Errno> {
    wait_on(poller, timeout, &mut [NOTHING; 2]).map(|_| ())
}

/// The same; gives how many of `ready` tell what it has.
fn wait_on(
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

const NOTHING: epoll::Event =
    epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
