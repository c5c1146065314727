//! Waiting on a dispatcher: spin a little, then sleep on a descriptor that is armed first.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use dat_types::{Error, EvdFlags, EvdState, Event, Result, ReturnType, Subtype, Timeout};
use rustix::io::Errno;

use super::core::{Core, QueueState};
use super::inner::{Evd, EvdInner};
use crate::adapter::driver::Driver;
use crate::base::deferred::DeferredList;
use crate::base::{deferred, error};

/// A wait that gave no event: why, and how many events are queued (`nmore`).
#[derive(Debug)]
pub struct WaitError {
    /// Why.
    pub error: Error,
    /// Events queued; defined for time-out and interruption (decision D-39).
    pub nmore: u32,
}

impl From<WaitError> for Error {
    fn from(wait: WaitError) -> Error {
        wait.error
    }
}

impl std::fmt::Display for WaitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} events queued)", self.error, self.nmore)
    }
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// How one look at the queue ended.
enum Look {
    Event(Event, u32),
    Nothing(u32),
    Stop(Error),
}

impl Evd {
    /// `dat_evd_wait`: blocks until `threshold` events are queued and one of them is a notification, or the time is
    /// up. Returns the oldest event and how many more are queued.
    pub fn wait(&self, timeout: Timeout, threshold: i32) -> std::result::Result<(Event, u32), WaitError> {
        self.claim(threshold).map_err(|error| WaitError { error, nmore: 0 })?;
        let result = self.wait_claimed(timeout, threshold as usize);
        let mut core = self.0.core.lock();
        if core.state == QueueState::Waited {
            core.state = QueueState::Open;
        }
        core.armed = false;
        let notifies = core.cno.is_some();
        drop(core);
        if notifies {
            self.0.attend();
        }
        result
    }

    /// Takes the dispatcher for this thread alone (spec: events).
    fn claim(&self, threshold: i32) -> Result<()> {
        const CALL: &str = "dat_evd_wait";
        if self.0.fork.forked() {
            return Err(error::forked(CALL));
        }
        let mut core = self.0.core.lock();
        if core.state == QueueState::Freed {
            return Err(self.refused(CALL, &core));
        }
        if threshold <= 0 || threshold as usize > core.qlen {
            let message = format!("a threshold of {threshold}; 1 to {} are possible", core.qlen);
            return Err(error::parameter(CALL, Subtype::Arg3, message));
        }
        if core.state != QueueState::Open {
            return Err(self.refused(CALL, &core));
        }
        self.waitable(&core)?;
        let config = core.config();
        if threshold > 1 && config != EvdState::CONFIG_THRESHOLD {
            let subtype = match config {
                EvdState::CONFIG_NOTIFY => Subtype::EvdConfigNotify,
                _ => Subtype::EvdConfigSolicited,
            };
            let message = "its sources control notification themselves; only a threshold of 1 is possible";
            return Err(error::state(CALL, subtype, message));
        }
        core.state = QueueState::Waited;
        core.counts.waits += 1;
        Ok(())
    }

    fn waitable(&self, core: &Core) -> Result<()> {
        if core.waitable {
            return Ok(());
        }
        let message = format!("event dispatcher {} was made unwaitable", self.0.id);
        Err(error::state("dat_evd_wait", Subtype::EvdUnwaitable, message))
    }

    fn wait_claimed(
        &self,
        timeout: Timeout,
        threshold: usize,
    ) -> std::result::Result<(Event, u32), WaitError> {
        let mut queued = match self.look(threshold, false) {
            Look::Event(event, nmore) => return Ok((event, nmore)),
            Look::Stop(error) => return Err(WaitError { error, nmore: 0 }),
            Look::Nothing(queued) => queued,
        };
        let expired = |nmore| WaitError { error: EXPIRED, nmore };
        if timeout == Timeout::ZERO {
            return Err(expired(queued));
        }
        self.0.core.lock().counts.waits_blocked += 1;
        // Connection events come from the provider by way of its event descriptor.
        let connections = self.0.flags.intersects(EvdFlags::CONNECTION | EvdFlags::CR);
        let watches = |events: BorrowedFd<'_>| self.0.sleeper.watches(|| self.0.queue(), events);
        let ia = connections.then(|| self.0.owner.upgrade()).flatten();
        let driver = ia.and_then(|ia| Driver::new(ia, watches));
        let start = Instant::now();
        let deadline = timeout.duration().and_then(|duration| start.checked_add(duration));
        // `None`: for longer than the clock goes.
        let spin_until = start.checked_add(self.0.spin);
        loop {
            let spinning = spin_until.is_none_or(|until| Instant::now() < until);
            let armed = !spinning && self.arm_for(threshold)?;
            if armed {
                let events = driver.as_ref().and_then(Driver::event_fd);
                self.sleep(deadline, events).map_err(|error| WaitError { error, nmore: queued })?;
            } else {
                // The peer may be waiting for this very processor: the system likes to wake it where its waker runs.
                std::thread::yield_now();
            }
            if let Some(driver) = &driver {
                driver.take();
            }
            match self.look(threshold, true) {
                Look::Event(event, nmore) => return Ok((event, nmore)),
                Look::Stop(error) => return Err(WaitError { error, nmore: 0 }),
                Look::Nothing(now) => queued = now,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(expired(queued));
            }
        }
    }

