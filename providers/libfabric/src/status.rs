//! Errors of libfabric, and what each means here. One table, so that every path gives the same answer.

use dat_plugin::{CompletionStatus, EventKind, Failure, Status};
use libfabric_sys::{Library, consts};

/// What an error number means in each of the three places one is met.
struct Row {
    errno: i32,
    /// A call that failed.
    call: Status,
    /// An attempt to connect that failed.
    connect: EventKind,
    /// A completion.
    completion: CompletionStatus,
}

const fn row(errno: i32, call: Status, connect: EventKind, completion: CompletionStatus) -> Row {
    Row { errno, call, connect, completion }
}

/// Everything not in it is `IO`, `REFUSED`, `TRANSPORT`.
const TABLE: [Row; 33] = [
    row(libc::EPERM, Status::PERMISSION, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EACCES, Status::PERMISSION, EventKind::REFUSED, CompletionStatus::REMOTE_ACCESS),
    row(libc::ENOMEM, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EMFILE, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::ENFILE, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::ENOSPC, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EAGAIN, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EBUSY, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    // From connect: an address to which no way leads from the device's own.
    row(libc::EINVAL, Status::INVALID, EventKind::UNREACHABLE, CompletionStatus::REMOTE_ERROR),
    row(libc::EMSGSIZE, Status::INVALID, EventKind::REFUSED, CompletionStatus::LOCAL_LENGTH),
    row(libc::EFAULT, Status::INVALID, EventKind::REFUSED, CompletionStatus::LOCAL_ACCESS),
    row(libc::ENOSYS, Status::NOT_SUPPORTED, EventKind::REFUSED, CompletionStatus::REMOTE_ERROR),
    row(libc::EOPNOTSUPP, Status::NOT_SUPPORTED, EventKind::REFUSED, CompletionStatus::REMOTE_ERROR),
    row(libc::ENODEV, Status::NO_DEVICE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ENODATA, Status::NO_DEVICE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::EADDRINUSE, Status::IN_USE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EADDRNOTAVAIL, Status::BAD_ADDRESS, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::EAFNOSUPPORT, Status::BAD_ADDRESS, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ECONNREFUSED, Status::UNREACHABLE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EHOSTUNREACH, Status::UNREACHABLE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::EHOSTDOWN, Status::UNREACHABLE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ENETUNREACH, Status::UNREACHABLE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ENETDOWN, Status::UNREACHABLE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ETIMEDOUT, Status::UNREACHABLE, EventKind::UNREACHABLE, CompletionStatus::TRANSPORT),
    row(libc::ENOTCONN, Status::NOT_CONNECTED, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::ECONNRESET, Status::NOT_CONNECTED, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EPIPE, Status::NOT_CONNECTED, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EKEYREJECTED, Status::INVALID, EventKind::REFUSED, CompletionStatus::REMOTE_ACCESS),
    row(libc::EREMOTEIO, Status::IO, EventKind::REFUSED, CompletionStatus::REMOTE_ERROR),
    row(consts::FI_ENOKEY, Status::INVALID, EventKind::REFUSED, CompletionStatus::REMOTE_ACCESS),
    row(consts::FI_ETRUNC, Status::INVALID, EventKind::REFUSED, CompletionStatus::LOCAL_LENGTH),
    row(consts::FI_ETOOSMALL, Status::INVALID, EventKind::REFUSED, CompletionStatus::LOCAL_LENGTH),
    row(consts::FI_ENORX, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::NOT_READY),
];

/// What a status of a verbs work completion is as an error number.
pub fn of_verbs(status: i32) -> i32 {
    match status {
        1 => libc::EMSGSIZE,
        4 => libc::EFAULT,
        5 => libc::ECANCELED,
        9 | 11 => libc::EREMOTEIO,
        10 => libc::EACCES,
        12 => libc::ETIMEDOUT,
        13 => consts::FI_ENORX,
        _ => libc::EIO,
    }
}

fn find(errno: i32) -> Option<&'static Row> {
    let errno = errno.checked_abs()?;
    TABLE.iter().find(|row| row.errno == errno)
}

/// What a call that returned `-errno` or `errno` is answered with.
pub fn of_call(errno: i32) -> Status {
    find(errno).map_or(Status::IO, |row| row.call)
}

/// What becomes of an attempt to connect.
pub fn of_connect(errno: i32) -> EventKind {
    find(errno).map_or(EventKind::REFUSED, |row| row.connect)
}

/// How a request or receive ended.
pub fn of_completion(errno: i32) -> CompletionStatus {
    find(errno).map_or(CompletionStatus::TRANSPORT, |row| row.completion)
}

/// A failure of the library's call `what`.
pub fn failure(library: &Library, what: &str, result: i64) -> Failure {
    let errno = i32::try_from(result.unsigned_abs()).unwrap_or(consts::FI_EOTHER);
    Failure::new(of_call(errno), format!("{what}: {} ({errno})", library.strerror(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_there_once() {
        for (at, row) in TABLE.iter().enumerate() {
            let twice = TABLE[at + 1..].iter().any(|other| other.errno == row.errno);
            assert!(!twice, "error {} has two rows", row.errno);
        }
    }

    #[test]
    fn verbs_failures_mean_what_they_do_to_the_provider_of_verbs() {
        let known = [
            (1, CompletionStatus::LOCAL_LENGTH),
            (4, CompletionStatus::LOCAL_ACCESS),
            (9, CompletionStatus::REMOTE_ERROR),
            (10, CompletionStatus::REMOTE_ACCESS),
            (11, CompletionStatus::REMOTE_ERROR),
            (12, CompletionStatus::TRANSPORT),
            (13, CompletionStatus::NOT_READY),
            (20, CompletionStatus::TRANSPORT),
        ];
        for (status, meaning) in known {
            assert_eq!(of_completion(of_verbs(status)), meaning, "work completion status {status}");
        }
    }

    #[test]
    fn both_signs_mean_the_same_and_unknown_ones_have_an_answer() {
        assert_eq!(of_call(-libc::EADDRINUSE), Status::IN_USE);
        assert_eq!(of_call(libc::EADDRINUSE), Status::IN_USE);
        assert_eq!(of_connect(libc::ECONNREFUSED), EventKind::REFUSED);
        assert_eq!(of_connect(-libc::EHOSTUNREACH), EventKind::UNREACHABLE);
        assert_eq!(of_completion(consts::FI_ETRUNC), CompletionStatus::LOCAL_LENGTH);
        for errno in [0, 100_000, i32::MIN, i32::MAX] {
            assert_eq!(of_call(errno), Status::IO);
            assert_eq!(of_connect(errno), EventKind::REFUSED);
            assert_eq!(of_completion(errno), CompletionStatus::TRANSPORT);
        }
    }
}
