//! Passive endpoints after their listener closed. libfabric's tcp provider accepts a TCP connection before it reads the
//! request, keeps the passive endpoint's address with it, and does not check whether that was closed meanwhile (releases
//! up to 2.5 at least). So a passive endpoint first loses its socket, which frees the port. It is closed later, when all
//! connections it accepted have sent their request or never will.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use libfabric_sys::inline::fi_close;
use libfabric_sys::types::fid_pep;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::{fd::AsFd, net};

use crate::fabric::Fabric;
use crate::fabric::fd_scan::is_at;

/// How long an endpoint is kept. A peer sends its request right after TCP's handshake.
const DELAY: Duration = Duration::from_secs(5);

/// Most endpoints that wait; each has a descriptor and some hundred bytes. Beyond that the oldest is closed at once.
const MOST: usize = 64;

/// The endpoints, in the order in which they are due.
#[derive(Default)]
pub struct DeferredClose(VecDeque<(Instant, PassiveEndpoint)>);

struct PassiveEndpoint(*mut fid_pep);

// SAFETY: any thread may close it (FI_THREAD_SAFE); the thread that takes it off the list closes it.
unsafe impl Send for PassiveEndpoint {}

impl DeferredClose {
    /// Whether the next one closes the oldest.
    pub fn is_full(&self) -> bool {
        self.0.len() == MOST
    }

    /// Adds one. The caller holds the lock for reading events, and has read all events if the list is full.
    pub fn add(&mut self, fabric: &Fabric, pep: *mut fid_pep, socket: Option<ListenSocket>) {
        let pep = PassiveEndpoint(pep);
        if !socket.is_some_and(|socket| socket.release_port(fabric)) {
            return pep.close(fabric);
        }
        if self.is_full()
            && let Some((_, oldest)) = self.0.pop_front()
        {
            oldest.close(fabric);
        }
        self.0.push_back((Instant::now() + DELAY, pep));
    }

    /// Closes those that are due. The caller found no event, so no request is unread.
    pub fn close_old(&mut self, fabric: &Fabric) {
        if self.0.is_empty() {
            return;
        }
        let now = Instant::now();
        while let Some((_, pep)) = self.0.pop_front_if(|(due, _)| *due <= now) {
            pep.close(fabric);
        }
    }

    /// Closes all. The caller reads no event any more.
    pub fn close_all(&mut self, fabric: &Fabric) {
        self.0.drain(..).for_each(|(_, pep)| pep.close(fabric));
    }
}

impl PassiveEndpoint {
    fn close(self, fabric: &Fabric) {
        // SAFETY: the endpoint is open until here. The caller holds the lock for reading events, so none of it is handled.
        let result = unsafe { fi_close(self.0.cast()) };
        if result != 0 {
            tracing::warn!(error = %fabric.library.strerror(-result), "cannot close a listener");
        }
    }
}

/// The socket of a passive endpoint.
#[derive(Clone, Copy)]
pub struct ListenSocket {
    number: RawFd,
    at: SocketAddr,
}

impl ListenSocket {
    /// The one of these that listens at `at`.
    pub fn among(numbers: &[RawFd], at: SocketAddr) -> Option<ListenSocket> {
        numbers.iter().map(|&number| ListenSocket { number, at }).find(ListenSocket::listens)
    }

    fn listens(&self) -> bool {
        // SAFETY: the borrow ends with the calls, which only read; a number that is no socket gives an error.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        is_at(self.number, self.at) && net::sockopt::socket_acceptconn(fd).is_ok_and(|listens| listens)
    }

    /// Replaces the socket by a descriptor that is never ready, so the port is free. The number stays in use until
    /// libfabric closes it, because libfabric identifies what it watches by number.
    fn release_port(self, fabric: &Fabric) -> bool {
        if !fabric.is_tcp() || fabric.eq_fd < 0 || !self.listens() {
            return false;
        }
        let Ok(nothing) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) else { return false };
        // SAFETY: libfabric keeps both descriptors open: the fabric holds the event queue, the caller the endpoint.
        let (watcher, socket) =
            unsafe { (BorrowedFd::borrow_raw(fabric.eq_fd), BorrowedFd::borrow_raw(self.number)) };
        // The event queue watches it, so it is certainly libfabric's.
        if epoll::delete(watcher, socket).is_err() {
            return false;
        }
        // SAFETY: `dup3` closes only the socket of this number; libfabric closes the new descriptor with the endpoint.
        unsafe { libc::dup3(nothing.as_fd().as_raw_fd(), self.number, libc::O_CLOEXEC) == self.number }
    }
}
