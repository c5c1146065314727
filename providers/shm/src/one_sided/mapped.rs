//! Memory of a peer's device, mapped here: what it allocated for this purpose. A write or read is a plain copy then.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use dat_kit::Stretch;

use super::target::{List, Part};
use crate::bytes;
use crate::link::Link;
use crate::segment::{map_shared, unmap};
use dat_sync::Lock;

/// The mapped memory of one peer device.
#[derive(Default)]
pub(crate) struct Maps {
    list: Lock<Known>,
}

#[derive(Default)]
struct Known {
    entries: HashMap<(u64, bool), Entry>,
    /// The one used last: most programs write to one region for a long time.
    last: Option<Last>,
}

/// A mapping, which stays as long as the list does.
#[derive(Clone, Copy)]
struct Last {
    key: (u64, bool),
    base: *mut u8,
    len: usize,
}

/// What one connection used last, kept by it so that it need not take the lock of all of them.
#[derive(Default)]
pub(crate) struct Near(Option<Last>);

// SAFETY: plain shared memory, accessed by copies.
unsafe impl Send for Last {}

enum Entry {
    Refused,
    At(Mapping),
}

struct Mapping {
    base: *mut u8,
    len: usize,
    owner: u32,
}

// SAFETY: plain shared memory, accessed by copies.
unsafe impl Send for Mapping {}

/// Where a range is.
pub(crate) enum Place {
    /// Here.
    At(*mut u8),
    /// Not yet: the peer is to be asked.
    Ask,
    /// The peer does not give it, or it cannot be mapped.
    Refused,
}

impl Near {
    /// As [`Maps::address`], of the peer's one list; `None` for all that is not here.
    #[inline]
    pub(crate) fn address(
        &mut self,
        maps: &Maps,
        map: u64,
        offset: u64,
        len: u64,
        write: bool,
    ) -> Option<*mut u8> {
        let key = (map, write);
        let last = match self.0 {
            Some(last) if last.key == key => last,
            _ => *self.0.insert(maps.find(key)?),
        };
        last.at(offset, len)
    }
}

impl Last {
    #[inline]
    fn at(&self, offset: u64, len: u64) -> Option<*mut u8> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len as u64);
        inside.then(|| self.base.wrapping_add(offset as usize))
    }
}

impl Maps {
    /// Memory that is mapped.
    #[cold]
    fn find(&self, key: (u64, bool)) -> Option<Last> {
        match self.list.lock().entries.get(&key) {
            Some(Entry::At(mapping)) => Some(Last { key, base: mapping.base, len: mapping.len }),
            _ => None,
        }
    }

    /// Where `len` bytes at `offset` of memory `map` are, to be written or only read.
    pub(crate) fn address(&self, map: u64, offset: u64, len: u64, write: bool) -> Place {
        let key = (map, write);
        let mut known = self.list.lock();
        let found = match known.last {
            Some(last) if last.key == key => last,
            _ => match known.entries.get(&key) {
                None => return Place::Ask,
                Some(Entry::Refused) => return Place::Refused,
                Some(Entry::At(mapping)) => Last { key, base: mapping.base, len: mapping.len },
            },
        };
        known.last = Some(found);
        found.at(offset, len).map_or(Place::Refused, Place::At)
    }

    /// What the peer lends, to be read. `false`: it cannot be mapped, or the number is one of its others.
    pub(crate) fn take(&self, map: u64, len: u64, fd: Option<OwnedFd>) -> bool {
        let key = (map, false);
        let known = self.list.lock().entries.contains_key(&key);
        let mapping = match fd.map(|fd| Mapping::new(&fd, len, false)) {
            _ if known => return matches!(self.address(map, 0, len, false), Place::At(_)),
            Some(Ok(mapping)) => mapping,
            Some(Err(error)) => {
                tracing::warn!(%error, "what a peer lends cannot be mapped");
                return false;
            }
            None => return false,
        };
        let old = self.list.lock().entries.insert(key, Entry::At(mapping));
        debug_assert!(old.is_none(), "the event thread alone adds to the list");
        true
    }

