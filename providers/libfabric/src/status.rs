//! libfabric's errors and what each means here. All paths use one table, so they give the same answer.

use dat_plugin::{CompletionStatus, EventKind, Failure, Status};
use libfabric_sys::{Library, consts};

/// A call's negative error number, or a completion's positive one.
pub type Errno = i32;

/// What an error number means in a call, while connecting, and in a completion.
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

/// A number that is not in it means `IO`, `REFUSED` and `TRANSPORT`.
const TABLE: [Row; 33] = [
    row(libc::EPERM, Status::PERMISSION, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EACCES, Status::PERMISSION, EventKind::REFUSED, CompletionStatus::REMOTE_ACCESS),
    row(libc::ENOMEM, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EMFILE, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::ENFILE, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::ENOSPC, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EAGAIN, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    row(libc::EBUSY, Status::NO_RESOURCE, EventKind::REFUSED, CompletionStatus::TRANSPORT),
    // From connect: no route leads from the device's address to the peer's.
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

/// The error number of a verbs work completion status.
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

/// The status of a call that returned `-errno` or `errno`.
pub fn of_call(errno: i32) -> Status {
    find(errno).map_or(Status::IO, |row| row.call)
}

/// The event of a connect that failed.
pub fn of_connect(errno: i32) -> EventKind {
    find(errno).map_or(EventKind::REFUSED, |row| row.connect)
}

/// The status of a completion.
pub fn of_completion(errno: i32) -> CompletionStatus {
    find(errno).map_or(CompletionStatus::TRANSPORT, |row| row.completion)
}

/// The failure of libfabric's call `what`.
pub fn failure(library: &Library, what: &str, result: i64) -> Failure {
    let errno = i32::try_from(result.unsigned_abs()).unwrap_or(consts::FI_EOTHER);
    Failure::new(of_call(errno), format!("{what}: {} ({errno})", library.strerror(errno)))
}

/// Fails if `result` is an error of libfabric's call `what`.
pub fn check(library: &Library, what: &str, result: i32) -> Result<(), Failure> {
    if result >= 0 { Ok(()) } else { Err(failure(library, what, result.into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_one_row() {
        for (at, row) in TABLE.iter().enumerate() {
            let twice = TABLE[at + 1..].iter().any(|other| other.errno == row.errno);
            assert!(!twice, "error {} has two rows", row.errno);
        }
    }

    #[test]
    fn verbs_statuses_mean_the_same_as_in_the_ibverbs_provider() {
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
    fn the_sign_does_not_matter_and_unknown_numbers_have_a_meaning() {
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
