//! Keys of registered memory: given out at registration, checked at each remote access.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use dat_plugin::{Access, Keys};

use crate::Stretch;

/// Registered memory by key. A key is an index in the low bits and for the rest bits nobody can guess, so that a peer
/// that was not given a key has no use of one.
///
/// The table does not lock: the provider holds its lock for as long as an access lasts, so that deregistration waits
/// for it.
pub struct KeyTable {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    limit: usize,
    index_bits: u32,
    /// Keyed with random numbers of the operating system; hashes of a counter are the secret bits.
    secret: RandomState,
    counter: u64,
}

/// Why a remote access is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// No live registration has this key.
    Unknown,
    /// It is of another protection domain.
    Domain,
    /// It lacks the right.
    Access,
    /// The bytes do not lie inside.
    Range,
}

#[derive(Clone, Copy)]
struct Entry {
    keys: Keys,
    memory: Stretch,
    access: Access,
    domain: u32,
}

impl KeyTable {
    /// A table of at most `limit` registrations, 2^24 being the most there can be.
    pub fn new(limit: u32) -> KeyTable {
        let limit = limit.clamp(1, 1 << 24) as usize;
        KeyTable {
            entries: Vec::new(),
            free: Vec::new(),
            limit,
            index_bits: limit.next_power_of_two().trailing_zeros(),
            secret: RandomState::new(),
            counter: 0,
        }
    }

    /// Takes a registration in; `None` when the table is full. The remote key is 0 without a remote right.
    pub fn insert(&mut self, memory: Stretch, access: Access, domain: u32) -> Option<Keys> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.limit => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return None,
        };
        let lkey = self.key(index, 0);
        let remote = access.0 & (Access::REMOTE_READ | Access::REMOTE_WRITE).0 != 0;
        let rkey = if remote { self.key(index, lkey) } else { 0 };
        let keys = Keys { lkey, rkey };
        self.entries[index] = Some(Entry { keys, memory, access, domain });
        Some(keys)
    }

    /// Ends a registration. `false`: there is none with these keys.
    pub fn remove(&mut self, keys: Keys) -> bool {
        let index = self.index(keys.lkey);
        match self.entries.get_mut(index) {
            Some(place) if place.is_some_and(|entry| entry.keys == keys) => {
                *place = None;
                self.free.push(index);
                true
            }
            _ => false,
        }
    }

    /// The memory a peer may access under `rkey`: `len` bytes at `addr`, for an access that needs `right`, through a
    /// channel of `domain`.
    pub fn check(
        &self,
        rkey: u32,
        addr: u64,
        len: u64,
        right: Access,
        domain: u32,
    ) -> Result<Stretch, KeyError> {
        let entry = self.entries.get(self.index(rkey)).copied().flatten();
        let entry = entry.filter(|entry| rkey != 0 && entry.keys.rkey == rkey).ok_or(KeyError::Unknown)?;
        if entry.domain != domain {
            return Err(KeyError::Domain);
        }
        if !entry.access.contains(right) {
            return Err(KeyError::Access);
        }
        entry.memory.part(addr, len).ok_or(KeyError::Range)
    }

    /// The whole of the registration with this remote key.
    pub fn memory(&self, rkey: u32) -> Option<Stretch> {
        let entry = self.entries.get(self.index(rkey)).copied().flatten()?;
        (rkey != 0 && entry.keys.rkey == rkey).then_some(entry.memory)
    }

    /// Registrations there are.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn index(&self, key: u32) -> usize {
        (key & ((1 << self.index_bits) - 1)) as usize
    }

    /// A fresh key for `index`, neither 0 nor `other`.
    fn key(&mut self, index: usize, other: u32) -> u32 {
        loop {
            self.counter += 1;
            let secret = self.secret.hash_one(self.counter) as u32;
            let key = secret << self.index_bits | index as u32;
            if key != 0 && key != other {
                return key;
            }
        }
    }
}

impl std::fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys stay out of logs.
        write!(f, "KeyTable({} of {})", self.len(), self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Access = Access(0x33);

    /// A range that is only calculated with.
    fn range(addr: usize, len: usize) -> Stretch {
        // SAFETY: no test of this module copies.
        unsafe { Stretch::new(addr, len) }
    }

    #[test]
    fn an_access_is_checked_for_key_domain_right_and_range() {
        let mut table = KeyTable::new(4);
        let keys = table.insert(range(0x1000, 0x100), Access::REMOTE_READ, 7).unwrap();
        let check = |rkey, addr, len, right, domain| table.check(rkey, addr, len, right, domain);
        let read = Access::REMOTE_READ;
        assert_eq!(check(keys.rkey, 0x1010, 0x10, read, 7), Ok(range(0x1010, 0x10)));
        assert_eq!(check(keys.rkey, 0x1000, 0x100, read, 7), Ok(range(0x1000, 0x100)));
        for wrong in (0..32).map(|bit| keys.rkey ^ 1 << bit) {
            assert_eq!(check(wrong, 0x1010, 0x10, read, 7), Err(KeyError::Unknown), "{wrong:#x}");
        }
        assert_eq!(check(keys.lkey, 0x1010, 0x10, read, 7), Err(KeyError::Unknown));
        assert_eq!(check(0, 0x1010, 0x10, read, 7), Err(KeyError::Unknown));
        assert_eq!(check(keys.rkey, 0x1010, 0x10, read, 8), Err(KeyError::Domain));
        assert_eq!(check(keys.rkey, 0x1010, 0x10, Access::REMOTE_WRITE, 7), Err(KeyError::Access));
        for (addr, len) in [(0xFFF, 2), (0x10FF, 2), (0x1000, 0x101), (0x1001, u64::MAX), (u64::MAX, 2)] {
            assert_eq!(check(keys.rkey, addr, len, read, 7), Err(KeyError::Range), "{addr:#x}+{len:#x}");
        }
    }

    #[test]
    fn a_key_dies_with_its_registration_and_the_place_gets_another() {
        let mut table = KeyTable::new(1);
        let old = table.insert(range(0x1000, 16), ALL, 0).unwrap();
        assert!(table.insert(range(0x2000, 16), ALL, 0).is_none(), "the limit is 1");
        assert!(!table.remove(Keys { rkey: old.rkey ^ 1, ..old }));
        assert!(table.remove(old));
        assert!(!table.remove(old), "only once");
        assert_eq!(table.check(old.rkey, 0x1000, 1, ALL, 0), Err(KeyError::Unknown));
        let new = table.insert(range(0x1000, 16), ALL, 0).unwrap();
        assert_ne!(old, new);
        assert_eq!(table.check(old.rkey, 0x1000, 1, ALL, 0), Err(KeyError::Unknown));
        assert_eq!(table.memory(new.rkey), Some(range(0x1000, 16)));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn a_registration_without_remote_rights_has_no_remote_key() {
        let mut table = KeyTable::new(8);
        let keys = table.insert(range(0x1000, 16), Access::LOCAL_READ | Access::LOCAL_WRITE, 0).unwrap();
        assert_eq!(keys.rkey, 0);
        assert_eq!(table.check(0, 0x1000, 1, Access::NONE, 0), Err(KeyError::Unknown));
        assert_eq!(table.check(keys.lkey, 0x1000, 1, Access::NONE, 0), Err(KeyError::Unknown));
    }

    #[test]
    fn keys_differ_from_table_to_table() {
        let first = KeyTable::new(1 << 16).insert(range(0, 1), ALL, 0);
        let same = (0..8).filter(|_| KeyTable::new(1 << 16).insert(range(0, 1), ALL, 0) == first).count();
        assert!(same < 8, "the secret is the same in every table");
    }
}
