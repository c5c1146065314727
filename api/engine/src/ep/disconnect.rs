//! Ending connections: disconnect, loss, free. One way down for all of them, so that the order is always the same:
//! the channel stops, finished work completes, the rest is flushed, then the event.

use std::sync::Arc;

use dat_plugin::Status;
use dat_types::{AsyncReason, CloseFlags, ConnectionKind, DtoStatus, EpState, Event, IaCounter, Result};

use super::connect::{detach, settle};
use super::post::PostSide;
use super::ring::WorkRing;
use super::states::{Operation, Stimulus, Verdict, verdict};
use super::{Control, Ep, EpInner, attr::Wiring};
use crate::evd::{Core, Evd, Queued};
use crate::sequel::{Sequel, Sequels};

impl Ep {
    /// `dat_ep_disconnect`. Abrupt: outstanding work is flushed. Graceful: after outstanding requests completed.
    pub fn disconnect(&self, flags: CloseFlags) -> Result<()> {
        const CALL: &str = "dat_ep_disconnect";
        let mut control = self.0.control(CALL)?;
        let operation = match flags {
            CloseFlags::Abrupt => Operation::DisconnectAbrupt,
            CloseFlags::Graceful => Operation::DisconnectGraceful,
        };
        let sequels = match verdict(operation, control.state) {
            Verdict::NoEffect => Sequels::new(),
            // Stopping already; its one event is on the way.
            Verdict::To(_) if control.stopping.is_some() => Sequels::new(),
            Verdict::To(EpState::DisconnectPending) => self.0.drain(&mut control),
            Verdict::To(_) => {
                self.0.take_down(&mut control, Some((ConnectionKind::Disconnected, &[])), false)
            }
            _ => return Err(self.0.wrong_state(CALL, control.state)),
        };
        self.0.counts.disconnects.add(1);
        if let Some(ia) = self.0.owner.upgrade() {
            ia.count(IaCounter::CmDreqTx);
        }
        drop(control);
        settle(sequels);
        Ok(())
    }
}

impl EpInner {
    /// Graceful: no more requests; down at once if none is outstanding, else when the last completes.
    fn drain(self: &Arc<EpInner>, control: &mut Control) -> Sequels {
        let mut side = self.post.lock();
        self.enter(control, &mut side, EpState::DisconnectPending);
        let requests = side.requests.clone();
        if let Some(channel) = &side.channel {
            channel.settle();
        }
        drop(side);
        let mut sequels = Sequels::new();
        if let Some(evd) = control.wiring.request.clone() {
            evd.0.harvest(&mut evd.0.core.lock(), &mut sequels);
            if requests.outstanding() > 0
                && let Some(ia) = self.owner.upgrade()
            {
                // Whoever takes the last completion finishes it; the IA's thread looks too, in case nobody does.
                ia.progress.watch(&evd);
            }
        }
        sequels.push(Sequel::Drained { ep: self.clone(), attempt: control.attempt });
        sequels
    }

    /// Has the provider tell of what it kept silent.
    pub(crate) fn settle(&self) {
        if let Some(channel) = &self.post.lock().channel {
            channel.settle();
        }
    }

    /// A graceful disconnect may be through.
    pub(crate) fn on_maybe_drained(self: &Arc<EpInner>, attempt: u64) -> Sequels {
        let drained = {
            let control = self.control.lock();
            control.state == EpState::DisconnectPending && self.post.lock().requests.outstanding() == 0
        };
        match drained {
            true => self.on_stimulus(attempt, Stimulus::Drained, &[]),
            false => Sequels::new(),
        }
    }

