//! Access control lists: whom a list lets write beside owner and group. The mode shows only their sum, as group bits.

use std::path::Path;

/// The attribute that holds a file's list.
pub(super) const NAME: &str = "system.posix_acl_access";

const USER: u16 = 2;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const WRITE: u16 = 2;

/// An entry: tag, rights, and whose they are.
type Entry = (u16, u16, u32);

/// A user or group that the list of `path` lets write, and that is not among these.
pub(super) fn writer(path: &Path, users: &[u32], groups: &[u32]) -> Option<String> {
    let mut list = vec![0; 64 * 1024];
    // No list, or no lists on this file system: the mode says all.
    let len = rustix::fs::getxattr(path, NAME, &mut list[..]).ok()?;
    let entries = decode(&list[..len]);
    let mask = entries.iter().find(|(tag, ..)| *tag == MASK).map_or(u16::MAX, |(_, rights, _)| *rights);
    entries.into_iter().filter(|(_, rights, _)| rights & mask & WRITE != 0).find_map(|(tag, _, id)| match tag
    {
        USER if !users.contains(&id) => Some(format!("user {id}, whom its access control list names")),
        GROUP if !groups.contains(&id) => Some(format!("group {id}, which its access control list names")),
        _ => None,
    })
}

/// After four bytes of version, eight bytes an entry, little-endian.
fn decode(list: &[u8]) -> Vec<Entry> {
    let entry = |bytes: &[u8]| {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        (half(0), half(2), u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]))
    };
    list.get(4..).unwrap_or_default().chunks_exact(8).map(entry).collect()
}

#[cfg(test)]
pub(super) fn encode(entries: &[Entry]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        let id = if matches!(*tag, USER | GROUP) { *id } else { u32::MAX };
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    list
}
