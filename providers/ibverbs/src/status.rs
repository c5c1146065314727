//! Where the libraries' outcomes become the interface's: one table each way they come.
//!
//! Sources: `ibv_poll_cq(3)` and the InfiniBand architecture's section on completion return status for work
//! completions, `rdma_get_cm_event(3)` for connection events, and the InfiniBand architecture's table of reject reasons.

use std::ffi::c_int;
use std::io;

use dat_plugin::{CompletionStatus, EventKind, Failure, Status};
use rdma_sys::cm::*;
use rdma_sys::verbs::*;

/// Status of a work completion → of a completion. A flushed one has no row: it is not handed out.
pub(crate) const COMPLETED: [(c_int, CompletionStatus, &str); 23] = [
    (IBV_WC_SUCCESS, CompletionStatus::SUCCESS, "done"),
    (
        IBV_WC_LOC_LEN_ERR,
        CompletionStatus::LOCAL_LENGTH,
        "longer than the receive, or than the device's limit",
    ),
    (
        IBV_WC_LOC_QP_OP_ERR,
        CompletionStatus::LOCAL_CHANNEL,
        "the request is inconsistent with the queue pair",
    ),
    (IBV_WC_LOC_EEC_OP_ERR, CompletionStatus::TRANSPORT, "reliable datagrams only"),
    (IBV_WC_LOC_PROT_ERR, CompletionStatus::LOCAL_ACCESS, "a local segment cannot be accessed"),
    (IBV_WC_MW_BIND_ERR, CompletionStatus::WINDOW, "a window could not be bound"),
    (IBV_WC_BAD_RESP_ERR, CompletionStatus::BAD_RESPONSE, "the peer's answer makes no sense"),
    (IBV_WC_LOC_ACCESS_ERR, CompletionStatus::LOCAL_ACCESS, "a write with immediate data met a local fault"),
    (IBV_WC_REM_INV_REQ_ERR, CompletionStatus::REMOTE_ERROR, "the peer refused: its receive is too short"),
    (IBV_WC_REM_ACCESS_ERR, CompletionStatus::REMOTE_ACCESS, "key, range, right or domain at the peer"),
    (IBV_WC_REM_OP_ERR, CompletionStatus::REMOTE_ERROR, "the peer could not complete it"),
    (IBV_WC_RETRY_EXC_ERR, CompletionStatus::TRANSPORT, "the peer does not answer"),
    (IBV_WC_RNR_RETRY_EXC_ERR, CompletionStatus::NOT_READY, "the peer had no receive for too long"),
    (IBV_WC_LOC_RDD_VIOL_ERR, CompletionStatus::TRANSPORT, "reliable datagrams only"),
    (IBV_WC_REM_INV_RD_REQ_ERR, CompletionStatus::REMOTE_ERROR, "reliable datagrams only"),
    (IBV_WC_REM_ABORT_ERR, CompletionStatus::REMOTE_ERROR, "the peer gave up"),
    (IBV_WC_INV_EECN_ERR, CompletionStatus::TRANSPORT, "reliable datagrams only"),
    (IBV_WC_INV_EEC_STATE_ERR, CompletionStatus::TRANSPORT, "reliable datagrams only"),
    (IBV_WC_FATAL_ERR, CompletionStatus::TRANSPORT, "the device failed"),
    (IBV_WC_RESP_TIMEOUT_ERR, CompletionStatus::NOT_READY, "the peer's answer came too late"),
    (IBV_WC_GENERAL_ERR, CompletionStatus::TRANSPORT, "something else"),
    (IBV_WC_TM_ERR, CompletionStatus::TRANSPORT, "tag matching, which is not used"),
    (IBV_WC_TM_RNDV_INCOMPLETE, CompletionStatus::PARTIAL, "tag matching, which is not used"),
];

/// An unknown status is a failure of the transport, never a success.
#[cold]
pub(crate) fn completed(status: c_int, receive: bool) -> CompletionStatus {
    // Soft-RoCE's status of a message that does not fit its receive. The engine checked all else about a receive.
    if receive && matches!(status, IBV_WC_LOC_QP_OP_ERR | IBV_WC_REM_INV_REQ_ERR) {
        return CompletionStatus::LOCAL_LENGTH;
    }
    COMPLETED.iter().find(|(known, ..)| *known == status).map_or(CompletionStatus::TRANSPORT, |row| row.1)
}

/// What an event of RDMA CM is to the side that gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CmMeaning {
    /// The next step of connecting.
    Step,
    /// A request, for a listener.
    Request,
    /// The attempt or connection ends with this event: while connecting, while accepting, once connected.
    End { connecting: EventKind, accepting: EventKind, live: EventKind },
    /// By the reason it carries: [`rejected`].
    Rejected,
    /// Of no interest.
    Nothing,
}

const fn end(connecting: EventKind, live: EventKind) -> CmMeaning {
    CmMeaning::End { connecting, accepting: EventKind::ACCEPT_FAILED, live }
}

