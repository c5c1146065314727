//! Keys of registered memory: given out at registration, checked at each remote access.

use dat_plugin::{Access, Keys, Segment};

use crate::{MemSpan, Secrets};

/// Registered memory by key. A key has an index in its low bits and random bits above, so that a peer cannot guess keys.
///
/// The table does not lock. The provider holds its lock during an access, so that deregistration waits for it.
pub struct KeyTable {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    limit: usize,
    index_bits: u32,
    secrets: Secrets,
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
    memory: MemSpan,
    access: Access,
    domain: u32,
    window: bool,
}

impl KeyTable {
    /// A table of at most `limit` registrations, 2^24 being the most there can be.
    pub fn new(limit: u32) -> KeyTable {
        let limit = limit.clamp(1, 1 << 24) as usize;
        let index_bits = limit.next_power_of_two().trailing_zeros();
        KeyTable {
            entries: Vec::new(),
            free: Vec::new(),
            limit,
            index_bits,
            secrets: Secrets::new(32 - index_bits),
        }
    }

    /// Takes a registration in; `None` when the table is full. The remote key is 0 without a remote right.
    pub fn insert(&mut self, memory: MemSpan, access: Access, domain: u32) -> Option<Keys> {
        self.add(Entry { keys: Keys::default(), memory, access, domain, window: false })
    }

    /// Opens an unbound memory window; it counts as a registration. Its local key names it.
    pub fn open_window(&mut self, domain: u32) -> Option<u32> {
        let memory = MemSpan::default();
        let entry = Entry { keys: Keys::default(), memory, access: Access::NONE, domain, window: true };
        self.add(entry).map(|keys| keys.lkey)
    }

    /// Ends a window. `false`: there is none of this name.
    pub fn close_window(&mut self, window: u32) -> bool {
        match self.window(window) {
            Some(entry) => {
                let keys = entry.keys;
                self.remove(keys)
            }
            None => false,
        }
    }

