//! Errors of a connection, in words.

use dat::{ConnectionKind, Event};

use crate::failure::Failure;

/// The reason of a failed operation: the connection's event, if there is one.
#[cold]
pub(super) fn failed(status: dat::DtoStatus, event: Option<&Event>) -> Failure {
    match event {
        Some(event) => Failure::new(describe(event)),
        None => {
            Failure::new(format!("the operation failed with {status:?} and the connection is still there"))
        }
    }
}

pub(super) fn describe(event: &Event) -> String {
    match event {
        Event::Connection { kind: ConnectionKind::Broken, .. } => {
            "the peer is gone: the connection is BROKEN; its process has ended, or the way to it was lost"
                .into()
        }
        Event::Connection { kind: ConnectionKind::Disconnected, .. } => {
            "the peer is gone: it has disconnected (DISCONNECTED); did its process end?".into()
        }
        Event::Connection { kind, .. } => format!("{kind:?}"),
        other => format!("{other:?}"),
    }
}
