//! What is kept by the numbers that come back in completions and events: looked up for each of them.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Shared by the threads that poll and those that open and close.
pub type ByUser<T> = RwLock<UserMap<T>>;

/// By number.
pub type UserMap<T> = HashMap<u64, T, BuildHasherDefault<Spread>>;

/// A panic while a map is changed leaves it sound.
pub fn read<T>(map: &ByUser<T>) -> RwLockReadGuard<'_, UserMap<T>> {
    map.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`read`].
pub fn write<T>(map: &ByUser<T>) -> RwLockWriteGuard<'_, UserMap<T>> {
    map.write().unwrap_or_else(PoisonError::into_inner)
}

/// The engine chooses the numbers, not a peer, so they do not collide on purpose. Spreading them over the table is enough, and
/// costs a multiplication.
#[derive(Default)]
pub struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        // An odd number without a pattern; the table takes low bits and the highest ones.
        let product = (self.0 ^ number).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = product ^ product >> 32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher as _, BuildHasherDefault};

    #[test]
    fn numbers_of_the_engine_spread() {
        let hash = |number: u64| BuildHasherDefault::<Spread>::default().hash_one(number);
        // An index below a generation, and small numbers alone.
        let numbers = (0..64u64).flat_map(|index| [index, index << 32, 7 << 32 | index]);
        let low: std::collections::HashSet<u64> = numbers.clone().map(|number| hash(number) % 1024).collect();
        let high: std::collections::HashSet<u64> = numbers.map(|number| hash(number) >> 57).collect();
        assert!(low.len() > 150 && high.len() > 64, "{} {}", low.len(), high.len());
    }
}
