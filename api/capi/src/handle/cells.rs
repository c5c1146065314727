//! The array every handle points into.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use dat_types::ObjectId;
use parking_lot::Mutex;

use crate::abi::{Handle, Kind, Provider};

/// Most objects at one time. Untouched cells cost address space only.
const CELLS: usize = 1 << 20;

/// How many frees a cell rests before it is used again.
pub const RESTING: usize = 1 << 16;

/// How many addresses a cell has: one use after the other gets the next.
const ALIASES: usize = 8;

/// One object's place: the words handles point at, then what is known of it.
#[repr(C, align(128))]
struct Cell {
    aliases: [AtomicPtr<Provider>; ALIASES],
    /// The one address that is valid now; 0 when none is.
    valid: AtomicUsize,
    /// The address of its present or last use.
    last: AtomicUsize,
    object: AtomicPtr<c_void>,
    id: AtomicU64,
    context: AtomicU64,
    kind: AtomicU32,
}

const CELL: usize = size_of::<Cell>();

static ARRAY: [Cell; CELLS] = [const {
    Cell {
        aliases: [const { AtomicPtr::new(std::ptr::null_mut()) }; ALIASES],
        valid: AtomicUsize::new(0),
        last: AtomicUsize::new(0),
        object: AtomicPtr::new(std::ptr::null_mut()),
        id: AtomicU64::new(0),
        context: AtomicU64::new(0),
        kind: AtomicU32::new(0),
    }
}; CELLS];

/// Cells that were used, oldest first, and how many were never.
struct Free {
    rested: VecDeque<u32>,
    fresh: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free { rested: VecDeque::new(), fresh: 0 });

/// The cell an address lies in.
#[inline]
fn cell(handle: Handle) -> Option<&'static Cell> {
    let offset = (handle as usize).wrapping_sub(ARRAY.as_ptr() as usize);
    ARRAY.get(offset / CELL)
}

/// The cell of a valid handle.
#[inline]
fn valid(handle: Handle) -> Option<&'static Cell> {
    let cell = cell(handle)?;
    (cell.valid.load(Ordering::Acquire) == handle as usize).then_some(cell)
}

/// Whether the address lies in the array, valid or not.
#[inline]
pub fn is_ours(handle: Handle) -> bool {
    cell(handle).is_some()
}

/// Takes a cell; `None` when there are too many objects.
pub fn allocate(kind: Kind, id: ObjectId, provider: *const Provider, object: *mut c_void) -> Option<Handle> {
    let index = {
        let mut free = FREE.lock();
        if free.rested.len() > RESTING || free.fresh == CELLS {
            free.rested.pop_front()? as usize
        } else {
            free.fresh += 1;
            free.fresh - 1
        }
    };
    let cell = &ARRAY[index];
    let first = cell.aliases.as_ptr() as usize;
    let alias = match cell.last.load(Ordering::Relaxed) {
        0 => 0,
        last => ((last - first) / size_of::<usize>() + 1) % ALIASES,
    };
    let handle = first + alias * size_of::<usize>();
    // All aliases, so that a program that dispatches through a stale handle arrives where it is refused.
    for alias in &cell.aliases {
        alias.store(provider.cast_mut(), Ordering::Relaxed);
    }
    cell.last.store(handle, Ordering::Relaxed);
    cell.object.store(object, Ordering::Relaxed);
    cell.id.store(id.0, Ordering::Relaxed);
    cell.context.store(0, Ordering::Relaxed);
    cell.kind.store(kind as u32, Ordering::Relaxed);
    cell.valid.store(handle, Ordering::Release);
    Some(handle as Handle)
}

/// Makes the handle invalid and gives its object, to one caller.
pub fn free(handle: Handle, kind: Kind) -> Option<(*mut c_void, ObjectId)> {
    let cell = cell(handle)?;
    if cell.kind.load(Ordering::Relaxed) != kind as u32 {
        return None;
    }
    cell.valid.compare_exchange(handle as usize, 0, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    let object = cell.object.swap(std::ptr::null_mut(), Ordering::Relaxed);
    let id = ObjectId(cell.id.load(Ordering::Relaxed));
    FREE.lock().rested.push_back(index_of(cell));
    Some((object, id))
}

/// The object of a valid handle of this kind.
#[inline]
pub fn object(handle: Handle, kind: Kind) -> Option<*const c_void> {
    let cell = valid(handle)?;
    if cell.kind.load(Ordering::Relaxed) != kind as u32 {
        return None;
    }
    let object = cell.object.load(Ordering::Relaxed);
    // It may have been freed, or freed and used anew, since the address was compared.
    let still = cell.valid.load(Ordering::Acquire) == handle as usize;
    (still && !object.is_null()).then_some(object)
}

pub fn kind(handle: Handle) -> Option<Kind> {
    let kind = valid(handle)?.kind.load(Ordering::Relaxed);
    KINDS.into_iter().find(|known| *known as u32 == kind)
}

pub fn context(handle: Handle) -> Option<u64> {
    valid(handle).map(|cell| cell.context.load(Ordering::Acquire))
}

pub fn set_context(handle: Handle, context: u64) -> bool {
    valid(handle).map(|cell| cell.context.store(context, Ordering::Release)).is_some()
}

/// The number of the cell a handle lies in, for tables that hold numbers.
pub fn index(handle: Handle) -> Option<u32> {
    cell(handle).map(index_of)
}

/// The address object `id` has or had, if cell `index` is still its.
#[inline]
pub fn address_of(index: u32, id: ObjectId) -> Option<Handle> {
    let cell = ARRAY.get(index as usize)?;
    (cell.id.load(Ordering::Relaxed) == id.0).then(|| cell.last.load(Ordering::Relaxed) as Handle)
}

fn index_of(cell: &Cell) -> u32 {
    ((std::ptr::from_ref(cell) as usize - ARRAY.as_ptr() as usize) / CELL) as u32
}

const KINDS: [Kind; 12] = [
    Kind::Cr,
    Kind::Ep,
    Kind::Evd,
    Kind::Ia,
    Kind::Lmr,
    Kind::Psp,
    Kind::Pz,
    Kind::Rmr,
    Kind::Rsp,
    Kind::Cno,
    Kind::Srq,
    Kind::Csp,
];
