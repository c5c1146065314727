//! The endpoint as the layers below know it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_types::{AsyncReason, BreakReason, EpState, ObjectId};

use super::inner::EpInner;
use crate::base::deferred::{DeferredList, Endpoint, Incident};
use crate::base::ring::WorkRing;
use crate::base::states::Stimulus;

impl Endpoint for EpInner {
    fn stimulate(self: Arc<EpInner>, attempt: u64, stimulus: Stimulus, data: &[u8]) -> DeferredList {
        self.on_stimulus(attempt, stimulus, data)
    }

    fn rings(&self) -> [Arc<WorkRing>; 2] {
        self.post.lock().rings()
    }

    fn uses(&self, srq: ObjectId) -> bool {
        self.srq.as_ref().is_some_and(|own| own.id() == srq)
    }

    fn take_receives(&self, deferred: &mut DeferredList) {
        let evd = self.post.lock().recv_evd.clone();
        if let Some(evd) = evd {
            evd.0.drain(&mut evd.0.core.lock(), deferred);
        }
    }

    fn is_tentative(&self) -> bool {
        self.state.load(Ordering::Acquire) == EpState::TentativeConnectionPending as u8
    }

    fn kill(self: Arc<EpInner>) {
        self.end();
    }

    fn handle(self: Arc<EpInner>, attempt: u64, incident: Incident) -> DeferredList {
        match incident {
            Incident::Broken(reason) => self.on_break(attempt, reason),
            Incident::Drained => self.on_maybe_drained(attempt),
            Incident::Early => self.on_early_completion(attempt),
            Incident::WindowEnded { context } => {
                if let Some(ia) = self.owner.upgrade() {
                    ia.window_ended(context);
                }
                DeferredList::new()
            }
            Incident::Overflow { evd } => {
                if let Some(ia) = self.owner.upgrade() {
                    ia.raise(evd, AsyncReason::EvdOverflow);
                }
                self.on_break(attempt, BreakReason::Overflow(evd))
            }
        }
    }

    fn report_unsignalled(&self) {
        if let Some(channel) = &self.post.lock().channel {
            channel.settle();
        }
    }
}
