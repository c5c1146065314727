//! A connection as both halves of a channel see it: shared memory, the peer, and how to wake it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use dat_plugin::{Failure, Status};

use crate::channel::{Chan, RECV, SEND};
use crate::device::Dev;
use crate::handshake::{self, CMA, Hello, MAX_DATA, MEMBARRIER, Packet};
use crate::one_sided;
use crate::peer::{Peer, Waker};
use crate::segment::Segment;
use crate::tx::Hint;
use crate::wait;
use dat_sync::Lock;

/// A connection, from the handshake on.
pub(crate) struct Link {
    pub(crate) segment: Segment,
    pub(crate) peer: Arc<Peer>,
    pub(crate) hello: Hello,
    /// The peer's queues, [`RECV`] and [`SEND`], and the parkings that were answered.
    wakers: [Option<Arc<Waker>>; 2],
    woke: [AtomicU32; 2],
    /// One side does not take part in memory barriers: publishing needs a fence.
    pub(crate) fence: bool,
    /// Access through the kernel works both ways.
    pub(crate) cma: AtomicBool,
    pub(crate) cma_reason: String,
    pub(crate) socket: Arc<OwnedFd>,
    pub(crate) asked: Lock<Vec<(u64, bool)>>,
    pub(crate) active: bool,
    pub(crate) token: u64,
}

impl Link {
    #[allow(clippy::too_many_arguments, reason = "a handshake's parts")]
    pub(crate) fn new(
        chan: &Chan,
        peer: Arc<Peer>,
        mut segment: Segment,
        socket: Arc<OwnedFd>,
        token: u64,
        hello: Hello,
        queues: [Option<OwnedFd>; 2],
        active: bool,
    ) -> Result<Link, (Segment, String)> {
        let mut wakers = [None, None];
        for ((waker, wake), fd) in wakers.iter_mut().zip(hello.wake).zip(queues) {
            if wake.queue != 0 {
                match peer.waker(wake, fd) {
                    Ok(way) => *waker = Some(way),
                    Err(why) => return Err((segment, why)),
                }
            }
        }
        let (cma, cma_reason) = if !chan.dev.params.cma || hello.flags & CMA == 0 {
            (false, "switched off".to_owned())
        } else {
            match peer.try_cma(hello.probe, hello.nonce) {
                Ok(()) => (true, String::new()),
                Err(reason) => (false, reason),
            }
        };
        if active {
            let slot = segment.slot_mut();
            slot.taken();
            if slot.home.is_none() && peer.keeps() {
                peer.pool.adopt(slot.slab());
                slot.home = Some(peer.pool.clone());
            }
        }
        peer.linked(1);
        Ok(Link {
            segment,
            peer,
            fence: !chan.dev.barriers || hello.flags & MEMBARRIER == 0,
            hello,
            wakers,
            woke: Default::default(),
            cma: AtomicBool::new(cma),
            cma_reason,
            socket,
            asked: Lock::default(),
            active,
            token,
        })
    }

    /// After publishing a frame.
    #[inline]
    pub(crate) fn wake_receiver(&self) {
        self.wake(RECV);
    }

    /// After finishing the peer's requests.
    #[inline]
    pub(crate) fn wake_sender(&self) {
        self.wake(SEND);
    }

    /// After publishing a frame: whether [`Link::wake_receiver`] would tell anybody.
    #[inline(always)]
    pub(crate) fn receiver_sleeps(&self) -> bool {
        wait::light_barrier(self.fence);
        self.segment.peer().parked[RECV].load(Ordering::Relaxed) != 0
    }

    /// After finishing a request of the peer's and giving room back: whether the peer is to be told of it.
    #[inline(always)]
    pub(crate) fn sender_sleeps(&self) -> bool {
        wait::light_barrier(self.fence);
        let peer = self.segment.peer();
        peer.parked[SEND].load(Ordering::Relaxed) | peer.want_room.load(Ordering::Relaxed) != 0
    }

    #[inline(always)]
    fn wake(&self, which: usize) {
        wait::light_barrier(self.fence);
        let number = self.segment.peer().parked[which].load(Ordering::Relaxed);
        if number != 0 {
            self.tell(which, number);
        }
    }

    /// Tells a queue of the peer that does not look here, once for each time it was parked.
    #[cold]
    fn tell(&self, which: usize, number: u32) {
        if self.woke[which].swap(number, Ordering::Relaxed) != number
            && let Some(waker) = &self.wakers[which]
            && waker.board.mark(self.hello.wake[which].slot)
        {
            // An eventfd's counter of 2^64 - 2 is the only thing that could block, and one of ours never gets there.
            let _ = rustix::io::write(&waker.fd, &1u64.to_ne_bytes());
        }
    }

