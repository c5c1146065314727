//! Completion queues: where channels are polled, and what a sleeper waits on.
//!
//! A poll looks at the channels at work; the others are parked (see [`crate::board`]).

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dat_kit::EventFd;
use dat_plugin::{Completion, Queue};
use dat_sync::Lock;

use crate::board::{Board, SLOTS};
use crate::channel::Chan;
use crate::device::Dev;
use crate::wait;

/// A completion queue.
#[derive(Clone)]
pub struct ShmQueue(pub(crate) Arc<Que>);

pub(crate) struct Que {
    pub(crate) dev: Arc<Dev>,
    /// Tells it from the device's other queues; not 0.
    pub(crate) id: u64,
    pub(crate) fd: EventFd,
    pub(crate) board: Board,
    /// Numbers of parkings; not 0, and another one each time.
    number: AtomicU32,
    closed: AtomicBool,
    list: Lock<List>,
}

#[derive(Default)]
struct List {
    /// By slot.
    places: Vec<Option<Attached>>,
    free: Vec<u32>,
    /// Slots of the channels at work.
    active: Vec<u32>,
    next: usize,
    /// Polls, and polls in a row that found nothing.
    turns: u32,
    empty: u32,
}

struct Attached {
    chan: Arc<Chan>,
    send: bool,
    recv: bool,
    /// Where in `active`; `None` when it is parked.
    active: Option<usize>,
    /// Looks since something was found, and when the time was first looked at since.
    idle: u32,
    idle_since: Option<Instant>,
    /// Which direction comes first next time something is expected: the other one must not starve it.
    send_first: bool,
    /// Every so many looks the peer's control line is looked at.
    look: u32,
}

/// Each look at the peer's control line takes it away from the peer, who writes it. Where answers carry the same news
/// it is looked at seldom, and often where they do not; powers of two.
const SELDOM: u32 = 512;
const OFTEN: u32 = 4;

/// After how many looks without result the time is looked at, and after what time a peer that does not poll is woken.
/// Counting looks alone would let a program that looks once a millisecond wait for seconds.
const LOOKS: u32 = 64;
const PATIENCE: Duration = Duration::from_micros(200);

/// Looks in a row without result before a poll begins to pause: what comes soon is seen sooner without.
const EAGER: u32 = 32;

/// As many channels are polled whatever they do. When there are more, those that did nothing for so many polls are
/// parked, together, because that takes a barrier in all processes.
const FEW: usize = 4;
const PARK_AFTER: u32 = 1024;

