//! An IA's handle is a small number, as programs of the field expect; this maps it to an address and back. Foreign
//! providers' addresses are mapped as well.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::abi::Handle;

/// Numbers are 1 to this, less one. Addresses are never that small.
const NUMBERS: usize = 4096;

/// The address of each number; 0 is none.
static ADDRESSES: [AtomicUsize; NUMBERS] = [const { AtomicUsize::new(0) }; NUMBERS];

/// The number given out last: the next is looked for behind it, so that a stale number is not reused soon.
static LAST: Mutex<usize> = Mutex::new(0);

pub fn assign(address: Handle) -> Option<Handle> {
    let mut last = LAST.lock();
    for step in 1..NUMBERS {
        let number = (*last + step) % NUMBERS;
        // 1 and 2 are the magic handles of event dispatchers; a number that is no such handle cannot be taken for one.
        if number > 2 && ADDRESSES[number].load(Ordering::Relaxed) == 0 {
            ADDRESSES[number].store(address as usize, Ordering::Release);
            *last = number;
            return Some(number as Handle);
        }
    }
    None
}

pub fn release(number: Handle) {
    if let Some(place) = ADDRESSES.get(number as usize) {
        place.store(0, Ordering::Release);
    }
}

/// Null for an unused number.
#[inline]
pub fn address(handle: Handle) -> Handle {
    match ADDRESSES.get(handle as usize) {
        Some(place) => place.load(Ordering::Acquire) as Handle,
        None => handle,
    }
}

#[inline]
pub fn is_number(handle: Handle) -> bool {
    (handle as usize) < NUMBERS
}

/// The number of an address.
pub fn number_of(address: Handle) -> Option<Handle> {
    if address.is_null() {
        return None;
    }
    let number = ADDRESSES.iter().position(|place| place.load(Ordering::Acquire) == address as usize)?;
    Some(number as Handle)
}