    /// Has the peer's event thread look after the connection.
    #[cold]
    pub(crate) fn kick(&self) {
        // When the socket is full the peer has enough to wake up for.
        let _ = handshake::send(&*self.socket, &Packet::Kick, &[]);
    }

    /// Asks for memory of the peer's, once.
    #[cold]
    pub(crate) fn ask_for(&self, map: u64, write: bool) {
        let mut asked = self.asked.lock();
        if !asked.contains(&(map, write)) {
            let sent = handshake::send(&*self.socket, &Packet::MapRequest { map, write }, &[]);
            if sent.is_ok() {
                asked.push((map, write));
            }
        }
    }

    pub(crate) fn peer_left(&self, deadline: Instant) -> bool {
        let busy = &self.segment.peer().busy;
        let before = busy.load(Ordering::SeqCst);
        while before % 2 == 1 && busy.load(Ordering::Acquire) == before {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// Whether a message of this length can be fetched by its receiver from the sender's memory. That memory may be
    /// mapped or not: the kernel's way must work, so that the receiver is never without one.
    pub(crate) fn pull(&self, len: u64) -> bool {
        len <= one_sided::CMA_MOST && self.cma.load(Ordering::Relaxed)
    }

    pub(crate) fn describe(&self, dev: &Dev) -> String {
        let cma = self.cma.load(Ordering::Relaxed);
        let why =
            if cma || self.cma_reason.is_empty() { String::new() } else { format!(" ({})", self.cma_reason) };
        let mode = match dev.params.one_sided {
            crate::params::OneSided::Auto if cma => "mapped, else cma".to_owned(),
            crate::params::OneSided::Auto => format!("mapped, else by the target, no cma{why}"),
            crate::params::OneSided::Mapped => "mapped, else by the target (as configured)".to_owned(),
            crate::params::OneSided::Cma if cma => "cma (as configured)".to_owned(),
            crate::params::OneSided::Cma => {
                format!("by the target: cma is configured but does not work{why}")
            }
            crate::params::OneSided::Target => "by the target (as configured)".to_owned(),
        };
        let params = &dev.params;
        let mut large = Vec::new();
        if cma {
            large.push(format!("mapped from {} bytes", params.map_threshold));
        }
        if params.stage_bytes > 0 {
            let ready = if self.peer.staging.ready().is_some() { "" } else { " once needed" };
            large.push(format!("staged up to {} bytes{ready}", params.stage_most));
        }
        if cma {
            large.push(format!("cma from {} bytes", params.cma_threshold));
        }
        large.push("ring".to_owned());
        let large = large.join(", else ");
        let wake = if self.fence { "fences" } else { "memory barriers" };
        format!(
            "ring {} KiB; one-sided {mode}; large messages {large}; wake-up with {wake}; peer pid {}; {} side",
            self.segment.ring_bytes() / 1024,
            self.peer.pid,
            if self.active { "connecting" } else { "accepting" },
        )
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.peer.linked(-1);
        self.peer.staging.over(self.token);
        self.peer.leave();
    }
}

/// Process and user at the other end; the process is 0 when it is not visible here.
pub(crate) fn peer_credentials(socket: &OwnedFd) -> Option<(u32, u32)> {
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    use std::os::fd::AsRawFd;
    // Not rustix's wrapper: that has no value for a process of another namespace, whose number is 0 here.
    // SAFETY: `cred` and `len` are valid for the call.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut cred).cast(),
            &raw mut len,
        )
    };
    (status == 0 && len as usize == size_of::<libc::ucred>()).then_some((cred.pid as u32, cred.uid))
}

/// What a poll looks at before it takes the lock of the requesting half.
#[derive(Default)]
pub(crate) struct Hints {
    pub(crate) hint: AtomicU32,
    pub(crate) need: AtomicU32,
}

impl Hints {
    /// For [`Hint::Counter`] `need` is the number to be passed. For the others it is one that the counter known here never
    /// passes, or has passed, so that a look need not ask which it is.
    #[inline]
    pub(crate) fn set(&self, hint: Hint, need: u32) {
        self.hint.store(hint as u32, Ordering::Relaxed);
        self.need.store(need, Ordering::Release);
    }
}

/// Private data is not too long.
pub(crate) fn check_data(data: &[u8]) -> Result<(), Failure> {
    if data.len() <= MAX_DATA {
        return Ok(());
    }
    let message = format!("{} bytes of private data, {MAX_DATA} are the most", data.len());
    Err(Failure::new(Status::INVALID, message))
}

/// A failure to get something for a connection: want of it, or a fault.
pub(crate) fn no_resource(what: &str, error: &std::io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            let message =
                format!("{what} for the connection: {error}; free memory or raise the limit of descriptors");
            Failure::new(Status::NO_RESOURCE, message)
        }
        _ => Failure::os(what, error),
    }
}
