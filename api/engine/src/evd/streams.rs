//! Which streams feed a dispatcher, and which may do so together (contract section 5.3, rules K-7 to K-9).

use std::collections::HashMap;

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

/// One stream and its completion attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
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

/// All streams of a dispatcher. Counted as they come and go: thousands of endpoints may share one.
#[derive(Default)]
pub(crate) struct Streams {
    of: HashMap<ObjectId, Vec<Stream>>,
    totals: Totals,
}

/// How many streams of which sort. Those of completions all have one mode (K-7).
#[derive(Clone, Copy, Default)]
struct Totals {
    all: usize,
    dto: usize,
    requests: usize,
    mode: CompletionFlags,
}

impl Totals {
    fn count(&mut self, stream: &Stream) {
        self.all += 1;
        if stream.is_dto() {
            self.dto += 1;
            self.mode = stream.mode;
        }
        self.requests += (stream.kind == StreamKind::Request) as usize;
    }

    fn forget(&mut self, stream: &Stream) {
        self.all -= 1;
        self.dto -= stream.is_dto() as usize;
        self.requests -= (stream.kind == StreamKind::Request) as usize;
    }
}

impl Streams {
    pub(crate) fn len(&self) -> usize {
        self.totals.all
    }

    pub(crate) fn clear(&mut self) {
        *self = Streams::default();
    }

    /// The totals with `streams` in place of those of `source`; the error says which rule forbids it.
    fn with(&self, evd: &EvdInner, source: ObjectId, streams: &[Stream]) -> Result<Totals, String> {
        let mut totals = self.totals;
        for stream in self.of.get(&source).into_iter().flatten() {
            totals.forget(stream);
        }
        for stream in streams {
            if stream.is_dto() && totals.dto > 0 && stream.mode != totals.mode {
                return Err(format!(
                    "event dispatcher {} takes completions with {:?} from one endpoint and {:?} from another; all \
                     must use the same flag (K-7)",
                    evd.id, totals.mode, stream.mode
                ));
            }
            totals.count(stream);
        }
        if totals.dto == 0 {
            return Ok(totals);
        }
        let others = evd.flags.contains(EvdFlags::SOFTWARE) || evd.is_pinned() || totals.all > totals.dto;
        if others && totals.mode != CompletionFlags::EVD_THRESHOLD {
            return Err(format!(
                "event dispatcher {} also takes other events than completions, so completions must use \
                 EVD_THRESHOLD and not {:?} (K-8)",
                evd.id, totals.mode
            ));
        }
        if totals.mode == CompletionFlags::SOLICITED_WAIT && totals.requests > 0 {
            return Err(format!(
                "event dispatcher {} takes receives with SOLICITED_WAIT, so no requests may feed it (K-9)",
                evd.id
            ));
        }
        Ok(totals)
    }
}

impl EvdInner {
    /// Adds streams of `source`, all or none, in place of those it had. The error says which rule forbids it.
    pub(crate) fn set_streams(
        &self,
        source: ObjectId,
        wanted: &[(StreamKind, CompletionFlags)],
    ) -> Result<(), String> {
        let streams = streams_of(wanted);
        let mut core = self.core.lock();
        core.streams.totals = core.streams.with(self, source, &streams)?;
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
        self.core.lock().streams.with(self, source, &streams_of(wanted)).map(drop)
    }
}

fn streams_of(wanted: &[(StreamKind, CompletionFlags)]) -> Vec<Stream> {
    wanted.iter().map(|(kind, mode)| Stream { kind: *kind, mode: normal(*mode) }).collect()
}

impl Core {
    /// The notification configuration as a query shows it.
    pub(crate) fn config(&self) -> EvdState {
        let totals = &self.streams.totals;
        match (totals.dto > 0).then_some(totals.mode) {
            Some(CompletionFlags::UNSIGNALLED) => EvdState::CONFIG_NOTIFY,
            Some(CompletionFlags::SOLICITED_WAIT) => EvdState::CONFIG_SOLICITED,
            _ => EvdState::CONFIG_THRESHOLD,
        }
    }
}
