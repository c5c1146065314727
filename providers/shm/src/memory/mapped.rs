//! Memory of a peer's device, mapped here: what it allocated for this purpose. A write or read is a plain copy then.
//!
//! # Lifetime
//! A copy holds the mapping it goes to: the list gives out counted references, and the cache of a connection keeps one.
//! So a mapping whose region the peer freed goes as soon as no copy is under way in it.
//!
//! # Limits
//! A peer decides what is mapped: its frames name memory. So a device maps [`MOST`] areas of a peer device at most, those
//! that the peer refused included, and `peer_map_bytes` bytes. Beyond that operations take the ways without mapping.

use std::collections::HashMap;
use std::sync::Arc;

use dat_kit::MemSpan;

use super::target::List;
use crate::foreign::{self, ForeignFd};
use crate::memory::bytes::{self, Span};
use crate::memory::mapping::{Expected, Seals, SharedMapping};
use dat_sync::Lock;

/// Areas of a peer device that are known here at most.
const MOST: usize = 4096;

/// The mapped memory of one peer device.
pub(crate) struct Maps {
    list: Lock<Known>,
    /// The most bytes mapped.
    limit: u64,
}

#[derive(Default)]
struct Known {
    entries: HashMap<Key, Entry>,
    bytes: u64,
}

/// The peer's number of an area, and whether it is mapped to be written.
type Key = (u64, bool);

/// What one direction of a connection used last: most programs use one region for a long time, and need no lock then.
#[derive(Default)]
pub(crate) struct MappingCache(Option<(Key, Arc<SharedMapping>)>);

enum Entry {
    Refused,
    At(Arc<SharedMapping>),
}

/// Where a range is.
pub(crate) enum Place {
    /// Here, until the cache is used for something else.
    At(*mut u8),
    /// Not yet: the peer is to be asked.
    Ask,
    /// The peer does not give it, or it cannot be mapped.
    Refused,
}

/// What is known of an area.
enum Area {
    At(Arc<SharedMapping>),
    Unknown,
    Refused,
}

impl MappingCache {
    /// Where `len` bytes at `offset` of memory `map` are, to be written or only read.
    #[inline]
    pub(crate) fn address(&mut self, maps: &Maps, map: u64, offset: u64, len: u64, write: bool) -> Place {
        let key = (map, write);
        let mapping = match &self.0 {
            Some((known, mapping)) if *known == key => mapping,
            _ => match maps.find(key) {
                Area::At(mapping) => &self.0.insert((key, mapping)).1,
                Area::Unknown => return Place::Ask,
                Area::Refused => return Place::Refused,
            },
        };
        mapping.at(offset, len).map_or(Place::Refused, Place::At)
    }

    /// The peer freed this area.
    pub(crate) fn forget(&mut self, map: u64) {
        if self.0.as_ref().is_some_and(|((known, _), _)| *known == map) {
            self.0 = None;
        }
    }
}

impl Maps {
    pub(crate) fn new(limit: u64) -> Maps {
        Maps { list: Lock::default(), limit }
    }

    #[cold]
    fn find(&self, key: Key) -> Area {
        let known = self.list.lock();
        match known.entries.get(&key) {
            Some(Entry::At(mapping)) => Area::At(mapping.clone()),
            Some(Entry::Refused) => Area::Refused,
            None if known.entries.len() >= MOST || self.limit == 0 => Area::Refused,
            None => Area::Unknown,
        }
    }

    /// The peer's answer. A second one for memory that is mapped already is ignored: copies may be under way there.
    pub(crate) fn answer(&self, map: u64, write: bool, len: u64, huge: bool, fd: Option<ForeignFd>) {
        let key = (map, write);
        if matches!(self.find(key), Area::At(_)) {
            return;
        }
        let expected = Expected { len, seals: Seals::BothWrite, huge, filled: true };
        let entry = match fd.map(|fd| self.map(fd, expected, !write)) {
            Some(Ok(mapping)) => Entry::At(mapping),
            Some(Err(error)) => {
                tracing::warn!(%error, "memory of the peer's cannot be mapped; another way is used");
                Entry::Refused
            }
            None => Entry::Refused,
        };
        self.add(key, entry);
    }

