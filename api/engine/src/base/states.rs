//! The state machine of an endpoint, as tables (spec: endpoint).
//!
//! Every call asks [`verdict`] what it may do, every stimulus from below asks [`after`] where it leads. The same tables
//! are printed to `docs/ep-states.md`; a test keeps the file equal to them.

use std::fmt::Write as _;

use dat_types::{ConnectionKind, EpState};

use EpState::{
    ActiveConnectionPending as Act, CompletionPending as Cmp, Connected as Con, DisconnectPending as Dpn,
    Disconnected as Dis, PassiveConnectionPending as Pas, Reserved as Res, Unconnected as Unc,
};
use Verdict::{Destroy, Flush, InvalidHandle, InvalidState as IS, NoEffect, Ok, To};

/// What a consumer can do to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Operation {
    /// Connect, in any of its forms.
    Connect,
    /// Being the connected example of a `dup_connect`.
    DupSource,
    /// Disconnect at once.
    DisconnectAbrupt,
    /// Disconnect after outstanding requests.
    DisconnectGraceful,
    /// Back to where it started.
    Reset,
    /// Free.
    Free,
    /// Reserve it with a reserved service point.
    Reserve,
    /// Free that service point.
    Unreserve,
    /// A request arrives that holds it.
    Hold,
    /// Reject or hand off the request that holds it.
    Release,
    /// Accept a request that has no endpoint, naming this one.
    AcceptNamed,
    /// Accept the request that holds this endpoint.
    AcceptHeld,
    /// Post a receive.
    PostRecv,
    /// Post a send, write, read or bind.
    PostRequest,
    /// Modify the protection zone.
    ModifyPz,
    /// Modify event dispatchers and attributes.
    ModifyAttr,
    /// Modify transport and provider specific lists.
    ModifyLists,
}

/// What an operation does in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Allowed; the state stays.
    Ok,
    /// Allowed; leads there, possibly by way of an event.
    To(EpState),
    /// Success without effect.
    NoEffect,
    /// Accepted and flushed at once.
    Flush,
    /// The endpoint is gone.
    Destroy,
    /// `DAT_INVALID_STATE`.
    InvalidState,
    /// `DAT_INVALID_HANDLE`.
    InvalidHandle,
}

const ROWS: [(Operation, &str, [Verdict; 9]); 17] = [
    //                                                          UNC      RES PAS            TEN            ACT      CMP      CON      DPN       DIS
    (Operation::Connect, "connect", [To(Act), IS, IS, IS, IS, IS, IS, IS, IS]),
    (Operation::DupSource, "dup_connect, as the example", [IS, IS, IS, IS, IS, IS, Ok, IS, IS]),
    (
        Operation::DisconnectAbrupt,
        "disconnect abrupt",
        [IS, IS, IS, IS, To(Dis), To(Dis), To(Dis), To(Dis), NoEffect],
    ),
    (
        Operation::DisconnectGraceful,
        "disconnect graceful",
        [IS, IS, IS, IS, To(Dis), To(Dis), To(Dpn), NoEffect, NoEffect],
    ),
    (Operation::Reset, "reset", [NoEffect, IS, IS, IS, IS, IS, IS, IS, To(Unc)]),
    (Operation::Free, "free", [Destroy, IS, IS, IS, Destroy, Destroy, Destroy, Destroy, Destroy]),
    (Operation::Reserve, "rsp_create naming it", [To(Res), IS, IS, IS, IS, IS, IS, IS, IS]),
    (Operation::Unreserve, "rsp_free of its service point", [Ok, To(Unc), Ok, Ok, Ok, Ok, Ok, Ok, Ok]),
    (Operation::Hold, "a request that holds it arrives", [IS, To(Pas), IS, Ok, IS, IS, IS, IS, IS]),
    (
        Operation::Release,
        "cr_reject, cr_handoff of the request that holds it",
        [IS, IS, To(Unc), Destroy, IS, IS, IS, IS, IS],
    ),
    (
        Operation::AcceptNamed,
        "cr_accept naming it",
        [To(Cmp), IS, InvalidHandle, InvalidHandle, IS, IS, IS, IS, IS],
    ),
    (
        Operation::AcceptHeld,
        "cr_accept of the request that holds it",
        [IS, IS, To(Cmp), To(Cmp), IS, IS, IS, IS, IS],
    ),
    (Operation::PostRecv, "post_recv", [Ok, Ok, Ok, Ok, Ok, Ok, Ok, Ok, Flush]),
    (
        Operation::PostRequest,
        "post_send, post_rdma_write, post_rdma_read",
        [IS, IS, IS, IS, IS, IS, Ok, IS, Flush],
    ),
    (Operation::ModifyPz, "modify protection zone", [Ok, IS, IS, Ok, IS, IS, IS, IS, IS]),
    (Operation::ModifyAttr, "modify event dispatchers, attributes", [Ok, Ok, Ok, Ok, IS, IS, IS, IS, IS]),
    (Operation::ModifyLists, "modify transport and provider lists", [Ok, IS, IS, IS, IS, IS, IS, IS, IS]),
];

