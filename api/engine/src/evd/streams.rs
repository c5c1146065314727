//! Which streams feed a dispatcher, and which may do so together (contract section 5.3, rules K-7 to K-9).

use dat_types::{CompletionFlags, EvdFlags, EvdState, ObjectId};

use super::{Core, EvdInner};

/// What feeds a dispatcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Completions of an endpoint's receives.
    Recv,
    /// Completions of an endpoint's requests.
    Request,
    /// Connection events of an endpoint.
    Connection,
    /// Connection requests of a service point.
    ServicePoint,
}

/// One feeder and its completion attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    pub(crate) source: ObjectId,
    pub(crate) kind: StreamKind,
    pub(crate) mode: CompletionFlags,
}

impl Stream {
    fn is_dto(&self) -> bool {
        matches!(self.kind, StreamKind::Recv | StreamKind::Request)
    }
}

/// The default is the threshold mode.
fn normal(mode: CompletionFlags) -> CompletionFlags {
    if mode.is_empty() { CompletionFlags::EVD_THRESHOLD } else { mode }
}

impl EvdInner {
    /// Adds streams of `source`, all or none, in place of those it had. The error says which rule forbids it.
    pub(crate) fn set_streams(
        &self,
        source: ObjectId,
        wanted: &[(StreamKind, CompletionFlags)],
    ) -> Result<(), String> {
        let mut core = self.core.lock();
        let mut streams: Vec<Stream> =
            core.streams.iter().filter(|stream| stream.source != source).copied().collect();
        streams.extend(wanted.iter().map(|(kind, mode)| Stream { source, kind: *kind, mode: normal(*mode) }));
        self.consistent(&streams)?;
        core.streams = streams;
        Ok(())
    }

    /// Whether [`EvdInner::set_streams`] would succeed.
    pub(crate) fn would_accept(
        &self,
        source: ObjectId,
        wanted: &[(StreamKind, CompletionFlags)],
    ) -> Result<(), String> {
        let core = self.core.lock();
        let others = core.streams.iter().filter(|stream| stream.source != source).copied();
        let new = wanted.iter().map(|(kind, mode)| Stream { source, kind: *kind, mode: normal(*mode) });
        self.consistent(&others.chain(new).collect::<Vec<_>>())
    }

    fn consistent(&self, streams: &[Stream]) -> Result<(), String> {
        let Some(first) = streams.iter().find(|stream| stream.is_dto()) else { return Ok(()) };
        if let Some(other) = streams.iter().find(|stream| stream.is_dto() && stream.mode != first.mode) {
            return Err(format!(
                "event dispatcher {} takes completions with {:?} from one endpoint and {:?} from another; all must \
                 use the same flag (K-7)",
                self.id, first.mode, other.mode
            ));
        }
        let others = self.flags.contains(EvdFlags::SOFTWARE) || streams.iter().any(|stream| !stream.is_dto());
        if others && first.mode != CompletionFlags::EVD_THRESHOLD {
            return Err(format!(
                "event dispatcher {} also takes other events than completions, so completions must use \
                 EVD_THRESHOLD and not {:?} (K-8)",
                self.id, first.mode
            ));
        }
        let request = streams.iter().any(|stream| stream.kind == StreamKind::Request);
        if first.mode == CompletionFlags::SOLICITED_WAIT && request {
            return Err(format!(
                "event dispatcher {} takes receives with SOLICITED_WAIT, so no requests may feed it (K-9)",
                self.id
            ));
        }
        Ok(())
    }
}

impl Core {
    /// The notification configuration as a query shows it.
    pub(crate) fn config(&self) -> EvdState {
        match self.streams.iter().find(|stream| stream.is_dto()).map(|stream| stream.mode) {
            Some(CompletionFlags::UNSIGNALLED) => EvdState::CONFIG_NOTIFY,
            Some(CompletionFlags::SOLICITED_WAIT) => EvdState::CONFIG_SOLICITED,
            _ => EvdState::CONFIG_THRESHOLD,
        }
    }
}
