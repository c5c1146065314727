//! Events from completions: one, a list, or all there are.

use dat_plugin::{Completion, CompletionFlag, CompletionStatus};
use dat_types::{BreakReason, CompletionFlags, DtoCompletion, DtoOperation, DtoStatus, Event, EventData};

use super::completions::{EXTRA, Next};
use super::core::{BATCH, CompletionSource, Core, Queued};
use super::inner::EvdInner;
use crate::base::deferred::{DeferredList, Incident};
use crate::base::ring::Work;
use crate::base::status_map;

impl EvdInner {
    /// Whether the oldest event is the provider's oldest completion.
    #[inline]
    pub(super) fn is_direct(core: &Core) -> bool {
        !core.is_overcommitted() && core.events.is_empty()
    }

    /// The oldest event, queued or of a completion. `first` is a completion that was taken already; there is one only
    /// if no event was queued.
    pub(super) fn next_event(
        &self,
        core: &mut Core,
        first: Option<Next>,
        deferred: &mut DeferredList,
    ) -> Option<Event> {
        let before = core.stale;
        let mut next = match first {
            Some(next) => next,
            None => {
                if core.is_overcommitted() {
                    self.drain(core, deferred);
                }
                if !core.events.is_empty() {
                    return core.pop();
                }
                core.next()
            }
        };
        loop {
            match next {
                Next::Completion(done) => return Some(Event { evd: self.id, data: EventData::Dto(done) }),
                Next::Empty => return None,
                Next::Other(work) => {
                    if let Some(queued) = self.finish(core, work, deferred) {
                        if queued.notify {
                            self.notified(core);
                        }
                        return Some(queued.event);
                    }
                }
            }
            if core.is_flooded(before) {
                return None;
            }
            next = core.next();
        }
    }

    /// Completions, oldest first, up to the first event of another kind, until `out` is full; it does not grow.
    pub(super) fn next_completions(
        &self,
        core: &mut Core,
        out: &mut Vec<DtoCompletion>,
        deferred: &mut DeferredList,
    ) {
        if core.is_overcommitted() {
            self.drain(core, deferred);
        }
        let (before, stale) = (out.len(), core.stale);
        while out.len() < out.capacity() {
            if let Some(queued) = core.events.front() {
                let EventData::Dto(done) = queued.event.data else { return };
                out.push(done);
                core.pop();
                continue;
            }
            // One call into the provider, unless all it gave was suppressed.
            if !core.has_raw() && (out.len() != before || core.is_flooded(stale)) {
                return;
            }
            match core.next() {
                Next::Completion(done) => out.push(done),
                Next::Empty => return,
                Next::Other(work) => {
                    if let Some(queued) = self.finish(core, work, deferred) {
                        if queued.notify {
                            self.notified(core);
                        }
                        // Taken at once, or left for the call that takes its kind.
                        core.append(queued);
                    }
                }
            }
        }
    }

    /// Takes all completions there are and queues their events. What does not fit breaks its endpoint.
    pub(crate) fn drain(&self, core: &mut Core, deferred: &mut DeferredList) {
        self.drain_to(core, deferred, usize::MAX);
    }

    /// Takes completions until `wanted` events are queued, then further ones while there is room for all work the
    /// sources may have outstanding: all of that may be flushed later.
    pub(crate) fn drain_to(&self, core: &mut Core, deferred: &mut DeferredList, wanted: usize) {
        let before = core.notifications;
        self.drain_while_room(core, deferred, wanted);
        if wanted > 0 && core.events.len() >= wanted && core.notifications == 0 {
            // Enough events, but none notifies: an event behind them may.
            self.drain_while_room(core, deferred, usize::MAX);
        }
        // A thread that sleeps here sleeps on the provider's descriptor, which does not signal what was taken just now.
        if core.notifications > before {
            if core.armed {
                self.signal();
            }
            self.notified(core);
        }
    }