    /// Binds a window to a range of memory registered with [`Access::WINDOW`] in the window's domain, or to nothing; to be
    /// written to it must be writable locally. Gives its new remote key, 0 when bound to nothing; the key before it is
    /// dead.
    pub fn bind(&mut self, window: u32, range: Option<(Segment, Access)>) -> Result<u32, KeyError> {
        let domain = self.window(window).ok_or(KeyError::Unknown)?.domain;
        let index = self.index(window);
        let (memory, access, rkey) = match range {
            None => (MemSpan::default(), Access::NONE, 0),
            Some((segment, access)) => {
                let whole = self.entries.get(self.index(segment.lkey())).copied().flatten();
                let whole = whole.filter(|entry| entry.keys.lkey == segment.lkey() && !entry.window);
                let whole = whole.ok_or(KeyError::Unknown)?;
                if whole.domain != domain {
                    return Err(KeyError::Domain);
                }
                let writes = access.0 & (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0 != 0;
                let needed = if writes { Access::WINDOW | Access::LOCAL_WRITE } else { Access::WINDOW };
                if !whole.access.contains(needed) {
                    return Err(KeyError::Access);
                }
                let part = whole.memory.part(segment.addr(), segment.len().into());
                (part.ok_or(KeyError::Range)?, access, self.key(index, window))
            }
        };
        if let Some(Some(entry)) = self.entries.get_mut(index) {
            (entry.memory, entry.access, entry.keys.rkey) = (memory, access, rkey);
        }
        Ok(rkey)
    }

    /// Ends what the window with this remote key is bound to, for a peer's channel of `domain`. `false`: there is no
    /// such window, or it is of another domain.
    pub fn invalidate(&mut self, rkey: u32, domain: u32) -> bool {
        let index = self.index(rkey);
        let entry = self.entries.get_mut(index).and_then(Option::as_mut);
        let entry = entry.filter(|entry| entry.window && rkey != 0 && entry.keys.rkey == rkey);
        let Some(entry) = entry.filter(|entry| entry.domain == domain) else { return false };
        (entry.memory, entry.access, entry.keys.rkey) = (MemSpan::default(), Access::NONE, 0);
        true
    }

    fn window(&self, window: u32) -> Option<&Entry> {
        let entry = self.entries.get(self.index(window))?.as_ref();
        entry.filter(|entry| entry.window && entry.keys.lkey == window)
    }

    fn add(&mut self, entry: Entry) -> Option<Keys> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.entries.len() < self.limit => {
                self.entries.push(None);
                self.entries.len() - 1
            }
            None => return None,
        };
        let lkey = self.key(index, 0);
        let remote = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let rkey = if entry.access.0 & remote.0 != 0 { self.key(index, lkey) } else { 0 };
        let keys = Keys { lkey, rkey };
        self.entries[index] = Some(Entry { keys, ..entry });
        Some(keys)
    }

    /// Ends a registration. `false`: there is none with these keys.
    pub fn remove(&mut self, keys: Keys) -> bool {
        let index = self.index(keys.lkey);
        match self.entries.get_mut(index) {
            Some(entry) if entry.is_some_and(|entry| entry.keys == keys) => {
                *entry = None;
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
    ) -> Result<MemSpan, KeyError> {
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
    pub fn memory(&self, rkey: u32) -> Option<MemSpan> {
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

    /// A fresh key for `index`, neither 0 nor `other`, nor one that was given out lately.
    fn key(&mut self, index: usize, other: u32) -> u32 {
        loop {
            let key = self.secrets.draw() << self.index_bits | index as u32;
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
    fn range(addr: usize, len: usize) -> MemSpan {
        // SAFETY: no test of this module copies.
        unsafe { MemSpan::new(addr, len) }
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
    fn a_key_dies_with_its_registration_and_its_index_gets_another() {
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
    fn a_window_has_a_key_for_what_it_is_bound_to() {
        let mut table = KeyTable::new(8);
        let rights = ALL | Access::WINDOW;
        let keys = table.insert(range(0x1000, 0x100), rights, 7).unwrap();
        let plain = table.insert(range(0x2000, 0x100), ALL, 7).unwrap();
        let window = table.open_window(7).unwrap();
        // SAFETY: no test of this module copies.
        let part = |addr, len, lkey| unsafe { Segment::from_parts(addr, len, lkey) };
        let read = Access::REMOTE_READ;
        let good = Some((part(0x1010, 16, keys.lkey), read));
        let first = table.bind(window, good).unwrap();
        assert_eq!(table.check(first, 0x1010, 16, read, 7), Ok(range(0x1010, 16)));
        assert_eq!(table.check(first, 0x1000, 16, read, 7), Err(KeyError::Range));
        assert_eq!(table.check(first, 0x1010, 16, Access::REMOTE_WRITE, 7), Err(KeyError::Access));
        for (wrong, why) in [
            (part(0x10f8, 16, keys.lkey), KeyError::Range),
            (part(0x2000, 16, plain.lkey), KeyError::Access),
            (part(0x1010, 16, keys.lkey ^ 1), KeyError::Unknown),
            (part(0x1010, 16, window), KeyError::Unknown),
        ] {
            assert_eq!(table.bind(window, Some((wrong, read))), Err(why));
        }
        let second = table.bind(window, good).unwrap();
        assert_eq!(table.check(first, 0x1010, 1, read, 7), Err(KeyError::Unknown), "the old key is dead");
        assert!(
            !table.invalidate(second, 8) && !table.invalidate(keys.rkey, 7) && table.invalidate(second, 7)
        );
        assert_eq!(table.check(second, 0x1010, 1, read, 7), Err(KeyError::Unknown));
        let third = table.bind(window, good).unwrap();
        assert_eq!(table.bind(window, None), Ok(0));
        assert_eq!(table.check(third, 0x1010, 1, read, 7), Err(KeyError::Unknown));
        assert!(table.close_window(window) && !table.close_window(window) && !table.close_window(keys.lkey));
        let elsewhere = table.open_window(9).unwrap();
        assert_eq!(table.bind(elsewhere, good), Err(KeyError::Domain));
    }

    #[test]
    fn a_registration_without_remote_rights_has_no_remote_key() {
        let mut table = KeyTable::new(8);
        let keys = table.insert(range(0x1000, 16), Access::LOCAL_READ | Access::LOCAL_WRITE, 0).unwrap();
        assert_eq!(keys.rkey, 0);
        assert_eq!(table.check(0, 0x1000, 1, Access::NONE, 0), Err(KeyError::Unknown));
        assert_eq!(table.check(keys.lkey, 0x1000, 1, Access::NONE, 0), Err(KeyError::Unknown));
    }

    /// A secret of eight bits would come again by chance within some twenty binds.
    #[test]
    fn a_window_bound_anew_gets_no_key_it_had_lately() {
        let mut table = KeyTable::new(1 << 24);
        let keys = table.insert(range(0x1000, 0x100), ALL | Access::WINDOW, 0).unwrap();
        let window = table.open_window(0).unwrap();
        // SAFETY: no test of this module copies.
        let part = unsafe { Segment::from_parts(0x1000, 16, keys.lkey) };
        let mut had = std::collections::HashSet::new();
        for round in 0..200 {
            let key = table.bind(window, Some((part, Access::REMOTE_READ))).unwrap();
            assert!(had.insert(key), "round {round}");
        }
    }

    #[test]
    fn keys_differ_from_table_to_table() {
        let first = KeyTable::new(1 << 16).insert(range(0, 1), ALL, 0);
        let same = (0..8).filter(|_| KeyTable::new(1 << 16).insert(range(0, 1), ALL, 0) == first).count();
        assert!(same < 8, "the secret is the same in every table");
    }
}
