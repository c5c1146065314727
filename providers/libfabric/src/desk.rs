//! Who answers where the device is ([`crate::inquiry`]): a TCP socket for each port that is listened on, and one of the
//! device's own, the door, where a knock tells that its process lives. Whoever asks is answered at once; whoever says
//! nothing, or nothing of sense, is hung up on. Nothing waits.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::epoll;

use crate::inquiry::{QUESTION, is_question};

/// Strangers that are listened to at a time. When one more comes, the one that kept silent longest is hung up on: an honest
/// one has asked by then.
pub const MAX_ASKERS: usize = 64;

/// How long a stranger may take for its question.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The sockets of a device.
pub struct Desk {
    /// Readable when there is something to do.
    watch: OwnedFd,
    state: Mutex<State>,
}

struct State {
    /// By port, with the listener's user; the door has none.
    open: HashMap<u16, (TcpListener, Option<u64>)>,
    askers: VecDeque<Asker>,
    /// A connection could not be taken, and must be tried again without being told.
    stuck: bool,
}

struct Asker {
    socket: TcpStream,
    since: Instant,
    said: [u8; QUESTION.len()],
    len: usize,
}

impl Desk {
    pub fn new() -> io::Result<Desk> {
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let state = State { open: HashMap::new(), askers: VecDeque::new(), stuck: false };
        Ok(Desk { watch, state: Mutex::new(state) })
    }

    /// Listens at `port`, or any if that is 0; which.
    pub fn open(&self, ip: IpAddr, port: u16, user: Option<u64>) -> io::Result<u16> {
        // Nobody looks before all is in place: an edge is told once.
        let mut state = self.state.lock();
        let socket = TcpListener::bind(SocketAddr::new(ip, port))?;
        socket.set_nonblocking(true)?;
        let port = socket.local_addr()?.port();
        // By edges: one that cannot be taken, for want of descriptors, must not wake the event thread for ever.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.watch, &socket, epoll::EventData::new_u64(port.into()), flags)?;
        state.open.insert(port, (socket, user));
        Ok(port)
    }

    pub fn close(&self, port: u16) {
        self.state.lock().open.remove(&port);
    }

    /// Whose port that is.
    pub fn user_of(&self, port: u16) -> Option<u64> {
        self.state.lock().open.get(&port)?.1
    }

    /// Whether somebody's question is not there yet.
    pub fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.askers.is_empty() && !state.stuck
    }

    pub fn wait(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }

    /// Takes who came and answers who asked; how many.
    pub fn look_after(&self, answer: &[u8]) -> usize {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Some(mut state) = self.state.try_lock() else { return 0 };
        let seen = epoll::wait(&self.watch, rustix::buffer::spare_capacity(&mut ready), Some(&now));
        if std::mem::take(&mut state.stuck) {
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
        state.askers.retain_mut(|asker| match asker.listen(answer) {
            Listen::On => asker.since.elapsed() < PATIENCE,
            Listen::HangUp => false,
            Listen::Answered => {
                answered += 1;
                false
            }
        });
        answered
    }

    /// Takes everybody who came to a port.
    fn take(&self, state: &mut State, port: u16) {
        let State { open, askers, stuck } = state;
        let Some((socket, _)) = open.get(&port) else { return };
        // As many as are listened to: who floods the port does not keep the event thread here.
        for _ in 0..MAX_ASKERS {
            let socket = match socket.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, port, "somebody who asks is not heard yet");
                    break;
                }
            };
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            let watched = epoll::add(&self.watch, &socket, epoll::EventData::new_u64(ASKERS), flags);
            if watched.is_err() || socket.set_nonblocking(true).is_err() {
                continue;
            }
            if askers.len() >= MAX_ASKERS {
                askers.pop_front();
            }
            askers.push_back(Asker { socket, since: Instant::now(), said: [0; QUESTION.len()], len: 0 });
        }
        *stuck = true;
    }
}

/// Not a port.
const ASKERS: u64 = 1 << 16;

enum Listen {
    On,
    HangUp,
    Answered,
}

impl Asker {
    fn listen(&mut self, answer: &[u8]) -> Listen {
        while self.len < self.said.len() {
            match self.socket.read(&mut self.said[self.len..]) {
                Ok(0) => return Listen::HangUp,
                Ok(count) => self.len += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Listen::On,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Listen::HangUp,
            }
        }
        // An empty socket has room for it.
        match is_question(&self.said) && self.socket.write(answer).is_ok_and(|count| count == answer.len()) {
            true => Listen::Answered,
            false => Listen::HangUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ANSWER: &[u8] = b"the answer";

    fn desk() -> (Desk, u16) {
        let desk = Desk::new().expect("a descriptor");
        let port = desk.open(LOCAL, 0, Some(5)).expect("a port");
        (desk, port)
    }

    fn until(desk: &Desk, what: &str, mut done: impl FnMut(usize) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !done(desk.look_after(ANSWER)) {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn ask(port: u16) -> TcpStream {
        let mut socket = TcpStream::connect((LOCAL, port)).expect("listens");
        socket.write_all(&QUESTION).expect("taken");
        socket
    }

    fn hear(mut socket: TcpStream) -> Vec<u8> {
        let mut heard = Vec::new();
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        let _ = socket.read_to_end(&mut heard);
        heard
    }

    #[test]
    fn who_asks_is_told_and_ports_are_taken_once() {
        let (desk, port) = desk();
        let asker = ask(port);
        until(&desk, "the answer", |answered| answered == 1);
        assert_eq!(hear(asker), ANSWER);
        assert_eq!(desk.user_of(port), Some(5));
        let taken = desk.open(LOCAL, port, None).expect_err("taken");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        desk.close(port);
        assert!(TcpStream::connect((LOCAL, port)).is_err(), "closed");
        assert_eq!(desk.open(LOCAL, port, None).expect("free again"), port);
    }

    #[test]
    fn garbage_is_hung_up_on_and_silence_after_a_while() {
        let (desk, port) = desk();
        let mut rude = TcpStream::connect((LOCAL, port)).expect("listens");
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("taken");
        let silent = TcpStream::connect((LOCAL, port)).expect("listens");
        let mut slow = TcpStream::connect((LOCAL, port)).expect("listens");
        slow.write_all(&QUESTION[..5]).expect("taken");
        drop(TcpStream::connect((LOCAL, port)).expect("listens"));
        let begun = Instant::now();
        let mut came = false;
        until(&desk, "they are gone", |answered| {
            assert_eq!(answered, 0);
            came |= desk.state.lock().askers.len() >= 2;
            came && desk.is_idle()
        });
        assert!(begun.elapsed() >= PATIENCE, "hung up on in a hurry");
        for socket in [rude, silent, slow] {
            assert!(hear(socket).is_empty());
        }
    }

    #[test]
    fn a_crowd_that_says_nothing_keeps_nobody_from_asking() {
        let (desk, port) = desk();
        let mut crowd = Vec::new();
        for _ in 0..4 * MAX_ASKERS {
            crowd.push(TcpStream::connect((LOCAL, port)).expect("listens"));
            desk.look_after(ANSWER);
            assert!(desk.state.lock().askers.len() <= MAX_ASKERS);
        }
        let asker = ask(port);
        until(&desk, "the answer", |answered| answered == 1);
        assert_eq!(hear(asker), ANSWER);
    }
}