    /// The peer's answer. A second one for memory that is mapped already is ignored: copies may be under way there.
    pub(crate) fn answer(&self, map: u64, write: bool, len: u64, fd: Option<OwnedFd>) {
        if let Some(Entry::At(_)) = self.list.lock().entries.get(&(map, write)) {
            return;
        }
        let entry = match fd.map(|fd| Mapping::new(&fd, len, write)) {
            Some(Ok(mapping)) => Entry::At(mapping),
            Some(Err(error)) => {
                tracing::warn!(%error, "memory of the peer's cannot be mapped; another way is used");
                Entry::Refused
            }
            None => Entry::Refused,
        };
        let old = self.list.lock().entries.insert((map, write), entry);
        drop(old);
    }
}

impl Mapping {
    fn new(fd: &OwnedFd, len: u64, write: bool) -> Result<Mapping, String> {
        let stat = rustix::fs::fstat(fd).map_err(|e| format!("fstat: {e}"))?;
        let seals = rustix::fs::fcntl_get_seals(fd).map_err(|e| format!("no memory descriptor: {e}"))?;
        if !seals.contains(rustix::fs::SealFlags::SHRINK) || len == 0 || (stat.st_size as u64) < len {
            return Err("it may shrink, or is shorter than it should be".into());
        }
        let base = map_shared(fd, len as usize, write).map_err(|e| format!("mmap: {e}"))?;
        Ok(Mapping { base, len: len as usize, owner: std::process::id() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.len, self.owner);
    }
}

/// Fetches a message that lies in memory of the peer's which is mapped here. `false`: some of it is not, or not yet.
pub(super) fn pull(link: &Link, list: &List, segs: &[Stretch]) -> bool {
    let mut at = [std::ptr::null_mut(); 16];
    for (to, part) in at.iter_mut().zip(list.parts()) {
        match link.peer.maps.address(part.map, part.offset, part.len, false) {
            _ if part.map == 0 => return false,
            Place::At(address) => *to = address,
            Place::Ask => {
                link.ask_for(part.map, false);
                return false;
            }
            Place::Refused => return false,
        }
    }
    let mut skip = 0;
    for (from, part) in at.iter().zip(list.parts()) {
        // SAFETY: as in `copy`.
        unsafe { bytes::scatter(*from, part.len as usize, segs, skip) };
        skip += part.len as usize;
    }
    true
}

/// Where the piece that a frame names is. `None`: it is nowhere, or not as it should be.
pub(crate) fn lent(link: &Link, part: &Part) -> Option<*const u8> {
    match link.peer.maps.address(part.map, part.offset, part.len, false) {
        Place::At(at) => Some(at),
        _ => None,
    }
}

/// Executes an atomic operation on the word at `at`, which [`Maps::address`] gave. `false`: it is not aligned.
pub(super) fn atomic(at: *mut u8, [operand, swap]: [u64; 2], is_swap: bool, segs: &[Stretch]) -> bool {
    // SAFETY: the mapping has eight bytes at `at`, to be written, and lives as long as the peer object the caller holds.
    let word = unsafe { Stretch::new(at as usize, 8) };
    let old = match is_swap {
        true => dat_kit::copy::compare_swap(word, operand, swap),
        false => dat_kit::copy::fetch_add(word, operand),
    };
    let Some(old) = old else { return false };
    let bytes = old.to_ne_bytes();
    // SAFETY: the bytes are there, as many as that.
    unsafe { bytes::scatter(bytes.as_ptr(), 8, segs, 0) };
    true
}

/// Copies between `local` and as many bytes at `at`, which [`Near::address`] gave.
#[inline]
pub(super) fn copy_one(at: *mut u8, local: Stretch, read: bool) {
    // SAFETY: the mapping has as many bytes at `at`, and lives as long as the peer object the caller holds; for the other
    // side its maker vouches.
    unsafe {
        match read {
            true => bytes::scatter(at, local.len(), &[local], 0),
            false => bytes::copy_last_last(local.addr() as *const u8, at, local.len()),
        }
    }
}

/// Copies between `segs` and `len` bytes at `at`, which [`Maps::address`] gave.
pub(crate) fn copy(at: *mut u8, len: usize, segs: &[Stretch], read: bool) {
    if read {
        // SAFETY: the mapping has `len` bytes at `at`, and lives as long as the peer object the caller holds.
        unsafe { bytes::scatter(at, len, segs, 0) };
        return;
    }
    bytes::each(segs, 0, len, |done, addr, piece| {
        // SAFETY: as above; the source is part of a stretch.
        unsafe { bytes::copy_last_last(addr as *const u8, at.add(done), piece) }
    });
}
