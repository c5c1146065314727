//! Where peers say which channels of a queue have something to be taken.
//!
//! A queue looks at the few channels that are at work itself. The others are parked: a flag in the control number asks
//! the peer to mark a channel on the queue's bitmap when it publishes something, and a poll looks at one word of the
//! bitmap. So polling and going to sleep cost in proportion to the channels at work. The bitmaps of a device are one file,
//! which peers map once. Each has a bit for each channel, a bit for each word of those, and one word for all.
//!
//! Peers are not to be believed: a mark says no more than that a look may be worth while.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::foreign::ForeignFd;
use crate::memory::mapping::{Expected, Pages, Seals, SharedMapping};

/// Ready bitmaps of a device at most.
pub(crate) const BITMAPS: usize = 4096;
/// Bytes of one, in pages.
const SIZE: usize = 3 * 4096;
const FILE: usize = BITMAPS * SIZE;

const ANY: usize = 0;
const ARMED: usize = 64;
const SUMMARY: usize = 128;
const WORDS: usize = 256;
/// Channels a bitmap has room for.
pub(crate) const SLOTS: usize = (WORDS - SUMMARY) / 8 * 64 * 64;

const _: () = assert!(WORDS + SLOTS / 8 <= SIZE);

/// The bitmaps of this device.
pub(crate) struct ReadyBitmaps {
    map: Arc<BitmapFile>,
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    used: u32,
    free: Vec<u32>,
}

/// A mapped file of bitmaps, of this device or of a peer's.
pub(crate) struct BitmapFile(SharedMapping);

/// One bitmap.
#[derive(Clone)]
pub(crate) struct ReadyBitmap {
    /// Inside the mapping.
    base: *mut u8,
    number: u32,
    _map: Arc<BitmapFile>,
}

// SAFETY: memory of atomics, mapped as long as `_map`.
unsafe impl Send for ReadyBitmap {}
// SAFETY: as above.
unsafe impl Sync for ReadyBitmap {}

impl ReadyBitmaps {
    pub(crate) fn new() -> io::Result<ReadyBitmaps> {
        let map = SharedMapping::create("dat-shm-bitmaps", FILE, Pages::Normal, Seals::BothWrite)?;
        Ok(ReadyBitmaps { map: Arc::new(BitmapFile(map)), numbers: Mutex::default() })
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.map.0.file()
    }

    /// An empty bitmap.
    pub(crate) fn take(&self) -> io::Result<ReadyBitmap> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match numbers.free.pop() {
            Some(number) => number,
            None if (numbers.used as usize) < BITMAPS => {
                numbers.used += 1;
                numbers.used - 1
            }
            None => return Err(rustix::io::Errno::NOMEM.into()),
        };
        drop(numbers);
        let bitmap = self.map.bitmap(number).inspect_err(|_| self.give_back(number))?;
        bitmap.u32_at(ARMED).store(0, Ordering::SeqCst);
        bitmap.drain(|_| {});
        Ok(bitmap)
    }

    pub(crate) fn give_back(&self, number: u32) {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner).free.push(number);
    }
}

impl BitmapFile {
    /// The file a peer sent.
    pub(crate) fn open(fd: ForeignFd) -> Result<BitmapFile, String> {
        // ReadyBitmaps are filled one by one, when they are used.
        let expected = Expected { len: FILE as u64, seals: Seals::BothWrite, huge: false, filled: false };
        SharedMapping::open(fd, expected).map(BitmapFile).map_err(|why| format!("bitmaps: {why}"))
    }

    /// One bitmap. Its memory is there from now on: a hole would be filled on access, which may fail with a signal.
    pub(crate) fn bitmap(self: &Arc<BitmapFile>, number: u32) -> io::Result<ReadyBitmap> {
        if number as usize >= BITMAPS {
            return Err(rustix::io::Errno::INVAL.into());
        }
        let at = number as usize * SIZE;
        self.0.fill(at, SIZE)?;
        let base = self.0.base().wrapping_add(at);
        Ok(ReadyBitmap { base, number, _map: self.clone() })
    }
}

