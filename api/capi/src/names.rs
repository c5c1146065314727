//! IA names: `plugins.toml` as everywhere in this project, and the `dat.conf` uDAPL users have.
//!
//! With `DAT_OVERRIDE` set, that file alone says what there is. Otherwise the layers of `plugins.toml` come first, then
//! `/etc/dat.conf`. A line of a `dat.conf` is ours when its library is one of our plugins (opened with `ia_params` as
//! `key=value` pairs) or this library itself (`ia_params` then names the provider; the name of the line if it is empty).
//! A line with a foreign uDAPL provider is listed, and refused when it is opened.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use dat_registry::{Entry, Opened, Registry};
use dat_types::{ReturnType, Subtype};

use crate::abi::ProviderInfo;
use crate::code::{Code, Outcome, code};
use crate::{foreign, text};

/// A name that did not open.
pub struct Refused {
    /// What the call answers.
    pub code: Code,
    /// Why, for people.
    pub message: String,
}

/// Opens this name.
pub fn open(name: &str) -> Result<Opened, Refused> {
    let Sources { layered, lines } = sources().map_err(|message| Refused { code: NOT_FOUND, message })?;
    if let Some(registry) = &layered
        && (registry.entry(name).is_some()
            || registry.chain(name).is_some()
            || registry.route(name).is_some())
    {
        return open_in(registry, name);
    }
    match lines.iter().find(|line| line.name == name) {
        Some(line) => open_line(line),
        None => match layered {
            // Its own words for an unknown name list the names there are.
            Some(registry) => open_in(&registry, name),
            None => Err(Refused {
                code: code(ReturnType::ProviderNotFound, Subtype::NameNotRegistered),
                message: format!("no line of the file DAT_OVERRIDE names defines {name:?}"),
            }),
        },
    }
}

/// Everything that can be asked for, whether or not it would open.
pub fn list() -> Outcome<Vec<ProviderInfo>> {
    let Sources { layered, lines } = sources().map_err(|message| {
        complain(&message);
        code(ReturnType::InternalError, Subtype::None)
    })?;
    let mut names: Vec<String> = Vec::new();
    if let Some(registry) = &layered {
        names.extend(registry.entries().iter().map(|entry| entry.name.clone()));
        names.extend(registry.chains().iter().map(|chain| chain.name.clone()));
        names.extend(registry.routes().iter().map(|route| route.name.clone()));
    }
    for line in lines {
        if !names.contains(&line.name) {
            names.push(line.name);
        }
    }
    let info = |name: String| ProviderInfo {
        ia_name: text::fixed(&name),
        dapl_version_major: 2,
        dapl_version_minor: 0,
        is_thread_safe: 1,
    };
    let mut found: Vec<ProviderInfo> = names.into_iter().map(info).collect();
    found.extend(foreign::list());
    Ok(found)
}

/// Tells people why something did not work: C programs get nothing but a number. `DAT_LOG=off` silences it.
pub fn complain(message: &str) {
    if std::env::var_os("DAT_LOG").is_none_or(|level| level != "off") {
        eprintln!("libdat2: {message}");
    }
}

struct Sources {
    layered: Option<Registry>,
    lines: Vec<Entry>,
}

const NOT_FOUND: Code = code(ReturnType::ProviderNotFound, Subtype::None);

/// All there is for a fuzzer.
#[cfg(fuzzing)]
pub static ONLY: std::sync::OnceLock<fn() -> Registry> = std::sync::OnceLock::new();

fn sources() -> Result<Sources, String> {
    #[cfg(fuzzing)]
    if let Some(registry) = ONLY.get() {
        return Ok(Sources { layered: Some(registry()), lines: Vec::new() });
    }
    match override_file() {
        // A file that cannot be read is an empty registry (spec: registry).
        Some(file) => Ok(Sources { layered: None, lines: lines(Path::new(&file)) }),
        None => {
            let registry = Registry::open().map_err(|error| error.to_string())?;
            Ok(Sources { layered: Some(beside(registry)), lines: lines(Path::new("/etc/dat.conf")) })
        }
    }
}