    /// Down to DISCONNECTED, with this event; `unasked` unless the consumer asked for it just now. A provider that
    /// needs time to stop gets it: then the event comes when it has.
    pub(super) fn take_down(
        self: &Arc<EpInner>,
        control: &mut Control,
        event: Option<(ConnectionKind, &[u8])>,
        unasked: bool,
    ) -> Sequels {
        {
            let mut side = self.post.lock();
            let status = side.channel.as_ref().map_or(Status::OK, |channel| channel.disconnect());
            if status == Status::PENDING {
                control.stopping = Some(event.map_or(ConnectionKind::Disconnected, |(kind, _)| kind));
                self.enter(control, &mut side, EpState::DisconnectPending);
                return Sequels::new();
            }
        }
        let (mut kind, data) = match event {
            Some((kind, data)) => (Some(kind), data),
            None => (None, &[][..]),
        };
        let sequels = self.flush(control);
        // A transfer that failed means that the connection broke, whoever hung up first, and whoever took its completion.
        let own_failure = self.rings().iter().any(|ring| ring.has_failed());
        if own_failure && unasked && kind == Some(ConnectionKind::Disconnected) {
            kind = Some(ConnectionKind::Broken);
        }
        self.forget_attempt(control);
        if let Some(kind) = kind {
            self.report(control, kind, data);
        }
        sequels
    }

    /// The channel that took its time has stopped.
    pub(super) fn finish_stop(self: &Arc<EpInner>, control: &mut Control) -> Sequels {
        let kind = control.stopping.take();
        let sequels = self.flush(control);
        self.forget_attempt(control);
        if let Some(kind) = kind {
            self.report(control, kind, &[]);
        }
        sequels
    }

    fn forget_attempt(&self, control: &Control) {
        if let Some(ia) = self.owner.upgrade() {
            ia.objects.lock().attempts.remove(&control.attempt);
        }
    }

    /// Completions of finished work first, then a flush of the rest, in post order for each direction. Posts wait
    /// meanwhile, so that theirs come after.
    fn flush(&self, control: &mut Control) -> Sequels {
        let mut sequels = Sequels::new();
        let mut side = self.post.lock();
        let channel = side.channel.take();
        let took_receives = channel.is_some() && self.srq.is_some();
        if let Some(channel) = channel {
            for evd in distinct(&side.request_evd, &side.recv_evd) {
                evd.0.harvest(&mut evd.0.core.lock(), &mut sequels);
            }
            drop(channel);
        }
        side.forget_stored();
        self.enter(control, &mut side, EpState::Disconnected);
        self.unpark(control);
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
            if took_receives && ia.tell_last_receive {
                ia.raise(self.id, AsyncReason::EpTransferToError);
            }
            ia.bury_the_dead();
        }
        sequels
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

    /// Ends it whatever its state, silently: completions queued stay, none is added, no event follows. `false`: somebody
    /// else did.
    pub(crate) fn kill(self: &Arc<EpInner>) -> bool {
        let mut control = self.control.lock();
        if std::mem::replace(&mut control.freed, true) {
            return false;
        }
        let mut sequels = Sequels::new();
        {
            let mut side = self.post.lock();
            if let Some(channel) = side.channel.take() {
                channel.disconnect();
                for evd in distinct(&side.request_evd, &side.recv_evd) {
                    evd.0.harvest(&mut evd.0.core.lock(), &mut sequels);
                }
            }
            side.forget_stored();
            self.enter(&mut control, &mut side, EpState::Disconnected);
            for (ring, evd) in [(&side.requests, &side.request_evd), (&side.recvs, &side.recv_evd)] {
                let mut core = evd.as_ref().map(|evd| evd.0.core.lock());
                if let Some(core) = &mut core {
                    core.unpark(self.id);
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
            ia.bury_the_dead();
            ia.later(sequels);
        }
        true
    }
}

impl PostSide {
    /// Flushes what was just posted on a disconnected endpoint. `false`, and nothing is posted: the dispatcher is full.
    #[cold]
    pub(super) fn flush_now(&self, ep: &EpInner, request: bool) -> bool {
        let (ring, evd) = match request {
            true => (&self.requests, &self.request_evd),
            false => (&self.recvs, &self.recv_evd),
        };
        let fits = match evd {
            Some(evd) => !evd.0.core.lock().is_full() && ep.flush_ring(ring, evd),
            None => false,
        };
        if !fits {
            // Lost between the two looks, or never tried; either way nothing of it is left in the ring, and a bind's
            // window is taken back by whoever posted it.
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

impl Core {
    /// Whether the IA's thread has a reason to look at it.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_overcommitted() || self.has_draining()
    }
}
