//! Archives of the kind the kernel takes as its initial RAM file system ("newc"), written without help of `cpio`.

use std::collections::BTreeSet;
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive in the making.
#[derive(Default)]
pub struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a file at `path` (absolute in the archive's root) and the folders above it.
    pub fn add(&mut self, path: &str, content: &[u8]) {
        let above: Vec<_> =
            Path::new(path).ancestors().skip(1).map(|folder| folder.to_string_lossy()).collect();
        for folder in above.iter().rev() {
            let folder = folder.trim_start_matches('/');
            if !folder.is_empty() && self.folders.insert(folder.to_owned()) {
                self.entry(folder, DIRECTORY, &[]);
            }
        }
        self.entry(path.trim_start_matches('/'), PROGRAM, content);
    }

    /// The archive, complete.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (size, name_size) = (content.len() as u32, name.len() as u32 + 1);
        // inode, mode, owner, group, links, time, size, device of the file, device it is, name's size, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_folders_come_before_their_files() {
        let mut archive = Archive::default();
        archive.add("/a/b/c", b"12345");
        archive.add("/a/d", b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8_lossy(&bytes);
        let names: Vec<_> =
            text.split("070701").skip(1).map(|entry| entry[104..].split('\0').next()).collect();
        assert_eq!(names, [Some("a"), Some("a/b"), Some("a/b/c"), Some("a/d"), Some("TRAILER!!!")]);
        assert!(text.contains("0000000500000000"), "the size of c");
    }
}
