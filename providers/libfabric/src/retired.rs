//! Passive endpoints after their listener closed. libfabric's tcp provider takes a connection in before it has read the
//! request, keeps the passive endpoint's address with it until then, and does not ask whether that was closed meanwhile
//! (releases up to 2.5 at least). So a passive endpoint loses its socket, which frees the port, and is closed when
//! connections it took in have long said what they want, or never will.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use libfabric_sys::inline::fi_close;
use libfabric_sys::types::fid_pep;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::{fd::AsFd, net};

use crate::device::Dev;
use crate::inherited::is_at;

/// A peer sends its request with the end of TCP's own handshake.
const LONG: Duration = Duration::from_secs(5);

/// Each has a descriptor and some hundred bytes. Of more, the oldest are closed, when what has arrived was read.
const MOST: usize = 64;

/// In order of their closing.
#[derive(Default)]
pub struct Retired(VecDeque<(Instant, Pep)>);

struct Pep(*mut fid_pep);

// SAFETY: closed once, by whoever takes it out of the list.
unsafe impl Send for Pep {}

impl Retired {
    /// Whether the next one will close the oldest.
    pub fn is_full(&self) -> bool {
        self.0.len() == MOST
    }

    /// The caller holds the lock under which events are read, and has read what there was if it is full.
    pub fn add(&mut self, dev: &Dev, pep: *mut fid_pep, socket: Option<Socket>) {
        let pep = Pep(pep);
        if !socket.is_some_and(|socket| socket.give_up(dev)) {
            return pep.close(dev);
        }
        if self.is_full()
            && let Some((_, oldest)) = self.0.pop_front()
        {
            oldest.close(dev);
        }
        self.0.push_back((Instant::now() + LONG, pep));
    }

    /// To be called when no event was found: then no request is there that was not read.
    pub fn close_old(&mut self, dev: &Dev) {
        if self.0.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, pep)) = self.0.pop_front_if(|(due, _)| *due <= now) {
            pep.close(dev);
        }
    }

    /// No event will be read any more.
    pub fn close_all(&mut self, dev: &Dev) {
        self.0.drain(..).for_each(|(_, pep)| pep.close(dev));
    }
}

impl Pep {
    fn close(self, dev: &Dev) {
        // SAFETY: open until now, and no event of it is being handled.
        let result = unsafe { fi_close(self.0.cast()) };
        if result != 0 {
            tracing::warn!(error = %dev.fabric.library.strerror(-result), "closing a listener");
        }
    }
}

/// The socket of a passive endpoint.
#[derive(Clone, Copy)]
pub struct Socket {
    number: RawFd,
    at: SocketAddr,
}

impl Socket {
    /// The one of these that listens at `at`.
    pub fn among(numbers: &[RawFd], at: SocketAddr) -> Option<Socket> {
        numbers.iter().map(|&number| Socket { number, at }).find(Socket::listens)
    }

    fn listens(&self) -> bool {
        // SAFETY: a number that is no descriptor, or another one, is answered so; nothing is closed here.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        is_at(self.number, self.at) && net::sockopt::socket_acceptconn(fd).is_ok_and(|listens| listens)
    }

    /// Takes the socket out of what libfabric watches and out of the world. The number stays taken, by something that
    /// never happens, until libfabric closes it: it keeps books of what it watches by number.
    fn give_up(self, dev: &Dev) -> bool {
        if !dev.fabric.is_tcp() || dev.fabric.eq_fd < 0 || !self.listens() {
            return false;
        }
        let Ok(nothing) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return false };
        // SAFETY: the event queue's descriptor and the passive endpoint's socket, both open until libfabric closes them.
        let (watcher, socket) =
            unsafe { (BorrowedFd::borrow_raw(dev.fabric.eq_fd), BorrowedFd::borrow_raw(self.number)) };
        // That the event queue watches it says for certain whose it is.
        if epoll::delete(watcher, socket).is_err() {
            return false;
        }
        // SAFETY: libfabric's number stays a descriptor, which it closes with the passive endpoint.
        unsafe { libc::dup3(nothing.as_fd().as_raw_fd(), self.number, libc::O_CLOEXEC) == self.number }
    }
}
