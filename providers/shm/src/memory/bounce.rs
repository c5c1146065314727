//! Areas of bounce buffers: memory of this device that one peer device has mapped, to read, for messages out of memory that it has
//! not. The sender copies a piece in while the receiver copies the one before out. All connections to the peer share one.
//!
//! A piece belongs to a connection from [`BouncePool::take`] to [`BouncePool::give`]. It is given back when the peer's position in the
//! ring says that it went past the frame that named it, or when the connection is over; a peer that still reads it then
//! finds that the connection is over and drops what it read. So a peer can hold up no more than its own
//! connections.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::memory::mapping::{Pages, Seals, SharedMapping};

/// Bytes of a piece: so much that a frame for each costs nothing, so little that two of them stay in a processor's cache.
pub(crate) const PIECE: usize = 32 << 10;
/// Pieces of an area at most.
pub(crate) const PIECES: usize = 64;
/// Pieces one connection holds at most.
pub(crate) const HELD: usize = 4;
/// Areas of a device at most.
const AREAS: u32 = 64;

/// What a peer may lend: bytes at a time, and how many times.
pub(crate) const LENT_BYTES: u64 = 16 << 20;
pub(crate) const LENT_TIMES: u32 = 4;

/// An area.
pub(crate) struct BouncePool {
    memory: SharedMapping,
    /// Its number for the peer.
    pub(crate) map: u64,
    /// A bit for each free piece.
    free: AtomicU64,
}

impl BouncePool {
    fn create(pieces: usize, map: u64) -> io::Result<BouncePool> {
        let pieces = pieces.clamp(1, PIECES);
        let len = pieces * PIECE;
        let memory = SharedMapping::create("dat-shm-bounce", len, Pages::Normal, Seals::MakerWrites)?;
        memory.fill(0, len)?;
        Ok(BouncePool { memory, map, free: AtomicU64::new(u64::MAX >> (PIECES - pieces)) })
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.memory.file()
    }

    pub(crate) fn len(&self) -> u64 {
        self.memory.len() as u64
    }

    /// A piece for the caller alone: the lowest, which is the likeliest to be in a cache.
    pub(crate) fn take(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Relaxed);
        while free != 0 {
            let rest = free & (free - 1);
            match self.free.compare_exchange_weak(free, rest, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(free.trailing_zeros()),
                Err(now) => free = now,
            }
        }
        None
    }

    /// Gives a piece back that was taken.
    pub(crate) fn give(&self, piece: u32) {
        let before = self.free.fetch_or(1 << piece, Ordering::Release);
        debug_assert!(before & 1 << piece == 0, "piece {piece} was free");
    }

    /// Where a piece is in the area.
    pub(crate) fn offset(piece: u32) -> usize {
        piece as usize * PIECE
    }

    /// Where it is in memory; it is [`PIECE`] bytes long.
    pub(crate) fn at(&self, piece: u32) -> *mut u8 {
        self.memory.base().wrapping_add(BouncePool::offset(piece))
    }
}

/// The area for one peer: made when a message could have used it, in use once the peer says that it has mapped it.
#[derive(Default)]
pub(crate) struct BounceState {
    area: OnceLock<BouncePool>,
    state: AtomicU8,
    /// The connection whose peer was sent it; held while the state goes to or from [`OFFERED`].
    by: Mutex<u64>,
    /// How often the peer lent this side something.
    lent: AtomicU32,
}

const NONE: u8 = 0;
const WANTED: u8 = 1;
const OFFERED: u8 = 2;
const READY: u8 = 3;
const REFUSED: u8 = 4;

impl BounceState {
    /// The area, if the peer has it.
    #[inline]
    pub(crate) fn ready(&self) -> Option<&BouncePool> {
        if self.state.load(Ordering::Acquire) == READY { self.area.get() } else { None }
    }

