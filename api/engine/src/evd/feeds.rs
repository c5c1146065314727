//! Adding and removing the streams that feed a dispatcher.

use dat_types::{CompletionFlags, EvdState, ObjectId};

use super::core::Core;
use super::inner::EvdInner;
use super::streams::{Feeds, Stream, StreamKind, Totals, normal};

impl EvdInner {
    fn feeds(&self) -> Feeds {
        Feeds { evd: self.id, flags: self.flags, rules: self.rules, pinned: self.is_pinned() }
    }

    /// Adds streams of `source`, all or none, in place of those it had. The error says which rule forbids it.
    pub(crate) fn set_streams(
        &self,
        source: ObjectId,
        wanted: &[(StreamKind, CompletionFlags)],
    ) -> Result<(), String> {
        let streams = streams_of(wanted);
        let mut core = self.core.lock();
        core.streams.totals = core.streams.with(&self.feeds(), source, &streams)?;
        match streams.is_empty() {
            true => core.streams.of.remove(&source),
            false => core.streams.of.insert(source, streams),
        };
        Ok(())
    }

    /// Whether [`EvdInner::set_streams`] would succeed.
    pub(crate) fn would_accept(
        &self,
        source: ObjectId,
        wanted: &[(StreamKind, CompletionFlags)],
    ) -> Result<(), String> {
        self.core.lock().streams.with(&self.feeds(), source, &streams_of(wanted)).map(drop)
    }
}

fn streams_of(wanted: &[(StreamKind, CompletionFlags)]) -> Vec<Stream> {
    wanted.iter().map(|(kind, mode)| Stream { kind: *kind, mode: normal(*mode) }).collect()
}

impl Core {
    /// Whether every completion that is not suppressed notifies.
    pub(crate) fn all_notify(&self) -> bool {
        let Totals { unsignalled, solicited, .. } = self.streams.totals;
        unsignalled + solicited == 0
    }

    /// The notification configuration as a query shows it.
    pub(crate) fn config(&self) -> EvdState {
        match self.streams.totals.mode() {
            CompletionFlags::UNSIGNALLED => EvdState::CONFIG_NOTIFY,
            CompletionFlags::SOLICITED_WAIT => EvdState::CONFIG_SOLICITED,
            _ => EvdState::CONFIG_THRESHOLD,
        }
    }
}
