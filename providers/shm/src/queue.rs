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
use dat_sync::{Guard, Lock};

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
    /// The channels at work.
    active: Vec<Attached>,
    next: usize,
    /// Polls, and polls in a row that found nothing.
    turns: u32,
    empty: u32,
    /// By slot.
    places: Vec<Place>,
    free: Vec<u32>,
}

/// What is at a slot.
#[derive(Default)]
enum Place {
    #[default]
    Free,
    Parked(Attached),
    /// In `active`, there.
    Active(usize),
}

/// A channel, as far as a queue serves it.
struct Attached {
    chan: Arc<Chan>,
    slot: u32,
    send: bool,
    recv: bool,
    /// Which direction comes first next time something is expected: the other one must not starve it.
    send_first: bool,
    /// Looks since something was found.
    idle: u32,
    /// Every so many looks the peer's control line is looked at.
    look: u32,
    /// When the low bits of `idle` are these there is more to do than to look at what is known here.
    rare: u32,
    /// When the time was first looked at since something was found and requests were under way.
    idle_since: Option<Instant>,
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

/// What a look at a channel without a lock says.
enum Glance {
    Nothing,
    /// There is a message, and nothing that comes first.
    Message,
    /// A request may be complete, and there is nothing that comes first.
    Done,
    /// [`Attached::poll`] is to be asked.
    Other,
}

impl Attached {
    /// Looks at both directions. Nothing is an empty poll, counted and all.
    #[inline(always)]
    fn glance(&mut self) -> Glance {
        let (idle, done) = (self.idle, self.send && self.chan.tx_known());
        if self.recv && self.chan.rx_ready() {
            // Right after something was found more than one message is likely.
            return match done {
                true if self.send_first => Glance::Done,
                false if idle != 0 => Glance::Message,
                _ => Glance::Other,
            };
        }
        if done {
            return Glance::Done;
        }
        if idle & self.rare == self.rare && self.chan.tx_busy() {
            return Glance::Other;
        }
        self.idle = idle.wrapping_add(1);
        Glance::Nothing
    }

    #[inline(always)]
    fn found_first_done(&mut self) {
        self.send_first = false;
        self.set_look(SELDOM);
        self.idle = 0;
    }

    #[inline(always)]
    fn found_message(&mut self) {
        self.send_first = self.send;
        self.idle = 0;
    }

    /// Takes a lone short message. `false`: nothing was done.
    #[inline(always)]
    fn take_message(&mut self, place: &mut Completion) -> bool {
        let Some(tell) = self.chan.poll_message(place) else { return false };
        self.found_message();
        if tell {
            self.chan.took();
        }
        true
    }

    /// Takes one completion of a request, likewise.
    #[inline(always)]
    fn take_done(&mut self, place: &mut Completion) -> bool {
        if !self.chan.poll_done(place) {
            return false;
        }
        match self.send_first {
            true => self.found_first_done(),
            false => self.idle = 0,
        }
        true
    }

    /// Looks, and takes what there is: as [`Attached::poll`], by the ways of [`Que::poll`].
    #[inline]
    fn take(&mut self, out: &mut [Completion]) -> usize {
        let Some(place) = out.first_mut() else { return 0 };
        let glance = self.glance();
        if matches!(glance, Glance::Nothing) {
            return 0;
        }
        let taken = matches!(glance, Glance::Message) && self.take_message(place)
            || matches!(glance, Glance::Done) && self.take_done(place);
        if taken {
            return 1;
        }
        self.poll(out)
    }

    fn set_look(&mut self, look: u32) {
        self.look = look;
        self.rare = look.min(LOOKS) - 1;
    }

    /// Takes completions of one direction, so that a message is handed out before time goes into telling that earlier
    /// sends are done.
    #[inline(always)]
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.send_first && self.chan.tx_known() {
            let got = self.chan.poll_send(out);
            if got > 0 {
                self.found_first_done();
                return got;
            }
        }
        if self.recv && self.chan.rx_ready() {
            let got = self.chan.poll_recv(out, self.idle == 0);
            if got > 0 {
                self.found_message();
                return got;
            }
        }
        let look = self.idle & (self.look - 1) == self.look - 1;
        if self.send && (self.chan.tx_known() || look && self.chan.tx_ready()) {
            let got = self.chan.poll_send(out);
            if got > 0 {
                if look && self.recv {
                    self.set_look(OFTEN);
                }
                self.idle = 0;
                return got;
            }
        }
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(LOOKS) {
            self.idled();
        }
        0
    }

