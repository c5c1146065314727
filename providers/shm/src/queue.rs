//! Completion queues: where channels are polled, and what a sleeper waits on.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_kit::EventFd;
use dat_plugin::{Completion, Queue};

use crate::channel::Chan;
use crate::device::Dev;
use crate::lock::Lock;
use crate::wait;

/// A completion queue.
#[derive(Clone)]
pub struct ShmQueue(pub(crate) Arc<Que>);

pub(crate) struct Que {
    pub(crate) dev: Arc<Dev>,
    /// Tells it from the device's other queues; not 0.
    pub(crate) id: u64,
    pub(crate) fd: EventFd,
    /// 0, or the number of the arm that is in force.
    armed: AtomicU32,
    arms: AtomicU32,
    closed: AtomicBool,
    list: Lock<List>,
}

#[derive(Default)]
struct List {
    attached: Vec<Attached>,
    next: usize,
}

struct Attached {
    chan: Arc<Chan>,
    send: bool,
    recv: bool,
    /// Looks since something was found, and when the time was first looked at since.
    idle: u32,
    idle_since: Option<Instant>,
    /// Which direction comes first next time something is expected: the other one must not starve it.
    send_first: bool,
}

/// A queue that serves both directions of a channel looks at the peer's control line only this often: the answer to a
/// message carries the same news, and each look takes the line away from the peer, who writes it.
const LOOK: u32 = 16;

/// After how many looks without result the time is looked at, and after what time a peer that does not poll is woken.
/// Counting looks alone would let a program that looks once a millisecond wait for seconds.
const LOOKS: u32 = 64;
const PATIENCE: Duration = Duration::from_micros(200);

impl Que {
    pub(crate) fn new(dev: Arc<Dev>, id: u64) -> io::Result<Que> {
        Ok(Que {
            dev,
            id,
            fd: EventFd::new()?,
            armed: AtomicU32::new(0),
            arms: AtomicU32::new(0),
            closed: AtomicBool::new(false),
            list: Lock::default(),
        })
    }

    pub(crate) fn attach(&self, chan: &Arc<Chan>, send: bool, recv: bool) {
        let mut list = self.list.lock();
        list.attached.push(Attached {
            chan: chan.clone(),
            send,
            recv,
            idle: 0,
            idle_since: None,
            send_first: false,
        });
    }

    pub(crate) fn detach(&self, chan: &Chan) {
        let gone = {
            let mut list = self.list.lock();
            let place = list.attached.iter().position(|at| std::ptr::eq(&*at.chan, chan));
            place.map(|place| list.attached.swap_remove(place))
        };
        // Dropped without the lock: it may be the last reference.
        drop(gone);
    }

    /// Wakes a sleeper of this process, after something was made ready other than by its own polling.
    pub(crate) fn notify(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.armed.load(Ordering::Relaxed) != 0 {
            self.fd.signal();
        }
    }

    /// As [`Que::notify`], for the post path.
    #[inline]
    pub(crate) fn notify_from_post(&self) {
        wait::light_barrier(!self.dev.barriers);
        if self.armed.load(Ordering::Relaxed) != 0 {
            self.fd.signal();
        }
    }

    /// The arm in force, 0 for none.
    pub(crate) fn armed(&self) -> u32 {
        self.armed.load(Ordering::SeqCst)
    }

    fn poll(&self, out: &mut [Completion]) -> usize {
        if !self.dev.owner.here() {
            return 0;
        }
        // Waits for an attach or detach elsewhere: a poll that finds completions must not miss them, for the engine flushes
        // what it did not find.
        let mut list = self.list.lock();
        let List { attached, next } = &mut *list;
        let count = attached.len();
        let mut found = 0;
        if *next >= count {
            *next = 0;
        }
        for turn in 0..count {
            let index = if *next + turn >= count { *next + turn - count } else { *next + turn };
            let at = &mut attached[index];
            let before = found;
            if at.send_first && at.chan.tx_ready(false) {
                found += at.chan.poll_send(&mut out[found..]);
            }
            if at.recv && found < out.len() && at.chan.rx_ready() {
                found += at.chan.poll_recv(&mut out[found..]);
            }
            if at.send && found < out.len() && at.chan.tx_ready(!at.recv || at.idle % LOOK == LOOK - 1) {
                found += at.chan.poll_send(&mut out[found..]);
            }
            if found != before {
                at.idle = 0;
                at.idle_since = None;
                at.send_first = at.send && at.recv && !at.send_first;
            } else {
                at.idle = at.idle.wrapping_add(1);
                if at.send && at.idle.is_multiple_of(LOOKS) && at.chan.tx_busy() {
                    let now = Instant::now();
                    if now.duration_since(*at.idle_since.get_or_insert(now)) >= PATIENCE {
                        at.idle_since = Some(now);
                        at.chan.watch();
                    }
                }
            }
            if found == out.len() {
                *next = index + 1;
                return found;
            }
        }
        *next += 1;
        if found == 0 {
            std::hint::spin_loop();
        }
        found
    }

    fn arm(&self) -> bool {
        if !self.dev.owner.here() {
            return true;
        }
        let number = self.arms.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.armed.store(number, Ordering::SeqCst);
        let list = self.list.lock();
        for at in &list.attached {
            at.chan.arm(at.send, at.recv, number);
        }
        // Nobody can publish to a channel that is not connected, and connecting looks at the arm in force.
        if list.attached.iter().any(|at| at.chan.is_linked()) {
            wait::barrier(self.dev.barriers);
        }
        let ready =
            list.attached.iter().any(|at| at.recv && at.chan.rx_waiting() || at.send && at.chan.tx_waiting());
        if !ready {
            for at in list.attached.iter().filter(|at| at.send && at.chan.tx_busy()) {
                at.chan.watch();
            }
        }
        drop(list);
        if ready {
            self.disarm();
        }
        !ready
    }

    fn disarm(&self) {
        if !self.dev.owner.here() {
            return;
        }
        if self.armed.swap(0, Ordering::SeqCst) != 0 {
            let list = self.list.lock();
            for at in &list.attached {
                at.chan.arm(at.send, at.recv, 0);
            }
        }
        self.fd.drain();
    }
}

impl Queue for ShmQueue {
    #[inline]
    fn poll(&self, out: &mut [Completion]) -> usize {
        if out.is_empty() { 0 } else { self.0.poll(out) }
    }

    fn arm(&self) -> bool {
        self.0.arm()
    }

    fn disarm(&self) {
        self.0.disarm()
    }

    fn fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }

    fn close(&self) {
        if !self.0.closed.swap(true, Ordering::Relaxed) {
            let rest = std::mem::take(&mut self.0.list.lock().attached);
            drop(rest);
            self.0.dev.queue_closed();
        }
    }
}
