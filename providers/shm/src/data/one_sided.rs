//! Access to a peer's memory, by the fastest way there is for a connection and a region:
//! [`mapped`] where the region lies in memory that the peer's device allocated, [`cma`] where the kernel lets this process
//! at the peer's memory, and by a frame where the peer must do it.

use std::sync::atomic::Ordering;

use dat_plugin::{Access, CompletionStatus};

use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{KERNEL_MAX, OneSided};
use crate::memory::bytes::Span;
use crate::memory::cma;
use crate::memory::keys::KeyEntry;
use crate::memory::mapped::{self, MappingCache};
use crate::memory::target::{List, Target};
use crate::notify::barrier;

/// What is done to the peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Write,
    Read,
    /// The operands, and whether it is a comparison with exchange.
    Atomic([u64; 2], bool),
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RdmaResult {
    /// It was executed from here, or refused.
    Done(CompletionStatus),
    /// Memory of the peer's must be mapped first; its answer is awaited.
    Pending,
    /// The peer must execute it.
    Remote,
}

/// Fetches a message out of the peer's memory, which is as long as `list` says, into `segs`, which have room.
pub(crate) fn pull(
    conn: &Conn,
    link: &Link,
    near: &mut MappingCache,
    list: &List,
    segs: &[impl Span],
) -> bool {
    let maps = &link.remote.maps;
    if let ([one], [_]) = (list.parts(), segs)
        && one.map != 0
        && let mapped::Place::At(at) = near.address(maps, one.map, one.offset, one.len, false)
    {
        // SAFETY: the cache gave the address for these bytes just now, for reading.
        unsafe { mapped::copy(at, one.len as usize, segs, true) };
        return true;
    }
    match mapped::pull(maps, list, segs) {
        mapped::Pulled::Done => return true,
        // This message goes through the kernel; the next ones will find the mapping.
        mapped::Pulled::Ask(map) => _ = conn.ask_for(map, false),
        mapped::Pulled::No => {}
    }
    // The probe and the configuration of both sides decide, and not the frame of a peer.
    link.cma.load(Ordering::Relaxed) && cma::pull(link.remote.pid, list, segs)
}

/// Executes an operation between `segs` and the peer's memory, if that can be done from here.
pub(crate) fn execute(
    conn: &Conn,
    link: &Link,
    near: &mut MappingCache,
    target: &Target,
    operation: Operation,
    segs: &[impl Span],
) -> RdmaResult {
    let right = match operation {
        Operation::Write => Access::REMOTE_WRITE,
        Operation::Read => Access::REMOTE_READ,
        Operation::Atomic(..) if target.addr.is_multiple_of(8) => Access::REMOTE_ATOMIC,
        Operation::Atomic(..) => return RdmaResult::Done(CompletionStatus::REMOTE_ACCESS),
    };
    if target.len == 0 {
        return RdmaResult::Done(CompletionStatus::SUCCESS);
    }
    let Some(keys) = link.remote.keys.as_ref().filter(|_| conn.thresholds.one_sided != OneSided::Target)
    else {
        return RdmaResult::Remote;
    };
    let result =
        while_there(link, || match keys.find(target.rkey, target.addr, target.len, right, link.domain) {
            None => RdmaResult::Done(CompletionStatus::REMOTE_ACCESS),
            Some(found) => reach(conn, link, near, target, operation, segs, &found),
        });
    // The peer has left, and the socket tells of it soon.
    result.unwrap_or(RdmaResult::Pending)
}

/// Does something to the peer's memory: its deregistration waits for the end of `f`. `None`: the peer has left.
#[inline]
fn while_there<R>(link: &Link, f: impl FnOnce() -> R) -> Option<R> {
    let own = link.segment.own();
    let busy = own.busy.load(Ordering::Relaxed);
    own.busy.store(busy.wrapping_add(1), Ordering::Relaxed);
    barrier::light_barrier(link.fence);
    let there = link.segment.peer().gone.load(Ordering::Acquire) == 0;
    let result = there.then(f);
    own.busy.store(busy.wrapping_add(2), Ordering::Release);
    result
}

/// Executes an operation on memory whose key is good.
#[inline]
fn reach(
    conn: &Conn,
    link: &Link,
    near: &mut MappingCache,
    target: &Target,
    operation: Operation,
    segs: &[impl Span],
    found: &KeyEntry,
) -> RdmaResult {
    let mode = conn.thresholds.one_sided;
    let read = operation == Operation::Read;
    if found.map != 0
        && mode != OneSided::Cma
        && let Some(offset) = offset(target, found)
    {
        match near.address(&link.remote.maps, found.map, offset, target.len, !read) {
            mapped::Place::At(at) => {
                if let Operation::Atomic(operands, is_swap) = operation {
                    // SAFETY: the cache gave the address of these 8 bytes just now, for writing.
                    let aligned = unsafe { mapped::atomic(at, operands, is_swap, segs) };
                    let refused = CompletionStatus::REMOTE_ACCESS;
                    return RdmaResult::Done(if aligned { CompletionStatus::SUCCESS } else { refused });
                }
                // SAFETY: the cache gave the address for these bytes just now, in this direction.
                unsafe { mapped::copy(at, target.len as usize, segs, read) };
                return RdmaResult::Done(CompletionStatus::SUCCESS);
            }
            mapped::Place::Ask if conn.ask_for(found.map, !read) => return RdmaResult::Pending,
            mapped::Place::Ask | mapped::Place::Refused => {}
        }
    }
    // The kernel has no atomic operations on another process's memory.
    let kernel = !matches!(operation, Operation::Atomic(..)) && mode != OneSided::Mapped;
    if kernel && target.len <= KERNEL_MAX && link.cma.load(Ordering::Relaxed) {
        let done = if read {
            cma::read(link.remote.pid, target.addr, target.len, segs)
        } else {
            cma::write(link.remote.pid, target.addr, target.len, segs)
        };
        match done {
            Ok(()) => return RdmaResult::Done(CompletionStatus::SUCCESS),
            // It worked when the connection was made, and the key is good.
            Err(error) => tracing::warn!(%error, pid = link.remote.pid, "access to the peer's memory failed"),
        }
    }
    RdmaResult::Remote
}

/// Where the target lies in the memory that its row names. The row is the peer's and may hold any number; the mapping checks
/// the result.
fn offset(target: &Target, found: &KeyEntry) -> Option<u64> {
    target.addr.wrapping_sub(found.addr).checked_add(found.offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_with_a_wild_offset_names_no_memory() {
        let target = Target { addr: 0x1010, len: 8, rkey: 1 };
        let found = KeyEntry { addr: 0x1000, map: 1, offset: 64 };
        assert_eq!(offset(&target, &found), Some(80));
        assert_eq!(offset(&target, &KeyEntry { offset: u64::MAX, ..found }), None);
    }
}
