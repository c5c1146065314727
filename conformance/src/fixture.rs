//! Context of one test: time scale, return codes seen, and the current step for reports of tests that hang.

use std::collections::BTreeSet;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dat_types::Timeout;
use parking_lot::Mutex;

use crate::codes::Met;
use crate::outcome::{Outcome, Stop};

/// Bytes of the region every side has.
pub(crate) const REGION: u64 = 64 * 1024;

/// All errors the suite met, for the clause that inspects them: their codes, and which call gave which.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) codes: BTreeSet<u32>,
    pub(crate) met: BTreeSet<Met>,
}

pub(crate) type Codes = Arc<Mutex<Seen>>;

#[derive(Debug)]
pub(crate) struct Fixture {
    scale: f64,
    pub(crate) codes: Codes,
    doing: Mutex<String>,
}

impl Fixture {
    pub(crate) fn new(scale: f64, codes: Codes) -> Arc<Fixture> {
        Arc::new(Fixture { scale, codes, doing: Mutex::new("its first call".into()) })
    }

    /// Notes the current step, for the report of a clause that hangs.
    pub(crate) fn doing(&self, what: impl Into<String>) {
        *self.doing.lock() = what.into();
    }

    pub(crate) fn what(&self) -> String {
        self.doing.lock().clone()
    }

    pub(crate) fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.scale)
    }

    /// How long to wait for what must come.
    pub(crate) fn long(&self) -> Duration {
        self.scaled(Duration::from_secs(5))
    }

    /// How long to look for what must not come.
    pub(crate) fn short(&self) -> Duration {
        self.scaled(Duration::from_millis(40))
    }

    pub(crate) fn millis(&self, ms: u64) -> Timeout {
        Timeout::from(self.scaled(Duration::from_millis(ms)))
    }

    /// Looks at `condition` until it holds; a failure says what did not come.
    pub(crate) fn until(&self, what: &str, mut condition: impl FnMut() -> Result<bool, Stop>) -> Outcome {
        self.doing(what);
        let deadline = Instant::now() + self.long();
        while !condition()? {
            if Instant::now() >= deadline {
                return Err(Stop::Failed(format!("did not come within {:?}: {what}", self.long())));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Runs `wait` on a thread of its own and `meanwhile` when it has had time to get to its waiting.
    pub(crate) fn while_waiting<T: Send, R>(
        &self,
        wait: impl FnOnce() -> T + Send,
        meanwhile: impl FnOnce() -> Result<R, Stop>,
    ) -> Result<(T, R), Stop> {
        let ready = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                ready.wait();
                wait()
            });
            ready.wait();
            self.pause();
            let outcome = meanwhile()?;
            match waiter.join() {
                Ok(waited) => Ok((waited, outcome)),
                Err(_) => Err(Stop::Failed("the waiter panicked".into())),
            }
        })
    }

    /// Lets time pass in which nothing should happen.
    pub(crate) fn pause(&self) {
        std::thread::sleep(self.short());
    }
}
