//! The table of registered memory, which turns numbers of an application into a [`Segment`]. Read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Registration;
use crate::abi::{Access, Segment};

const CHUNK: usize = 1024;
const CHUNKS: usize = 64;

/// Registered memory by context: slot in the low half, generation in the high half, never 0.
///
/// A slot is used again only when all others have been used, so that a context comes back after 65,535 times 65,536
/// registrations at the earliest.
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
    /// The registration is exclusive, and the post did not come from its owner; or the reverse.
    Exclusive,
}

/// What the post path reads: one cache line, guarded by a seqlock. `context` is the sequence: it is 0 while the rest
/// changes. Written under the lock of [`Control`].
#[derive(Default)]
#[repr(align(64))]
struct Entry {
    context: AtomicU32,
    lkey: AtomicU32,
    addr: AtomicU64,
    len: AtomicU64,
    access: AtomicU32,
    domain: AtomicU32,
    owner: AtomicU64,
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

    /// The right to name an exclusive registration. Not a right of memory: no provider sees it.
    pub const EXCLUSIVE: Access = Access(1 << 31);

    /// An empty table.
    pub fn new() -> SpanTable {
        SpanTable { chunks: [const { OnceLock::new() }; CHUNKS], control: Mutex::default() }
    }

    /// Takes a registration in and gives its context; gives it back when the table is full.
    pub fn insert(&self, registration: Registration) -> Result<u32, Registration> {
        self.insert_owned(registration, 0, false)
    }

    /// The same with an owner, see [`SpanTable::is_owned_by`]. Segments of an exclusive registration are given only to
    /// those who ask with [`SpanTable::EXCLUSIVE`].
    pub fn insert_owned(
        &self,
        registration: Registration,
        owner: u64,
        exclusive: bool,
    ) -> Result<u32, Registration> {
        let mut control = self.control();
        let index = match control.owned.len() < SpanTable::CAPACITY {
            // Slots never used come first: a stale context then stays unknown for as long as possible.
            true => {
                control.owned.push(None);
                control.generation.push(0);
                control.owned.len() - 1
            }
            false => match control.free.pop_front() {
                Some(index) => index,
                None => return Err(registration),
            },
        };
        let generation = control.generation[index].checked_add(1).unwrap_or(1);
        control.generation[index] = generation;
        let context = (generation as u32) << 16 | index as u32;
        let chunk =
            self.chunks[index / CHUNK].get_or_init(|| Box::new(std::array::from_fn(|_| Entry::default())));
        let entry = &chunk[index % CHUNK];
        let access =
            if exclusive { registration.access() | SpanTable::EXCLUSIVE } else { registration.access() };
        entry.context.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        entry.lkey.store(registration.keys().lkey, Ordering::Relaxed);
        entry.addr.store(registration.memory().addr(), Ordering::Relaxed);
        entry.len.store(registration.memory().len(), Ordering::Relaxed);
        entry.access.store(access.0, Ordering::Relaxed);
        entry.domain.store(registration.domain(), Ordering::Relaxed);
        entry.owner.store(owner, Ordering::Relaxed);
        entry.context.store(context, Ordering::Release);
        control.owned[index] = Some(registration);
        Ok(context)
    }

    /// Whether `context` is the registration that was inserted with this owner. Owners that are never used twice make
    /// it safe to keep a context for longer than its registration.
    #[inline]
    pub fn is_owned_by(&self, context: u32, owner: u64) -> bool {
        self.entry(context).is_some_and(|entry| {
            entry.owner.load(Ordering::Relaxed) == owner && entry.context.load(Ordering::Acquire) == context
        })
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
        if allowed.0 & (access.0 | SpanTable::EXCLUSIVE.0) != access.0 {
            return Err(lacking(allowed, access));
        }
        Ok(Segment { addr, len, lkey })
    }

    /// Whether `addr..addr + len` lies inside of registration `context`, without regard to its domain and rights.
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

#[cold]
fn lacking(allowed: Access, access: Access) -> SpanError {
    match (allowed.0 ^ access.0) & SpanTable::EXCLUSIVE.0 {
        0 => SpanError::Access,
        _ => SpanError::Exclusive,
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