/// Event of RDMA CM → its meaning.
pub(crate) const CONNECTION: [(c_int, CmMeaning); 16] = [
    (RDMA_CM_EVENT_ADDR_RESOLVED, CmMeaning::Step),
    (RDMA_CM_EVENT_ADDR_ERROR, end(EventKind::UNREACHABLE, EventKind::BROKEN)),
    (RDMA_CM_EVENT_ROUTE_RESOLVED, CmMeaning::Step),
    (RDMA_CM_EVENT_ROUTE_ERROR, end(EventKind::UNREACHABLE, EventKind::BROKEN)),
    (RDMA_CM_EVENT_CONNECT_REQUEST, CmMeaning::Request),
    (RDMA_CM_EVENT_CONNECT_RESPONSE, CmMeaning::Step),
    // The peer, or this side, could not bring its queue pair up.
    (RDMA_CM_EVENT_CONNECT_ERROR, end(EventKind::REFUSED, EventKind::BROKEN)),
    (RDMA_CM_EVENT_UNREACHABLE, end(EventKind::UNREACHABLE, EventKind::BROKEN)),
    (RDMA_CM_EVENT_REJECTED, CmMeaning::Rejected),
    (RDMA_CM_EVENT_ESTABLISHED, CmMeaning::Step),
    (RDMA_CM_EVENT_DISCONNECTED, end(EventKind::REFUSED, EventKind::DISCONNECTED)),
    (RDMA_CM_EVENT_DEVICE_REMOVAL, end(EventKind::UNREACHABLE, EventKind::BROKEN)),
    (RDMA_CM_EVENT_MULTICAST_JOIN, CmMeaning::Nothing),
    (RDMA_CM_EVENT_MULTICAST_ERROR, CmMeaning::Nothing),
    // The route may have changed; if the connection does not survive that, it breaks by itself.
    (RDMA_CM_EVENT_ADDR_CHANGE, CmMeaning::Nothing),
    (RDMA_CM_EVENT_TIMEWAIT_EXIT, CmMeaning::Nothing),
];

pub(crate) fn meaning(event: c_int) -> CmMeaning {
    CONNECTION.iter().find(|(known, _)| *known == event).map_or(CmMeaning::Nothing, |row| row.1)
}

/// The reject reason with which the peer's consumer refuses (InfiniBand: 28, iWARP: the connection is refused).
const CONSUMER_DEFINED: c_int = 28;

/// A rejected attempt: by the peer's consumer, or by something else, such as a missing listener (8).
pub(crate) fn rejected(reason: c_int) -> EventKind {
    match reason {
        CONSUMER_DEFINED => EventKind::REJECTED,
        _ => EventKind::REFUSED,
    }
}

/// The status of a refused post.
#[cold]
pub(crate) fn refused(code: c_int) -> Status {
    match code {
        libc::ENOMEM | libc::ENOSPC | libc::EAGAIN => Status::NO_RESOURCE,
        libc::EINVAL | libc::EFAULT | libc::E2BIG => Status::INVALID,
        libc::EOPNOTSUPP | libc::ENOSYS => Status::NOT_SUPPORTED,
        _ => Status::IO,
    }
}

/// A failure to make an object of the device.
pub(crate) fn failure(what: &str, error: &io::Error) -> Failure {
    let status = match error.raw_os_error() {
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::ENOSPC | libc::EAGAIN) => Status::NO_RESOURCE,
        Some(libc::EADDRINUSE) => Status::IN_USE,
        Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT) => Status::BAD_ADDRESS,
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ETIMEDOUT) => Status::UNREACHABLE,
        Some(libc::EACCES | libc::EPERM) => Status::PERMISSION,
        Some(libc::ENODEV | libc::ENOENT) => Status::NO_DEVICE,
        Some(libc::EINVAL | libc::EFAULT) => Status::INVALID,
        Some(libc::EOPNOTSUPP | libc::ENOSYS) => Status::NOT_SUPPORTED,
        _ => Status::IO,
    };
    Failure::new(status, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_work_completion_status_has_one_row_but_the_flushed_one() {
        for status in IBV_WC_SUCCESS..=IBV_WC_TM_RNDV_INCOMPLETE {
            let rows = COMPLETED.iter().filter(|(known, ..)| *known == status).count();
            assert_eq!(rows, usize::from(status != IBV_WC_WR_FLUSH_ERR), "status {status}");
        }
        assert!(COMPLETED.iter().all(|(status, to, _)| (*status == 0) == (*to == CompletionStatus::SUCCESS)));
        assert_eq!(completed(999, false), CompletionStatus::TRANSPORT);
        assert_eq!(completed(IBV_WC_LOC_QP_OP_ERR, true), CompletionStatus::LOCAL_LENGTH);
        assert_eq!(completed(IBV_WC_LOC_QP_OP_ERR, false), CompletionStatus::LOCAL_CHANNEL);
    }

    #[test]
    fn every_connection_event_has_one_row() {
        for event in RDMA_CM_EVENT_ADDR_RESOLVED..=RDMA_CM_EVENT_TIMEWAIT_EXIT {
            assert_eq!(CONNECTION.iter().filter(|(known, _)| *known == event).count(), 1, "event {event}");
        }
        assert_eq!(meaning(99), CmMeaning::Nothing);
    }

    #[test]
    fn only_the_consumers_reject_is_the_consumers() {
        assert_eq!(rejected(28), EventKind::REJECTED);
        // Invalid service (no listener), stale connection, time-out, not supported (the engine's reject).
        for reason in [8, 10, 4, 35, -110] {
            assert_eq!(rejected(reason), EventKind::REFUSED, "reason {reason}");
        }
    }

    #[test]
    fn failures_differ() {
        let of = |code| failure("x", &io::Error::from_raw_os_error(code)).status;
        assert_eq!(of(libc::EADDRINUSE), Status::IN_USE);
        assert_eq!(of(libc::ENOMEM), Status::NO_RESOURCE);
        assert_eq!(of(libc::EACCES), Status::PERMISSION);
        assert_eq!(of(libc::ENETUNREACH), Status::UNREACHABLE);
        assert_eq!(refused(libc::ENOMEM), Status::NO_RESOURCE);
        assert_eq!(refused(libc::EIO), Status::IO);
    }
}
