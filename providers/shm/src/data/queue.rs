//! Completion queues: where channels are polled, and what a sleeper waits on.
//!
//! A queue polls the few channels at work. The others are event-driven: a number in the control page asks the peer to ring
//! the queue's doorbell when it publishes something (see [`crate::notify::ready_bitmap`]).
//!
//! # The hot arm
//! [`CompletionQueue::poll`] serves a queue with one channel at work. An empty poll makes no call. A short message is taken
//! by [`QueuePair::poll_short`]. Everything else goes through `poll_active`.

mod attached;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_kit::ForkGuard;
use dat_plugin::Completion;
use dat_sync::{BiasPolicy, Guard, Lock};

use crate::data::doorbell::Doorbell;
use crate::data::queue_pair::QueuePair;
use crate::notify::barrier;
use crate::notify::ready_bitmap::{ReadyBitmaps, SLOTS};

use attached::{Attached, EAGER, Glance, LOOKS, List, OFTEN, SELDOM, Slot};

/// A completion queue.
pub(crate) struct CompletionQueue {
    /// Unique among the device's queues; not 0.
    pub(crate) id: u64,
    pub(crate) doorbell: Arc<Doorbell>,
    owner: Arc<ForkGuard>,
    barriers: bool,
    /// Numbers for [`QueuePair::set_event_driven`]; not 0, and another one each time.
    number: AtomicU32,
    list: Lock<List>,
}

/// Up to this number of channels are always polled. When there are more, those that did nothing for many polls become
/// event-driven, together, because that takes a barrier in all processes.
const FEW: usize = 4;
const IDLE_AFTER: u32 = 1024;

impl CompletionQueue {
    pub(crate) fn new(
        owner: Arc<ForkGuard>,
        bitmaps: Arc<ReadyBitmaps>,
        device: u128,
        barriers: bool,
        id: u64,
    ) -> io::Result<CompletionQueue> {
        let doorbell = Arc::new(Doorbell::new(bitmaps, device, id)?);
        let (number, list) = (AtomicU32::new(0), Lock::default());
        Ok(CompletionQueue { id, doorbell, owner, barriers, number, list })
    }

    /// One thread polls here.
    pub(crate) fn for_one_thread(&self) {
        self.list.set_bias(BiasPolicy::SingleThread);
    }

    /// Takes a channel in, event-driven; gives its slot, or `None` when all slots are in use.
    pub(crate) fn attach(&self, pair: &Arc<QueuePair>, send: bool, recv: bool) -> Option<u32> {
        let mut list = self.list.lock();
        let slot = match list.free.pop() {
            Some(slot) => slot,
            None if list.slots.len() < SLOTS => {
                list.slots.push(Slot::Free);
                list.slots.len() as u32 - 1
            }
            None => return None,
        };
        let look = match (send, recv) {
            (false, _) => SELDOM,
            (_, true) => OFTEN,
            _ => 1,
        };
        let at = Attached {
            pair: pair.clone(),
            slot,
            send,
            recv,
            send_first: false,
            idle: 0,
            look,
            rare: look.min(LOOKS) - 1,
            idle_since: None,
        };
        at.set_event_driven(self.number());
        list.slots[slot as usize] = Slot::EventDriven(at);
        Some(slot)
    }

    /// The channel has a peer now, which was not asked yet.
    pub(crate) fn linked(&self, slot: u32) {
        let number = self.number();
        if let Some(at) = self.list.lock().event_driven(slot) {
            at.set_event_driven(number);
        }
    }

    pub(crate) fn detach(&self, slot: u32, pair: &QueuePair) {
        let gone = {
            let mut list = self.list.lock();
            let here = |at: &Attached| std::ptr::eq(&*at.pair, pair);
            let gone = match list.slots.get(slot as usize) {
                Some(Slot::EventDriven(at)) if here(at) => None,
                Some(Slot::Active(index)) if here(&list.active[*index]) => Some(*index),
                _ => return,
            };
            let gone = gone.map(|index| list.remove(index));
            let place = std::mem::take(&mut list.slots[slot as usize]);
            list.free.push(slot);
            (gone, place)
        };
        // Dropped without the lock: it may be the last reference.
        drop(gone);
    }

    /// Forgets all channels.
    pub(crate) fn clear(&self) {
        let rest = std::mem::take(&mut *self.list.lock());
        drop(rest);
    }

