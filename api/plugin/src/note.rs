//! An ELF note that says what a plugin is, readable without running any of it.

use crate::{ABI_MAJOR, ABI_MINOR, ProviderInfo};

const NAME_LEN: usize = 32;
const DESC_LEN: usize = 4 + 4 + NAME_LEN + NAME_LEN;

/// Content of the section `.note.dat.plugin`.
#[repr(C, align(4))]
pub struct Note {
    namesz: u32,
    descsz: u32,
    kind: u32,
    owner: [u8; 4],
    abi_major: u32,
    abi_minor: u32,
    name: [u8; NAME_LEN],
    version: [u8; NAME_LEN],
}

impl Note {
    /// The section's name.
    pub const SECTION: &'static str = ".note.dat.plugin";

    /// The note of a provider.
    pub const fn new(info: ProviderInfo) -> Note {
        Note {
            namesz: 4,
            descsz: DESC_LEN as u32,
            kind: 1,
            owner: *b"DAT\0",
            abi_major: ABI_MAJOR,
            abi_minor: ABI_MINOR,
            name: padded(info.name),
            version: padded(info.version),
        }
    }

    /// Reads (major, minor, name, version) out of a section's bytes.
    pub fn parse(bytes: &[u8]) -> Option<(u32, u32, String, String)> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != 4 || (word(4)? as usize) < DESC_LEN || word(8)? != 1 || bytes.get(12..16)? != b"DAT\0"
        {
            return None;
        }
        let text = |at: usize| {
            let raw = bytes.get(at..at + NAME_LEN)?;
            let end = raw.iter().position(|b| *b == 0).unwrap_or(NAME_LEN);
            Some(String::from_utf8_lossy(&raw[..end]).into_owned())
        };
        Some((word(16)?, word(20)?, text(24)?, text(24 + NAME_LEN)?))
    }
}

const fn padded(text: &str) -> [u8; NAME_LEN] {
    let bytes = text.as_bytes();
    let mut out = [0; NAME_LEN];
    let mut i = 0;
    while i < bytes.len() && i < NAME_LEN - 1 {
        out[i] = bytes[i];
        i += 1;
    }
    out
}
