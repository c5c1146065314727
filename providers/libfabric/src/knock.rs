//! Whether anybody is at a TCP port. Datagram fabrics over TCP answer "again" as long as they try to connect, whatever
//! became of the last try; the system says what became of it.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::endpoint::Errno;

/// A connection made only to learn whether one can be made.
pub struct Knock(Option<OwnedFd>);

impl Knock {
    /// Begins to connect.
    pub fn begin(to: SocketAddr) -> Knock {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).ok();
        if let Some(socket) = &socket {
            // What becomes of it is read off the socket.
            let _ = rustix::net::connect(socket, &to);
        }
        Knock(socket)
    }

    /// Why nobody answers, once that is known.
    pub fn look(&mut self) -> Option<Errno> {
        let socket = self.0.as_ref()?;
        match rustix::net::sockopt::socket_error(socket) {
            Ok(Ok(())) => None,
            Ok(Err(errno)) | Err(errno) => Some(errno.raw_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn outcome(to: SocketAddr, within: Duration) -> Option<Errno> {
        let mut knock = Knock::begin(to);
        let deadline = Instant::now() + within;
        loop {
            match knock.look() {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                seen => return seen,
            }
        }
    }

    #[test]
    fn a_port_with_and_without_a_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        assert_eq!(outcome(at, Duration::from_millis(50)), None);
        drop(listener);
        assert_eq!(outcome(at, Duration::from_secs(5)), Some(libc::ECONNREFUSED));
    }
}
