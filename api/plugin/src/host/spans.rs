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

/// What the post path reads; one cache line. Written under the lock, read under `context` as a sequence check: it is 0
/// while the rest changes, and a value never comes back before 65,535 others used the place.
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

#[derive(Default)]
struct Control {
    owned: Vec<Option<Registration>>,
    generation: Vec<u16>,
    free: std::collections::VecDeque<usize>,
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
        let chunk =
            self.chunks[index / CHUNK].get_or_init(|| Box::new(std::array::from_fn(|_| Entry::default())));
        let entry = &chunk[index % CHUNK];
        entry.context.store(0, Ordering::Relaxed);
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
            entry.context.store(0, Ordering::Release);
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
        let entry = self.entry(context).ok_or(SpanError::Unknown)?;
        if context == 0 || entry.context.load(Ordering::Acquire) != context {
            return Err(SpanError::Unknown);
        }
        let lkey = entry.lkey.load(Ordering::Relaxed);
        let start = entry.addr.load(Ordering::Relaxed);
        let room = entry.len.load(Ordering::Relaxed);
        let allowed = Access(entry.access.load(Ordering::Relaxed));
        let of_domain = entry.domain.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        if entry.context.load(Ordering::Relaxed) != context {
            return Err(SpanError::Unknown);
        }
        if of_domain != domain {
            return Err(SpanError::Domain);
        }
        let offset = addr.wrapping_sub(start);
        if len == 0 || offset > room || room - offset < len as u64 {
            return Err(SpanError::Range);
        }
        if !allowed.contains(access) {
            return Err(SpanError::Access);
        }
        Ok(Segment { addr, len, lkey })
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
