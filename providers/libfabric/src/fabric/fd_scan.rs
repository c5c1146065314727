//! Finds libfabric's sockets by their address, because libfabric does not publish their numbers.
//!
//! libfabric makes them without `SOCK_CLOEXEC`, so child processes inherit them. A child that holds a listening socket
//! keeps the port: connections still succeed after the device is closed or its process killed, so peers believe that
//! the device lives, and no other process can listen there.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::getsockname;

/// Sets `FD_CLOEXEC` on the sockets at this address and returns their numbers. Returns none if `/proc` is not there.
pub fn set_cloexec(at: SocketAddr) -> Vec<RawFd> {
    let Ok(all) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let here: Vec<RawFd> = numbers.filter(|&number| is_at(number, at)).collect();
    for &number in &here {
        // SAFETY: the borrow ends with the call, and nothing is closed. If another thread reused the number meanwhile, its
        // descriptor gets FD_CLOEXEC, which is harmless.
        if let Err(error) = fcntl_setfd(unsafe { BorrowedFd::borrow_raw(number) }, FdFlags::CLOEXEC) {
            tracing::debug!(%error, %at, "cannot set FD_CLOEXEC on a socket; child processes inherit it");
        }
    }
    here
}

/// Whether a descriptor is a socket at this address.
pub fn is_at(number: RawFd, at: SocketAddr) -> bool {
    if number < 0 {
        return false;
    }
    // SAFETY: the borrow ends with the call, which only reads; a number that is no socket gives an error.
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
    fn only_sockets_at_the_address_are_found() {
        let [ours, other] = [0, 0].map(|_| TcpListener::bind("127.0.0.1:0").expect("a port"));
        for socket in [&ours, &other] {
            fcntl_setfd(socket.as_fd(), FdFlags::empty()).expect("a descriptor");
        }
        let found = set_cloexec(ours.local_addr().expect("bound"));
        assert_eq!(found, [ours.as_raw_fd()]);
        assert_eq!(fcntl_getfd(&ours), Ok(FdFlags::CLOEXEC));
        assert_eq!(fcntl_getfd(&other), Ok(FdFlags::empty()));
    }
}
