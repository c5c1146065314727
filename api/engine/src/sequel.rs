//! What taking completions turns up but cannot do on the spot, because the lock order forbids it there.

use std::sync::Arc;

use crate::ep::EpInner;

/// Something to be done to an endpoint once no dispatcher's lock is held.
pub(crate) enum Sequel {
    /// A transfer failed: the connection breaks.
    Broken { ep: Arc<EpInner>, attempt: u64 },
    /// A graceful disconnect may have drained.
    Drained { ep: Arc<EpInner>, attempt: u64 },
    /// A completion came before the event that the connection is up, which has to go first.
    Early { ep: Arc<EpInner>, attempt: u64 },
    /// A peer's message ended the memory window of this context.
    WindowEnded { ep: Arc<EpInner>, context: u32 },
    /// A completion did not fit on its dispatcher: the connection breaks, the async dispatcher is told.
    Overflow { ep: Arc<EpInner>, attempt: u64, evd: dat_types::ObjectId },
}

/// A list of them; empty and unallocated in all ordinary cases.
pub(crate) type Sequels = Vec<Sequel>;

/// Does them all, and what they turn up in turn.
pub(crate) fn perform(mut list: Sequels) {
    while let Some(sequel) = list.pop() {
        let more = match sequel {
            Sequel::Broken { ep, attempt } => ep.on_broken(attempt),
            Sequel::Drained { ep, attempt } => ep.on_maybe_drained(attempt),
            Sequel::Early { ep, attempt } => ep.on_early_completion(attempt),
            Sequel::WindowEnded { ep, context } => {
                ep.on_window_ended(context);
                Sequels::new()
            }
            Sequel::Overflow { ep, attempt, evd } => {
                ep.on_overflow(evd);
                ep.on_broken(attempt)
            }
        };
        list.extend(more);
    }
}
