//! The table of translations that peers read: from a key of the first child to the key of another child.
//!
//! An entry is two words: the two keys, and the complement of that. A reader so notices an entry that is written while
//! it is read. The place of an entry follows from its key; [`WINDOW`] entries from there on are searched.

use dat_plugin::host::{Device, Memory, Registration};
use dat_plugin::{Access, Failure, Status};

use crate::header::TableAt;

/// Places that an entry may take, and the entries that one read fetches.
const WINDOW: u64 = 8;
const ENTRY: u64 = 16;
const BITS: u32 = 14;
/// Bytes that one read fetches.
pub(crate) const FETCH: u32 = (WINDOW * ENTRY) as u32;
const BYTES: u64 = ((1 << BITS) + WINDOW) * ENTRY;

/// A table, registered with one child in one protection domain.
#[derive(Debug)]
pub(crate) struct Table(Registration);

impl Table {
    pub(crate) fn new(device: &Device, domain: u32) -> Result<Table, Failure> {
        let memory = Memory::try_heap(BYTES as usize)?;
        device.register(memory, Access::REMOTE_READ, domain).map(Table)
    }

    /// Where peers find it.
    pub(crate) fn at(&self) -> TableAt {
        TableAt { addr: self.0.memory().addr(), rkey: self.0.keys().rkey }
    }

    /// Adds an entry.
    pub(crate) fn publish(&self, key: u32, theirs: u32) -> Result<(), Failure> {
        let Some(place) = self.find(key, |entry| entry == 0) else {
            let message =
                "too many regions with remote rights in one protection domain of a route; end one first";
            return Err(Failure::new(Status::NO_RESOURCE, message));
        };
        self.store(place, word(key, theirs));
        Ok(())
    }

    /// Removes the entry of a key.
    pub(crate) fn withdraw(&self, key: u32) {
        if let Some(place) = self.find(key, |entry| entry >> 32 == key.into() && entry != 0) {
            self.0.memory().write(place, &[0; ENTRY as usize]);
        }
    }

    fn find(&self, key: u32, wanted: impl Fn(u64) -> bool) -> Option<u64> {
        (0..WINDOW).map(|nth| offset(key) + nth * ENTRY).find(|place| {
            let mut bytes = [0; 8];
            self.0.memory().read(*place, &mut bytes);
            wanted(u64::from_le_bytes(bytes))
        })
    }

    fn store(&self, place: u64, word: u64) {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        bytes[8..].copy_from_slice(&(!word).to_le_bytes());
        self.0.memory().write(place, &bytes);
    }
}

/// Offset of the entries that may have the key.
pub(crate) fn offset(key: u32) -> u64 {
    // An odd number without a pattern; the highest bits of the product depend on all bits of the key.
    u64::from(key.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) * ENTRY
}

/// The key of the other child, out of what a read at [`offset`] fetched.
pub(crate) fn translation(fetched: &[u8; FETCH as usize], key: u32) -> Option<u32> {
    fetched.chunks_exact(ENTRY as usize).find_map(|entry| {
        let word = u64::from_le_bytes(entry[..8].try_into().ok()?);
        let check = u64::from_le_bytes(entry[8..].try_into().ok()?);
        (word == !check && word >> 32 == key.into()).then_some(word as u32)
    })
}

fn word(key: u32, theirs: u32) -> u64 {
    u64::from(key) << 32 | u64::from(theirs)
}

#[cfg(test)]
mod tests {
    use dat_plugin::Config;
    use dat_plugin::host::Plugin;

    use super::*;

    fn table() -> Table {
        let device = Plugin::of::<dat_loopback::Loopback>().open(&Config::default()).expect("a device");
        Table::new(&device, 1).expect("a table")
    }

    fn fetch(table: &Table, key: u32) -> Option<u32> {
        let mut fetched = [0; FETCH as usize];
        table.0.memory().read(offset(key), &mut fetched);
        translation(&fetched, key)
    }

    #[test]
    fn a_published_key_is_found_until_it_is_withdrawn() {
        let table = table();
        for key in 1..2000 {
            table.publish(key * 7919, key).expect("room");
        }
        for key in 1..2000 {
            assert_eq!(fetch(&table, key * 7919), Some(key));
        }
        assert_eq!(fetch(&table, 3), None);
        table.withdraw(7919);
        assert_eq!(fetch(&table, 7919), None);
        assert_eq!(fetch(&table, 2 * 7919), Some(2));
    }

    #[test]
    fn keys_of_one_place_fill_its_window_and_no_more() {
        let table = table();
        let alike: Vec<u32> = (1..).filter(|key| offset(*key) == offset(1)).take(9).collect();
        for key in &alike[..8] {
            table.publish(*key, key + 1).expect("room");
        }
        assert_eq!(table.publish(alike[8], 0).map_err(|failure| failure.status), Err(Status::NO_RESOURCE));
        assert!(alike[..8].iter().all(|key| fetch(&table, *key) == Some(key + 1)));
        table.withdraw(alike[3]);
        table.publish(alike[8], 5).expect("room again");
        assert_eq!(fetch(&table, alike[8]), Some(5));
    }

    #[test]
    fn an_entry_that_is_half_written_is_none() {
        let mut fetched = [0; FETCH as usize];
        assert_eq!(translation(&fetched, 0), None, "an empty entry");
        fetched[..8].copy_from_slice(&word(5, 6).to_le_bytes());
        assert_eq!(translation(&fetched, 5), None);
        fetched[8..16].copy_from_slice(&(!word(5, 6)).to_le_bytes());
        assert_eq!(translation(&fetched, 5), Some(6));
    }
}
