//! From the engine's numbers, which events carry, to handles.
//!
//! A table of one word for each of the last 65,536 numbers answers nearly always, without a lock. A number that was
//! pushed out of it by a younger one while its object lives is kept aside.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use dat_types::ObjectId;
use parking_lot::RwLock;

use super::cells;
use crate::abi::{Handle, NULL};

const PLACES: usize = 1 << 16;

/// High half: what of the number the place does not say. Low half: the cell, plus one.
static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

static ASIDE: LazyLock<RwLock<HashMap<u64, u32>>> = LazyLock::new(RwLock::default);
static ASIDE_COUNT: AtomicUsize = AtomicUsize::new(0);

fn place(id: ObjectId) -> &'static AtomicU64 {
    &TABLE[id.0 as usize % PLACES]
}

fn tag(id: ObjectId) -> u64 {
    (id.0 / PLACES as u64) << 32
}

pub fn insert(id: ObjectId, handle: Handle) {
    let Some(cell) = cells::index(handle) else { return };
    let old = place(id).swap(tag(id) | u64::from(cell + 1), Ordering::AcqRel);
    if old != 0 {
        let displaced = ObjectId((old >> 32) * PLACES as u64 + id.0 % PLACES as u64);
        let cell = old as u32 - 1;
        let lives = cells::address_of(cell, displaced).is_some_and(|handle| cells::kind(handle).is_some());
        if lives {
            let mut aside = ASIDE.write();
            aside.insert(displaced.0, cell);
            ASIDE_COUNT.store(aside.len(), Ordering::Release);
        }
    }
}

#[inline]
pub fn lookup(id: ObjectId) -> Handle {
    let word = place(id).load(Ordering::Acquire);
    if word & !0xFFFF_FFFF == tag(id) && word != 0 {
        return cells::address_of(word as u32 - 1, id).unwrap_or(NULL);
    }
    aside(id)
}

#[cold]
fn aside(id: ObjectId) -> Handle {
    if ASIDE_COUNT.load(Ordering::Acquire) == 0 {
        return NULL;
    }
    let cell = ASIDE.read().get(&id.0).copied();
    cell.and_then(|cell| cells::address_of(cell, id)).unwrap_or(NULL)
}

/// The table keeps the number, so that events that are still queued name the handle there was.
pub fn remove(id: ObjectId) {
    if ASIDE_COUNT.load(Ordering::Acquire) > 0 {
        let mut aside = ASIDE.write();
        aside.remove(&id.0);
        ASIDE_COUNT.store(aside.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{Kind, Provider};

    #[test]
    fn a_number_that_is_pushed_out_is_still_found() {
        let provider = std::ptr::NonNull::<Provider>::dangling().as_ptr();
        let object = std::ptr::NonNull::dangling().as_ptr();
        let ids: Vec<ObjectId> = (0..3).map(|i| ObjectId((1 << 30) + 5 + i * PLACES as u64)).collect();
        let handles: Vec<Handle> = ids
            .iter()
            .map(|id| {
                let handle = cells::allocate(Kind::Cno, *id, provider, object).expect("room");
                insert(*id, handle);
                handle
            })
            .collect();
        for (id, handle) in ids.iter().zip(&handles) {
            assert_eq!(lookup(*id), *handle);
        }
        assert_eq!(lookup(ObjectId(ids[0].0 + 1)), NULL);
        for (id, handle) in ids.iter().zip(handles) {
            assert!(cells::free(handle, Kind::Cno).is_some());
            remove(*id);
        }
    }
}
