//! What there is: queue pairs by number, listeners by port, under the one lock.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::cm::Id;
use crate::common::Object;
use crate::data::Pair;

/// Everything that finds objects by number.
pub struct World {
    pub pairs: BTreeMap<u32, Object<Pair>>,
    pub listeners: BTreeMap<u16, Object<Id>>,
    /// That are somebody's.
    pub ports: BTreeSet<u16>,
    last: u32,
}

impl World {
    /// A number nothing else has: of queue pairs, keys.
    pub fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// A port nobody has.
    pub fn free_port(&self) -> Option<u16> {
        (20_000..=u16::MAX).find(|port| !self.ports.contains(port))
    }
}

static WORLD: Mutex<World> =
    Mutex::new(World { pairs: BTreeMap::new(), listeners: BTreeMap::new(), ports: BTreeSet::new(), last: 0 });

/// The lock.
#[inline]
pub fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets `errno` and is the result of the functions that do so.
pub fn fail(code: c_int) -> c_int {
    // SAFETY: the thread's own.
    unsafe { *libc::__errno_location() = code };
    -1
}
