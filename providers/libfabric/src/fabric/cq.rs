//! libfabric's completion queues, and how a thread sleeps until one of them has something.
//!
//! A device has a *far* queue with a wait descriptor. libfabric signals it for every message, even if no thread sleeps;
//! over TCP that was measured as a tenth of a small message's time. So a device with connected endpoints also has a
//! *near* queue for its first [`NEAR_CHANS`] connections, where the fabric supports it. Polling the near queue asks the
//! kernel about each socket, which is quicker while there are few. A sleeper registers the sockets ([`SocketSet`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dat_plugin::{Failure, Status};
use libfabric_sys::Library;
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;
use parking_lot::Mutex;
use rustix::event::epoll;

use crate::status;

/// Connections of the near queue. Polling costs some 30 ns for each.
pub const NEAR_CHANS: u32 = 16;

/// What a queue is opened on.
pub struct Domain {
    pub library: &'static Library,
    pub domain: *mut fid_domain,
    /// Messages travel in frames: entries need no tag.
    pub framed: bool,
}

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    pub cq: *mut fid_cq,
    pub wait: Wait,
    /// Channels that use it.
    pub users: AtomicU32,
}

/// How a thread waits for a queue.
#[derive(Debug)]
pub enum Wait {
    /// On its descriptor.
    Descriptor(RawFd),
    /// On the sockets behind it, while they are registered.
    Sockets(SocketSet),
    /// Not at all: the fabric wakes no thread, or there is no queue.
    None,
}

impl Cq {
    /// No queue: a placeholder until one is opened.
    pub fn none() -> Cq {
        Cq { cq: ptr::null_mut(), wait: Wait::None, users: AtomicU32::new(0) }
    }

    /// Opens a queue of this many entries, with a wait descriptor if the fabric has one.
    pub fn open(on: &Domain, size: usize) -> Result<Cq, Failure> {
        match Cq::open_with(on, size, FI_WAIT_FD) {
            Err(failure) if failure.status == Status::NOT_SUPPORTED => Cq::open_with(on, size, FI_WAIT_NONE),
            opened => opened,
        }
    }

    /// The same with a wait object of this kind (`FI_WAIT_*`).
    pub fn open_with(on: &Domain, size: usize, wait_obj: u32) -> Result<Cq, Failure> {
        let mut attr = fi_cq_attr {
            size,
            flags: 0,
            format: if on.framed { FI_CQ_FORMAT_DATA } else { FI_CQ_FORMAT_TAGGED },
            wait_obj,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut this = Cq::none();
        // SAFETY: the caller keeps the domain open; the structure is filled and outlives the call.
        let opened = unsafe { fi_cq_open(on.domain, &mut attr, &mut this.cq, ptr::null_mut()) };
        status::check(on.library, "fi_cq_open", opened)?;
        this.wait = match wait_obj {
            FI_WAIT_FD => {
                let mut fd = -1;
                // SAFETY: the queue was just opened, with a descriptor.
                let result = unsafe { fi_wait_fd(this.cq.cast(), &mut fd) };
                status::check(on.library, "descriptor of a completion queue", result)?;
                Wait::Descriptor(fd)
            }
            FI_WAIT_POLLFD => {
                let sockets =
                    SocketSet::new().map_err(|error| Failure::os("a descriptor to sleep on", &error))?;
                // libfabric builds the list of sockets when the queue is read.
                let mut nothing = MaybeUninit::<fi_cq_tagged_entry>::uninit();
                // SAFETY: the queue was just opened; there is room for one entry of the longer format.
                unsafe { fi_cq_read(this.cq, nothing.as_mut_ptr().cast(), 1) };
                let count = sockets.on(this.cq);
                sockets.off();
                status::check(on.library, "FI_GETWAIT", count.err().unwrap_or(0))?;
                if count == Ok(0) {
                    // One descriptor for everything, as with verbs: nothing to gain.
                    let message = "the queue has a single wait descriptor";
                    return Err(Failure::new(Status::NOT_SUPPORTED, message));
                }
                Wait::Sockets(sockets)
            }
            _ => Wait::None,
        };
        Ok(this)
    }

    /// Whether a channel uses it.
    pub fn in_use(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// The descriptor to sleep on.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.wait {
            // SAFETY: the descriptor is open as long as the queue, which this value closes when it is dropped.
            Wait::Descriptor(fd) => Some(unsafe { BorrowedFd::borrow_raw(*fd) }),
            Wait::Sockets(sockets) => Some(sockets.epoll.as_fd()),
            Wait::None => None,
        }
    }

    /// Prepares for a sleep on [`Cq::wait_fd`]. The caller holds the reader's lock.
    pub fn watch(&self) {
        if let Wait::Sockets(sockets) = &self.wait
            && let Err(errno) = sockets.on(self.cq)
        {
            tracing::warn!(errno, "libfabric does not list the sockets to sleep on");
        }
    }

