//! What happens when time passes: channels whose application is away are looked after, handshakes and waiting messages
//! run into their deadlines. One timer descriptor a device, set only while there is something to wait for.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_kit::Timer;

use crate::data::queue_pair::Idle;

/// What the timer calls, on the event thread.
pub(crate) trait Timed: Send + Sync {
    /// Looks after a channel whose application may be away. `last` is the progress of the time before.
    fn progress_idle(&self, last: &mut u64) -> Idle;

    /// Breaks the connection when a message has waited for a receive for `limit`.
    fn check_rnr_timeout(&self, limit: Duration);
}

/// The delay of a channel's first check after its request; later checks come at growing intervals.
const SOON: Duration = Duration::from_micros(500);
const LATE: Duration = Duration::from_millis(16);

/// How often things that no connection uses are looked at, until there are none.
const SWEEP: Duration = Duration::from_millis(200);

pub(crate) struct Timers {
    pub(crate) fd: Timer,
    /// A sweep is due some time.
    sweeping: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    watched: Vec<Watched>,
    /// Channels whose messages wait for a limited time.
    patience: Vec<Weak<dyn Timed>>,
    patience_due: Option<Instant>,
    handshake_due: Option<Instant>,
    sweep_due: Option<Instant>,
    /// What the descriptor is set to.
    set: Option<Instant>,
}

struct Watched {
    chan: Arc<dyn Timed>,
    due: Instant,
    delay: Duration,
    last: u64,
}

impl Timers {
    pub(crate) fn new() -> io::Result<Timers> {
        Ok(Timers { fd: Timer::new()?, sweeping: AtomicBool::new(false), state: Mutex::default() })
    }

    /// Looks after a channel until it needs it no more.
    pub(crate) fn watch(&self, chan: Arc<dyn Timed>) {
        let mut state = self.state();
        state.watched.push(Watched { chan, due: Instant::now() + SOON, delay: SOON, last: u64::MAX });
        self.set(&mut state, false);
    }

    /// Watches the messages of a channel wait.
    pub(crate) fn patience(&self, chan: Weak<dyn Timed>, limit: Duration) {
        let mut state = self.state();
        state.patience.push(chan);
        state.patience_due.get_or_insert(Instant::now() + step(limit));
        self.set(&mut state, false);
    }

    /// Has handshakes looked at by `due`.
    pub(crate) fn handshake(&self, due: Instant) {
        let mut state = self.state();
        state.handshake_due = Some(state.handshake_due.map_or(due, |known| known.min(due)));
        self.set(&mut state, false);
    }

    /// Has what no connection uses looked at in a while.
    pub(crate) fn sweep(&self) {
        if !self.sweeping.swap(true, Ordering::AcqRel) {
            let mut state = self.state();
            state.sweep_due = Some(Instant::now() + SWEEP);
            self.set(&mut state, false);
        }
    }

    /// The descriptor is readable: does what is due. `handshakes` drops late ones and gives the next deadline; `sweep` says
    /// whether there is something for another sweep.
    pub(crate) fn expired(
        &self,
        patience: Duration,
        handshakes: impl FnOnce(Instant) -> Option<Instant>,
        sweep: impl FnOnce() -> bool,
    ) {
        self.fd.drain();
        let now = Instant::now();
        let (due, waiting, look, sweeps) = {
            let mut state = self.state();
            state.set = None;
            let (due, rest) = std::mem::take(&mut state.watched).into_iter().partition(|one| one.due <= now);
            state.watched = rest;
            let due: Vec<Watched> = due;
            let mut waiting = Vec::new();
            if state.patience_due.is_some_and(|at| at <= now) {
                state.patience.retain(|chan| chan.strong_count() > 0);
                waiting = state.patience.iter().filter_map(Weak::upgrade).collect();
                state.patience_due = (!state.patience.is_empty()).then(|| now + step(patience));
            }
            let look = state.handshake_due.is_some_and(|at| at <= now);
            if look {
                state.handshake_due = None;
            }
            let sweeps = state.sweep_due.is_some_and(|at| at <= now);
            if sweeps {
                state.sweep_due = None;
                self.sweeping.store(false, Ordering::Release);
            }
            (due, waiting, look, sweeps)
        };
        for chan in waiting {
            chan.check_rnr_timeout(patience);
        }
        let mut rest = Vec::new();
        for mut one in due {
            let idle = one.chan.progress_idle(&mut one.last);
            if idle.go_on {
                one.delay = if idle.moved { SOON } else { (one.delay * 2).min(LATE) };
                one.due = Instant::now() + one.delay;
                rest.push(one);
            }
        }
        let next = if look { handshakes(now) } else { None };
        if sweeps && sweep() {
            self.sweep();
        }
        let mut state = self.state();
        state.watched.extend(rest);
        state.handshake_due = match (state.handshake_due, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.set(&mut state, true);
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let old = std::mem::take(&mut *self.state());
        drop(old);
    }

    fn set(&self, state: &mut State, always: bool) {
        let first = state
            .watched
            .iter()
            .map(|one| one.due)
            .chain(state.patience_due)
            .chain(state.handshake_due)
            .chain(state.sweep_due)
            .min();
        let Some(first) = first else { return };
        if always || state.set.is_none_or(|set| first < set) {
            state.set = Some(first);
            if let Err(error) = self.fd.set(first.saturating_duration_since(Instant::now())) {
                tracing::error!(%error, "timerfd_settime");
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How often waiting messages are looked at.
fn step(limit: Duration) -> Duration {
    (limit / 4).clamp(Duration::from_millis(1), Duration::from_millis(100))
}