impl Attached {
    /// Takes completions of one direction, so that a message is handed out before time goes into telling that earlier
    /// sends are done.
    #[inline]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.send_first && self.chan.tx_ready(false) {
            let got = self.chan.poll_send(out);
            if got > 0 {
                self.send_first = false;
                self.look = SELDOM;
                return got;
            }
        }
        if self.recv && self.chan.rx_ready() {
            let got = self.chan.poll_recv(out, self.idle == 0);
            if got > 0 {
                self.send_first = self.send;
                return got;
            }
        }
        let look = self.idle & (self.look - 1) == self.look - 1;
        if self.send && self.chan.tx_ready(look) {
            let got = self.chan.poll_send(out);
            if got > 0 && look && self.recv {
                self.look = OFTEN;
            }
            return got;
        }
        0
    }

    /// A look without result.
    #[inline]
    fn idled(&mut self) {
        self.idle = self.idle.wrapping_add(1);
        if self.send && self.idle.is_multiple_of(LOOKS) && self.chan.tx_busy() {
            let now = Instant::now();
            if now.duration_since(*self.idle_since.get_or_insert(now)) >= PATIENCE {
                self.idle_since = Some(now);
                self.chan.watch();
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.recv && self.chan.rx_ready() || self.send && self.chan.tx_ready(true)
    }
}

impl List {
    fn place(&mut self, slot: u32) -> Option<&mut Attached> {
        self.places.get_mut(slot as usize)?.as_mut()
    }

    /// To the channels at work.
    fn activate(&mut self, slot: u32) {
        let index = self.active.len();
        let Some(at) = self.place(slot) else { return };
        if at.active.is_some() {
            return;
        }
        at.active = Some(index);
        at.idle = 0;
        at.idle_since = None;
        at.chan.park(at.send, at.recv, 0);
        self.active.push(slot);
    }

    /// Away from them. What it is asked to do when something happens is told apart by `number`.
    fn park(&mut self, slot: u32, number: u32) {
        let Some(at) = self.place(slot) else { return };
        let Some(index) = at.active.take() else { return };
        at.chan.park(at.send, at.recv, number);
        self.leave(index);
    }

    fn leave(&mut self, index: usize) {
        self.active.swap_remove(index);
        if let Some(moved) = self.active.get(index).copied()
            && let Some(at) = self.place(moved)
        {
            at.active = Some(index);
        }
    }
}

impl Que {
    pub(crate) fn new(dev: Arc<Dev>, id: u64) -> io::Result<Que> {
        let fd = EventFd::new()?;
        let board = dev.boards.take()?;
        let (number, closed, list) = (AtomicU32::new(0), AtomicBool::new(false), Lock::default());
        Ok(Que { dev, id, fd, board, number, closed, list })
    }

    /// Takes a channel in, parked; gives its slot, or `None` when it serves as many as it can.
    pub(crate) fn attach(&self, chan: &Arc<Chan>, send: bool, recv: bool) -> Option<u32> {
        let mut list = self.list.lock();
        let slot = match list.free.pop() {
            Some(slot) => slot,
            None if list.places.len() < SLOTS => {
                list.places.push(None);
                list.places.len() as u32 - 1
            }
            None => return None,
        };
        list.places[slot as usize] = Some(Attached {
            chan: chan.clone(),
            send,
            recv,
            active: None,
            idle: 0,
            idle_since: None,
            send_first: false,
            look: if recv { OFTEN } else { 1 },
        });
        chan.park(send, recv, self.number());
        Some(slot)
    }

    /// The channel has a peer, which has not heard of it yet.
    pub(crate) fn linked(&self, slot: u32) {
        let number = self.number();
        let mut list = self.list.lock();
        if let Some(at) = list.place(slot)
            && at.active.is_none()
        {
            at.chan.park(at.send, at.recv, number);
        }
    }

    pub(crate) fn detach(&self, slot: u32, chan: &Chan) {
        let gone = {
            let mut list = self.list.lock();
            match list.place(slot) {
                Some(at) if std::ptr::eq(&*at.chan, chan) => {}
                _ => return,
            }
            let gone = list.places[slot as usize].take();
            if let Some(index) = gone.as_ref().and_then(|at| at.active) {
                list.leave(index);
            }
            list.free.push(slot);
            gone
        };
        // Dropped without the lock: it may be the last reference.
        drop(gone);
    }

    /// A parked channel has something, by this process's own doing.
    #[cold]
    pub(crate) fn mark(&self, slot: u32) {
        if self.board.mark(slot) {
            self.fd.signal();
        }
    }

    fn number(&self) -> u32 {
        self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }

    fn poll(&self, out: &mut [Completion]) -> usize {
        if !self.dev.owner.here() {
            return 0;
        }
        // Waits for an attach or detach elsewhere: a poll that finds completions must not miss them, for the engine flushes
        // what it did not find.
        let mut list = self.list.lock();
        let list = &mut *list;
        if self.board.any() {
            self.collect(list);
        }
        let count = list.active.len();
        let mut found = 0;
        if list.next >= count {
            list.next = 0;
        }
        for turn in 0..count {
            let index = if list.next + turn >= count { list.next + turn - count } else { list.next + turn };
            let Some(Some(at)) = list.places.get_mut(list.active[index] as usize) else { continue };
            let got = at.poll(&mut out[found..]);
            if got == 0 {
                at.idled();
                continue;
            }
            at.idle = 0;
            at.idle_since = None;
            found += got;
            if found == out.len() {
                list.next = index + 1;
                break;
            }
        }
        list.turns = list.turns.wrapping_add(1);
        if count > FEW && list.turns.is_multiple_of(PARK_AFTER) {
            self.park_idle(list);
        }
        if found > 0 {
            list.empty = 0;
            return found;
        }
        list.next += 1;
        list.empty = list.empty.saturating_add(1);
        if list.empty > EAGER {
            std::hint::spin_loop();
        }
        0
    }

    #[cold]
    fn collect(&self, list: &mut List) {
        self.board.collect(|slot| list.activate(slot as u32));
    }

    /// Parks channels that have done nothing for long.
    #[cold]
    fn park_idle(&self, list: &mut List) {
        let idle = |slot: &u32| {
            let at = list.places.get(*slot as usize).and_then(Option::as_ref);
            at.is_some_and(|at| at.idle >= PARK_AFTER && !at.chan.tx_busy() && !at.is_ready())
        };
        let parked: Vec<u32> = list.active.iter().copied().filter(idle).collect();
        if parked.is_empty() {
            return;
        }
        let number = self.number();
        for slot in &parked {
            list.park(*slot, number);
        }
        wait::barrier(self.dev.barriers);
        // What came before the peer, or a post, saw that the channel is parked.
        for slot in parked {
            if list.place(slot).is_some_and(|at| at.is_ready() || at.chan.tx_busy()) {
                list.activate(slot);
            }
        }
    }

    fn arm(&self) -> bool {
        if !self.dev.owner.here() {
            return true;
        }
        self.board.arm(true);
        let mut list = self.list.lock();
        // A mark alone is no reason to stay awake.
        if self.board.any() {
            self.collect(&mut list);
        }
        let number = self.number();
        let parked = list.active.clone();
        for slot in &parked {
            list.park(*slot, number);
        }
        // For those parked before, the mark is made with a full barrier.
        wait::barrier(self.dev.barriers && !parked.is_empty());
        let mut ready = self.board.any();
        for slot in &parked {
            if list
                .place(*slot)
                .is_some_and(|at| at.recv && at.chan.rx_waiting() || at.send && at.chan.tx_waiting())
            {
                list.activate(*slot);
                ready = true;
            }
        }
        if !ready {
            for slot in parked {
                if let Some(at) = list.place(slot)
                    && at.send
                    && at.chan.tx_busy()
                {
                    at.chan.watch();
                }
            }
        }
        drop(list);
        if ready {
            self.disarm();
        }
        !ready
    }

    fn disarm(&self) {
        if self.dev.owner.here() {
            self.board.arm(false);
            self.fd.drain();
        }
    }
}

impl Drop for Que {
    fn drop(&mut self) {
        self.dev.boards.give_back(self.board.number());
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
            let rest = std::mem::take(&mut *self.0.list.lock());
            drop(rest);
            self.0.dev.queue_closed();
        }
    }
}
