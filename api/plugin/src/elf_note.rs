//! An ELF note that describes a plugin, readable without running any of it.

use crate::{ABI_MAJOR, ABI_MINOR, Caps, Provider, ProviderInfo};

const NAME_LEN: usize = 32;
/// Of 1.0; every plugin has as much.
const OLDEST_DESC_LEN: usize = 4 + 4 + NAME_LEN + NAME_LEN;
const DESC_LEN: usize = OLDEST_DESC_LEN + 4 + 4 + 8;

/// In `said`: `caps` means something.
const SAYS_CAPS: u32 = 1;

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
    // Later than the rest; a reader goes by `descsz`.
    said: u32,
    reserved: u32,
    /// Low half first, so that the note needs no alignment above 4.
    caps: [u32; 2],
}

/// The content of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub abi: (u32, u32),
    pub name: String,
    pub version: String,
    pub caps: Option<Caps>,
}

impl Note {
    /// The section's name.
    pub const SECTION: &'static str = ".note.dat.plugin";

    /// The note of a provider.
    pub const fn of<P: Provider>() -> Note {
        let mut note = Note::new(P::INFO);
        if let Some(caps) = P::CAPS {
            note.said = SAYS_CAPS;
            note.caps = [caps.0 as u32, (caps.0 >> 32) as u32];
        }
        note
    }

    /// A note without capabilities.
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
            said: 0,
            reserved: 0,
            caps: [0; 2],
        }
    }

    /// Reads a section's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Said> {
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        if word(0)? != 4
            || (word(4)? as usize) < OLDEST_DESC_LEN
            || word(8)? != 1
            || bytes.get(12..16)? != b"DAT\0"
        {
            return None;
        }
        let text = |at: usize| {
            let raw = bytes.get(at..at + NAME_LEN)?;
            let end = raw.iter().position(|b| *b == 0).unwrap_or(NAME_LEN);
            Some(String::from_utf8_lossy(&raw[..end]).into_owned())
        };
        let (abi, name, version) = ((word(16)?, word(20)?), text(24)?, text(24 + NAME_LEN)?);
        let more = 24 + 2 * NAME_LEN;
        let says_caps = word(4)? as usize >= DESC_LEN && word(more)? & SAYS_CAPS != 0;
        let caps = match says_caps {
            true => Some(Caps(u64::from(word(more + 8)?) | u64::from(word(more + 12)?) << 32)),
            false => None,
        };
        Some(Said { abi, name, version, caps })
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

/// For [`crate::layout`]: the note's fields are this module's own.
#[cfg(all(test, not(miri)))]
pub(crate) fn layout(out: &mut String) {
    use std::fmt::Write as _;
    use std::mem::offset_of;
    let of = [
        ("namesz", offset_of!(Note, namesz)),
        ("descsz", offset_of!(Note, descsz)),
        ("kind", offset_of!(Note, kind)),
        ("owner", offset_of!(Note, owner)),
        ("abi_major", offset_of!(Note, abi_major)),
        ("abi_minor", offset_of!(Note, abi_minor)),
        ("name", offset_of!(Note, name)),
        ("version", offset_of!(Note, version)),
        ("said", offset_of!(Note, said)),
        ("reserved", offset_of!(Note, reserved)),
        ("caps", offset_of!(Note, caps)),
    ];
    let _ = writeln!(out, "_Static_assert(sizeof(struct datp_note) == {}, \"note\");", size_of::<Note>());
    for (field, at) in of {
        let _ =
            writeln!(out, "_Static_assert(offsetof(struct datp_note, {field}) == {at}, \"note.{field}\");");
    }
}
