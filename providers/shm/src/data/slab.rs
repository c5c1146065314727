//! Memory of the connections to one peer: a file with room for the segments of several, which either side maps once.
//!
//! The connecting side makes slabs, for one peer device each, and gives out their slots. A slot whose connection is over
//! is given out again when the peer has said, in the slot itself, that it has left it. One of an attempt that came to
//! nothing may still be in the peer's hands: it stays unused.
//!
//! Pages are taken from the system slot by slot, by both sides: a hole would be filled on access, and that may fail with a
//! signal.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::data::sizes::{self, LEFT};
use crate::foreign::ForeignFd;
use crate::memory::mapping::{Expected, Pages, Seals, SharedMapping};

/// Slots of a slab, and bytes of one with more than one slot, at most.
const MOST: u32 = 16;
const BYTES: usize = 4 << 20;

/// From this number of connections on the next slot is prepared in advance: before that it would be much more memory
/// than is needed.
const MANY: u32 = 16;

/// After how many sweeps without use a slab goes. The peer keeps its mapping longer, so that it rarely has to ask for the
/// descriptor again.
const IDLE: u8 = 2;

/// A mapped slab, of this device's or of a peer's.
pub(crate) struct Slab {
    /// Tells it from the others of the device that made it.
    id: u64,
    map: SharedMapping,
    slots: u32,
    ring: usize,
    /// Slots in use here.
    users: AtomicU32,
    /// The peer has mapped it.
    shared: AtomicBool,
}

/// Where a segment is, for the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) slab: u64,
    pub(crate) slots: u32,
    pub(crate) slot: u32,
    /// How often the slot has been given out.
    pub(crate) turn: u32,
}

impl Slab {
    pub(crate) fn create(ring: usize, slots: u32) -> io::Result<Slab> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let len = sizes::segment(ring) * slots as usize;
        let map = SharedMapping::create("dat-shm", len, Pages::Normal, Seals::BothWrite)?;
        Ok(Slab::new(map, NEXT.fetch_add(1, Ordering::Relaxed), ring, slots))
    }

    /// The one a peer sent. Everything about it is checked before it is mapped.
    pub(crate) fn open(fd: ForeignFd, ring: usize, place: Place) -> Result<Slab, String> {
        if !sizes::is_sound(ring) {
            return Err(format!("rings of {ring} bytes"));
        }
        if !(1..=slots_for(ring)).contains(&place.slots) {
            return Err(format!("{} segments in one file", place.slots));
        }
        let len = sizes::segment(ring) as u64 * u64::from(place.slots);
        // Slots are filled one by one, when they are used.
        let expected = Expected { len, seals: Seals::BothWrite, huge: false, filled: false };
        let map = SharedMapping::open(fd, expected).map_err(|why| format!("segments: {why}"))?;
        Ok(Slab::new(map, place.slab, ring, place.slots))
    }

    fn new(map: SharedMapping, id: u64, ring: usize, slots: u32) -> Slab {
        Slab { id, map, slots, ring, users: AtomicU32::new(0), shared: AtomicBool::new(false) }
    }

    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.map.file()
    }

    /// Whether a peer's request may mean it.
    pub(crate) fn fits(&self, ring: usize, place: Place) -> bool {
        self.ring == ring && self.slots == place.slots && place.slot < self.slots
    }

    /// Takes the pages of a slot from the system.
    fn fill(&self, slot: u32) -> io::Result<()> {
        let each = sizes::segment(self.ring);
        self.map.fill(slot as usize * each, each)
    }

    fn at(&self, slot: u32) -> *mut u8 {
        self.map.base().wrapping_add(slot as usize * sizes::segment(self.ring))
    }

    /// The turn whose user on the accepting side has left the slot.
    fn left(&self, slot: u32) -> &AtomicU32 {
        // SAFETY: inside the control page of a slot, which is inside the mapping; aligned; mapped as long as `self`.
        unsafe { &*self.at(slot).add(LEFT).cast() }
    }

    pub(crate) fn users(&self) -> u32 {
        self.users.load(Ordering::Acquire)
    }
}

