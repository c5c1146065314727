//! Writes and reads of a peer's memory, by the fastest way there is for a connection and a region:
//! [`mapped`] where the region lies in memory the peer's device allocated, [`cma`] where the kernel lets this process
//! at the peer's memory, [`target`] where the peer must do it.

mod cma;
mod mapped;
mod target;

pub(crate) use cma::{MOST as CMA_MOST, try_nonce};
pub(crate) use mapped::{Maps, Near, lent};
pub(crate) use target::{Atomic, List, Part, Target};

use std::sync::atomic::Ordering;

use dat_kit::Stretch;
use dat_plugin::{Access, CompletionStatus};

use crate::channel::Chan;
use crate::link::Link;
use crate::memory::Found;
use crate::params::OneSided;
use crate::tx::Entry;
use crate::wait;

/// What became of a write or read.
pub(crate) enum Outcome {
    /// It was executed from here, or refused.
    Done(CompletionStatus),
    /// Memory of the peer's must be mapped first; the answer to that is awaited.
    Later,
    /// The peer must execute it.
    Target,
}

/// Fetches a message that lies in the peer's memory, which is as long as `list` says, into `segs`, which have room.
pub(crate) fn pull(link: &Link, list: &List, segs: &[Stretch]) -> bool {
    mapped::pull(link, list, segs) || cma::pull(link, list, segs)
}

/// Executes a write, or a read, if that can be done from here.
pub(crate) fn execute(chan: &Chan, link: &Link, entry: &Entry, segs: &[Stretch], read: bool) -> Outcome {
    if entry.total == 0 {
        return Outcome::Done(CompletionStatus::SUCCESS);
    }
    let right = if read { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
    with_key(chan, link, entry, right, |found| reach(chan, link, entry, segs, read, found))
}

/// Executes an atomic operation, if that can be done from here: where the word is mapped. The kernel has no such access.
pub(crate) fn execute_atomic(chan: &Chan, link: &Link, entry: &Entry, segs: &[Stretch]) -> Outcome {
    if !entry.remote_addr.is_multiple_of(8) {
        return Outcome::Done(CompletionStatus::REMOTE_ACCESS);
    }
    with_key(chan, link, entry, Access::REMOTE_ATOMIC, |found| {
        if found.map == 0 || chan.dev.params.one_sided == OneSided::Cma {
            return Outcome::Target;
        }
        let offset = found.offset + (entry.remote_addr - found.addr);
        match link.peer.maps.address(found.map, offset, 8, true) {
            mapped::Place::At(at) => match mapped::atomic(at, entry.operands, entry.is_swap(), segs) {
                true => Outcome::Done(CompletionStatus::SUCCESS),
                false => Outcome::Done(CompletionStatus::REMOTE_ACCESS),
            },
            mapped::Place::Ask => {
                link.ask_for(found.map, true);
                Outcome::Later
            }
            mapped::Place::Refused => Outcome::Target,
        }
    })
}

/// Executes a write or read of `len` bytes, not 0, between `local`, which has as many, and memory of the peer's that is
/// mapped here. `false`: nothing was done; the other way, which tells why, is to be taken.
#[inline]
pub(crate) fn execute_near(
    chan: &Chan,
    link: &Link,
    near: &mut Near,
    remote: &Target,
    local: Stretch,
    read: bool,
) -> bool {
    let right = if read { Access::REMOTE_READ } else { Access::REMOTE_WRITE };
    let Some(keys) = &link.peer.keys else { return false };
    if !matches!(chan.dev.params.one_sided, OneSided::Auto | OneSided::Mapped) {
        return false;
    }
    while_there(link, || {
        let Some(found) = keys.find(remote.rkey, remote.addr, remote.len, right, link.hello.domain) else {
            return false;
        };
        if found.map == 0 {
            return false;
        }
        let offset = found.offset + (remote.addr - found.addr);
        let at = near.address(&link.peer.maps, found.map, offset, remote.len, !read);
        if let Some(at) = at {
            mapped::copy_one(at, local.first(remote.len as usize), read);
        }
        at.is_some()
    })
    .unwrap_or(false)
}

/// Calls `f` with what a request's key names, if it is good; the peer's deregistration waits until that is over.
fn with_key(
    chan: &Chan,
    link: &Link,
    entry: &Entry,
    right: Access,
    f: impl FnOnce(&Found) -> Outcome,
) -> Outcome {
    let mode = chan.dev.params.one_sided;
    let Some(keys) = link.peer.keys.as_ref().filter(|_| mode != OneSided::Target) else {
        return Outcome::Target;
    };
    let outcome = while_there(link, || {
        match keys.find(entry.rkey, entry.remote_addr, entry.total, right, link.hello.domain) {
            None => Outcome::Done(CompletionStatus::REMOTE_ACCESS),
            Some(found) => f(&found),
        }
    });
    outcome.unwrap_or(Outcome::Later)
}

/// Does something to the peer's memory: its deregistration waits for the end of `f`. `None`: the peer has left, of which
/// the socket tells soon.
#[inline]
fn while_there<R>(link: &Link, f: impl FnOnce() -> R) -> Option<R> {
    let own = link.segment.own();
    let busy = own.busy.load(Ordering::Relaxed);
    own.busy.store(busy.wrapping_add(1), Ordering::Relaxed);
    wait::light_barrier(link.fence);
    let there = link.segment.peer().gone.load(Ordering::Acquire) == 0;
    let result = there.then(f);
    own.busy.store(busy.wrapping_add(2), Ordering::Release);
    result
}

fn reach(chan: &Chan, link: &Link, entry: &Entry, segs: &[Stretch], read: bool, found: &Found) -> Outcome {
    let mode = chan.dev.params.one_sided;
    if found.map != 0 && mode != OneSided::Cma {
        let offset = found.offset + (entry.remote_addr - found.addr);
        match link.peer.maps.address(found.map, offset, entry.total, !read) {
            mapped::Place::At(at) => {
                mapped::copy(at, entry.total as usize, segs, read);
                return Outcome::Done(CompletionStatus::SUCCESS);
            }
            mapped::Place::Ask => {
                link.ask_for(found.map, !read);
                return Outcome::Later;
            }
            mapped::Place::Refused => {}
        }
    }
    if mode != OneSided::Mapped && entry.total <= cma::MOST && link.cma.load(Ordering::Relaxed) {
        let done = if read {
            cma::read(link.peer.pid, entry.remote_addr, entry.total, segs)
        } else {
            cma::write(link.peer.pid, entry.remote_addr, entry.total, segs)
        };
        match done {
            Ok(()) => return Outcome::Done(CompletionStatus::SUCCESS),
            // It worked when the connection was made, and the key is good.
            Err(error) => tracing::warn!(%error, pid = link.peer.pid, "access to the peer's memory failed"),
        }
    }
    Outcome::Target
}
