//! Endpoints as the layers below them know them, and what taking completions finds out about them. That is acted on
//! later, when no dispatcher's lock is held.

use std::sync::Arc;

use dat_types::{BreakReason, ObjectId};

use super::ring::WorkRing;
use super::states::Stimulus;

/// What happened to an endpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Incident {
    /// The connection breaks.
    Broken(BreakReason),
    /// A graceful disconnect may have drained.
    Drained,
    /// A completion came before the event that the connection is up. The event has to go first.
    Early,
    /// A peer's message ended the memory window of this context.
    WindowEnded { context: u32 },
    /// A completion did not fit on its dispatcher: the connection breaks, the async dispatcher reports it.
    Overflow { evd: ObjectId },
}

/// An endpoint as dispatchers know it.
pub(crate) trait Endpoint: Send + Sync {
    /// Something happened to this connection attempt. Gives what is to be handled next.
    fn stimulate(self: Arc<Self>, attempt: u64, stimulus: Stimulus, data: &[u8]) -> DeferredList;

    /// The outstanding work of both directions: requests, receives.
    fn rings(&self) -> [Arc<WorkRing>; 2];

    /// Whether its receives come out of this shared queue.
    fn uses(&self, srq: ObjectId) -> bool;

    /// Takes completions of receives that the provider has.
    fn take_receives(&self, deferred: &mut DeferredList);

    /// Whether it belongs to a request that was not decided yet.
    fn is_tentative(&self) -> bool;

    /// Ends it in any state, without an event.
    fn kill(self: Arc<Self>);

    /// Acts on an incident of this connection attempt, without a lock held. Gives what is to be handled next.
    fn handle(self: Arc<Self>, attempt: u64, incident: Incident) -> DeferredList;

    /// Has the provider report successes of unsignalled work.
    fn report_unsignalled(&self);
}

/// An incident to be handled.
pub(crate) struct Deferred {
    pub(crate) ep: Arc<dyn Endpoint>,
    /// The connection attempt it belongs to.
    pub(crate) attempt: u64,
    pub(crate) incident: Incident,
}

/// A list of them; empty and unallocated in all ordinary cases.
pub(crate) type DeferredList = Vec<Deferred>;

/// Handles them all, and those that come of it. No lock is held.
pub(crate) fn run(mut list: DeferredList) {
    while let Some(Deferred { ep, attempt, incident }) = list.pop() {
        list.extend(ep.handle(attempt, incident));
    }
}
