//! Where peers say which channels of a queue have something to be taken.
//!
//! A queue looks at the few channels that are at work itself. The others are parked: a flag in the control number asks
//! the peer to mark a channel on the queue's board when it publishes something, and a poll looks at one word of the
//! board. So polling and going to sleep cost in proportion to the channels at work. The boards of a device are one file,
//! which peers map once. Each has a bit for each channel, a bit for each word of those, and one word for all.
//!
//! Peers are not to be believed: a mark says no more than that a look may be worth while.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::segment::{map_shared, memory_file, unmap};

/// Boards of a device.
pub(crate) const BOARDS: usize = 4096;
/// Bytes of one, in pages.
const SIZE: usize = 3 * 4096;
const FILE: usize = BOARDS * SIZE;

const ANY: usize = 0;
const ARMED: usize = 64;
const SUMMARY: usize = 128;
const WORDS: usize = 256;
/// Channels a board has room for.
pub(crate) const SLOTS: usize = (WORDS - SUMMARY) / 8 * 64 * 64;

const _: () = assert!(WORDS + SLOTS / 8 <= SIZE);

/// The boards of this device.
pub(crate) struct Boards {
    map: Arc<Map>,
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    used: u32,
    free: Vec<u32>,
}

/// A mapped file of boards, of this device or of a peer's.
pub(crate) struct Map {
    base: *mut u8,
    fd: OwnedFd,
    owner: u32,
}

// SAFETY: memory of atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// One board.
#[derive(Clone)]
pub(crate) struct Board {
    /// Inside the mapping.
    base: *mut u8,
    number: u32,
    _map: Arc<Map>,
}

// SAFETY: memory of atomics, mapped as long as `_map`.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Boards {
    pub(crate) fn new() -> io::Result<Boards> {
        let fd = memory_file("dat-shm-boards", MemfdFlags::empty(), FILE as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(Boards { map: Arc::new(Map::new(fd)?), numbers: Mutex::default() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.map.fd.as_fd()
    }

    /// An empty board.
    pub(crate) fn take(&self) -> io::Result<Board> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match numbers.free.pop() {
            Some(number) => number,
            None if (numbers.used as usize) < BOARDS => {
                numbers.used += 1;
                numbers.used - 1
            }
            None => return Err(rustix::io::Errno::NOMEM.into()),
        };
        drop(numbers);
        let board = self.map.board(number).inspect_err(|_| self.give_back(number))?;
        board.u32_at(ARMED).store(0, Ordering::SeqCst);
        board.collect(|_| {});
        Ok(board)
    }

    pub(crate) fn give_back(&self, number: u32) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
    }
}

impl Map {
    fn new(fd: OwnedFd) -> io::Result<Map> {
        Ok(Map { base: map_shared(&fd, FILE, true)?, fd, owner: std::process::id() })
    }

    /// The file a peer sent.
    pub(crate) fn open(fd: OwnedFd) -> Result<Map, String> {
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|e| format!("no memory descriptor: {e}"))?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| format!("fstat: {e}"))?;
        if !seals.contains(SealFlags::SHRINK) || stat.st_size != FILE as i64 {
            return Err("boards that may shrink, or of another size".into());
        }
        Map::new(fd).map_err(|e| format!("mmap: {e}"))
    }

    /// One board. Its memory is there from now on: a hole would be filled on access, which may fail with a signal.
    pub(crate) fn board(self: &Arc<Map>, number: u32) -> io::Result<Board> {
        if number as usize >= BOARDS {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let at = u64::from(number) * SIZE as u64;
        rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), at, SIZE as u64)?;
        let base = self.base.wrapping_add(number as usize * SIZE);
        Ok(Board { base, number, _map: self.clone() })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        unmap(self.base, FILE, self.owner);
    }
}

impl Board {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Says that a channel has something; `true`: its queue sleeps. A full barrier lies between the two.
    pub(crate) fn mark(&self, slot: u32) -> bool {
        let slot = slot as usize % SLOTS;
        let word = slot / 64;
        self.u64_at(WORDS + word * 8).fetch_or(1 << (slot % 64), Ordering::SeqCst);
        self.u64_at(SUMMARY + word / 64 * 8).fetch_or(1 << (word % 64), Ordering::SeqCst);
        // It was set before the queue cleared it, and the queue looks at the rest after that.
        if self.u32_at(ANY).load(Ordering::SeqCst) == 0 {
            self.u32_at(ANY).swap(1, Ordering::SeqCst);
        }
        self.u32_at(ARMED).load(Ordering::SeqCst) != 0
    }

