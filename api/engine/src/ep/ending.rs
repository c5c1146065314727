//! How connections end.

use dat_types::{BreakReason, ConnectionKind};

/// How a connection or an attempt ends.
pub(super) struct Ending {
    /// The event that reports it; `None`: no event does.
    pub(super) kind: Option<ConnectionKind>,
    /// Why it breaks, if the reason is known.
    pub(super) reason: Option<BreakReason>,
    /// The consumer asked for it just now.
    pub(super) asked: bool,
    /// The peer's private data.
    pub(super) data: Box<[u8]>,
}

impl Ending {
    /// The consumer asked for it.
    pub(super) fn asked() -> Ending {
        Ending { asked: true, ..Ending::of(ConnectionKind::Disconnected, None, &[]) }
    }

    /// The consumer never learned of the connection. So it does not learn of the end either.
    pub(super) fn silent() -> Ending {
        Ending { kind: None, reason: None, asked: false, data: Box::default() }
    }

    /// Something else ends it.
    pub(super) fn of(kind: ConnectionKind, reason: Option<BreakReason>, data: &[u8]) -> Ending {
        Ending { kind: Some(kind), reason, asked: false, data: data.into() }
    }
}
