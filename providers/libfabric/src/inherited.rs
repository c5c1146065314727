//! Sockets of libfabric's, whose numbers it tells nobody, by their address.
//!
//! It makes them without `SOCK_CLOEXEC`, so a child process would inherit them. A port that a child has besides goes on
//! taking connections when the device is closed, or its process killed, and is in use for whoever listens there next; so
//! a peer that knocks ([`crate::knock`]) believes that the device is still there.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::getsockname;

/// Has the sockets at this address closed in programs that are started from now on, and gives their numbers. Where the
/// system does not tell which descriptors there are they stay as they are, and none is given.
pub fn keep_from_children(at: SocketAddr) -> Vec<RawFd> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let here: Vec<RawFd> = numbers.filter(|&number| is_at(number, at)).collect();
    for &number in &here {
        // SAFETY: not closed by this value. Should another thread have closed it meanwhile, and made something else of the
        // number, that is kept from children too.
        if let Err(error) = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC) {
            tracing::debug!(%error, %at, "a socket that children inherit");
        }
    }
    here
}

/// Whether a number is that of a socket at this address.
pub fn is_at(number: RawFd, at: SocketAddr) -> bool {
    if number < 0 {
        return false;
    }
    // SAFETY: asked whose it is and no more; a number that is no descriptor, or no socket, is answered so.
    let here = getsockname(unsafe { BorrowedFd::borrow_raw(number) });
    let here = here.ok().and_then(|here| SocketAddr::try_from(here).ok());
    here.is_some_and(|here| here.ip() == at.ip() && here.port() == at.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsFd, AsRawFd};

    use rustix::io::fcntl_getfd;

    use super::*;

    #[test]
    fn only_what_is_at_the_address_is_kept() {
        let [ours, other] = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        for socket in [&ours, &other] {
            fcntl_setfd(socket.as_fd(), FdFlags::empty()).expect("a descriptor");
        }
        let found = keep_from_children(ours.local_addr().expect("bound"));
        assert_eq!(found, [ours.as_raw_fd()]);
        assert_eq!(fcntl_getfd(&ours), Ok(FdFlags::CLOEXEC));
        assert_eq!(fcntl_getfd(&other), Ok(FdFlags::empty()));
    }
}