/// What happens to an endpoint from below, or when a time is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stimulus {
    /// The transport says the connection is up.
    Established,
    /// The peer's consumer refused.
    PeerRejected,
    /// Something else refused.
    Refused,
    /// The peer cannot be reached.
    Unreachable,
    /// The consumer's time is up.
    TimeUp,
    /// The accept came to nothing.
    AcceptFailed,
    /// The last request of a graceful disconnect completed.
    Drained,
    /// The peer disconnected.
    PeerDisconnected,
    /// The connection broke, or a transfer failed.
    Broke,
}

const STIMULI: &[(EpState, Stimulus, EpState, ConnectionKind)] = &[
    (Act, Stimulus::Established, Con, ConnectionKind::Established),
    (Act, Stimulus::PeerRejected, Dis, ConnectionKind::PeerRejected),
    (Act, Stimulus::Refused, Dis, ConnectionKind::NonPeerRejected),
    (Act, Stimulus::PeerDisconnected, Dis, ConnectionKind::NonPeerRejected),
    (Act, Stimulus::Broke, Dis, ConnectionKind::NonPeerRejected),
    (Act, Stimulus::Unreachable, Dis, ConnectionKind::Unreachable),
    (Act, Stimulus::TimeUp, Dis, ConnectionKind::TimedOut),
    (Cmp, Stimulus::Established, Con, ConnectionKind::Established),
    (Cmp, Stimulus::AcceptFailed, Dis, ConnectionKind::AcceptCompletionError),
    (Cmp, Stimulus::PeerDisconnected, Dis, ConnectionKind::AcceptCompletionError),
    (Cmp, Stimulus::Broke, Dis, ConnectionKind::AcceptCompletionError),
    (Con, Stimulus::PeerDisconnected, Dis, ConnectionKind::Disconnected),
    (Con, Stimulus::Broke, Dis, ConnectionKind::Broken),
    (Dpn, Stimulus::Drained, Dis, ConnectionKind::Disconnected),
    (Dpn, Stimulus::PeerDisconnected, Dis, ConnectionKind::Disconnected),
    (Dpn, Stimulus::Broke, Dis, ConnectionKind::Broken),
];

/// What `operation` does in `state`.
pub fn verdict(operation: Operation, state: EpState) -> Verdict {
    match EpState::USED.iter().position(|used| *used == state) {
        Some(column) => ROWS[operation as usize].2[column],
        None => IS,
    }
}

/// Where `stimulus` leads from `state`, and with which event; `None`: it means nothing there.
pub fn after(state: EpState, stimulus: Stimulus) -> Option<(EpState, ConnectionKind)> {
    STIMULI
        .iter()
        .find(|(from, what, ..)| *from == state && *what == stimulus)
        .map(|(_, _, to, event)| (*to, *event))
}

/// Both tables as Markdown: the content of `docs/ep-states.md`.
pub fn print() -> String {
    let mut out = String::from(
        "# Endpoint states\n\n`cargo xtask docs` generates this page from `api/engine/src/base/states.rs`; a test compares \
         them. The [specification](spec/endpoint.md#states) describes the states.\n\n- `ok`: allowed, the state stays.\n- \
         `>X`: allowed, leads to X.\n- `=`: success without effect.\n- `flush`: success and an immediate flushed \
         completion.\n- `x`: the endpoint ends.\n- `IS`: DAT_INVALID_STATE.\n- `IH`: DAT_INVALID_HANDLE.\n\n| operation |",
    );
    for state in EpState::USED {
        let _ = write!(out, " {} |", state.short());
    }
    out.push_str("\n|---|");
    out.push_str(&"---|".repeat(EpState::USED.len()));
    out.push('\n');
    for (_, name, row) in &ROWS {
        let _ = write!(out, "| {name} |");
        for verdict in row {
            let _ = match verdict {
                Ok => write!(out, " ok |"),
                To(state) => write!(out, " >{} |", state.short()),
                NoEffect => write!(out, " = |"),
                Flush => write!(out, " flush |"),
                Destroy => write!(out, " x |"),
                IS => write!(out, " IS |"),
                InvalidHandle => write!(out, " IH |"),
            };
        }
        out.push('\n');
    }
    out.push_str(
        "\n## Events of the provider\n\nEach connection and each attempt has exactly one terminal event. On entry to DIS \
         outstanding work is flushed first.\n\n| from | stimulus | to | event |\n|---|---|---|---|\n",
    );
    for (from, stimulus, to, event) in STIMULI {
        let _ = writeln!(out, "| {} | {stimulus:?} | {} | {event:?} |", from.short(), to.short());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_enumeration() {
        for (index, (operation, ..)) in ROWS.iter().enumerate() {
            assert_eq!(*operation as usize, index);
        }
    }

    #[test]
    fn every_attempt_and_connection_can_end() {
        for state in [Act, Cmp, Con, Dpn] {
            let to_end = after(state, Stimulus::Broke).map(|(to, _)| to);
            assert_eq!(to_end, Some(Dis), "{state}");
            assert_eq!(verdict(Operation::DisconnectAbrupt, state), To(Dis), "{state}");
            assert_eq!(verdict(Operation::Free, state), Destroy, "{state}");
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "reads a file of the repository")]
    fn the_printed_form_is_docs_ep_states_md() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ep-states.md");
        if std::env::var_os("DAT_WRITE_DOCS").is_some() {
            std::fs::write(path, print()).expect("docs/ep-states.md can be written");
        }
        let file = std::fs::read_to_string(path).unwrap_or_default();
        assert!(file == print(), "docs/ep-states.md is out of date; run `cargo xtask docs`");
    }
}
