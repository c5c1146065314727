//! Reading a plugin's file without running any of it.

use std::path::Path;

use object::elf;
use object::read::elf::{Dynamic, ElfFile64, FileHeader as _};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache, ReadRef};

use super::error::LoadError;
use super::object::printable;
use crate::abi::Caps;
use crate::{ABI_MAJOR, ABI_OLDEST_MAJOR, Note};

/// What a plugin's file declares.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// Major and minor version of the interface it was built for.
    pub abi: (u32, u32),
    /// Short name.
    pub name: String,
    /// Version of the plugin.
    pub version: String,
    /// What its devices can have at most; `None` when the file does not say.
    pub caps: Option<Caps>,
    /// How the loader gets at its tables.
    pub root: Root,
    /// The libraries it needs, in the order the dynamic loader looks for them.
    pub needed: Vec<String>,
    /// Where the dynamic loader looks for them first, if the file has a run path.
    pub run_path: Option<String>,
}

/// How the loader gets at a plugin's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Root {
    /// A header of abi_stable's under this symbol; layouts are compared.
    Header(String),
    /// The function of this name, as plugins in C have; sizes are compared.
    Function(&'static str),
    /// Nothing that leads to tables.
    Missing,
}

/// What a plugin exports the way to its tables as: this and the name of its crate.
pub(super) const HEADER_PREFIX: &str = "dat_plugin_header_";
/// What a plugin in C exports.
pub(super) const C_ROOT: &str = "dat_plugin_c_root";

/// No plugin is larger; a file that claims to be is not read.
const MOST_BYTES: u64 = 1 << 30;
/// Of the note; what is longer is no note of a plugin.
const MOST_NOTE: u64 = 4096;
/// Libraries that are listed at most.
const MOST_NEEDED: usize = 256;

/// Reads what the file declares. A few pages of it are read, none of it runs.
pub fn inspect(path: &Path) -> Result<Inspection, LoadError> {
    let file = std::fs::File::open(path).map_err(LoadError::Unreadable)?;
    let facts = file.metadata().map_err(LoadError::Unreadable)?;
    if !facts.is_file() {
        return not("it is no regular file");
    }
    if facts.len() > MOST_BYTES {
        return not(format!("it has {} bytes, more than any plugin ({MOST_BYTES})", facts.len()));
    }
    let pages = ReadCache::new(file);
    check_head(&pages)?;
    read(&pages)
}

/// As [`inspect`], of the bytes of a file.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn inspect_bytes(bytes: &[u8]) {
    let _ = Note::parse(bytes);
    if check_head(bytes).is_ok()
        && let Ok(found) = read(bytes)
    {
        assert!(found.needed.len() <= MOST_NEEDED);
        let _ = found.verdict();
    }
}

impl Inspection {
    /// Whether this host can load it, as far as the file shows.
    pub fn verdict(&self) -> Result<(), LoadError> {
        if !(ABI_OLDEST_MAJOR..=ABI_MAJOR).contains(&self.abi.0) {
            return Err(LoadError::Version { plugin: self.abi });
        }
        match &self.root {
            Root::Missing => Err(LoadError::Layout(format!(
                "it exports neither {HEADER_PREFIX} with its name nor {C_ROOT}"
            ))),
            _ => Ok(()),
        }
    }
}

fn not<T>(why: impl Into<String>) -> Result<T, LoadError> {
    Err(LoadError::NotALibrary(why.into()))
}

/// The first bytes, so that each kind of wrong file has its own sentence.
fn check_head<'d>(pages: impl ReadRef<'d>) -> Result<(), LoadError> {
    let Ok(magic) = pages.read_bytes_at(0, 4) else { return not("it is shorter than 4 bytes") };
    if magic != elf::ELFMAG {
        return not("it is no ELF file");
    }
    let Ok(head) = pages.read_bytes_at(0, 20) else { return not("it was cut off in the ELF header") };
    if head[4] != elf::ELFCLASS64.0 {
        return not("it is no 64-bit file");
    }
    let little = head[5] == elf::ELFDATA2LSB.0;
    if little != cfg!(target_endian = "little") {
        return not(if little { "it is little-endian" } else { "it is big-endian" });
    }
    let word = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let kind = elf::FileType(word(16));
    if kind != elf::ET_DYN {
        return not(match kind {
            elf::ET_REL => "it is an object file that was not linked yet".into(),
            elf::ET_EXEC => "it is a program".into(),
            elf::ET_CORE => "it is a core dump".into(),
            other => format!("it is of ELF type {}", other.0),
        });
    }
    let own = if cfg!(target_arch = "x86_64") {
        Some((elf::EM_X86_64, "x86-64"))
    } else if cfg!(target_arch = "aarch64") {
        Some((elf::EM_AARCH64, "aarch64"))
    } else {
        None
    };
    match own {
        Some((machine, name)) if word(18) != machine.0 => {
            not(format!("it is for ELF machine {}, this is {name} ({})", word(18), machine.0))
        }
        _ => Ok(()),
    }
}

fn read<'d, R: ReadRef<'d>>(pages: R) -> Result<Inspection, LoadError> {
    let malformed = |error: object::Error| LoadError::NotALibrary(error.to_string());
    let file = ElfFile64::<object::Endianness, R>::parse(pages).map_err(malformed)?;
    if file.elf_header().e_shoff(file.endian()) == 0 {
        return not("its section headers were taken away; strip it without --strip-section-headers");
    }
    let section = file.section_by_name(Note::SECTION).ok_or(LoadError::NotAPlugin)?;
    if section.size() > MOST_NOTE {
        return not(format!("its section {} has {} bytes", Note::SECTION, section.size()));
    }
    let note = Note::parse(section.data().map_err(malformed)?).ok_or_else(|| {
        LoadError::NotALibrary(format!("its section {} holds no note of a plugin", Note::SECTION))
    })?;
    let table = file.elf_dynamic_table().map_err(malformed)?;
    let strings = |tag: elf::DynamicTag| {
        let text = move |entry: Dynamic| table.string(entry).ok().map(printable);
        table.iter().filter(move |entry| entry.tag == tag).take(MOST_NEEDED).filter_map(text)
    };
    let run_path = strings(elf::DT_RUNPATH).chain(strings(elf::DT_RPATH)).next();
    Ok(Inspection {
        abi: note.abi,
        name: printable(note.name.as_bytes()),
        version: printable(note.version.as_bytes()),
        caps: note.caps,
        root: root(&file),
        needed: strings(elf::DT_NEEDED).collect(),
        run_path,
    })
}

fn root<'d, R: ReadRef<'d>>(file: &ElfFile64<'d, object::Endianness, R>) -> Root {
    let mut root = Root::Missing;
    for symbol in file.dynamic_symbols().filter(|symbol| !symbol.is_undefined()) {
        match symbol.name() {
            Ok(name) if name.starts_with(HEADER_PREFIX) => return Root::Header(name.to_owned()),
            Ok(C_ROOT) => root = Root::Function(C_ROOT),
            _ => {}
        }
    }
    root
}
