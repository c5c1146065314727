//! Completion queues of libfabric, and how a thread sleeps until one of them has something.
//!
//! A device has a *far* queue, whose descriptor the kernel keeps ready for sleepers. That costs every message: waking a
//! sleeper that is not there was measured as a tenth of a small message's time over TCP. So a device with connected
//! endpoints has a *near* queue besides, where the fabric has that kind, for its first [`NEAR_CHANS`] connections: polling
//! it asks the kernel about each socket, which is quicker while they are few, and who wants to sleep registers the
//! sockets for that time ([`Naps`]).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;
use parking_lot::Mutex;
use rustix::event::epoll;

use crate::fabric::Fabric;

/// Connections of the near queue: polling costs some 30 ns for each.
pub const NEAR_CHANS: u32 = 16;

/// A completion queue.
#[derive(Debug)]
pub struct Cq {
    pub cq: *mut fid_cq,
    pub wait: Wait,
    /// Channels that may have something in it.
    chans: AtomicU32,
}

/// How a thread waits for a queue.
#[derive(Debug)]
pub enum Wait {
    /// By its descriptor.
    Descriptor(RawFd),
    /// By the descriptors behind it, as far as they are registered.
    Sockets(Naps),
    /// By nothing: nobody is woken, or there is no queue.
    None,
}

impl Cq {
    /// None: stands for one that is still to be opened.
    pub fn none() -> Cq {
        Cq { cq: ptr::null_mut(), wait: Wait::None, chans: AtomicU32::new(0) }
    }

    /// Opens a queue of this many entries, with a descriptor if the fabric has any.
    pub fn open(fabric: &Fabric, size: usize) -> Result<Cq, Failure> {
        match Cq::open_with(fabric, size, FI_WAIT_FD) {
            Err(failure) if failure.status == Status::NOT_SUPPORTED => {
                Cq::open_with(fabric, size, FI_WAIT_NONE)
            }
            opened => opened,
        }
    }

    /// The same with a wait object of the kind.
    pub fn open_with(fabric: &Fabric, size: usize, wait_obj: u32) -> Result<Cq, Failure> {
        let mut attr = fi_cq_attr {
            size,
            flags: 0,
            format: if fabric.limits.framed { FI_CQ_FORMAT_DATA } else { FI_CQ_FORMAT_TAGGED },
            wait_obj,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
        };
        let mut this = Cq::none();
        // SAFETY: an open domain, a filled structure.
        let opened = unsafe { fi_cq_open(fabric.domain, &mut attr, &mut this.cq, ptr::null_mut()) };
        fabric.check("fi_cq_open", opened)?;
        this.wait = match wait_obj {
            FI_WAIT_FD => {
                let mut fd = -1;
                // SAFETY: just opened, with a descriptor.
                let result = unsafe { fi_wait_fd(this.cq.cast(), &mut fd) };
                fabric.check("descriptor of a completion queue", result)?;
                Wait::Descriptor(fd)
            }
            FI_WAIT_POLLFD => {
                let naps = Naps::new().map_err(|error| Failure::os("a descriptor to sleep on", &error))?;
                // The list is made up when the queue is read.
                let mut nothing = MaybeUninit::<fi_cq_tagged_entry>::uninit();
                // SAFETY: just opened, room for one entry of the longer format; there is none yet.
                unsafe { fi_cq_read(this.cq, nothing.as_mut_ptr().cast(), 1) };
                let told = naps.on(this.cq);
                naps.off();
                fabric.check("FI_GETWAIT", told.err().unwrap_or(0))?;
                if told == Ok(0) {
                    // One descriptor for everything, as verbs has it: nothing is won, and it is none to leave out.
                    let message = "the queue is woken by a single descriptor";
                    return Err(Failure::new(Status::NOT_SUPPORTED, message));
                }
                Wait::Sockets(naps)
            }
            _ => Wait::None,
        };
        Ok(this)
    }

    /// Whether anything can be in it.
    pub fn in_use(&self) -> bool {
        self.chans.load(Ordering::Relaxed) > 0
    }

    /// What to sleep on.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.wait {
            // SAFETY: open as long as the queue, which this value closes.
            Wait::Descriptor(fd) => Some(unsafe { BorrowedFd::borrow_raw(*fd) }),
            Wait::Sockets(naps) => Some(naps.epoll.as_fd()),
            Wait::None => None,
        }
    }

    /// Somebody is going to sleep on [`Cq::wait_fd`]. For who has the reader's lock.
    pub fn watch(&self) {
        if let Wait::Sockets(naps) = &self.wait
            && let Err(errno) = naps.on(self.cq)
        {
            tracing::warn!(errno, "libfabric does not tell what to sleep on");
        }
    }

    /// It was read, which may have changed what others sleep on. For who has the reader's lock.
    pub fn keep_watching(&self) {
        if let Wait::Sockets(naps) = &self.wait
            && naps.is_on.load(Ordering::Relaxed)
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
        // SAFETY: opened by this value; whatever was bound to it holds the fabric, which holds this, and is closed.
        let result = unsafe { fi_close(self.cq.cast()) };
        if result != 0 {
            tracing::warn!(result, "closing a completion queue");
        }
    }
}

