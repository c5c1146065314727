//! Whether anybody is at a TCP port. Datagram fabrics over TCP answer "again" as long as they try to connect, whatever
//! became of the last try, and others do not even notice that a peer's process ended; the system says what became of it.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::endpoint::Errno;
use crate::seek::connect;

/// A connection made only to learn whether one can be made.
pub struct Knock {
    socket: Result<TcpStream, Errno>,
    since: Instant,
}

/// What is behind a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Unknown,
    Answered,
    Nobody(Errno),
}

/// A port that neither answers nor refuses for so long is left alone.
const PATIENCE: Duration = Duration::from_secs(5);

impl Knock {
    /// Begins to connect, from an address of this host's, if one is given.
    pub fn begin(from: Option<IpAddr>, to: SocketAddr) -> Knock {
        Knock { socket: connect(from, to), since: Instant::now() }
    }

    /// Whether it may still learn something.
    pub fn is_young(&self) -> bool {
        self.since.elapsed() < PATIENCE
    }

    /// What is known.
    pub fn door(&mut self) -> Door {
        let socket = match &self.socket {
            Ok(socket) => socket,
            Err(errno) => return Door::Nobody(*errno),
        };
        match socket.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => {
                return Door::Nobody(error.raw_os_error().unwrap_or(libc::ECONNREFUSED));
            }
        }
        let mut look = [PollFd::new(socket, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut look, Some(&now)) {
            Ok(1) if look[0].revents() == PollFlags::OUT => Door::Answered,
            _ => Door::Unknown,
        }
    }

    /// Why nobody answers, once that is known.
    pub fn look(&mut self) -> Option<Errno> {
        match self.door() {
            Door::Nobody(errno) => Some(errno),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(to: SocketAddr, within: Duration) -> Door {
        let mut knock = Knock::begin(None, to);
        let deadline = Instant::now() + within;
        loop {
            match knock.door() {
                Door::Unknown if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                seen => return seen,
            }
        }
    }

    #[test]
    fn a_port_with_and_without_a_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        assert_eq!(outcome(at, Duration::from_secs(20)), Door::Answered);
        drop(listener);
        assert_eq!(outcome(at, Duration::from_secs(20)), Door::Nobody(libc::ECONNREFUSED));
    }
}
