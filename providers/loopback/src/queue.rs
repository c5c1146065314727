//! Completion queues.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dat_kit::EventFd;
use dat_plugin::{Completion, Failure, Queue, Status};

use crate::limits::MAX_DEPTH;

/// A completion queue. Its lock is taken last: no other lock is taken under it.
#[derive(Debug)]
pub struct LoopQueue {
    state: Mutex<State>,
    fd: EventFd,
}

#[derive(Debug)]
struct State {
    completions: VecDeque<Completion>,
    armed: bool,
}

impl LoopQueue {
    pub(crate) fn new(depth: u32) -> Result<LoopQueue, Failure> {
        let refuse =
            |why: &str| Failure::new(Status::NO_RESOURCE, format!("queue of {depth} completions: {why}"));
        if depth > MAX_DEPTH {
            return Err(refuse(&format!("the most is {MAX_DEPTH}")));
        }
        let mut completions = VecDeque::new();
        completions.try_reserve_exact(depth as usize).map_err(|_| refuse("not enough memory"))?;
        let fd = EventFd::new().map_err(|error| Failure::os("eventfd of a queue", &error))?;
        Ok(LoopQueue { state: Mutex::new(State { completions, armed: false }), fd })
    }

    /// Adds a completion. Beyond the depth it was made for a queue grows rather than lose one.
    pub(crate) fn push(&self, completion: Completion) {
        let mut state = self.lock();
        state.completions.push_back(completion);
        if state.armed {
            state.armed = false;
            self.fd.signal();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queue for LoopQueue {
    fn poll(&self, out: &mut [Completion]) -> usize {
        let mut state = self.lock();
        let count = state.completions.len().min(out.len());
        for (place, completion) in out.iter_mut().zip(state.completions.drain(..count)) {
            *place = completion;
        }
        count
    }

    fn arm(&self) -> bool {
        let mut state = self.lock();
        state.armed = state.completions.is_empty();
        state.armed
    }

    fn disarm(&self) {
        let mut state = self.lock();
        state.armed = false;
        self.fd.drain();
    }

    fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn close(&self) {}
}