    fn drain_while_room(&self, core: &mut Core, deferred: &mut DeferredList, wanted: usize) {
        let before = core.stale;
        loop {
            let queued = core.events.len();
            let room = match core.is_overcommitted() {
                true => BATCH,
                false => BATCH.min(core.headroom().max(wanted.min(core.qlen).saturating_sub(queued))),
            };
            // Until there is none: fewer than fit does not mean that there are no more.
            if room == 0 || core.is_flooded(before) || !(core.has_raw() || core.refill()) {
                return;
            }
            for _ in 0..room.min(core.filled - core.taken) {
                let Some(taken) = core.take() else { break };
                let (user, work) = (taken.completion.user, taken.work);
                if let Some(queued) = self.finish(core, work, deferred)
                    && !core.push(queued)
                    && let Some(source) = core.source(user)
                {
                    deferred.push(source.deferred(Incident::Overflow { evd: self.id }));
                }
            }
        }
    }

    /// Makes the event of the completion taken last, unless it is suppressed, and does what else comes of it.
    pub(super) fn finish(
        &self,
        core: &mut Core,
        work: Option<Work>,
        deferred: &mut DeferredList,
    ) -> Option<Queued> {
        let completion = core.batch[core.taken - 1];
        let Some(source) = core.source(completion.user) else {
            // Of a channel that was closed: its work was flushed.
            core.stale += 1;
            return None;
        };
        let mut held = None;
        let work = work.or_else(|| {
            let (cookie, unreaped) = source.srq.as_ref()?.0.complete(completion.token)?;
            held = Some(unreaped);
            Some(Work { cookie, operation: DtoOperation::Receive, flags: CompletionFlags::empty() })
        });
        let Some(mut work) = work else {
            core.poison_source(&completion, deferred);
            return None;
        };
        let success = completion.status == CompletionStatus::SUCCESS;
        if source.ring.is_draining() && source.ring.outstanding() == 0 {
            deferred.push(source.deferred(Incident::Drained));
        }
        let early = source.ring.is_early();
        if early {
            deferred.push(source.deferred(Incident::Early));
        }
        let status = if success { DtoStatus::Success } else { status_map::completed(completion.status) };
        if !success {
            source.ring.set_failed(status);
            deferred.push(source.deferred(Incident::Broken(BreakReason::Operation(status))));
        } else if work.flags.contains(CompletionFlags::SUPPRESS) {
            return None;
        }
        let notify = !success || notifies(source, &work, &completion);
        if work.operation == DtoOperation::Receive && success {
            if completion.flags.0 & EXTRA.0 != 0 {
                work.operation = received(&completion);
                if work.operation == DtoOperation::ReceiveWithInvalidate {
                    deferred.push(source.deferred(Incident::WindowEnded { context: completion.imm }));
                }
            }
            source.received.add(work.operation, completion.length.into());
        }
        let id = source.id;
        let data = source.ring.event(id, work, status, completion.length.into(), completion.imm);
        let queued = Queued { event: Event { evd: self.id, data }, notify, _held: held };
        if early {
            core.early.push((id, queued));
            return None;
        }
        Some(queued)
    }
}

/// Whether a success notifies.
fn notifies(source: &CompletionSource, work: &Work, completion: &Completion) -> bool {
    match source.ring.mode {
        CompletionFlags::UNSIGNALLED => !work.flags.contains(CompletionFlags::UNSIGNALLED),
        CompletionFlags::SOLICITED_WAIT if work.operation == DtoOperation::Receive => {
            completion.flags.contains(CompletionFlag::SOLICITED)
        }
        _ => true,
    }
}

#[cold]
fn received(completion: &Completion) -> DtoOperation {
    if completion.flags.contains(CompletionFlag::INVALIDATED) {
        DtoOperation::ReceiveWithInvalidate
    } else if completion.flags.contains(CompletionFlag::WRITTEN) {
        DtoOperation::RecvImmed
    } else {
        DtoOperation::RecvMsgImmed
    }
}