    /// Updates the sockets that others sleep on, after a read. The caller holds the reader's lock.
    pub fn keep_watching(&self) {
        if let Wait::Sockets(sockets) = &self.wait
            && sockets.is_on.load(Ordering::Relaxed)
        {
            self.watch();
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        if self.cq.is_null() {
            return;
        }
        // SAFETY: this value opened the queue. All objects bound to it hold the fabric, which holds this value, so they are
        // closed.
        let result = unsafe { fi_close(self.cq.cast()) };
        if result != 0 {
            tracing::warn!(result, "cannot close a completion queue");
        }
    }
}

// SAFETY: the domain is opened with FI_THREAD_SAFE, so any thread may call, concurrently.
unsafe impl Send for Cq {}
// SAFETY: FI_THREAD_SAFE allows concurrent calls through shared references. {}

/// An epoll descriptor over a changing set of sockets. The set is empty while no thread sleeps, so messages wake nothing.
#[derive(Debug)]
pub struct SocketSet {
    epoll: OwnedFd,
    /// Queues whose sleepers rely on it.
    sleepers: AtomicU32,
    /// The set is registered. Written under its lock; set to true only by a thread that also holds the reader's lock.
    is_on: AtomicBool,
    set: Mutex<Set>,
}

#[derive(Debug)]
struct Set {
    change: u64,
    watched: Vec<libc::pollfd>,
    room: Vec<libc::pollfd>,
}

// SAFETY: `pollfd` is a plain structure of numbers.
unsafe impl Send for Set {}

const NO_FD: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

impl SocketSet {
    fn new() -> io::Result<SocketSet> {
        let set = Set { change: 0, watched: Vec::new(), room: vec![NO_FD; 32] };
        Ok(SocketSet {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sleepers: AtomicU32::new(0),
            is_on: AtomicBool::new(false),
            set: Mutex::new(set),
        })
    }

    /// Registers the queue's sockets and returns their number. Cheap if they are registered already. libfabric changes its
    /// list during reads and copies it without a lock, so the caller holds the reader's lock.
    fn on(&self, cq: *mut fid_cq) -> Result<usize, i32> {
        let mut set = self.set.lock();
        let mut answer;
        loop {
            answer = fi_wait_pollfd { change_index: 0, nfds: set.room.len(), fd: set.room.as_mut_ptr() };
            // SAFETY: the caller's queue is open and of this kind; `room` has the length given.
            match unsafe { fi_wait_pollfds(cq.cast(), &mut answer) } {
                0 => break,
                error if error == -FI_ETOOSMALL => set.room.resize(answer.nfds + 16, NO_FD),
                error => return Err(error),
            }
        }
        let set = &mut *set;
        // The first is libfabric's own signal that the set changed. Polling does not drain it, so it would stay readable.
        // The set changes only with connection events; after those the queue is read, and this is called.
        let now = set.room.get(1..answer.nfds).unwrap_or_default();
        let same = |a: &libc::pollfd, b: &libc::pollfd| a.fd == b.fd && a.events == b.events;
        let unchanged = self.is_on.load(Ordering::Relaxed)
            && set.change == answer.change_index
            && now.len() == set.watched.len();
        if unchanged && now.iter().zip(&set.watched).all(|(a, b)| same(a, b)) {
            return Ok(now.len());
        }
        for old in &set.watched {
            if !now.iter().any(|fd| fd.fd == old.fd) {
                self.forget(old.fd);
            }
        }
        for new in now {
            self.register(new);
        }
        set.watched.clear();
        set.watched.extend_from_slice(now);
        set.change = answer.change_index;
        self.is_on.store(true, Ordering::Relaxed);
        Ok(set.watched.len())
    }

    /// A queue's sleeper begins or ceases to rely on it.
    pub fn count(&self, begins: bool) {
        match begins {
            true => self.sleepers.fetch_add(1, Ordering::SeqCst),
            false => self.sleepers.fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Empties the set, unless a thread sleeps.
    pub fn off(&self) {
        let mut set = self.set.lock();
        if self.sleepers.load(Ordering::SeqCst) > 0 || !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        for old in set.watched.drain(..) {
            self.forget(old.fd);
        }
        self.is_on.store(false, Ordering::Relaxed);
    }

    fn register(&self, fd: &libc::pollfd) {
        if fd.fd < 0 {
            return;
        }
        // SAFETY: the borrow ends with the call. libfabric has the socket open; if it closed it meanwhile, the kernel
        // refuses the number or the next update removes it.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.fd) };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, fd.events & libc::POLLIN != 0);
        flags.set(epoll::EventFlags::OUT, fd.events & libc::POLLOUT != 0);
        let data = epoll::EventData::new_u64(fd.fd as u64);
        // The number may belong to another socket by now.
        let mut result = epoll::add(&self.epoll, borrowed, data, flags);
        if result == Err(rustix::io::Errno::EXIST) {
            result = epoll::modify(&self.epoll, borrowed, data, flags);
        }
        if let Err(error) = result {
            tracing::debug!(%error, fd = fd.fd, "cannot watch a socket");
        }
    }

    fn forget(&self, fd: RawFd) {
        if fd >= 0 {
            // SAFETY: the borrow ends with the call. A closed socket is no longer registered, so an error is harmless.
            let _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }
}