    /// A message could use it. `true`: the event thread must see to it.
    #[cold]
    pub(crate) fn want(&self) -> bool {
        self.state.compare_exchange(NONE, WANTED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The area, when it is to be sent to the peer over connection `token`. `areas` counts those of the device.
    pub(crate) fn offer(
        &self,
        token: u64,
        bytes: usize,
        areas: &AtomicU32,
        number: impl FnOnce() -> u64,
    ) -> Option<&BouncePool> {
        // Asked by every connection again and again, nearly always in vain.
        if self.state.load(Ordering::Relaxed) != WANTED {
            return None;
        }
        {
            let mut by = self.by();
            self.state.compare_exchange(WANTED, OFFERED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
            *by = token;
        }
        if self.area.get().is_none() {
            if bytes < PIECE || areas.fetch_add(1, Ordering::Relaxed) >= AREAS {
                if bytes >= PIECE {
                    areas.fetch_sub(1, Ordering::Relaxed);
                }
                self.state.store(REFUSED, Ordering::Release);
                return None;
            }
            match BouncePool::create(bytes / PIECE, number()) {
                Ok(stage) => self.area.set(stage).ok(),
                Err(error) => {
                    tracing::warn!(%error, "a bounce area; large messages take another way");
                    areas.fetch_sub(1, Ordering::Relaxed);
                    self.state.store(REFUSED, Ordering::Release);
                    return None;
                }
            };
        }
        self.area.get()
    }

    fn by(&self) -> MutexGuard<'_, u64> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The peer's word on what it was sent. `false`: it was not.
    pub(crate) fn answered(&self, token: u64, map: u64, ok: bool) -> bool {
        let by = self.by();
        let offered = *by == token && self.area.get().is_some_and(|stage| stage.map == map);
        let state = if ok { READY } else { REFUSED };
        offered && self.state.compare_exchange(OFFERED, state, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A connection is over; if its peer had not answered, the peer of another connection is asked.
    pub(crate) fn over(&self, token: u64) {
        let by = self.by();
        if *by == token {
            let _ = self.state.compare_exchange(OFFERED, NONE, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// The peer lends this side something. `false`: too often, or too much.
    pub(crate) fn may_lend(&self, len: u64) -> bool {
        (1..=LENT_BYTES).contains(&len) && self.lent.fetch_add(1, Ordering::Relaxed) < LENT_TIMES
    }

    /// Whether there is an area, to be counted out when the peer goes.
    pub(crate) fn is_made(&self) -> bool {
        self.area.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    fn pieces_are_taken_once_and_given_back() {
        let stage = BouncePool::create(3, 9).unwrap();
        let taken = [stage.take(), stage.take(), stage.take()];
        assert_eq!(taken, [Some(0), Some(1), Some(2)]);
        assert_eq!(stage.take(), None);
        stage.give(1);
        assert_eq!(stage.take(), Some(1));
        assert_eq!(stage.len(), 3 * PIECE as u64);
    }

    #[test]
    #[cfg_attr(miri, ignore = "memory files")]
    fn an_area_is_used_once_the_peer_has_it() {
        let (bounce, areas) = (BounceState::default(), AtomicU32::new(0));
        assert!(bounce.offer(5, 8 * PIECE, &areas, || 7).is_none(), "nobody wants it");
        assert!(bounce.want() && !bounce.want());
        assert_eq!(bounce.offer(5, 8 * PIECE, &areas, || 7).map(|stage| stage.map), Some(7));
        assert!(bounce.ready().is_none());
        // Another connection is looked after before the answer comes: it changes nothing.
        assert!(bounce.offer(6, 8 * PIECE, &areas, || 8).is_none());
        assert!(!bounce.answered(6, 7, true) && !bounce.answered(5, 8, true));
        // The connection ends before the answer; the next one offers the same area.
        bounce.over(5);
        assert!(!bounce.answered(5, 7, true) && bounce.want());
        assert_eq!(bounce.offer(6, 8 * PIECE, &areas, || 99).map(|stage| stage.map), Some(7));
        assert!(bounce.answered(6, 7, true) && bounce.ready().is_some());
        assert!(!bounce.answered(6, 7, false), "once");
        assert_eq!(areas.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn what_is_switched_off_or_too_much_is_refused() {
        let bounce = BounceState::default();
        bounce.want();
        assert!(bounce.offer(1, 0, &AtomicU32::new(0), || 1).is_none() && !bounce.want());
        let (bounce, full) = (BounceState::default(), AtomicU32::new(AREAS));
        bounce.want();
        assert!(bounce.offer(1, 8 * PIECE, &full, || 1).is_none());
        assert_eq!(full.load(Ordering::Relaxed), AREAS);
        assert!(!bounce.may_lend(0) && !bounce.may_lend(LENT_BYTES + 1));
        assert!((0..LENT_TIMES).all(|_| bounce.may_lend(1)) && !bounce.may_lend(1));
    }
}
