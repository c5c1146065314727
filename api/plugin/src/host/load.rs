//! Loading a plugin, and reading one without running it.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::{fmt, ptr};

use abi_stable::library::{AbiHeaderRef, LibHeader, LibraryError};
use abi_stable::prefix_type::PrefixTypeTrait;

use super::{Device, call};
use crate::export::Export;
use crate::ops::{
    ChannelOps, DeviceOps, ListenerOps, Param, ProbeOps, ProbeSink, ProviderOps, QueueOps, RawConfig, Str,
};
use crate::provider::{Config, Failure, Probe, Provider};
use crate::wire::Status;
use crate::{ABI_MAJOR, ABI_OLDEST_MAJOR, Note, PluginModuleRef};

/// The tables of a plugin; plugins are never unloaded, so they live for ever.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    pub(super) provider: &'static ProviderOps,
    pub(super) device: &'static DeviceOps,
    pub(super) channel: &'static ChannelOps,
    pub(super) queue: &'static QueueOps,
    pub(super) listener: &'static ListenerOps,
    pub(super) probe: Option<&'static ProbeOps>,
}

/// A loaded plugin. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    tables: Tables,
    name: String,
    version: String,
    description: String,
    abi: (u32, u32),
    path: Option<PathBuf>,
}

/// Why a file is no plugin this host can use.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    Unreadable(std::io::Error),
    /// The file is no shared object for this machine.
    NotALibrary(String),
    /// A shared object without the note every plugin carries.
    NotAPlugin,
    /// Built for a version of the interface outside the host's window.
    Version {
        /// Major and minor of the plugin.
        plugin: (u32, u32),
    },
    /// The dynamic loader refused it; its message names what was missing and who asked for it.
    Loader(String),
    /// The layout of the tables differs from the host's.
    Layout(String),
    /// The plugin's own start failed.
    Init(Status),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Unreadable(error) => write!(f, "cannot be read: {error}"),
            LoadError::NotALibrary(why) => write!(f, "is no shared object for this machine: {why}"),
            LoadError::NotAPlugin => {
                write!(f, "is a shared object but no dat plugin: it has no section {}", Note::SECTION)
            }
            LoadError::Version { plugin: (major, minor) } => write!(
                f,
                "was built for plugin interface {major}.{minor}, this host loads {ABI_OLDEST_MAJOR} to {ABI_MAJOR}; \
                 install a plugin built for this version of dat"
            ),
            LoadError::Loader(message) => write!(f, "was refused by the dynamic loader: {message}"),
            LoadError::Layout(message) => write!(f, "has other tables than this host expects: {message}"),
            LoadError::Init(status) => write!(f, "failed to start: {status:?}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Unreadable(error) => Some(error),
            _ => None,
        }
    }
}

/// What a plugin's file says of itself, read without running any of it: interface version, name, version.
pub fn inspect(path: &Path) -> Result<((u32, u32), String, String), LoadError> {
    read(path).map(|(said, _)| said)
}

/// Interface version, name, version.
type Said = ((u32, u32), String, String);

/// What every plugin exports the way to its root module as: this and the name of its crate.
const HEADER_PREFIX: &str = "dat_plugin_header_";

/// As [`inspect`], and the symbol of the plugin's header, if it exports one.
fn read(path: &Path) -> Result<(Said, Option<String>), LoadError> {
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
    // Of ten megabytes a few pages matter: headers, the note, the dynamic symbols.
    let file = std::fs::File::open(path).map_err(LoadError::Unreadable)?;
    if !file.metadata().map_err(LoadError::Unreadable)?.is_file() {
        return Err(LoadError::NotALibrary("it is no regular file".into()));
    }
    let pages = object::ReadCache::new(file);
    let file = object::File::parse(&pages).map_err(|error| LoadError::NotALibrary(error.to_string()))?;
    if file.kind() != object::ObjectKind::Dynamic {
        return Err(LoadError::NotALibrary(format!("it is of kind {:?}", file.kind())));
    }
    let own = if cfg!(target_arch = "x86_64") {
        object::Architecture::X86_64
    } else if cfg!(target_arch = "aarch64") {
        object::Architecture::Aarch64
    } else {
        file.architecture()
    };
    if file.architecture() != own {
        return Err(LoadError::NotALibrary(format!("it is for {:?}", file.architecture())));
    }
    let section = file.section_by_name(Note::SECTION).ok_or(LoadError::NotAPlugin)?;
    let data = section.data().map_err(|error| LoadError::NotALibrary(error.to_string()))?;
    let (major, minor, name, version) = Note::parse(data).ok_or(LoadError::NotAPlugin)?;
    let mut symbols = file.dynamic_symbols().filter(|symbol| !symbol.is_undefined());
    let header = symbols.find_map(|symbol| symbol.name().ok().filter(|n| n.starts_with(HEADER_PREFIX)));
    Ok((((major, minor), name, version), header.map(str::to_owned)))
}

impl Plugin {
    /// Loads a plugin from its file. It stays loaded for the life of the process.
    pub fn load(path: &Path) -> Result<Plugin, LoadError> {
        let ((abi, ..), symbol) = read(path)?;
        if !(ABI_OLDEST_MAJOR..=ABI_MAJOR).contains(&abi.0) {
            return Err(LoadError::Version { plugin: abi });
        }
        let symbol = symbol.ok_or_else(|| {
            LoadError::Layout(format!("it exports no symbol {HEADER_PREFIX} with its name"))
        })?;
        // Every symbol resolved now, not in the middle of a run; nothing visible to other libraries; never unloaded.
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL | RTLD_NODELETE;
        // SAFETY: running the library's constructors is what loading a plugin means; the file passed the checks above,
        // and the registry's for trust.
        let library = unsafe { libloading::os::unix::Library::open(Some(path), flags) }
            .map_err(|error| LoadError::Loader(loader_said(&error)))?;
        // SAFETY: a symbol of this name is a header of abi_stable's, by `export_provider`; `upgrade` compares its magic
        // number and version before anything else is read; the library is never unloaded.
        let header = unsafe {
            let header = *library
                .get::<AbiHeaderRef>(symbol.as_bytes())
                .map_err(|error| LoadError::Loader(loader_said(&error)))?;
            std::mem::forget(library);
            header.upgrade().map_err(load_error)?
        };
        let module = root_module(header, abi.1)?;
        Plugin::start(module, Some(path.to_owned()))
    }

