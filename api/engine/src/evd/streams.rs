//! Which streams feed a dispatcher, and which may do so together (spec: endpoint, K-7 to K-9).

use std::collections::HashMap;

use dat_types::{CompletionFlags, EvdFlags, ObjectId};

use crate::adapter::inner::Rules;

/// What a dispatcher is, as far as that limits its streams.
pub(super) struct Feeds {
    pub(super) evd: ObjectId,
    pub(super) flags: EvdFlags,
    pub(super) rules: Rules,
    /// It takes the asynchronous errors of an adapter.
    pub(super) pinned: bool,
}

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
pub(super) fn normal(mode: CompletionFlags) -> CompletionFlags {
    if mode.is_empty() { CompletionFlags::EVD_THRESHOLD } else { mode }
}

/// All streams of a dispatcher. Counted as they come and go: thousands of endpoints may share one.
#[derive(Default)]
pub(crate) struct Streams {
    pub(super) of: HashMap<ObjectId, Vec<Stream>>,
    pub(super) totals: Totals,
}

/// How many streams there are of each sort. By the specification those of completions all have one mode (K-7).
#[derive(Clone, Copy, Default)]
pub(super) struct Totals {
    all: usize,
    dto: usize,
    requests: usize,
    pub(super) unsignalled: usize,
    pub(super) solicited: usize,
}

impl Totals {
    fn count(&mut self, stream: &Stream) {
        self.all += 1;
        if stream.is_dto() {
            self.dto += 1;
            self.unsignalled += (stream.mode == CompletionFlags::UNSIGNALLED) as usize;
            self.solicited += (stream.mode == CompletionFlags::SOLICITED_WAIT) as usize;
        }
        self.requests += (stream.kind == StreamKind::Request) as usize;
    }

    fn forget(&mut self, stream: &Stream) {
        self.all -= 1;
        if stream.is_dto() {
            self.dto -= 1;
            self.unsignalled -= (stream.mode == CompletionFlags::UNSIGNALLED) as usize;
            self.solicited -= (stream.mode == CompletionFlags::SOLICITED_WAIT) as usize;
        }
        self.requests -= (stream.kind == StreamKind::Request) as usize;
    }

    /// The mode of all completions. Streams of several modes count as the threshold mode.
    pub(super) fn mode(&self) -> CompletionFlags {
        match self.dto {
            0 => CompletionFlags::EVD_THRESHOLD,
            all if all == self.unsignalled => CompletionFlags::UNSIGNALLED,
            all if all == self.solicited => CompletionFlags::SOLICITED_WAIT,
            _ => CompletionFlags::EVD_THRESHOLD,
        }
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
    pub(super) fn with(&self, feeds: &Feeds, source: ObjectId, streams: &[Stream]) -> Result<Totals, String> {
        let mut totals = self.totals;
        let strict = feeds.rules == Rules::Specification;
        for stream in self.of.get(&source).into_iter().flatten() {
            totals.forget(stream);
        }
        for stream in streams {
            if strict && stream.is_dto() && totals.dto > 0 && stream.mode != totals.mode() {
                return Err(format!(
                    "event dispatcher {} takes completions with {:?} from one endpoint and {:?} from another; all \
                     must use the same flag",
                    feeds.evd,
                    totals.mode(),
                    stream.mode
                ));
            }
            totals.count(stream);
        }
        if totals.dto == 0 {
            return Ok(totals);
        }
        let others = feeds.flags.contains(EvdFlags::SOFTWARE) || feeds.pinned || totals.all > totals.dto;
        if strict && others && totals.mode() != CompletionFlags::EVD_THRESHOLD {
            return Err(format!(
                "event dispatcher {} also takes other events than completions, so completions must use \
                 EVD_THRESHOLD and not {:?}",
                feeds.evd,
                totals.mode()
            ));
        }
        if totals.solicited > 0 && totals.requests > 0 {
            return Err(format!(
                "event dispatcher {} takes receives with SOLICITED_WAIT, so no requests may feed it",
                feeds.evd
            ));
        }
        Ok(totals)
    }
}
