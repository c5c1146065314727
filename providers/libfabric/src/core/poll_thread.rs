//! For fabrics without wait descriptors: a thread that polls the fabric every millisecond. It runs while a connection
//! exists or may begin, and no application polls. What it finds wakes queues and the device as if the fabric had.
//! `docs/libfabric.md` gives its cost.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::core::wake::TICK_TIME;

/// The thread of a device, if it needs one.
#[derive(Default)]
pub struct PollThread {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    asleep: bool,
    stopped: bool,
}

/// How often a sleeping thread checks whether it is needed, in case a wake-up was lost.
const IDLE_CHECK: Duration = Duration::from_millis(500);

impl PollThread {
    /// Starts it. `step` polls once and returns whether polling must go on, or `None` once the device is gone.
    pub fn start(&self, step: impl FnMut() -> Option<bool> + Send + 'static) -> io::Result<()> {
        let signal = self.signal.clone();
        let thread =
            std::thread::Builder::new().name("dat-fabric".into()).spawn(move || run(&signal, step))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Polling is needed from now on.
    pub fn wake(&self) {
        let mut state = self.signal.state.lock();
        if state.asleep {
            state.asleep = false;
            self.signal.changed.notify_one();
        }
    }

    /// Stops it, and waits until it has ended.
    pub fn stop(&self) {
        self.signal.state.lock().stopped = true;
        self.signal.changed.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that polls a fabric panicked");
        }
    }
}

fn run(signal: &Signal, mut step: impl FnMut() -> Option<bool>) {
    while let Some(needed) = step() {
        let mut state = signal.state.lock();
        if state.stopped {
            return;
        }
        state.asleep = !needed;
        signal.changed.wait_for(&mut state, if needed { TICK_TIME } else { IDLE_CHECK });
        if state.stopped {
            return;
        }
    }
}
