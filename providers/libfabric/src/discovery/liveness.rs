//! Whether a process listens at a TCP port. Datagram fabrics over TCP answer "again" while they try to connect, whatever
//! the result of the last try was. Other fabrics do not notice that a peer's process ended. A TCP connection shows both.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::discovery::client::connect;
use crate::status::Errno;

/// A TCP connection that is made to learn whether it can be made.
pub struct LivenessProbe {
    socket: Result<TcpStream, Errno>,
    since: Instant,
}

/// What is known about a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Unknown,
    Alive,
    Gone(Errno),
}

/// When to give up on a port that neither accepts nor refuses.
const PATIENCE: Duration = Duration::from_secs(5);

impl LivenessProbe {
    /// Begins to connect, from `from` if given.
    pub fn begin(from: Option<IpAddr>, to: SocketAddr) -> LivenessProbe {
        LivenessProbe { socket: connect(from, to), since: Instant::now() }
    }

    /// Whether it may still have a result.
    pub fn is_young(&self) -> bool {
        self.since.elapsed() < PATIENCE
    }

    /// What is known now.
    pub fn state(&mut self) -> Liveness {
        let socket = match &self.socket {
            Ok(socket) => socket,
            Err(errno) => return Liveness::Gone(*errno),
        };
        match socket.take_error() {
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => {
                return Liveness::Gone(error.raw_os_error().unwrap_or(libc::ECONNREFUSED));
            }
        }
        let mut look = [PollFd::new(socket, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut look, Some(&now)) {
            Ok(1) if look[0].revents() == PollFlags::OUT => Liveness::Alive,
            _ => Liveness::Unknown,
        }
    }

    /// Why no connection can be made, once that is known.
    pub fn failure(&mut self) -> Option<Errno> {
        match self.state() {
            Liveness::Gone(errno) => Some(errno),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(to: SocketAddr, within: Duration) -> Liveness {
        let mut probe = LivenessProbe::begin(None, to);
        let deadline = Instant::now() + within;
        loop {
            match probe.state() {
                Liveness::Unknown if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                seen => return seen,
            }
        }
    }

    #[test]
    fn a_port_with_and_without_a_listener() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        assert_eq!(outcome(at, Duration::from_secs(20)), Liveness::Alive);
        drop(listener);
        assert_eq!(outcome(at, Duration::from_secs(20)), Liveness::Gone(libc::ECONNREFUSED));
    }
}
