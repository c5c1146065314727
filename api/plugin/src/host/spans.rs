//! The one place that turns numbers of an application into a [`Segment`]: a table of registered memory, read without
//! a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Registration;
use crate::wire::{Access, Segment};

const CHUNK: usize = 1024;
const CHUNKS: usize = 64;

/// Registered memory by context: index in the low half, generation in the high half, never 0.
pub struct SpanTable {
    chunks: [OnceLock<Box<[Entry; CHUNK]>>; CHUNKS],
    control: Mutex<Control>,
}

/// Why a segment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanError {
    /// The context names no live registration.
    Unknown,
    /// The bytes do not lie inside the registration.
    Range,
    /// The registration is of another protection domain.
    Domain,
    /// The registration lacks the right.
    Access,
}

/// What the post path reads; one cache line. Written under the lock, read under `context` as a sequence check: it is that
/// of no place like this one while the rest changes ([`nobody`]), and a value never comes back before 65,535 others used
/// the place.
#[derive(Default)]
#[repr(align(64))]
struct Entry {
    context: AtomicU32,
    lkey: AtomicU32,
    addr: AtomicU64,
    len: AtomicU64,
    access: AtomicU32,
    domain: AtomicU32,
}

/// What was read of an [`Entry`].
struct Row {
    lkey: u32,
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
}

impl Row {
    #[inline(always)]
    fn holds(&self, addr: u64, len: u32) -> bool {
        let offset = addr.wrapping_sub(self.addr);
        len != 0 && offset <= self.len && self.len - offset >= u64::from(len)
    }
}

impl Entry {
    fn vacant(place: usize) -> Entry {
        // The place in its chunk will do: chunks are of a power of two places.
        Entry { context: AtomicU32::new(nobody(place)), ..Entry::default() }
    }
}

#[derive(Default)]
struct Control {
    owned: Vec<Option<Registration>>,
    generation: Vec<u16>,
    free: std::collections::VecDeque<usize>,
}

/// What a place without a registration has for a context: its index is another place's, so that whoever looks for a
/// context, 0 included, does not find it there.
fn nobody(index: usize) -> u32 {
    index as u32 ^ 1
}

impl SpanTable {
    /// The most registrations a table holds.
    pub const CAPACITY: usize = CHUNK * CHUNKS;

    /// An empty table.
    pub fn new() -> SpanTable {
        SpanTable { chunks: [const { OnceLock::new() }; CHUNKS], control: Mutex::default() }
    }

    /// Takes a registration in and gives its context; gives it back when the table is full.
    pub fn insert(&self, registration: Registration) -> Result<u32, Registration> {
        let mut control = self.control();
        let index = match control.free.pop_front() {
            Some(index) => index,
            None if control.owned.len() < SpanTable::CAPACITY => {
                control.owned.push(None);
                control.generation.push(0);
                control.owned.len() - 1
            }
            None => return Err(registration),
        };
        let generation = control.generation[index].checked_add(1).unwrap_or(1);
        control.generation[index] = generation;
        let context = (generation as u32) << 16 | index as u32;
        let chunk = self.chunks[index / CHUNK].get_or_init(|| Box::new(std::array::from_fn(Entry::vacant)));
        let entry = &chunk[index % CHUNK];
        entry.context.store(nobody(index), Ordering::Relaxed);
        fence(Ordering::Release);
        entry.lkey.store(registration.keys().lkey, Ordering::Relaxed);
        entry.addr.store(registration.memory().addr(), Ordering::Relaxed);
        entry.len.store(registration.memory().len(), Ordering::Relaxed);
        entry.access.store(registration.access().0, Ordering::Relaxed);
        entry.domain.store(registration.domain(), Ordering::Relaxed);
        entry.context.store(context, Ordering::Release);
        control.owned[index] = Some(registration);
        Ok(context)
    }

    /// Makes a context invalid and gives the registration back.
    pub fn remove(&self, context: u32) -> Option<Registration> {
        let mut control = self.control();
        let index = (context & 0xFFFF) as usize;
        if context == 0 || control.generation.get(index).copied()? as u32 != context >> 16 {
            return None;
        }
        let registration = control.owned[index].take()?;
        if let Some(entry) = self.entry(context) {
            entry.context.store(nobody(index), Ordering::Release);
        }
        control.free.push_back(index);
        Some(registration)
    }

    /// The segment `addr..addr + len` of registration `context`, if `domain` and `access` allow it. `len` is not 0.
    #[inline]
    pub fn segment(
        &self,
        context: u32,
        addr: u64,
        len: u32,
        domain: u32,
        access: Access,
    ) -> Result<Segment, SpanError> {
        self.find(context, addr, len, domain, access)
            .ok_or_else(|| self.refusal(context, addr, len, domain, access))
    }

    /// The same for those who ask [`SpanTable::segment`] when there is none.
    #[inline(always)]
    pub fn find(&self, context: u32, addr: u64, len: u32, domain: u32, access: Access) -> Option<Segment> {
        let row = self.read(context)?;
        let allowed = row.domain == domain && row.holds(addr, len) && row.access.contains(access);
        allowed.then_some(Segment { addr, len, lkey: row.lkey })
    }

    /// Why [`SpanTable::find`] found nothing.
    #[cold]
    fn refusal(&self, context: u32, addr: u64, len: u32, domain: u32, access: Access) -> SpanError {
        match self.read(context) {
            Some(row) if row.domain != domain => SpanError::Domain,
            Some(row) if !row.holds(addr, len) => SpanError::Range,
            Some(row) if !row.access.contains(access) => SpanError::Access,
            // Nothing is wrong with what was registered just now; what was asked for was not there.
            _ => SpanError::Unknown,
        }
    }

    /// What a live context stands for.
    #[inline(always)]
    fn read(&self, context: u32) -> Option<Row> {
        let entry = self.entry(context)?;
        if entry.context.load(Ordering::Acquire) != context {
            return None;
        }
        let row = Row {
            lkey: entry.lkey.load(Ordering::Relaxed),
            addr: entry.addr.load(Ordering::Relaxed),
            len: entry.len.load(Ordering::Relaxed),
            access: Access(entry.access.load(Ordering::Relaxed)),
            domain: entry.domain.load(Ordering::Relaxed),
        };
        fence(Ordering::Acquire);
        (entry.context.load(Ordering::Relaxed) == context).then_some(row)
    }

    /// Whether `addr..addr + len` lies inside of registration `context`, whatever its domain and rights.
    pub fn covers(&self, context: u32, addr: u64, len: u32) -> bool {
        let index = (context & 0xFFFF) as usize;
        let control = self.control();
        let current = control.generation.get(index).is_some_and(|known| *known as u32 == context >> 16);
        let Some(Some(registration)) = control.owned.get(index).filter(|_| current) else { return false };
        let offset = addr.wrapping_sub(registration.memory().addr());
        let room = registration.memory().len();
        offset <= room && room - offset >= u64::from(len)
    }

    #[inline]
    fn entry(&self, context: u32) -> Option<&Entry> {
        let index = (context & 0xFFFF) as usize;
        self.chunks[index / CHUNK].get().map(|chunk| &chunk[index % CHUNK])
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SpanTable {
    fn default() -> SpanTable {
        SpanTable::new()
    }
}

impl std::fmt::Debug for SpanTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SpanTable")
    }
}
