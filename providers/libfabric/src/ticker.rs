//! For fabrics whose queues wake nobody: a thread of the device's own that looks at the fabric every millisecond, as long as
//! there is a connection or may be one, and nobody else does by polling. What it finds rings the queues and the device as
//! if the fabric had. `docs/libfabric.md` says what it costs.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::datagrams::Datagrams;
use crate::device::{Dev, TICK_TIME};

/// The thread of a device, if it needs one.
#[derive(Default)]
pub struct Ticker {
    word: Arc<Word>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What is said to the thread.
#[derive(Default)]
struct Word {
    state: Mutex<State>,
    said: Condvar,
}

#[derive(Default)]
struct State {
    asleep: bool,
    over: bool,
}

/// Polls between two looks that show that a thread does nothing else, and how many looks in a row are left to it.
const SPINNING: u64 = 64;
const MOST_LEFT: u32 = 256;

/// Who is woken by nobody looks now and then whether it is needed, should a word have been lost.
const NAP: Duration = Duration::from_millis(500);

impl Ticker {
    pub fn start(&self, dev: &Arc<Dev>) -> io::Result<()> {
        let (word, dev) = (self.word.clone(), Arc::downgrade(dev));
        let thread = std::thread::Builder::new().name("dat-fabric".into()).spawn(move || run(&word, &dev))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Something has begun: it looks from now on.
    pub fn wake(&self) {
        let mut state = self.word.state.lock();
        if state.asleep {
            state.asleep = false;
            self.word.said.notify_one();
        }
    }

    /// Ends it, and waits until it has ended.
    pub fn stop(&self) {
        self.word.state.lock().over = true;
        self.word.said.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks at a fabric panicked");
        }
    }
}

impl Dev {
    /// Whether a thread may sleep until the fabric, or where it wakes nobody, the event thread wakes it; `false`: there was
    /// something to read, or is.
    pub fn may_wait(&self) -> bool {
        if !self.fabric.wakes() {
            return self.progress() == 0;
        }
        // libfabric changes the set of sockets while it is read.
        let _reading = self.reader.lock();
        self.fabric.may_wait_for_completions() && {
            self.fabric.watch();
            true
        }
    }

    /// From now on somebody must look.
    pub fn look_from_now_on(&self) {
        if !self.fabric.wakes() {
            self.ticker.wake();
        }
    }

    /// Whether somebody must look at the fabric because it wakes nobody: a connection there is, or something that may
    /// become one.
    pub fn must_look(&self) -> bool {
        !self.fabric.wakes()
            && (self.open_chans.load(Ordering::Relaxed) > 0
                || self.datagrams.as_ref().is_some_and(Datagrams::may_be_spoken_to))
    }
}

fn run(word: &Word, dev: &Weak<Dev>) {
    let (mut polls, mut left) = (0, 0);
    loop {
        let Some(dev) = dev.upgrade() else { return };
        let now = dev.polls.load(Ordering::Relaxed);
        let spinning = now.wrapping_sub(polls) >= SPINNING && left < MOST_LEFT;
        polls = now;
        left = if spinning { left + 1 } else { 0 };
        if !spinning {
            dev.progress_to_the_end();
        }
        let needed = dev.must_look();
        drop(dev);
        let mut state = word.state.lock();
        if state.over {
            return;
        }
        state.asleep = !needed;
        word.said.wait_for(&mut state, if needed { TICK_TIME } else { NAP });
        if state.over {
            return;
        }
    }
}
