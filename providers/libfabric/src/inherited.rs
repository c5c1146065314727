//! Sockets of libfabric's that a child process would inherit: it makes them without `SOCK_CLOEXEC`. A port that a child
//! has besides goes on taking connections when the device is closed, or its process killed, and is in use for whoever
//! listens there next; so a peer that knocks ([`crate::knock`]) believes that the device is still there.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::getsockname;

/// Has the sockets at this address closed in programs that are started from now on. Where the system does not tell which
/// descriptors there are they stay as they are.
pub fn keep_from_children(at: SocketAddr) {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number >= 0) {
        // SAFETY: not closed by this value, and asked whose it is. Should another thread close it meanwhile, and make
        // something else of the number, that has another address; between the two calls, it is kept from children too.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        let here = getsockname(fd).ok().and_then(|here| SocketAddr::try_from(here).ok());
        if here.is_some_and(|here| here.ip() == at.ip() && here.port() == at.port())
            && let Err(error) = fcntl_setfd(fd, FdFlags::CLOEXEC)
        {
            tracing::debug!(%error, %at, "a socket that children inherit");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use rustix::io::fcntl_getfd;

    use super::*;

    #[test]
    fn only_what_is_at_the_address_is_kept() {
        let [ours, other] = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        for socket in [&ours, &other] {
            fcntl_setfd(socket.as_fd(), FdFlags::empty()).expect("a descriptor");
        }
        keep_from_children(ours.local_addr().expect("bound"));
        assert_eq!(fcntl_getfd(&ours), Ok(FdFlags::CLOEXEC));
        assert_eq!(fcntl_getfd(&other), Ok(FdFlags::empty()));
    }
}