    fn number(&self) -> u32 {
        self.number.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1)
    }

    /// Takes completions; `out` is not empty.
    #[inline]
    pub(crate) fn poll(&self, out: &mut [Completion]) -> usize {
        if !self.owner.here() {
            return 0;
        }
        let Some(mut list) = self.list.try_lock_biased() else { return self.poll_contended(out) };
        if !self.doorbell.bitmap.any()
            && let [one] = &mut list.active[..]
        {
            match one.glance(out.len() == 1) {
                Glance::Nothing => {
                    if one.idle > EAGER {
                        std::hint::spin_loop();
                    }
                    return 0;
                }
                Glance::Message => return self.poll_message(list, out),
                Glance::Done => return self.poll_done(list, out),
                Glance::Other => {}
            }
        }
        self.poll_active(list, out)
    }

    /// A queue with one channel at work, which has a message.
    // Not inlined, so that an empty poll spills no registers.
    #[inline(never)]
    fn poll_message(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        if let ([one], [place, ..]) = (&mut list.active[..], &mut *out)
            && one.take_short(place)
        {
            return 1;
        }
        self.poll_active(list, out)
    }

    /// The same, when a request of it may be complete.
    // Not inlined, so that an empty poll spills no registers.
    #[inline(never)]
    fn poll_done(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        if let [one] = &mut list.active[..] {
            let got = one.take_done(out);
            if got > 0 {
                return got;
            }
        }
        self.poll_active(list, out)
    }

    #[cold]
    fn poll_contended(&self, out: &mut [Completion]) -> usize {
        // Waits for an attach or detach elsewhere: a poll must find what is there, for the engine flushes what it did not
        // find.
        self.poll_active(self.list.lock(), out)
    }

    /// Everything but the hot arm.
    // Not inlined, so that the hot arm spills no registers.
    #[inline(never)]
    fn poll_active(&self, mut list: Guard<'_, List>, out: &mut [Completion]) -> usize {
        let list = &mut *list;
        if self.doorbell.bitmap.any() {
            self.activate_rung(list);
        }
        let found = match &mut list.active[..] {
            [one] => one.poll(out),
            _ => list.poll(out),
        };
        if list.active.len() > FEW {
            list.turns = list.turns.wrapping_add(1);
            if list.turns.is_multiple_of(IDLE_AFTER) {
                self.deactivate_idle(list);
            }
        }
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

    #[cold]
    fn activate_rung(&self, list: &mut List) {
        self.doorbell.bitmap.drain(|slot| list.activate(slot as u32));
    }

    /// Channels that have done nothing for long become event-driven.
    #[cold]
    fn deactivate_idle(&self, list: &mut List) {
        let idle = |at: &Attached| at.idle >= IDLE_AFTER && !at.is_busy() && !at.is_ready();
        let mut slots = Vec::new();
        let mut number = 0;
        for index in (0..list.active.len()).rev() {
            if idle(&list.active[index]) {
                if slots.is_empty() {
                    number = self.number();
                }
                slots.push(list.active[index].slot);
                list.deactivate(index, number);
            }
        }
        if slots.is_empty() {
            return;
        }
        barrier::barrier(self.barriers);
        // What came before the peer, or a post, saw that the channel is event-driven.
        for slot in slots {
            if list.event_driven(slot).is_some_and(|at| at.is_ready() || at.is_busy()) {
                list.activate(slot);
            }
        }
    }

    /// Before a sleep: all channels become event-driven. `false`: there is something to be taken.
    pub(crate) fn arm(&self) -> bool {
        if !self.owner.here() {
            return true;
        }
        let bitmap = &self.doorbell.bitmap;
        self.doorbell.arm();
        let mut list = self.list.lock();
        // A doorbell alone is no reason to stay awake.
        if bitmap.any() {
            self.activate_rung(&mut list);
        }
        let number = self.number();
        let slots: Vec<u32> = list.active.iter().map(|at| at.slot).collect();
        for index in (0..slots.len()).rev() {
            list.deactivate(index, number);
        }
        // For those that were event-driven before, the doorbell has a full barrier.
        barrier::barrier(self.barriers && !slots.is_empty());
        let mut ready = bitmap.any();
        for slot in &slots {
            let waiting = |at: &Attached| at.recv && at.pair.rx_waiting() || at.send && at.pair.tx_waiting();
            if list.event_driven(*slot).is_some_and(waiting) {
                list.activate(*slot);
                ready = true;
            }
        }
        if !ready {
            for at in slots.iter().filter_map(|slot| list.event_driven(*slot)) {
                if at.send && at.is_busy() {
                    at.pair.conn.schedule_progress();
                }
            }
        }
        drop(list);
        if ready {
            self.disarm();
        }
        !ready
    }

    pub(crate) fn disarm(&self) {
        if self.owner.here() {
            self.doorbell.disarm();
        }
    }
}