    /// One look. While blocking, a notification is needed besides the count (spec: events).
    fn look(&self, threshold: usize, blocking: bool) -> Look {
        let mut deferred = DeferredList::new();
        let mut core = self.0.core.lock();
        if core.state != QueueState::Waited {
            let aborted = core.aborted;
            let error = match aborted {
                true => Error::bare(ReturnType::Abort, Subtype::None),
                false => self.refused("dat_evd_wait", &core),
            };
            return Look::Stop(error);
        }
        if let Err(error) = self.waitable(&core) {
            return Look::Stop(error);
        }
        // Where every event notifies, one event is what a poll gives.
        let any_event = threshold == 1 && (!blocking || core.all_notify());
        let event = if any_event && EvdInner::is_direct(&core) {
            self.0.next_event(&mut core, None, &mut deferred)
        } else {
            self.0.drain_to(&mut core, &mut deferred, threshold);
            let ready = core.events.len() >= threshold && (!blocking || core.notifications > 0);
            if ready { core.pop() } else { None }
        };
        if core.has_raw() {
            // The count of events that a waiter gets is exact.
            self.0.drain(&mut core, &mut deferred);
        }
        let queued = core.events.len() as u32;
        core.counts.waits_notified += u64::from(blocking && event.is_some());
        let look = event.map_or(Look::Nothing(queued), |event| Look::Event(event, queued));
        drop(core);
        deferred::run(deferred);
        look
    }

    fn arm_for(&self, threshold: usize) -> std::result::Result<bool, WaitError> {
        self.0.sleeper.poller(|| self.0.queue()).map_err(|source| {
            let error = error::resources("dat_evd_wait", Subtype::ResourceTevd, "no descriptor to wait on");
            WaitError { error: error.with_source(source), nmore: 0 }
        })?;
        let mut deferred = DeferredList::new();
        let armed = self.0.arm_core(&mut self.0.core.lock(), &mut deferred, threshold);
        deferred::run(deferred);
        Ok(armed)
    }

    /// Sleeps until something may have happened. An interruption by a signal is an error.
    fn sleep(&self, deadline: Option<Instant>, events: Option<BorrowedFd<'_>>) -> Result<()> {
        match self.0.sleeper.sleep(deadline, events) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => Err(INTERRUPTED),
            Err(errno) => {
                let error = Error::new(
                    "dat_evd_wait",
                    ReturnType::InternalError,
                    Subtype::None,
                    "waiting on the dispatcher's descriptor failed",
                );
                Err(error.with_source(io::Error::from(errno)))
            }
        }
    }
}

impl EvdInner {
    /// Arms the descriptor, unless there is a reason not to sleep: `threshold` events, or the end of waiting.
    pub(super) fn arm_core(&self, core: &mut Core, deferred: &mut DeferredList, threshold: usize) -> bool {
        self.sleeper.drain();
        // What ends a wait is written under the lock held here and signalled after: with the signal drained just now,
        // it must be looked at.
        if matches!(core.state, QueueState::Freed | QueueState::Overflowed) || !core.waitable {
            return false;
        }
        core.disarm_queue();
        self.drain_to(core, deferred, threshold);
        // A queue that is not dry is not armed: there is more to take.
        let armed = !core.has_raw() && core.arm_queue();
        core.armed = true;
        armed && !(core.events.len() >= threshold && core.notifications > 0)
    }
}

const EXPIRED: Error = Error::bare(ReturnType::TimeoutExpired, Subtype::None);
const INTERRUPTED: Error = Error::bare(ReturnType::InterruptedCall, Subtype::None);