// SAFETY: opened with FI_THREAD_SAFE: every call may be made from any thread, concurrently.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

/// A channel's place in a queue; while there is one the queue is looked at.
#[derive(Debug)]
pub struct Share {
    fabric: Arc<Fabric>,
    near: bool,
}

impl Share {
    pub fn take(fabric: &Arc<Fabric>) -> Share {
        let near = fabric.near.as_ref().is_some_and(|near| {
            let before = near.chans.fetch_add(1, Ordering::Relaxed);
            if before >= NEAR_CHANS {
                near.chans.fetch_sub(1, Ordering::Relaxed);
            }
            before < NEAR_CHANS
        });
        let this = Share { fabric: fabric.clone(), near };
        if !near {
            this.cq().chans.fetch_add(1, Ordering::Relaxed);
        }
        this
    }

    pub fn cq(&self) -> &Cq {
        match &self.fabric.near {
            Some(near) if self.near => near,
            _ => &self.fabric.far,
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.cq().chans.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A descriptor that is readable when one of a changing set is, while somebody sleeps on it. While nobody does the set is
/// empty, so that messages wake nothing.
#[derive(Debug)]
pub struct Naps {
    epoll: OwnedFd,
    /// Queues whose sleepers count on it.
    sleepers: AtomicU32,
    /// The set is kept. Written under its lock, by who has the reader's too when it becomes true.
    is_on: AtomicBool,
    set: Mutex<Set>,
}

#[derive(Debug)]
struct Set {
    change: u64,
    watched: Vec<libc::pollfd>,
    room: Vec<libc::pollfd>,
}

// SAFETY: a plain structure of numbers.
unsafe impl Send for Set {}

const NO_FD: libc::pollfd = libc::pollfd { fd: -1, events: 0, revents: 0 };

impl Naps {
    fn new() -> io::Result<Naps> {
        let set = Set { change: 0, watched: Vec::new(), room: vec![NO_FD; 32] };
        Ok(Naps {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sleepers: AtomicU32::new(0),
            is_on: AtomicBool::new(false),
            set: Mutex::new(set),
        })
    }

    /// Registers what the queue depends on now. Cheap when that is registered already. The library changes its list while
    /// it reads, and copies it out without a lock against that: hence the reader's. How many there are.
    fn on(&self, cq: *mut fid_cq) -> Result<usize, i32> {
        let mut set = self.set.lock();
        let mut answer;
        loop {
            answer = fi_wait_pollfd { change_index: 0, nfds: set.room.len(), fd: set.room.as_mut_ptr() };
            // SAFETY: an open queue of this kind; room for so many descriptors.
            match unsafe { fi_wait_pollfds(cq.cast(), &mut answer) } {
                0 => break,
                error if error == -FI_ETOOSMALL => set.room.resize(answer.nfds + 16, NO_FD),
                error => return Err(error),
            }
        }
        let set = &mut *set;
        // The first is the library's own signal that the set changed. Who polls does not read it, so it stays readable;
        // what changes the set is a connection event, after which the queue is read, and this is called.
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

    /// A queue's sleepers begin or cease to count on it.
    pub fn count(&self, begins: bool) {
        match begins {
            true => self.sleepers.fetch_add(1, Ordering::SeqCst),
            false => self.sleepers.fetch_sub(1, Ordering::SeqCst),
        };
    }

    /// Nobody sleeps, unless somebody does.
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
        // SAFETY: the library has it open; if it is closed meanwhile the kernel says so, or the next look does.
        let borrowed = unsafe { BorrowedFd::borrow_raw(fd.fd) };
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN, fd.events & libc::POLLIN != 0);
        flags.set(epoll::EventFlags::OUT, fd.events & libc::POLLOUT != 0);
        let data = epoll::EventData::new_u64(fd.fd as u64);
        // A number may stand for another socket than when it was registered.
        let mut result = epoll::add(&self.epoll, borrowed, data, flags);
        if result == Err(rustix::io::Errno::EXIST) {
            result = epoll::modify(&self.epoll, borrowed, data, flags);
        }
        if let Err(error) = result {
            tracing::debug!(%error, fd = fd.fd, "a socket to sleep on");
        }
    }

    fn forget(&self, fd: RawFd) {
        if fd >= 0 {
            // SAFETY: as for `register`; a closed one is not registered any more, which is as good.
            let _ = epoll::delete(&self.epoll, unsafe { BorrowedFd::borrow_raw(fd) });
        }
    }
}
