//! The channels of a completion queue: which are at work, and which direction of one comes first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::Completion;

use crate::data::queue_pair::QueuePair;

#[derive(Default)]
pub(super) struct List {
    /// The channels at work.
    pub(super) active: Vec<Attached>,
    /// The channel that is polled first.
    pub(super) next: usize,
    /// Polls, and polls in a row that found nothing.
    pub(super) turns: u32,
    pub(super) empty: u32,
    pub(super) slots: Vec<Slot>,
    pub(super) free: Vec<u32>,
}

/// What is at a slot of the ready bitmap.
#[derive(Default)]
pub(super) enum Slot {
    #[default]
    Free,
    EventDriven(Attached),
    /// In `active`, there.
    Active(usize),
}

/// A channel, as far as a queue serves it.
pub(super) struct Attached {
    pub(super) pair: Arc<QueuePair>,
    pub(super) slot: u32,
    pub(super) send: bool,
    pub(super) recv: bool,
    /// Which direction comes first next time: the other one must not starve it.
    pub(super) send_first: bool,
    /// Looks since something was found.
    pub(super) idle: u32,
    /// After this many looks the peer's control page is looked at.
    pub(super) look: u32,
    /// When the low bits of `idle` are these, there is more to do than to look at what is known here.
    pub(super) rare: u32,
    /// When the time was first looked at since something was found and requests were under way.
    pub(super) idle_since: Option<Instant>,
}

/// Each look at the peer's control line takes it away from the peer, who writes it. Where answers carry the same news
/// it is looked at seldom, and often where they do not; powers of two.
pub(super) const SELDOM: u32 = 512;
pub(super) const OFTEN: u32 = 4;

/// After how many looks without result the time is looked at, and after what time a peer that does not poll is woken.
/// Counting looks alone would let a program that looks once a millisecond wait for seconds.
pub(super) const LOOKS: u32 = 64;
pub(super) const PATIENCE: Duration = Duration::from_micros(200);

/// Looks in a row without result before a poll begins to pause: what comes soon is seen sooner without.
pub(super) const EAGER: u32 = 32;

/// What a look at a channel without a lock says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Glance {
    Nothing,
    /// There is a message, and nothing that comes first.
    Message,
    /// A request may be complete, and there is nothing that comes first.
    Done,
    Other,
}

impl Attached {
    /// Looks at both directions. `single`: there is room for one completion.
    #[inline]
    pub(super) fn glance(&mut self, single: bool) -> Glance {
        let counters = &self.pair.conn.counters;
        counters.look_ahead();
        let done = self.send && counters.tx_ready();
        if self.recv && counters.rx_ready() {
            // Right after something was found more than one message is likely.
            let burst = self.idle == 0 && !single;
            return match done {
                true if self.send_first => Glance::Done,
                false if !burst => Glance::Message,
                _ => Glance::Other,
            };
        }
        if done {
            return Glance::Done;
        }
        if self.idle & self.rare == self.rare && counters.tx_busy() {
            return Glance::Other;
        }
        self.idle = self.idle.wrapping_add(1);
        Glance::Nothing
    }

    /// Takes a lone short message. `false`: nothing was done.
    // Part of the hot arm of a receive.
    #[inline(always)]
    pub(super) fn take_short(&mut self, place: &mut Completion) -> bool {
        let Some(wake) = self.pair.poll_short(place) else { return false };
        self.send_first = self.send;
        self.idle = 0;
        if wake {
            self.pair.wake_peer();
        }
        true
    }

    /// Takes completions of requests.
    pub(super) fn take_done(&mut self, out: &mut [Completion]) -> usize {
        let got = self.pair.poll_send(out);
        if got > 0 {
            self.idle = 0;
            if self.send_first {
                self.send_first = false;
                self.set_look(SELDOM);
            }
        }
        got
    }

    pub(super) fn set_look(&mut self, look: u32) {
        self.look = look;
        self.rare = look.min(LOOKS) - 1;
    }

    /// Takes completions of one direction, so that a message is handed out before time goes into completing earlier sends.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.send_first && self.pair.conn.counters.tx_ready() {
            let got = self.take_done(out);
            if got > 0 {
                return got;
            }
        }
        if self.recv && self.pair.conn.counters.rx_ready() {
            if (self.idle != 0 || out.len() == 1) && self.take_short(&mut out[0]) {
                return 1;
            }
            let got = self.pair.poll_recv(out, self.idle == 0);
            if got > 0 {
                self.send_first = self.send;
                self.idle = 0;
                return got;
            }
        }
        let look = self.idle & (self.look - 1) == self.look - 1;
        if self.send && (self.pair.conn.counters.tx_ready() || look && self.pair.tx_ready()) {
            let got = self.take_done(out);
            if got > 0 {
                if look && self.recv {
                    self.set_look(OFTEN);
                }
                return got;
            }
        }
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(LOOKS) {
            self.many_looks();
        }
        0
    }

    /// Many looks without result: a peer that does not poll is woken.
    #[cold]
    pub(super) fn many_looks(&mut self) {
        let conn = &self.pair.conn;
        let busy = self.send && conn.counters.tx_busy();
        if self.idle == LOOKS || !busy {
            self.idle_since = None;
        }
        if busy {
            let now = Instant::now();
            if now.duration_since(*self.idle_since.get_or_insert(now)) >= PATIENCE {
                self.idle_since = Some(now);
                conn.schedule_progress();
            }
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.recv && self.pair.conn.counters.rx_ready() || self.send && self.pair.tx_ready()
    }

    pub(super) fn is_busy(&self) -> bool {
        self.pair.conn.counters.tx_busy()
    }

    pub(super) fn set_event_driven(&self, number: u32) {
        self.pair.set_event_driven(self.send, self.recv, number);
    }
}

impl List {
    /// To the channels at work.
    pub(super) fn activate(&mut self, slot: u32) {
        let Some(place) = self.slots.get_mut(slot as usize) else { return };
        match std::mem::replace(place, Slot::Active(self.active.len())) {
            Slot::EventDriven(mut at) => {
                at.idle = 0;
                at.set_event_driven(0);
                self.active.push(at);
            }
            other => *place = other,
        }
    }

    /// Away from them.
    pub(super) fn deactivate(&mut self, index: usize, number: u32) {
        let at = self.remove(index);
        at.set_event_driven(number);
        let slot = at.slot as usize;
        self.slots[slot] = Slot::EventDriven(at);
    }

    pub(super) fn remove(&mut self, index: usize) -> Attached {
        let at = self.active.swap_remove(index);
        if let Some(moved) = self.active.get(index) {
            self.slots[moved.slot as usize] = Slot::Active(index);
        }
        at
    }

    pub(super) fn event_driven(&self, slot: u32) -> Option<&Attached> {
        match self.slots.get(slot as usize)? {
            Slot::EventDriven(at) => Some(at),
            _ => None,
        }
    }

    /// Polls the active channels, starting with a different one each time.
    pub(super) fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.next >= self.active.len() {
            self.next = 0;
        }
        let begin = self.next;
        let mut found = 0;
        let (last, first) = self.active.split_at_mut(begin);
        for (turn, at) in first.iter_mut().chain(last).enumerate() {
            found += at.poll(&mut out[found..]);
            if found == out.len() {
                self.next = begin + turn + 1;
                return found;
            }
        }
        self.next += usize::from(found == 0);
        found
    }
}
