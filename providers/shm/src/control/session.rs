//! A connection as the control plane sees it: the socket, the peer, and what was asked of it.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_plugin::{Failure, Status};

use crate::control::device::Dev;
use crate::control::handshake::{self, CMA, Hello, MAX_DATA, MEMBARRIER, Packet};
use crate::control::peer::Peer;
use crate::data::link::Link;
use crate::data::protocol::OneSided;
use crate::data::segment::Segment;
use crate::data::select;
use crate::foreign::ForeignFd;

/// How many descriptors of its memory one peer can make this process ask for, over all its connections.
pub(crate) const MAX_ASKED: u32 = 4096;

/// After this time without an answer the request is repeated: the answer may have met a full socket.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// How many requests are repeated at a time.
const AGAIN: usize = 16;

/// From the handshake to the end of the connection.
pub(crate) struct Session {
    pub(crate) socket: Arc<ForeignFd>,
    pub(crate) token: u64,
    pub(crate) peer: Arc<Peer>,
    /// This side connected.
    active: bool,
    /// Why access through the kernel does not work.
    cma_reason: String,
    /// Memory of the peer's that was asked for, and when, until the answer is here.
    asked: Mutex<HashMap<(u64, bool), Option<Instant>>>,
}

/// What a handshake leads to.
pub(crate) struct Established {
    pub(crate) session: Session,
    pub(crate) link: Link,
    /// Access through the kernel works from here.
    pub(crate) cma: bool,
}

impl Session {
    #[allow(clippy::too_many_arguments, reason = "a handshake's parts")]
    pub(crate) fn establish(
        dev: &Dev,
        peer: Arc<Peer>,
        mut segment: Segment,
        socket: Arc<ForeignFd>,
        token: u64,
        hello: Hello,
        active: bool,
    ) -> Result<Established, (Segment, String)> {
        let mut wakers = [None, None];
        for (waker, wake) in wakers.iter_mut().zip(hello.wake) {
            if wake.queue != 0 {
                match peer.waker(wake) {
                    Ok(known) => *waker = Some((known, wake.slot)),
                    Err(why) => return Err((segment, why)),
                }
            }
        }
        let (cma, cma_reason) = if !dev.params.cma || hello.flags & CMA == 0 {
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
        let fence = !dev.barriers || hello.flags & MEMBARRIER == 0;
        let link = Link::new(segment, peer.memory.clone(), hello.domain, hello.reads_in, wakers, fence, cma);
        let session = Session { socket, token, peer, active, cma_reason, asked: Mutex::default() };
        Ok(Established { session, link, cma })
    }

    /// `false`: the socket has no room, or the peer is gone, which the socket reports in order.
    pub(crate) fn send(&self, packet: &Packet) -> bool {
        handshake::send(&*self.socket, packet, &[]).is_ok()
    }

    /// The peer freed this memory: it counts no more.
    pub(crate) fn forget(&self, map: u64) {
        let mut asked = self.asked();
        let before = asked.len();
        asked.retain(|(known, _), _| *known != map);
        self.peer.memory.asked.fetch_sub((before - asked.len()) as u32, Ordering::Relaxed);
    }

    /// Asks for memory of the peer's, once. `false`: the peer made this process ask for too much.
    pub(crate) fn ask_for(&self, map: u64, write: bool) -> bool {
        let mut asked = self.asked();
        if asked.contains_key(&(map, write)) {
            return true;
        }
        let count = &self.peer.memory.asked;
        if count.fetch_add(1, Ordering::Relaxed) >= MAX_ASKED {
            count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        asked.insert((map, write), Some(Instant::now()));
        drop(asked);
        self.send(&Packet::MapRequest { map, write });
        true
    }

    /// Asks again for what was not answered for long.
    pub(crate) fn ask_again(&self) {
        let now = Instant::now();
        let mut asked = self.asked();
        let open = asked.iter_mut().filter_map(|(key, since)| Some((key, since.as_mut()?)));
        for ((map, write), since) in
            open.filter(|(_, since)| now.duration_since(**since) >= ASK_AGAIN).take(AGAIN)
        {
            *since = now;
            self.send(&Packet::MapRequest { map: *map, write: *write });
        }
    }

    /// The peer answered. `false`: it was not asked.
    pub(crate) fn answered(&self, map: u64, write: bool) -> bool {
        match self.asked().get_mut(&(map, write)) {
            Some(since) => {
                *since = None;
                true
            }
            None => false,
        }
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<(u64, bool), Option<Instant>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn describe(&self, dev: &Dev, link: &Link) -> String {
        let (params, cma) = (&dev.params, link.cma.load(Ordering::Relaxed));
        let why =
            if cma || self.cma_reason.is_empty() { String::new() } else { format!(" ({})", self.cma_reason) };
        let mode = match params.one_sided {
            OneSided::Auto if cma => "mapped, else cma".to_owned(),
            OneSided::Auto => format!("mapped, else by the target, no cma{why}"),
            OneSided::Mapped => "mapped, else by the target (as configured)".to_owned(),
            OneSided::Cma if cma => "cma (as configured)".to_owned(),
            OneSided::Cma => format!("by the target: cma is configured but does not work{why}"),
            OneSided::Target => "by the target (as configured)".to_owned(),
        };
        let mut large = Vec::new();
        if cma {
            large.push(format!("mapped from {} bytes", params.map_threshold));
        }
        if cma {
            large.push(match params.cma_threshold {
                Some(least) => format!("cma from {least} bytes"),
                None => {
                    let word = link.segment.peer().by_kernel.load(Ordering::Relaxed);
                    format!("cma where it is faster ({})", select::describe(word))
                }
            });
        }
        large.push("ring".to_owned());
        let large = large.join(", else ");
        let wake = if link.fence { "fences" } else { "memory barriers" };
        format!(
            "ring {} KiB; one-sided {mode}; large messages {large}; wake-up with {wake}; peer pid {}; {} side",
            link.segment.ring_bytes() / 1024,
            self.peer.pid,
            if self.active { "connecting" } else { "accepting" },
        )
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let asked = self.asked().len() as u32;
        self.peer.memory.asked.fetch_sub(asked, Ordering::Relaxed);
        self.peer.linked(-1);
        self.peer.leave();
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

/// A failure to get something for a connection.
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