    /// Many looks without result.
    #[cold]
    fn idled(&mut self) {
        if self.idle == LOOKS || !self.send || !self.chan.tx_busy() {
            self.idle_since = None;
        }
        if self.send && self.chan.tx_busy() {
            let now = Instant::now();
            if now.duration_since(*self.idle_since.get_or_insert(now)) >= PATIENCE {
                self.idle_since = Some(now);
                self.chan.watch();
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.recv && self.chan.rx_ready() || self.send && self.chan.tx_ready()
    }

    fn park(&self, number: u32) {
        self.chan.park(self.send, self.recv, number);
    }
}

impl List {
    /// To the channels at work.
    fn activate(&mut self, slot: u32) {
        let Some(place) = self.places.get_mut(slot as usize) else { return };
        match std::mem::replace(place, Place::Active(self.active.len())) {
            Place::Parked(mut at) => {
                at.idle = 0;
                at.park(0);
                self.active.push(at);
            }
            other => *place = other,
        }
    }

    /// Away from them. What it is asked to do when something happens is told apart by `number`.
    fn park(&mut self, index: usize, number: u32) {
        let at = self.leave(index);
        at.park(number);
        let slot = at.slot as usize;
        self.places[slot] = Place::Parked(at);
    }

    fn leave(&mut self, index: usize) -> Attached {
        let at = self.active.swap_remove(index);
        if let Some(moved) = self.active.get(index) {
            self.places[moved.slot as usize] = Place::Active(index);
        }
        at
    }

    fn parked(&self, slot: u32) -> Option<&Attached> {
        match self.places.get(slot as usize)? {
            Place::Parked(at) => Some(at),
            _ => None,
        }
    }

    /// Looks at several channels in turn, beginning with another one each time.
    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.next >= self.active.len() {
            self.next = 0;
        }
        let begin = self.next;
        let mut found = 0;
        let (last, first) = self.active.split_at_mut(begin);
        for (turn, at) in first.iter_mut().chain(last).enumerate() {
            found += at.take(&mut out[found..]);
            if found == out.len() {
                self.next = begin + turn + 1;
                return found;
            }
        }
        self.next += usize::from(found == 0);
        found
    }
}

impl Que {
    pub(crate) fn new(dev: Arc<Dev>, id: u64) -> io::Result<Que> {
        let fd = EventFd::new()?;
        let board = dev.boards.take()?;
        let (number, closed, list) = (AtomicU32::new(0), AtomicBool::new(false), Lock::default());
        Ok(Que { dev, id, fd, board, number, closed, list })
    }

    /// One thread polls here.
    pub(crate) fn for_one_thread(&self) {
        self.list.declare(true);
    }

    /// Takes a channel in, parked; gives its slot, or `None` when it serves as many as it can.
    pub(crate) fn attach(&self, chan: &Arc<Chan>, send: bool, recv: bool) -> Option<u32> {
        let mut list = self.list.lock();
        let slot = match list.free.pop() {
            Some(slot) => slot,
            None if list.places.len() < SLOTS => {
                list.places.push(Place::Free);
                list.places.len() as u32 - 1
            }
            None => return None,
        };
        let look = match (send, recv) {
            (false, _) => SELDOM,
            (_, true) => OFTEN,
            _ => 1,
        };
        let at = Attached {
            chan: chan.clone(),
            slot,
            send,
            recv,
            send_first: false,
            idle: 0,
            look,
            rare: look.min(LOOKS) - 1,
            idle_since: None,
        };
        at.park(self.number());
        list.places[slot as usize] = Place::Parked(at);
        Some(slot)
    }

    /// The channel has a peer, which has not heard of it yet.
    pub(crate) fn linked(&self, slot: u32) {
        let number = self.number();
        if let Some(at) = self.list.lock().parked(slot) {
            at.park(number);
        }
    }