/// `DAT_OVERRIDE`, unless the program has more rights than its starter.
fn override_file() -> Option<OsString> {
    // SAFETY: reads the auxiliary vector, which never changes.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    if secure { None } else { std::env::var_os("DAT_OVERRIDE").filter(|file| !file.is_empty()) }
}

fn lines(file: &Path) -> Vec<Entry> {
    // Anything else might be waited for, or have no end.
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    let Some(bytes) = is_file.then(|| std::fs::read(file).ok()).flatten() else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let (entries, remarks) = Registry::import_dat_conf(&text, &file.to_string_lossy());
    for remark in remarks {
        tracing::debug!(target: "dat.registry", %remark, "a line of dat.conf is not used");
    }
    entries
}

fn open_line(line: &Entry) -> Result<Opened, Refused> {
    let library =
        Path::new(&line.library).file_name().map_or_else(Default::default, |name| name.to_string_lossy());
    if library.starts_with("libdat2.so") {
        return open_target(&line.name, line.params.get("ia_params").map_or("", String::as_str));
    }
    if library.starts_with("libdapl") {
        let message = format!(
            "{:?}, defined at {}, is of {:?}: a uDAPL provider of another project, which this library does not load. \
             Name one of its own providers (`dat providers` lists them), or use the system's libdat2 for this one",
            line.name, line.defined, line.library
        );
        return Err(Refused { code: NOT_FOUND, message });
    }
    let mut entry = line.clone();
    entry.params = pairs(line.params.get("ia_params").map_or("", String::as_str));
    let file = line.defined.file.to_string_lossy();
    let registry = Registry::from_str(&file, &entry.to_toml())
        .map_err(|error| Refused { code: Code(error.code().0), message: error.to_string() })?;
    open_in(&beside(registry), &entry.name)
}

/// The provider a line of this very library means: the first word of its parameters, or the line's own name.
pub fn open_target(name: &str, params: &str) -> Result<Opened, Refused> {
    let target = params.split_whitespace().next().unwrap_or(name);
    let registry =
        Registry::open().map_err(|error| Refused { code: NOT_FOUND, message: error.to_string() })?;
    open_in(&beside(registry), target)
}

/// `key=value` words; anything else is handed on as it is, so that the provider can say what it thinks of it.
fn pairs(params: &str) -> std::collections::BTreeMap<String, String> {
    let words: Option<_> = params
        .split_whitespace()
        .map(|word| word.split_once('=').map(|(k, v)| (k.into(), v.into())))
        .collect();
    words.unwrap_or_else(|| [("ia_params".to_owned(), params.to_owned())].into())
}

fn open_in(registry: &Registry, name: &str) -> Result<Opened, Refused> {
    registry
        .open_device(name)
        .map_err(|error| Refused { code: Code(error.code().0), message: error.to_string() })
}

/// Plugins may lie where this library lies.
fn beside(registry: Registry) -> Registry {
    match own_folder() {
        Some(folder) => registry.also_search(folder.clone()).also_search(folder.join("dat")),
        None => registry,
    }
}

fn own_folder() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: an address of this library, and a place for the answer.
    let found = unsafe { libc::dladdr((own_folder as *const ()).cast(), info.as_mut_ptr()) };
    // SAFETY: zeroed, which is a value, or filled in.
    let name = unsafe { info.assume_init() }.dli_fname;
    if found == 0 || name.is_null() {
        return None;
    }
    // SAFETY: the linker's own string, which lives as long as the library.
    let file = Path::new(std::ffi::OsStr::from_bytes(unsafe { CStr::from_ptr(name) }.to_bytes()));
    let file = file.canonicalize().ok()?;
    file.parent().map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_line_are_pairs_or_one_text() {
        assert_eq!(pairs("").len(), 0);
        assert_eq!(pairs("a=1 b=2")["b"], "2");
        assert_eq!(pairs("eth0 0")["ia_params"], "eth0 0");
    }
}
