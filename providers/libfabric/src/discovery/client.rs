//! The client of the lookup protocol ([`crate::discovery::protocol`]): one TCP connection for each lookup. No call waits.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::discovery::protocol::{Answer, HEAD, MAX_ADDRESS, Partial, QUESTION};
use crate::status::Errno;

/// Begins a TCP connection, from `from` if given. The socket shows later whether it succeeded.
pub fn connect(from: Option<IpAddr>, to: SocketAddr) -> Result<TcpStream, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)
        .map_err(|errno| errno.raw_os_error())?;
    if let Some(from) = from.filter(|from| from.is_ipv4() == to.is_ipv4()) {
        rustix::net::bind(&socket, &SocketAddr::new(from, 0)).map_err(|errno| errno.raw_os_error())?;
    }
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(errno) => Err(errno.raw_os_error()),
    }
}

/// A lookup under way.
pub struct Lookup {
    from: IpAddr,
    pub to: SocketAddr,
    socket: Option<TcpStream>,
    sent: usize,
    received: Vec<u8>,
    /// How often the server closed the connection, and when to try again.
    tries: u32,
    next: Instant,
}

/// The present result of a lookup.
#[derive(Debug)]
pub enum Outcome {
    Pending,
    Found(Answer),
    /// No server there, or no answer from it.
    Failed(Errno),
}

/// A server with too many clients closes some connections, so they are tried again.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(100);

impl Lookup {
    pub fn new(from: IpAddr, to: SocketAddr) -> Lookup {
        Lookup { from, to, socket: None, sent: 0, received: Vec::new(), tries: 0, next: Instant::now() }
    }

    /// Continues the lookup. The socket is added to the epoll descriptor `watch`.
    pub fn step(&mut self, watch: BorrowedFd<'_>) -> Outcome {
        match self.advance(watch) {
            Ok(outcome) => outcome,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Outcome::Pending
            }
            // The connection was made and then closed.
            Err(_) if self.sent > 0 && self.tries < TRIES => {
                self.tries += 1;
                self.next = Instant::now() + PAUSE;
                (self.socket, self.sent) = (None, 0);
                self.received.clear();
                Outcome::Pending
            }
            Err(error) => Outcome::Failed(error.raw_os_error().unwrap_or(libc::ECONNREFUSED)),
        }
    }

    fn advance(&mut self, watch: BorrowedFd<'_>) -> io::Result<Outcome> {
        if self.socket.is_none() {
            if Instant::now() < self.next {
                return Ok(Outcome::Pending);
            }
            let socket = connect(Some(self.from), self.to).map_err(io::Error::from_raw_os_error)?;
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(watch, &socket, epoll::EventData::new_u64(u64::MAX), flags)?;
            self.socket = Some(socket);
        }
        let Some(socket) = &mut self.socket else { return Ok(Outcome::Pending) };
        while self.sent < QUESTION.len() {
            self.sent += socket.write(&QUESTION[self.sent..])?;
        }
        loop {
            match Partial::of(&self.received) {
                Partial::More => {}
                Partial::Whole(answer) => return Ok(Outcome::Found(answer)),
                Partial::Invalid(why) => {
                    tracing::warn!(to = %self.to, why, "no device there");
                    return Ok(Outcome::Failed(libc::ECONNREFUSED));
                }
            }
            let mut room = [0; HEAD + MAX_ADDRESS];
            match socket.read(&mut room)? {
                0 => return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED)),
                count => self.received.extend_from_slice(&room[..count]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use super::*;
    use crate::address::Raw;
    use crate::discovery::protocol::Protocol;

    fn answer() -> Vec<u8> {
        let protocol = Protocol { protocol: 1, version: 2, format: 3 };
        let address = Raw::new(b"an address").expect("fits");
        Answer { protocol, liveness_port: 4, token: 5, host: [6; 16], address }.encode()
    }

    /// The outcome of a lookup that `serve` answers, once for each connection until it returns true.
    fn outcome(serve: impl FnMut(TcpStream, u32) -> bool + Send + 'static) -> Outcome {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("its address");
        let mut serve = serve;
        std::thread::spawn(move || {
            (1..).all(|turn| listener.accept().is_ok_and(|(socket, _)| !serve(socket, turn)));
        });
        ends(at)
    }

    fn ends(at: SocketAddr) -> Outcome {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
        let mut lookup = Lookup::new(at.ip(), at);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match lookup.step(watch.as_fd()) {
                Outcome::Pending => assert!(Instant::now() < deadline, "it never ends"),
                outcome => return outcome,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn an_answer_may_come_in_pieces() {
        let found = outcome(|mut socket, _| {
            let _ = socket.read_exact(&mut [0; QUESTION.len()]);
            for byte in answer() {
                socket.set_nodelay(true).and_then(|()| socket.write_all(&[byte])).expect("taken");
            }
            true
        });
        assert!(matches!(&found, Outcome::Found(answer) if answer.token == 5), "{found:?}");
    }

    #[test]
    fn a_closed_connection_is_tried_again_a_few_times() {
        let hear = |socket: &mut TcpStream| socket.read_exact(&mut [0; QUESTION.len()]);
        let found = outcome(move |mut socket, turn| {
            let _ = hear(&mut socket);
            turn == 3 && socket.write_all(&answer()).is_ok()
        });
        assert!(matches!(found, Outcome::Found(_)), "{found:?}");
        let failed = outcome(move |mut socket, _| hear(&mut socket).is_err());
        assert!(matches!(failed, Outcome::Failed(_)), "{failed:?}");
    }

    #[test]
    fn other_servers_and_closed_ports_are_refused() {
        for wrong in [b"SSH-2.0-x\r\n".to_vec(), b"DATA\x02rest".to_vec(), vec![0; 500]] {
            let failed = outcome(move |mut socket, _| {
                let _ = socket.write_all(&wrong);
                true
            });
            assert!(matches!(failed, Outcome::Failed(libc::ECONNREFUSED)), "{failed:?}");
        }
        let gone =
            TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let failed = ends(gone);
        assert!(matches!(failed, Outcome::Failed(libc::ECONNREFUSED)), "{failed:?}");
    }
}
