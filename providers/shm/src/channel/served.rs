//! What a channel is to the queues that serve it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::Completion;
use dat_sync::Guard;

use super::{Chan, RECV, SEND};
use crate::rx::Rx;
use crate::wait;

impl Chan {
    /// Whether a poll of the receiving half may find something.
    #[inline]
    pub(crate) fn rx_ready(&self) -> bool {
        // SAFETY: points to a static, or into the segment of `link`, which lives as long as `self`.
        unsafe { (*self.peek.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
    }

    /// Whether a poll of the requesting half may find something, by what is known here.
    #[inline(always)]
    pub(crate) fn tx_known(&self) -> bool {
        let need = self.hint.need.load(Ordering::Acquire);
        self.acked.load(Ordering::Relaxed).wrapping_sub(need) as i32 > 0
    }

    /// The same, also by what the peer says.
    pub(crate) fn tx_ready(&self) -> bool {
        if self.tx_known() {
            return true;
        }
        let Some(link) = self.link.get().filter(|_| self.tx_busy()) else { return false };
        let (peer, need) = (link.segment.peer(), self.hint.need.load(Ordering::Relaxed));
        peer.completed.load(Ordering::Relaxed).wrapping_sub(need) as i32 > 0
            || peer.fail.load(Ordering::Relaxed) != 0
    }

    /// Whether requests are under way.
    pub(crate) fn tx_busy(&self) -> bool {
        self.hint.hint.load(Ordering::Relaxed) != 0
    }

    /// Takes one short message, if there is nothing out of the ordinary. `None`: nothing was done; else whether
    /// [`Chan::took`] is to be called when no lock is held.
    #[inline(always)]
    pub(crate) fn poll_message(&self, place: &mut Completion) -> Option<bool> {
        let link = self.link.get()?;
        self.rx.lock_at_once()?.take_one(self, link, place)
    }

    /// Takes one completion of a request, likewise.
    #[inline(always)]
    pub(crate) fn poll_done(&self, place: &mut Completion) -> bool {
        match self.tx.lock_at_once() {
            Some(mut tx) => tx.take_one(self, place),
            None => false,
        }
    }

    /// A message was taken, and the peer wants to hear of it.
    #[cold]
    pub(crate) fn took(&self) {
        if let Some(link) = self.link.get() {
            self.rx.lock().took_one(link);
        }
    }

    /// `burst`: the last look found something too, so that more than one message is likely.
    #[inline(never)]
    pub(crate) fn poll_recv(&self, out: &mut [Completion], burst: bool) -> usize {
        match self.rx.try_lock() {
            Some(mut rx) => rx.poll(self, self.link.get(), out, burst),
            None => 0,
        }
    }

    #[inline(never)]
    pub(crate) fn poll_send(&self, out: &mut [Completion]) -> usize {
        match self.tx.try_lock() {
            Some(mut tx) => tx.poll(self, self.link.get(), out),
            None => 0,
        }
    }

    /// Whether there is a completion for the receive queue, with everything done to make one.
    pub(crate) fn rx_waiting(&self) -> bool {
        let mut rx = self.rx.lock();
        match self.link.get() {
            Some(link) => rx.pump(self, link),
            None => rx.has_completion(),
        }
    }

    /// The same for the send queue.
    pub(crate) fn tx_waiting(&self) -> bool {
        let mut tx = self.tx.lock();
        if let Some(link) = self.link.get()
            && tx.busy()
        {
            tx.advance(self, link);
        }
        tx.has_completion()
    }

    /// From now on a queue's polls do not look here unless they are told; with 0 they do.
    pub(crate) fn park(&self, send: bool, recv: bool, number: u32) {
        for (which, affected) in [(RECV, recv), (SEND, send)] {
            if affected {
                self.parked[which].store(number != 0, Ordering::Relaxed);
                if let Some(link) = self.link.get() {
                    link.segment.own().parked[which].store(number, Ordering::Relaxed);
                }
            }
        }
    }

    /// Whether a queue does not look here unless it is told. Whoever asks has made a barrier since it made something ready.
    #[inline(always)]
    pub(crate) fn is_parked(&self, which: usize) -> bool {
        self.parked[which].load(Ordering::Relaxed)
    }

    /// Something was made ready for a queue other than by its own polling.
    #[inline(always)]
    pub(crate) fn tell(&self, which: usize) {
        wait::light_barrier(!self.dev.barriers);
        if self.parked[which].load(Ordering::Relaxed) {
            let queue = if which == RECV { &self.recv_queue } else { &self.send_queue };
            if let Some(queue) = queue {
                queue.mark(self.slots[which].load(Ordering::Relaxed));
            }
        }
    }

    /// Has its queues serve it. `false`: one of them cannot.
    pub(crate) fn attach(self: &Arc<Chan>) -> bool {
        let both = [&self.recv_queue, &self.send_queue].map(|queue| queue.as_ref());
        let slots = match both {
            [Some(recv), Some(send)] if Arc::ptr_eq(recv, send) => {
                let slot = recv.attach(self, true, true);
                [slot, slot]
            }
            [recv, send] => [
                recv.map_or(Some(0), |queue| queue.attach(self, false, true)),
                send.map_or(Some(0), |queue| queue.attach(self, true, false)),
            ],
        };
        for (place, slot) in self.slots.iter().zip(slots) {
            place.store(slot.unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        slots.iter().all(Option::is_some)
    }

    pub(crate) fn detach(&self) {
        for (queue, slot) in [&self.recv_queue, &self.send_queue].into_iter().zip(&self.slots) {
            if let Some(queue) = queue {
                queue.detach(slot.load(Ordering::Relaxed), self);
            }
        }
    }

    /// Its queues ask the peer to tell them, which has not heard of it yet.
    pub(super) fn linked(&self) {
        for (queue, slot) in [&self.recv_queue, &self.send_queue].into_iter().zip(&self.slots) {
            if let Some(queue) = queue {
                queue.linked(slot.load(Ordering::Relaxed));
            }
        }
    }

    /// Has the event thread look after this channel in a while.
    pub(crate) fn watch(&self) {
        if !self.watched.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            self.dev.timer.watch(me);
        }
    }

    /// A receive was posted. A message may have waited for it, and its sender for that.
    #[inline]
    pub(super) fn unblock(&self, mut rx: Guard<'_, Rx>) {
        if rx.blocked() {
            let ready = self.link.get().is_some_and(|link| rx.pump(self, link));
            drop(rx);
            if ready {
                self.tell(RECV);
            }
        }
    }
}