/// The most slots of a slab for segments of this size.
fn slots_for(ring: usize) -> u32 {
    (BYTES / sizes::segment(ring)).clamp(1, MOST as usize) as u32
}

/// A slot in use by this side, whose pages are there.
pub(crate) struct Slot {
    slab: Arc<Slab>,
    index: u32,
    turn: u32,
    /// It is the peer's slab.
    accepting: bool,
    /// Where it goes back to.
    pub(crate) home: Option<Arc<Pool>>,
    held: AtomicU8,
}

/// Who has a slot besides this side: nobody; perhaps the peer, who was sent it; the peer, who will say when it has left.
const ALONE: u8 = 0;
const ASTRAY: u8 = 1;
const SHARED: u8 = 2;

impl Slot {
    fn new(slab: &Arc<Slab>, index: u32, turn: u32, accepting: bool) -> Slot {
        slab.users.fetch_add(1, Ordering::AcqRel);
        Slot { slab: slab.clone(), index, turn, accepting, home: None, held: AtomicU8::new(ALONE) }
    }

    /// The only slot of a new slab, for an unknown peer.
    pub(crate) fn single(ring: usize) -> io::Result<Slot> {
        let slab = Arc::new(Slab::create(ring, 1)?);
        slab.fill(0)?;
        Ok(Slot::new(&slab, 0, 1, false))
    }

    /// The one a peer gave out.
    pub(crate) fn given(slab: &Arc<Slab>, place: Place) -> Result<Slot, String> {
        slab.fill(place.slot).map_err(|e| format!("fallocate: {e}"))?;
        Ok(Slot::new(slab, place.slot, place.turn, true))
    }

    pub(crate) fn slab(&self) -> &Arc<Slab> {
        &self.slab
    }

    pub(crate) fn place(&self) -> Place {
        Place { slab: self.slab.id, slots: self.slab.slots, slot: self.index, turn: self.turn }
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.slab.at(self.index)
    }

    pub(crate) fn ring(&self) -> usize {
        self.slab.ring
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting
    }

    /// Whether the peer has the slab.
    pub(crate) fn is_shared(&self) -> bool {
        self.slab.shared.load(Ordering::Acquire)
    }

    /// The peer knows it.
    pub(crate) fn sent(&self) {
        self.held.store(ASTRAY, Ordering::Release);
    }

    /// The peer uses it, and has the slab.
    pub(crate) fn taken(&self) {
        self.held.store(SHARED, Ordering::Release);
        self.slab.shared.store(true, Ordering::Release);
    }

    /// The peer does not want it.
    pub(crate) fn refused(&self) {
        self.held.store(ALONE, Ordering::Release);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.slab.map.is_here() {
            return;
        }
        if self.accepting {
            self.slab.left(self.index).store(self.turn, Ordering::Release);
        } else if let Some(home) = self.home.take()
            && self.held.load(Ordering::Acquire) != ASTRAY
        {
            if self.held.load(Ordering::Acquire) == ALONE {
                self.slab.left(self.index).store(self.turn, Ordering::Release);
            }
            let returned = Returned { slab: self.slab.clone(), index: self.index, turn: self.turn };
            of_size(&mut home.lock(), self.slab.ring).returned.push_back(returned);
        }
        self.slab.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The slabs for one peer.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Vec<Slots>>);

/// Those with rings of one size.
struct Slots {
    ring: usize,
    /// With the number of sweeps that found them unused.
    slabs: Vec<(Arc<Slab>, u8)>,
    /// The slab with slots that were never used: the next one, and how many have their pages.
    fresh: Option<(Arc<Slab>, u32, u32)>,
    /// Slots this side has left.
    returned: VecDeque<Returned>,
}

struct Returned {
    slab: Arc<Slab>,
    index: u32,
    turn: u32,
}

/// The most slots searched for one that the peer has left too.
const LOOKS: usize = 4;

impl Pool {
    /// A slot, all zeros.
    pub(crate) fn take(self: &Arc<Pool>, ring: usize) -> io::Result<Slot> {
        let mut all = self.lock();
        let slots = of_size(&mut all, ring);
        let mut slot = match slots.used() {
            Some(slot) => slot,
            None => slots.unused()?,
        };
        slot.home = Some(self.clone());
        Ok(slot)
    }