impl ReadyBitmap {
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Says that a channel has something; `true`: its queue sleeps. A full barrier lies between the two.
    pub(crate) fn ring(&self, slot: u32) -> bool {
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
    pub(crate) fn drain(&self, mut marked: impl FnMut(usize)) {
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
        // SAFETY: inside the bitmap, which is inside the mapping; aligned; as long as `_map`.
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

    fn taken(bitmap: &ReadyBitmap) -> Vec<usize> {
        let mut found = Vec::new();
        bitmap.drain(|slot| found.push(slot));
        found
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn marks_are_taken_once_wherever_they_are() {
        let bitmaps = ReadyBitmaps::new().unwrap();
        let (bitmap, other) = (bitmaps.take().unwrap(), bitmaps.take().unwrap());
        let slots = [0, 1, 63, 64, 4095, 4096, SLOTS - 1];
        for slot in slots {
            assert!(!bitmap.any() && !bitmap.ring(slot as u32) && bitmap.any(), "{slot}");
            assert_eq!(taken(&bitmap), [slot]);
        }
        for slot in slots {
            bitmap.ring(slot as u32);
        }
        assert_eq!(taken(&bitmap), slots);
        assert!(taken(&bitmap).is_empty() && !other.any());
        bitmap.arm(true);
        assert!(bitmap.ring(7), "armed");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_board_that_is_used_again_is_empty() {
        let bitmaps = ReadyBitmaps::new().unwrap();
        let bitmap = bitmaps.take().unwrap();
        bitmap.ring(3);
        bitmap.arm(true);
        let number = bitmap.number();
        bitmaps.give_back(number);
        let again = bitmaps.take().unwrap();
        assert_eq!(again.number(), number);
        assert!(!again.any() && !again.ring(4));
        assert_eq!(taken(&again), [4]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_peer_maps_what_is_sound_and_nothing_else() {
        let bitmaps = ReadyBitmaps::new().unwrap();
        let bitmap = bitmaps.take().unwrap();
        let theirs =
            Arc::new(BitmapFile::open(bitmaps.file().unwrap().try_clone_to_owned().unwrap().into()).unwrap());
        assert!(theirs.bitmap(BITMAPS as u32).is_err());
        theirs.bitmap(bitmap.number()).unwrap().ring(9);
        assert_eq!(taken(&bitmap), [9]);
        let small = rustix::fs::memfd_create("small", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&small, 4096).unwrap();
        assert!(BitmapFile::open(small.into()).is_err());
        let loose = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&loose, FILE as u64).unwrap();
        assert!(BitmapFile::open(loose.into()).is_err());
    }

    /// Marks that threads make while another takes them: none is lost.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn no_mark_is_lost() {
        const TURNS: u64 = 20_000;
        let bitmaps = ReadyBitmaps::new().unwrap();
        let bitmap = bitmaps.take().unwrap();
        // Each writer counts up and marks; the reader has seen the last count of each when it has seen its last mark.
        let counts: Vec<AtomicU64> = (0..2).map(|_| AtomicU64::new(0)).collect();
        std::thread::scope(|scope| {
            for (index, count) in counts.iter().enumerate() {
                let bitmap = bitmap.clone();
                scope.spawn(move || {
                    for turn in 1..=TURNS {
                        count.store(turn, Ordering::Relaxed);
                        bitmap.ring(index as u32 * 70);
                    }
                });
            }
            let mut seen = [0; 2];
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
            while seen != [TURNS; 2] {
                if bitmap.any() {
                    bitmap.drain(|slot| seen[slot / 70] = counts[slot / 70].load(Ordering::Relaxed));
                }
                assert!(std::time::Instant::now() < deadline, "{seen:?}");
            }
        });
    }
}