    /// Whether anything was marked.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.u32_at(ANY).load(Ordering::Relaxed) != 0
    }

    /// The queue goes to sleep, or wakes up.
    pub(crate) fn arm(&self, armed: bool) {
        self.u32_at(ARMED).store(armed as u32, Ordering::SeqCst);
    }

    /// Takes all marks.
    pub(crate) fn collect(&self, mut marked: impl FnMut(usize)) {
        self.u32_at(ANY).swap(0, Ordering::SeqCst);
        for group in 0..(WORDS - SUMMARY) / 8 {
            let summary = self.u64_at(SUMMARY + group * 8);
            if summary.load(Ordering::SeqCst) == 0 {
                continue;
            }
            for word in bits(summary.swap(0, Ordering::SeqCst)) {
                let word = group * 64 + word;
                for bit in bits(self.u64_at(WORDS + word * 8).swap(0, Ordering::SeqCst)) {
                    marked(word * 64 + bit);
                }
            }
        }
    }

    #[inline]
    fn u32_at(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside the board, which is inside the mapping; aligned; as long as `_map`.
        unsafe { &*self.base.add(at).cast() }
    }

    #[inline]
    fn u64_at(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.base.add(at).cast() }
    }
}

/// Which bits are set.
fn bits(mut value: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = value.trailing_zeros() as usize;
        value &= value.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(board: &Board) -> Vec<usize> {
        let mut found = Vec::new();
        board.collect(|slot| found.push(slot));
        found
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn marks_are_taken_once_wherever_they_are() {
        let boards = Boards::new().unwrap();
        let (board, other) = (boards.take().unwrap(), boards.take().unwrap());
        let slots = [0, 1, 63, 64, 4095, 4096, SLOTS - 1];
        for slot in slots {
            assert!(!board.any() && !board.mark(slot as u32) && board.any(), "{slot}");
            assert_eq!(taken(&board), [slot]);
        }
        for slot in slots {
            board.mark(slot as u32);
        }
        assert_eq!(taken(&board), slots);
        assert!(taken(&board).is_empty() && !other.any());
        board.arm(true);
        assert!(board.mark(7), "armed");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_board_that_is_used_again_is_empty() {
        let boards = Boards::new().unwrap();
        let board = boards.take().unwrap();
        board.mark(3);
        board.arm(true);
        let number = board.number();
        boards.give_back(number);
        let again = boards.take().unwrap();
        assert_eq!(again.number(), number);
        assert!(!again.any() && !again.mark(4));
        assert_eq!(taken(&again), [4]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_peer_maps_what_is_sound_and_nothing_else() {
        let boards = Boards::new().unwrap();
        let board = boards.take().unwrap();
        let theirs = Arc::new(Map::open(boards.fd().try_clone_to_owned().unwrap()).unwrap());
        assert!(theirs.board(BOARDS as u32).is_err());
        theirs.board(board.number()).unwrap().mark(9);
        assert_eq!(taken(&board), [9]);
        let small = rustix::fs::memfd_create("small", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&small, 4096).unwrap();
        assert!(Map::open(small).is_err());
        let loose = rustix::fs::memfd_create("loose", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, FILE as u64).unwrap();
        assert!(Map::open(loose).is_err());
    }

    /// Marks that threads make while another takes them: none is lost.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn no_mark_is_lost() {
        const TURNS: u64 = 20_000;
        let boards = Boards::new().unwrap();
        let board = boards.take().unwrap();
        // Each writer counts up and marks; the reader has seen the last count of each when it has seen its last mark.
        let counts: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (index, count) in counts.iter().enumerate() {
                let board = board.clone();
                scope.spawn(move || {
                    for turn in 1..=TURNS {
                        count.store(turn, Ordering::Relaxed);
                        board.mark(index as u32 * 70);
                    }
                });
            }
            let mut seen = [0; 2];
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while seen != [TURNS; 2] {
                if board.any() {
                    board.collect(|slot| seen[slot / 70] = counts[slot / 70].load(Ordering::Relaxed));
                }
                assert!(std::time::Instant::now() < deadline, "{seen:?}");
            }
        });
    }
}
