//! The server of the lookup protocol ([`crate::discovery::protocol`]): a TCP socket for each port with a listener, and one
//! for liveness probes. It answers each question at once. It closes connections that send anything else, or nothing for
//! [`PATIENCE`]. No call waits.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use dat_kit::Qualifier;
use parking_lot::Mutex;
use rustix::event::epoll;

use crate::discovery::protocol::{QUESTION, is_question};

/// Most clients at a time. When one more comes, the oldest connection is closed: an honest client has asked by then.
pub const MAX_CLIENTS: usize = 64;

/// How long a client may take for its question.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The sockets of a device.
pub struct Server {
    /// Readable when a socket needs service.
    watch: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// By port, with the listener's user and qualifier; the port for liveness probes has none.
    open: HashMap<u16, (TcpListener, Option<(u64, u64)>)>,
    clients: VecDeque<Client>,
    /// A connection could not be accepted. It must be tried again, because no new edge comes.
    retry_accept: bool,
}

struct Client {
    socket: TcpStream,
    since: Instant,
    question: [u8; QUESTION.len()],
    len: usize,
}

impl Server {
    pub fn new() -> io::Result<Server> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let state = State { open: HashMap::new(), clients: VecDeque::new(), retry_accept: false };
        Ok(Server { watch, state: Mutex::new(state) })
    }

    /// Listens at `port`, or at any port if it is 0, for a user and the quotient of its qualifier. Returns the port.
    pub fn open(&self, ip: IpAddr, wanted: u16, listener: Option<(u64, u64)>) -> io::Result<u16> {
        // Under the lock, because an edge is reported once: no other thread may see it before the socket is entered.
        let mut state = self.state.lock();
        let socket = TcpListener::bind(SocketAddr::new(ip, wanted))?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        // Edge-triggered: a connection that cannot be accepted, without descriptors left, must not wake the event thread
        // for ever.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.watch, &socket, epoll::EventData::new_u64(port.into()), flags)?;
        let listener = listener.map(|(user, quotient)| (user, Qualifier { port: wanted, quotient }.at(port)));
        state.open.insert(port, (socket, listener));
        Ok(port)
    }

    pub fn close(&self, port: u16) {
        self.state.lock().open.remove(&port);
    }

    /// User and qualifier of the listener at a port.
    pub fn listener(&self, port: u16) -> Option<(u64, u64)> {
        self.state.lock().open.get(&port)?.1
    }

    /// Whether no client's question is incomplete.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.clients.is_empty() && !state.retry_accept
    }

    pub fn wait(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Accepts connections and answers questions; returns how many.
    pub fn serve(&self, answer: &[u8]) -> usize {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Some(mut state) = self.state.try_lock() else { return 0 };
        let seen = epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut ready), Some(&now));
        if std::mem::take(&mut state.retry_accept) {
            let all: Vec<u16> = state.open.keys().copied().collect();
            all.into_iter().for_each(|port| self.take(&mut state, port));
        }
        if seen.is_ok() {
            for event in &ready {
                if let Ok(port) = u16::try_from(event.data.u64()) {
                    self.take(&mut state, port);
                }
            }
        }
        let mut answered = 0;
        state.clients.retain_mut(|client| match client.step(answer) {
            Step::Wait => client.since.elapsed() < PATIENCE,
            Step::Close => false,
            Step::Answered => {
                answered += 1;
                false
            }
        });
        answered
    }

    /// Takes everybody who came to a port.
    fn take(&self, state: &mut State, port: u16) {
        let State { open, clients, retry_accept } = state;
        let Some((socket, _)) = open.get(&port) else { return };
        // At most the length of the queue, so that a flood does not keep the event thread here.
        for _ in 0..MAX_CLIENTS {
            let socket = match socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, port, "cannot accept a connection now");
                    break;
                }
            };
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let watched = epoll::add(&self.watch, &socket, epoll::EventData::new_u64(CLIENTS), flags);
            if watched.is_err() || socket.set_nonblocking(true).is_err() {
                continue;
            }
            if clients.len() >= MAX_CLIENTS {
                clients.pop_front();
            }
            clients.push_back(Client {
                socket,
                since: Instant::now(),
                question: [0; QUESTION.len()],
                len: 0,
            });
        }
        *retry_accept = true;
    }
}

/// Not a port.
const CLIENTS: u64 = 1 << 16;

enum Step {
    Wait,
    Close,
    Answered,
}

impl Client {
    fn step(&mut self, answer: &[u8]) -> Step {
        while self.len < self.question.len() {
            match self.socket.read(&mut self.question[self.len..]) {
                Ok(0) => return Step::Close,
                Ok(count) => self.len += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Step::Wait,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Step::Close,
            }
        }
        // The socket's buffer is empty, so the answer fits.
        match is_question(&self.question)
            && self.socket.write(answer).is_ok_and(|count| count == answer.len())
        {
            true => Step::Answered,
            false => Step::Close,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ANSWER: &[u8] = b"the answer";

    fn server() -> (Server, u16) {
        let server = Server::new().expect("a descriptor");
        let port = server.open(LOCAL, 0, Some((5, 0))).expect("a port");
        (server, port)
    }

    fn until(server: &Server, what: &str, mut done: impl FnMut(usize) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(server.serve(ANSWER)) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(port: u16) -> TcpStream {
        let mut socket = TcpStream::connect((LOCAL, port)).expect("listens");
        socket.write_all(&QUESTION).expect("taken");
        socket
    }

    fn receive(mut socket: TcpStream) -> Vec<u8> {
        let mut received = Vec::new();
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let _ = socket.read_to_end(&mut received);
        received
    }

    #[test]
    fn questions_are_answered_and_ports_are_exclusive() {
        let (server, port) = server();
        let client = ask(port);
        until(&server, "the answer", |answered| answered == 1);
        assert_eq!(receive(client), ANSWER);
        assert_eq!(server.listener(port), Some((5, port.into())));
        let taken = server.open(LOCAL, port, None).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        server.close(port);
        assert!(TcpStream::connect((LOCAL, port)).is_err(), "closed");
        assert_eq!(server.open(LOCAL, port, None).expect("free again"), port);
    }

    #[test]
    fn garbage_closes_a_connection_and_so_does_silence() {
        let (server, port) = server();
        let mut rude = TcpStream::connect((LOCAL, port)).expect("listens");
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("taken");
        let silent = TcpStream::connect((LOCAL, port)).expect("listens");
        let mut slow = TcpStream::connect((LOCAL, port)).expect("listens");
        slow.write_all(&QUESTION[..5]).expect("taken");
        drop(TcpStream::connect((LOCAL, port)).expect("listens"));
        let begun = Instant::now();
        let mut came = false;
        until(&server, "all are closed", |answered| {
            assert_eq!(answered, 0);
            came |= server.state.lock().clients.len() >= 2;
            came && server.is_idle()
        });
        assert!(begun.elapsed() >= PATIENCE, "closed too early");
        for socket in [rude, silent, slow] {
            assert!(receive(socket).is_empty());
        }
    }

    #[test]
    fn silent_clients_do_not_keep_others_from_asking() {
        let (server, port) = server();
        let mut crowd = Vec::new();
        for _ in 0..4 * MAX_CLIENTS {
            crowd.push(TcpStream::connect((LOCAL, port)).expect("listens"));
            server.serve(ANSWER);
            assert!(server.state.lock().clients.len() <= MAX_CLIENTS);
        }
        let client = ask(port);
        until(&server, "the answer", |answered| answered == 1);
        assert_eq!(receive(client), ANSWER);
    }
}