    /// Has the next slot ready, if there are that many connections.
    pub(crate) fn prepare(&self, ring: usize, connections: u32) {
        let mut all = self.lock();
        let slots = of_size(&mut all, ring);
        if connections >= MANY && slots.returned.is_empty() {
            // Whoever takes it tries again, and says what is wrong.
            let _ = slots.ready();
        }
    }

    /// Takes in a slab that was made before the peer was known.
    pub(crate) fn adopt(&self, slab: &Arc<Slab>) {
        of_size(&mut self.lock(), slab.ring).slabs.push((slab.clone(), 0));
    }

    /// Drops slabs that have not been used for a while. `true`: there are others that may have to go later.
    pub(crate) fn sweep(&self) -> bool {
        let mut unused = false;
        self.lock().retain_mut(|slots| {
            unused |= slots.sweep();
            !slots.slabs.is_empty()
        });
        unused
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Slots>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One size for each power of two that a ring may have.
fn of_size(all: &mut Vec<Slots>, ring: usize) -> &mut Slots {
    let place = all.iter().position(|slots| slots.ring == ring).unwrap_or_else(|| {
        all.push(Slots { ring, slabs: Vec::new(), fresh: None, returned: VecDeque::new() });
        all.len() - 1
    });
    &mut all[place]
}

impl Slots {
    /// As [`Pool::sweep`].
    fn sweep(&mut self) -> bool {
        let mut unused = false;
        let mut gone = Vec::new();
        self.slabs.retain_mut(|(slab, idle)| {
            *idle = if slab.users() == 0 { *idle + 1 } else { 0 };
            unused |= *idle > 0;
            if *idle >= IDLE {
                gone.push(slab.id);
            }
            *idle < IDLE
        });
        if !gone.is_empty() {
            self.returned.retain(|one| !gone.contains(&one.slab.id));
            if self.fresh.as_ref().is_some_and(|(slab, ..)| gone.contains(&slab.id)) {
                self.fresh = None;
            }
        }
        unused
    }

    fn used(&mut self) -> Option<Slot> {
        for _ in 0..self.returned.len().min(LOOKS) {
            let one = self.returned.pop_front()?;
            if one.slab.left(one.index).load(Ordering::Acquire) != one.turn {
                self.returned.push_back(one);
                continue;
            }
            let bytes = sizes::segment(self.ring);
            // SAFETY: the slot is inside the mapping, and no side uses it: this one gave it back, the peer said it left. A
            // peer that lied writes to memory it shares with itself alone, and no Rust reference is to it.
            unsafe { std::ptr::write_bytes(one.slab.at(one.index), 0, bytes) };
            return Some(Slot::new(&one.slab, one.index, one.turn.wrapping_add(1), false));
        }
        None
    }

    fn unused(&mut self) -> io::Result<Slot> {
        self.ready()?;
        let (slab, next, _) = self.fresh.as_mut().ok_or(io::ErrorKind::NotFound)?;
        *next += 1;
        Ok(Slot::new(slab, *next - 1, 1, false))
    }

    /// Makes the next unused slot ready.
    fn ready(&mut self) -> io::Result<()> {
        if self.fresh.as_ref().is_none_or(|(slab, next, _)| *next == slab.slots) {
            let slab = Arc::new(Slab::create(self.ring, slots_for(self.ring))?);
            self.slabs.push((slab.clone(), 0));
            self.fresh = Some((slab, 0, 0));
        }
        if let Some((slab, next, filled)) = &mut self.fresh
            && next == filled
        {
            slab.fill(*next)?;
            *filled += 1;
        }
        Ok(())
    }
}
