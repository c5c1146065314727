//! Ending connections: disconnect, loss, free. One way down for all of them, so that the order is always the same:
//! the channel stops, finished work completes, the rest is flushed, then the event.

use std::sync::Arc;

use dat_plugin::Status;
use dat_types::{
    AsyncReason, BreakReason, CloseFlags, ConnectionKind, DtoStatus, EpState, Event, IaCounter, Result,
};

use super::attr::Wiring;
use super::connect::detach;
use super::ending::Ending;
use super::inner::{Control, Ep, EpInner};
use super::post_side::PostSide;
use crate::adapter::inner::Rules;
use crate::base::deferred;
use crate::base::deferred::{DeferredList, Incident};
use crate::base::ring::WorkRing;
use crate::base::states::{Operation, Stimulus, Verdict, verdict};
use crate::evd::core::Queued;
use crate::evd::inner::Evd;

impl Ep {
    /// `dat_ep_disconnect`. Abrupt: outstanding work is flushed. Graceful: after outstanding requests completed.
    pub fn disconnect(&self, flags: CloseFlags) -> Result<()> {
        const CALL: &str = "dat_ep_disconnect";
        let mut control = self.0.control(CALL)?;
        let operation = match flags {
            CloseFlags::Abrupt => Operation::DisconnectAbrupt,
            CloseFlags::Graceful => Operation::DisconnectGraceful,
        };
        let deferred = match verdict(operation, control.state) {
            Verdict::NoEffect => DeferredList::new(),
            Verdict::To(EpState::DisconnectPending) => self.0.begin_drain(&mut control),
            Verdict::To(_) => self.0.take_down(&mut control, Ending::asked()),
            _ => return Err(self.0.wrong_state(CALL, control.state)),
        };
        self.0.counts.disconnects.add(1);
        if let Some(ia) = self.0.owner.upgrade() {
            ia.count(IaCounter::CmDreqTx);
        }
        drop(control);
        deferred::run(deferred);
        Ok(())
    }
}

impl EpInner {
    /// Graceful: no more requests; down at once if none is outstanding, else when the last completes.
    fn begin_drain(self: &Arc<EpInner>, control: &mut Control) -> DeferredList {
        let mut side = self.post.lock();
        self.enter(control, &mut side, EpState::DisconnectPending);
        let requests = side.requests.clone();
        if let Some(channel) = &side.channel {
            channel.settle();
        }
        drop(side);
        let mut deferred = DeferredList::new();
        if let Some(evd) = control.wiring.request.clone() {
            evd.0.drain(&mut evd.0.core.lock(), &mut deferred);
            if requests.outstanding() > 0
                && let Some(ia) = self.owner.upgrade()
            {
                // The thread that takes the last completion finishes it. The IA's thread looks too, in case no other does.
                ia.progress.watch(evd.0.clone());
            }
        }
        deferred.extend(self.deferred(control.attempt, Incident::Drained));
        deferred
    }

    /// A graceful disconnect may be through.
    pub(super) fn on_maybe_drained(self: &Arc<EpInner>, attempt: u64) -> DeferredList {
        let drained = {
            let control = self.control.lock();
            control.state == EpState::DisconnectPending && self.post.lock().requests.outstanding() == 0
        };
        match drained {
            true => self.on_stimulus(attempt, Stimulus::Drained, &[]),
            false => DeferredList::new(),
        }
    }

    /// Enters DISCONNECTED and reports this end.
    ///
    /// The state never depends on the device's speed. A provider that answers PENDING still holds buffers: the flushed
    /// completions and the event follow when it has let go of them ([`EpInner::finish_stop`]).
    pub(super) fn take_down(self: &Arc<EpInner>, control: &mut Control, ending: Ending) -> DeferredList {
        {
            let mut side = self.post.lock();
            let status = side.channel.as_ref().map_or(Status::OK, |channel| channel.disconnect());
            if status == Status::PENDING {
                control.stopping = Some(ending);
                self.enter(control, &mut side, EpState::Disconnected);
                let rings = side.rings();
                drop(side);
                self.release_early(control, &rings);
                return DeferredList::new();
            }
        }
        self.finish_end(control, ending)
    }

    /// The channel has let go of the buffers, or is made to: dropping it stops it. Does nothing unless it is stopping.
    pub(super) fn finish_stop(self: &Arc<EpInner>, control: &mut Control) -> DeferredList {
        match control.stopping.take() {
            Some(ending) => self.finish_end(control, ending),
            None => DeferredList::new(),
        }
    }

    /// The channel holds no buffers any more: flushed completions first, then the event.
    fn finish_end(self: &Arc<EpInner>, control: &mut Control, ending: Ending) -> DeferredList {
        let deferred = self.flush(control);
        self.forget_attempt(control);
        self.report_end(control, ending);
        deferred
    }

    /// Reports the end, with its reason where it is a break.
    fn report_end(&self, control: &mut Control, ending: Ending) {
        let Some(kind) = ending.kind else { return };
        let failure = self.post.lock().rings().iter().find_map(|ring| ring.failure());
        // A failed transfer means that the connection broke, even if the peer disconnected first.
        let kind = match (kind, failure) {
            (ConnectionKind::Disconnected, Some(_)) if !ending.asked => ConnectionKind::Broken,
            (kind, _) => kind,
        };
        let reason = (kind == ConnectionKind::Broken).then(|| {
            let known = ending.reason.or(failure.map(BreakReason::Operation));
            known.unwrap_or(BreakReason::Transport)
        });
        self.report(control, kind, &ending.data, reason);
    }

