//! The way from a provider's completion to an event.
//!
//! [`Core::take`] takes a completion out of the batch and its work out of the ring. [`EvdInner::finish`] makes the event
//! and does all that may have to be done about it. One split: [`Core::next`] makes the event of a success that needs
//! nothing else, and leaves the rest to `finish`, which goes on where `next` stopped.
//!
//! [`EvdInner::finish`]: crate::evd::inner::EvdInner::finish

use dat_plugin::{Completion, CompletionFlag, CompletionStatus};
use dat_types::{BreakReason, CompletionFlags, DtoCompletion, DtoOperation, DtoStatus};

use super::core::{CompletionSource, Core, source_of};
use crate::base::deferred::{DeferredList, Incident};
use crate::base::ring::Work;

/// How many completions of closed channels one call passes over. A provider that has more does not stop; the caller then
/// sees an empty queue, so that it can check its deadline.
const MAX_STALE: u64 = 1 << 18;

/// A completion that was taken from the provider.
pub(super) enum Next {
    /// A success that needs nothing but its event.
    Completion(DtoCompletion),
    /// Any other, with the work it completed, if the ring had it. It is to be finished.
    Other(Option<Work>),
    /// The provider has none.
    Empty,
}

/// A completion that was taken out of the batch, and what it belongs to.
pub(super) struct Taken<'a> {
    pub(super) completion: &'a Completion,
    source: Option<&'a CompletionSource>,
    /// Taken out of the ring. `None`: the ring did not have it, or the receive came out of a shared queue.
    pub(super) work: Option<Work>,
    /// Events trigger a notification object.
    triggers: bool,
}

impl Core {
    /// Takes the oldest completion out of the batch, and its work out of the ring. `None`: the provider has none.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Option<Taken<'_>> {
        if self.taken == self.filled && !self.refill() {
            return None;
        }
        let completion = self.batch.get(self.taken)?;
        self.taken += 1;
        let source = source_of(&self.sources, completion.user);
        let work = match source {
            Some(source) if source.srq.is_none() => source.ring.complete(completion.token as u32),
            _ => None,
        };
        Some(Taken { completion, source, work, triggers: self.cno.is_some() })
    }

    /// Takes the oldest completion for the consumer.
    // `inline(always)` here and on `take`: 7 instructions of a completion, 11 of an empty poll.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Next {
        let Some(taken) = self.take() else { return Next::Empty };
        let (Some(source), Some(work)) = (taken.source, taken.work) else { return Next::Other(taken.work) };
        let completion = taken.completion;
        let plain = completion.status == CompletionStatus::SUCCESS
            && completion.flags.0 & EXTRA.0 == 0
            && work.operation != DtoOperation::BindMw
            && !work.flags.contains(CompletionFlags::SUPPRESS)
            && !source.ring.needs_care()
            && !taken.triggers;
        if !plain {
            return Next::Other(Some(work));
        }
        let Work { cookie, operation, .. } = work;
        let length = u64::from(completion.length);
        if operation == DtoOperation::Receive {
            source.received.add_plain(length);
        }
        let (ep, status, value) = (source.id, DtoStatus::Success, completion.imm);
        Next::Completion(DtoCompletion { ep, cookie, status, operation, length, value })
    }

    /// The provider completed what was not posted, or out of order. The connection breaks, and further completions of
    /// this direction are ignored.
    #[cold]
    pub(super) fn poison_source(&mut self, completion: &Completion, deferred: &mut DeferredList) {
        let Some(source) = self.source(completion.user) else { return };
        tracing::error!(
            ep = %source.id,
            token = completion.token,
            "the provider completed work that was not posted, or out of order; breaking the connection"
        );
        deferred.push(source.deferred(Incident::Broken(BreakReason::ProviderFault)));
        self.detach(completion.user);
    }

    /// Whether more stale completions came since there were `before` than a correct provider has.
    pub(super) fn is_flooded(&mut self, before: u64) -> bool {
        let flooded = self.stale - before > MAX_STALE;
        if flooded && !std::mem::replace(&mut self.reported_flood, true) {
            tracing::error!("the provider completes work of channels that do not exist, without end");
        }
        flooded
    }
}

/// Marks of a receive that was used by more than a message.
pub(super) const EXTRA: CompletionFlag =
    CompletionFlag(CompletionFlag::IMMEDIATE.0 | CompletionFlag::INVALIDATED.0 | CompletionFlag::WRITTEN.0);