    /// The peer freed this area. Its pages go when no copy and no cache holds them.
    pub(crate) fn forget(&self, map: u64) {
        let mut gone = Vec::new();
        let mut known = self.list.lock();
        for write in [false, true] {
            if let Some(Entry::At(mapping)) = known.entries.remove(&(map, write)) {
                known.bytes -= mapping.len() as u64;
                gone.push(mapping);
            }
        }
        drop(known);
        if !gone.is_empty() {
            // To give many pages back takes a while.
            foreign::dispose(gone);
        }
    }

    fn map(&self, fd: ForeignFd, expected: Expected, read: bool) -> Result<Arc<SharedMapping>, String> {
        let mapped = self.list.lock().bytes;
        if mapped.checked_add(expected.len).is_none_or(|bytes| bytes > self.limit) {
            let (more, limit) = (expected.len, self.limit);
            return Err(format!("{mapped} bytes are mapped and {more} more exceed peer_map_bytes = {limit}"));
        }
        let open = if read { SharedMapping::open_to_read } else { SharedMapping::open };
        Ok(Arc::new(open(fd, expected)?.without_file()))
    }

    fn add(&self, key: Key, entry: Entry) {
        let mut known = self.list.lock();
        if let Entry::At(mapping) = &entry {
            known.bytes += mapping.len() as u64;
        }
        let old = known.entries.insert(key, entry);
        drop(known);
        debug_assert!(!matches!(old, Some(Entry::At(_))), "the event thread alone adds to the list");
    }
}

/// What became of the attempt to fetch a message out of mapped memory.
pub(crate) enum Pulled {
    Done,
    /// The peer is to be asked for this memory first.
    Ask(u64),
    No,
}

/// Fetches a message that lies in memory of the peer's which is mapped here.
pub(crate) fn pull(maps: &Maps, list: &List, segs: &[impl Span]) -> Pulled {
    // Each keeps the mapping that its part lies in.
    let mut caches: [MappingCache; 16] = Default::default();
    let mut at = [std::ptr::null_mut(); 16];
    for ((to, cache), part) in at.iter_mut().zip(&mut caches).zip(list.parts()) {
        if part.map == 0 {
            return Pulled::No;
        }
        match cache.address(maps, part.map, part.offset, part.len, false) {
            Place::At(address) => *to = address,
            Place::Ask => return Pulled::Ask(part.map),
            Place::Refused => return Pulled::No,
        }
    }
    let mut skip = 0;
    for (from, part) in at.iter().zip(list.parts()) {
        // SAFETY: `address` checked the range, and a cache keeps its mapping; the spans are vouched for by their makers.
        unsafe { bytes::scatter(*from, part.len as usize, segs, skip) };
        skip += part.len as usize;
    }
    Pulled::Done
}

/// Executes an atomic operation on the word at `at`. `false`: it is not aligned.
///
/// # Safety
/// [`MappingCache::address`] gave `at` for a write of 8 bytes, and that cache has not been used since.
pub(crate) unsafe fn atomic(
    at: *mut u8,
    [operand, swap]: [u64; 2],
    is_swap: bool,
    segs: &[impl Span],
) -> bool {
    // SAFETY: the caller's promise: the mapping has eight writable bytes at `at`, and the cache keeps it.
    let word = unsafe { MemSpan::new(at as usize, 8) };
    let old = match is_swap {
        true => dat_kit::copy::compare_swap(word, operand, swap),
        false => dat_kit::copy::fetch_add(word, operand),
    };
    let Some(old) = old else { return false };
    let bytes = old.to_ne_bytes();
    // SAFETY: `bytes` has 8 bytes and lives here.
    unsafe { bytes::scatter(bytes.as_ptr(), 8, segs, 0) };
    true
}

/// Copies between `segs` and `len` bytes at `at`.
///
/// # Safety
/// [`MappingCache::address`] gave `at` for `len` bytes in this direction, and that cache has not been used since.
#[inline]
pub(crate) unsafe fn copy(at: *mut u8, len: usize, segs: &[impl Span], read: bool) {
    if read {
        // SAFETY: the caller's promise: the mapping has `len` bytes at `at`, and the cache keeps it.
        unsafe { bytes::scatter(at, len, segs, 0) };
        return;
    }
    bytes::each(segs, 0, len, |done, addr, piece| {
        // SAFETY: the same promise; the source is part of a span.
        unsafe { bytes::copy_last_last(addr as *const u8, at.add(done), piece) }
    });
}
