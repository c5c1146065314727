//! Whether memory is shared with other processes, and which memory it is: the system's table of mappings tells.

use std::fs;
use std::io;

/// The object of the system behind a shared mapping: device and inode, as the table of mappings prints them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    device: String,
    inode: String,
}

/// What is behind `len` bytes at `addr`; `None` when a part of them is private or not mapped.
pub(crate) fn backing(addr: u64, len: u64) -> io::Result<Option<Backing>> {
    Ok(find(&fs::read_to_string("/proc/self/maps")?, addr, len))
}

fn find(maps: &str, addr: u64, len: u64) -> Option<Backing> {
    let end = addr.checked_add(len)?;
    let mut covered = addr;
    let mut found = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        if to <= covered {
            continue;
        }
        // The table is in order of addresses: a gap stays one.
        if from > covered || !fields.next()?.contains('s') {
            return None;
        }
        let (_offset, device, inode) = (fields.next()?, fields.next()?, fields.next()?);
        found.get_or_insert_with(|| Backing { device: device.to_owned(), inode: inode.to_owned() });
        covered = to;
        if covered >= end {
            return found;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-2000 rw-p 00000000 00:00 0 [heap]\n\
                        2000-4000 rw-s 00000000 00:01 77 /memfd:a (deleted)\n\
                        4000-5000 rw-s 00002000 00:01 77 /memfd:a (deleted)\n\
                        6000-7000 rw-s 00000000 00:01 78 /memfd:b (deleted)\n";

    #[test]
    fn a_range_is_shared_when_all_of_it_is() {
        let backed = |addr, len| find(MAPS, addr, len).map(|backing| backing.inode);
        assert_eq!(backed(0x2800, 0x2000).as_deref(), Some("77"));
        assert_eq!(backed(0x6000, 0x1000).as_deref(), Some("78"));
        assert_eq!(backed(0x1800, 0x1000), None, "begins in private memory");
        assert_eq!(backed(0x4800, 0x2000), None, "there is a gap");
        assert_eq!(backed(0x6800, 0x1000), None, "ends outside");
        assert_eq!(backed(u64::MAX - 1, 4), None);
    }
}