    pub(crate) fn detach(&self, slot: u32, chan: &Chan) {
        let gone = {
            let mut list = self.list.lock();
            let here = |at: &Attached| std::ptr::eq(&*at.chan, chan);
            let gone = match list.places.get(slot as usize) {
                Some(Place::Parked(at)) if here(at) => None,
                Some(Place::Active(index)) if here(&list.active[*index]) => Some(*index),
                _ => return,
            };
            let gone = gone.map(|index| list.leave(index));
            let place = std::mem::take(&mut list.places[slot as usize]);
            list.free.push(slot);
            (gone, place)
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

    /// Most polls find nothing, and most of the rest one message: those ways make no call that something would have to be
    /// kept across.
    #[inline(always)]
    fn poll(&self, out: &mut [Completion]) -> usize {
        if !self.dev.owner.here() {
            return 0;
        }
        let Some(mut list) = self.list.lock_at_once() else { return self.poll_slowly(out) };
        if self.board.any() {
            return self.poll_list(list, out);
        }
        let [one] = &mut list.active[..] else { return self.poll_list(list, out) };
        match one.glance() {
            Glance::Nothing => {
                if one.idle > EAGER {
                    std::hint::spin_loop();
                }
                0
            }
            Glance::Message => self.poll_message(list, out),
            Glance::Done => self.poll_done(list, out),
            Glance::Other => self.poll_list(list, out),
        }
    }

    #[inline(never)]
    fn poll_slowly(&self, out: &mut [Completion]) -> usize {
        // Waits for an attach or detach elsewhere: a poll that finds completions must not miss them, for the engine flushes
        // what it did not find.
        self.poll_list(self.list.lock(), out)
    }

    /// Of a queue with one channel at work, which has a message.
    #[inline(never)]
    fn poll_message(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        let [one] = &mut list.active[..] else { return 0 };
        let Some(place) = out.first_mut() else { return 0 };
        if one.take_message(place) { 1 } else { self.poll_list(list, out) }
    }

    /// The same, when a request of it may be complete.
    #[inline(never)]
    fn poll_done(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        let [one] = &mut list.active[..] else { return 0 };
        let Some(place) = out.first_mut() else { return 0 };
        if one.take_done(place) { 1 } else { self.poll_list(list, out) }
    }

    #[inline(never)]
    fn poll_list(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        let list = &mut *list;
        if self.board.any() {
            self.collect(list);
        }
        let found = match &mut list.active[..] {
            [one] => one.poll(out),
            _ => self.poll_several(list, out),
        };
        if found > 0 {
            list.empty = 0;
            return found;
        }
        list.empty = list.empty.saturating_add(1);
        if list.empty > EAGER {
            std::hint::spin_loop();
        }
        0
    }

    #[inline(never)]
    fn poll_several(&self, list: &mut List, out: &mut [Completion]) -> usize {
        let found = list.poll(out);
        list.turns = list.turns.wrapping_add(1);
        if list.active.len() > FEW && list.turns.is_multiple_of(PARK_AFTER) {
            self.park_idle(list);
        }
        found
    }

    #[cold]
    fn collect(&self, list: &mut List) {
        self.board.collect(|slot| list.activate(slot as u32));
    }

    /// Parks channels that have done nothing for long.
    #[cold]
    fn park_idle(&self, list: &mut List) {
        let idle = |at: &Attached| at.idle >= PARK_AFTER && !at.chan.tx_busy() && !at.is_ready();
        let mut parked = Vec::new();
        let mut number = 0;
        for index in (0..list.active.len()).rev() {
            if idle(&list.active[index]) {
                if parked.is_empty() {
                    number = self.number();
                }
                parked.push(list.active[index].slot);
                list.park(index, number);
            }
        }
        if parked.is_empty() {
            return;
        }
        wait::barrier(self.dev.barriers);
        // What came before the peer, or a post, saw that the channel is parked.
        for slot in parked {
            if list.parked(slot).is_some_and(|at| at.is_ready() || at.chan.tx_busy()) {
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
        let parked: Vec<u32> = list.active.iter().map(|at| at.slot).collect();
        for index in (0..parked.len()).rev() {
            list.park(index, number);
        }
        // For those parked before, the mark is made with a full barrier.
        wait::barrier(self.dev.barriers && !parked.is_empty());
        let mut ready = self.board.any();
        for slot in &parked {
            if list
                .parked(*slot)
                .is_some_and(|at| at.recv && at.chan.rx_waiting() || at.send && at.chan.tx_waiting())
            {
                list.activate(*slot);
                ready = true;
            }
        }
        if !ready {
            for slot in parked {
                if let Some(at) = list.parked(slot)
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
