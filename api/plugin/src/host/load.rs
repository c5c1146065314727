//! Loading a plugin.

use std::ffi::c_void;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abi_stable::library::{AbiHeaderRef, LibHeader, LibraryError};

use super::c_root;
use super::device::Device;
use super::error::{LoadError, loader_said};
use super::inspect::{Root, inspect};
use super::layer::{Below, Made};
use super::object::open;
use super::tables::{Loaded, Tables};
use crate::PluginModuleRef;
use crate::export::Export;
use crate::ops::{Param, ProbeSink, RawConfig, Str};
use crate::provider::{Config, Failure, Probe, Provider, ProviderInfo};

/// A loaded plugin. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    tables: Tables,
    name: String,
    version: String,
    description: String,
    abi: (u32, u32),
    path: Option<PathBuf>,
    wraps: Vec<Wrap>,
    /// In place of the provider's own way to open a device.
    made: Option<Make>,
}

/// Makes a device out of others, as a route does.
pub type Make = Arc<dyn Fn(&Config) -> Result<Device, Failure> + Send + Sync>;

/// Puts a layer over a device that was just opened.
pub type Wrap = Arc<dyn Fn(Device, &Config) -> Result<Device, Failure> + Send + Sync>;

impl Plugin {
    /// Loads a plugin from its file. It stays loaded for the life of the process.
    pub fn load(path: &Path) -> Result<Plugin, LoadError> {
        let inspection = inspect(path)?;
        inspection.verdict()?;
        // The very file that was inspected: the dynamic loader looks for a name without a slash elsewhere.
        let file = path.canonicalize().map_err(LoadError::Unreadable)?;
        // Every symbol resolved now, not in the middle of a run; nothing visible to other libraries; never unloaded.
        let flags = libloading::os::unix::RTLD_NOW | libloading::os::unix::RTLD_LOCAL | RTLD_NODELETE;
        // SAFETY: running the library's constructors is what loading a plugin means; the file passed the checks above,
        // and the registry's for trust.
        let library = unsafe { libloading::os::unix::Library::open(Some(&file), flags) }
            .map_err(|error| LoadError::Loader(loader_said(&error)))?;
        let loaded = match &inspection.root {
            Root::Header(symbol) => rust_root(library, symbol, inspection.abi.1)?,
            _ => c_root::load(library, &inspection)?,
        };
        Plugin::start(loaded, Some(path.to_owned()))
    }

    /// The same of a provider linked into this process, without a file.
    pub fn of<P: Provider>() -> Plugin {
        let module = Export::<P>::module();
        let texts = [P::INFO.name, P::INFO.version, P::INFO.description].map(str::to_owned);
        let abi = (module.abi_major, module.abi_minor);
        let loaded = Loaded { tables: Tables::of_module(&module), abi, texts };
        Plugin::start(loaded, None).expect("a provider of this process starts")
    }

    /// A provider of this process, whose devices `make` makes out of those of other plugins.
    pub fn made(info: ProviderInfo, make: Make) -> Plugin {
        let module = Export::<Made<Below>>::module();
        let texts = [info.name, info.version, info.description].map(str::to_owned);
        let abi = (module.abi_major, module.abi_minor);
        let loaded = Loaded { tables: Tables::of_module(&module), abi, texts };
        let plugin = Plugin::start(loaded, None).expect("a provider of this process starts");
        Plugin { made: Some(make), ..plugin }
    }

    /// The plugin with a layer over every device it opens; later ones go over earlier ones.
    pub fn wrapped(mut self, wrap: Wrap) -> Plugin {
        self.wraps.push(wrap);
        self
    }

    fn start(loaded: Loaded, path: Option<PathBuf>) -> Result<Plugin, LoadError> {
        let Loaded { tables, abi, texts: [name, version, description] } = loaded;
        // SAFETY: the first call into the plugin, with a table that lives for ever.
        let status = unsafe { (tables.provider.init)(&crate::log::HOST, crate::log::host_level()) };
        if status.0 < 0 {
            return Err(LoadError::Init(status));
        }
        Ok(Plugin { tables, name, version, description, abi, path, wraps: Vec::new(), made: None })
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
        let device = match &self.made {
            Some(make) => make(config)?,
            None => self.open_bare(config)?,
        };
        self.wraps.iter().try_fold(device, |device, wrap| wrap(device, config))
    }

    fn open_bare(&self, config: &Config) -> Result<Device, Failure> {
        let ctx = with_raw(config, |raw| {
            // SAFETY: the configuration lives for the call; places for the answer and the sentence.
            open("device", |out, m| unsafe { (self.tables.provider.open)(raw, out, m) })
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

impl Device {
    /// Whether calls go straight to `plugin`, with no layer between.
    pub fn is_directly_of(&self, plugin: &Plugin) -> bool {
        let (own, theirs) = (&self.0.tables, &plugin.tables);
        std::ptr::eq(own.channel, theirs.channel)
            && std::ptr::eq(own.queue, theirs.queue)
            && std::ptr::eq(own.device, theirs.device)
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

/// The root of a plugin in Rust.
fn rust_root(library: libloading::os::unix::Library, symbol: &str, minor: u32) -> Result<Loaded, LoadError> {
    // SAFETY: a symbol of this name is a header of abi_stable's, by `export_provider`; `upgrade` compares its magic
    // number and version before anything else is read; the library is never unloaded.
    let header = unsafe {
        let header = *library
            .get::<AbiHeaderRef>(symbol.as_bytes())
            .map_err(|error| LoadError::Loader(loader_said(&error)))?;
        std::mem::forget(library);
        header.upgrade().map_err(load_error)?
    };
    let start = std::time::Instant::now();
    let module = root_module(header, minor)?;
    let us = start.elapsed().as_micros() as u64;
    tracing::debug!(target: "dat.plugin", %symbol, us, "layout compared");
    // SAFETY: constant texts of a plugin that stays loaded.
    let texts = unsafe {
        [module.name().text(), module.version().text(), module.description().text()].map(|t| t.into_owned())
    };
    let abi = (module.abi_major(), module.abi_minor());
    Ok(Loaded { tables: Tables::of_loaded(module), abi, texts })
}

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
