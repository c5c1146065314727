//! How connections end.

use dat_types::{BreakReason, ConnectionKind};

/// How a connection or an attempt ends.
#[derive(Clone, Copy)]
pub(super) struct Ending {
    pub(super) kind: ConnectionKind,
    /// Why it breaks, if more is known than that the provider says so.
    pub(super) reason: Option<BreakReason>,
}

impl Ending {
    /// The consumer asked for it.
    pub(super) const ASKED: Ending = Ending { kind: ConnectionKind::Disconnected, reason: None };
}