    fn forget_attempt(&self, control: &Control) {
        if let Some(ia) = self.owner.upgrade() {
            ia.objects.lock().attempts.remove(&control.attempt);
        }
    }

    /// Completions of finished work first, then a flush of the rest, in post order for each direction. Posts wait
    /// meanwhile, so that theirs come after.
    fn flush(&self, control: &mut Control) -> DeferredList {
        let mut deferred = DeferredList::new();
        let mut side = self.post.lock();
        let channel = side.channel.take();
        let took_receives = channel.is_some() && self.srq.is_some();
        if let Some(channel) = channel {
            for evd in distinct(&side.request_evd, &side.recv_evd) {
                evd.0.drain(&mut evd.0.core.lock(), &mut deferred);
            }
            drop(channel);
        }
        side.forget_stored();
        self.enter(control, &mut side, EpState::Disconnected);
        self.release_early(control, &side.rings());
        let mut lost = Vec::new();
        for (ring, evd) in [(&side.requests, &side.request_evd), (&side.recvs, &side.recv_evd)] {
            if let Some(evd) = evd
                && !self.flush_ring(ring, evd)
            {
                lost.push(evd.id());
            }
        }
        detach(control);
        side.eager = false;
        drop(side);
        if let Some(ia) = self.owner.upgrade() {
            for evd in lost {
                ia.raise(evd, AsyncReason::EvdOverflow);
            }
            if took_receives && ia.rules == Rules::Reference {
                ia.raise(self.id, AsyncReason::EpTransferToError);
            }
            ia.pending_memory.release();
        }
        deferred
    }

    /// `false`: some did not fit.
    fn flush_ring(&self, ring: &Arc<WorkRing>, evd: &Evd) -> bool {
        let mut core = evd.0.core.lock();
        let before = core.notifications;
        let mut all_fit = true;
        while let Some(work) = ring.flush_one() {
            let data = ring.event(self.id, work, DtoStatus::Flushed, 0, 0);
            let event = Event { evd: evd.id(), data };
            all_fit &= core.push(Queued { event, notify: true, _held: None });
        }
        if core.notifications > before {
            evd.0.notified(&core);
        }
        let wake = core.armed;
        drop(core);
        if wake {
            evd.0.signal();
        }
        all_fit
    }

    /// Ends it in any state, without an event. Completions that are queued stay, none is added. `false`: it was ended
    /// before.
    pub(crate) fn end(self: &Arc<EpInner>) -> bool {
        let mut control = self.control.lock();
        if std::mem::replace(&mut control.freed, true) {
            return false;
        }
        let mut deferred = DeferredList::new();
        {
            let mut side = self.post.lock();
            if let Some(channel) = side.channel.take() {
                channel.disconnect();
                for evd in distinct(&side.request_evd, &side.recv_evd) {
                    evd.0.drain(&mut evd.0.core.lock(), &mut deferred);
                }
            }
            side.forget_stored();
            self.enter(&mut control, &mut side, EpState::Disconnected);
            for (ring, evd) in [(&side.requests, &side.request_evd), (&side.recvs, &side.recv_evd)] {
                let mut core = evd.as_ref().map(|evd| evd.0.core.lock());
                ring.set_early(false);
                if let Some(core) = &mut core {
                    core.release_early(self.id);
                }
                while ring.flush_one().is_some() {}
            }
            detach(&mut control);
            side.freed = true;
            side.request_evd = None;
            side.recv_evd = None;
        }
        let attr = control.attr.clone();
        let mut wiring = std::mem::take(&mut control.wiring);
        let _ = super::attr::rewire(self.id, &mut wiring, &attr, &attr, Wiring::default());
        control.pz = None;
        self.forget_attempt(&control);
        drop(control);
        if let Some(ia) = self.owner.upgrade() {
            ia.objects.lock().eps.remove(&self.id);
            ia.count(IaCounter::EpFree);
            ia.pending_memory.release();
            ia.later(deferred);
        }
        true
    }
}

impl PostSide {
    /// Flushes what was just posted on a disconnected endpoint. `false`, and nothing is posted: the dispatcher is full.
    /// While the channel still holds buffers, the post waits in the ring: it is flushed with them, in post order.
    #[cold]
    pub(super) fn flush_now(&self, ep: &EpInner, request: bool) -> bool {
        if self.channel.is_some() {
            return true;
        }
        let (ring, evd) = match request {
            true => (&self.requests, &self.request_evd),
            false => (&self.recvs, &self.recv_evd),
        };
        let fits = match evd {
            Some(evd) => !evd.0.core.lock().is_full() && ep.flush_ring(ring, evd),
            None => false,
        };
        if !fits {
            // Lost between the two looks, or never tried. It leaves the ring; the caller takes a bind's window back.
            ring.flush_one();
        }
        fits
    }
}

fn distinct(a: &Option<Evd>, b: &Option<Evd>) -> Vec<Evd> {
    let mut out: Vec<Evd> = a.iter().cloned().collect();
    if let Some(b) = b
        && out.iter().all(|known| known.id() != b.id())
    {
        out.push(b.clone());
    }
    out
}