    /// The same of a provider linked into this process, without a file.
    pub fn of<P: Provider>() -> Plugin {
        let module = Export::<P>::module().leak_into_prefix();
        Plugin::start(module, None).expect("a provider of this process starts")
    }

    fn start(module: PluginModuleRef, path: Option<PathBuf>) -> Result<Plugin, LoadError> {
        let tables = Tables {
            provider: module.provider(),
            device: module.device(),
            channel: module.channel(),
            queue: module.queue(),
            listener: module.listener(),
            #[cfg(not(feature = "abi-minor-0"))]
            probe: module.probe(),
            #[cfg(feature = "abi-minor-0")]
            probe: None,
        };
        // SAFETY: constant texts of a plugin that stays loaded.
        let [name, version, description] = unsafe {
            [module.name().text(), module.version().text(), module.description().text()]
                .map(|t| t.into_owned())
        };
        // SAFETY: the first call into the plugin, with a table that lives for ever.
        let status = unsafe { (tables.provider.init)(&crate::log::HOST, crate::log::host_level()) };
        if status.0 < 0 {
            return Err(LoadError::Init(status));
        }
        let abi = (module.abi_major(), module.abi_minor());
        Ok(Plugin { tables, name, version, description, abi, path })
    }

    /// Short name, as in `shm`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Version of the plugin.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// One line for people.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Version of the interface it was built for.
    pub fn abi(&self) -> (u32, u32) {
        self.abi
    }

    /// The file it came from.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Opens an interface adapter.
    pub fn open(&self, config: &Config) -> Result<Device, Failure> {
        let ctx = with_raw(config, |raw| {
            // SAFETY: the configuration lives for the call; places for the answer and the sentence.
            call(ptr::null(), |out, m| unsafe { (self.tables.provider.open)(raw, out, m) })
        })?;
        Device::open(self.tables, ctx)
    }

    /// What the provider would use, and why not the rest. Empty for a plugin of interface 1.0.
    pub fn probe(&self, config: &Config) -> Vec<Probe> {
        let mut found: Vec<Probe> = Vec::new();
        if let Some(ops) = self.tables.probe {
            let sink = ProbeSink { list: (&raw mut found).cast(), push };
            // SAFETY: the configuration and the list live for the call; `push` is the function for this list.
            with_raw(config, |raw| unsafe { (ops.probe)(raw, &sink) });
        }
        found
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin")
            .field("name", &self.name)
            .field("version", &self.version)
            .field("abi", &self.abi)
            .field("path", &self.path)
            .finish()
    }
}

const RTLD_NODELETE: i32 = 0x1000;

/// The root module, its layout compared with what a plugin of this minor version has.
fn root_module(header: &LibHeader, minor: u32) -> Result<PluginModuleRef, LoadError> {
    #[cfg(not(feature = "abi-minor-0"))]
    if minor == 0 {
        use abi_stable::prefix_type::PrefixRefTrait as _;
        let module = header.init_root_module::<crate::module::v1_0::PluginModuleRef>().map_err(load_error)?;
        // SAFETY: the current module begins with the fields of 1.0, which were just compared; a later field is read
        // only if the module's own metadata, made by the plugin with its value, says that it is there.
        return Ok(PluginModuleRef::from_prefix_ref(unsafe { module.to_prefix_ref().cast() }));
    }
    let _ = minor;
    header.init_root_module::<PluginModuleRef>().map_err(load_error)
}

/// The dynamic loader's own words, which libloading keeps below its error.
fn loader_said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), |source| source.to_string())
}

fn load_error(error: LibraryError) -> LoadError {
    match error {
        LibraryError::OpenError { err, .. } => LoadError::Loader(err.to_string()),
        other => LoadError::Layout(first_lines(&other.to_string())),
    }
}

/// Layout reports run to pages; the first difference stands behind the first `Error:`.
fn first_lines(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let Some(error) = lines.find_map(|line| line.strip_prefix("Error:")) else {
        return text.lines().take(8).map(str::trim).collect::<Vec<_>>().join(" ");
    };
    let details: Vec<&str> = lines.take_while(|line| !line.starts_with("Error:")).take(8).collect();
    format!("{error}. {}", details.join(" "))
}

fn with_raw<T>(config: &Config, f: impl FnOnce(*const RawConfig) -> T) -> T {
    let params: Vec<Param> = config
        .params
        .iter()
        .map(|(key, value)| Param { key: Str::new(key), value: Str::new(value) })
        .collect();
    let raw = RawConfig { ia_name: Str::new(&config.ia_name), params: params.as_ptr(), count: params.len() };
    f(&raw)
}

unsafe extern "C" fn push(list: *mut c_void, candidate: Str, usable: u32, reason: Str) {
    // SAFETY: `list` is the one of `probe` above, texts live for the call.
    unsafe {
        let found = &mut *list.cast::<Vec<Probe>>();
        found.push(Probe {
            candidate: candidate.text().into_owned(),
            usable: usable != 0,
            reason: reason.text().into_owned(),
        });
    }
}
