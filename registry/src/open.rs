//! Opening a provider or a chain: find the library, check it, load it once, open the device.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use dat_plugin::Config;
use dat_plugin::host::{Device, Plugin};

use crate::entry::{Chain, Entry};
use crate::error::{LoadFailure, OpenError, Step, nearest};
use crate::registry::Registry;
use crate::search::{self, Looked};
use crate::trust::{Trusted, check_library};

/// An IA that opened.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The device; dropping its last clone closes it.
    pub device: Device,
    /// The device's plugin.
    pub plugin: Plugin,
    /// The IA name: the requested one, or the step of the chain that opened.
    pub ia_name: String,
    /// All attempts in order; the last one opened.
    pub steps: Vec<Step>,
}

pub(crate) fn open_chain(registry: &Registry, chain: &Chain) -> Result<Opened, OpenError> {
    let mut steps = Vec::new();
    let mut last = None;
    for name in &chain.steps {
        let tried = match registry.entry(name) {
            Some(entry) => open_entry(registry, entry),
            None => Err(unknown(registry, name)),
        };
        match tried {
            Ok(mut opened) => {
                steps.append(&mut opened.steps);
                tracing::info!(target: "dat.registry", chain = %chain.name, ia = %name, "chain opened");
                return Ok(Opened { steps, ..opened });
            }
            Err(error) => {
                let reason = error.to_string();
                tracing::warn!(target: "dat.registry", chain = %chain.name, ia = %name, %reason, "chain step failed");
                steps.push(Step { name: name.clone(), opened: false, reason });
                let go_on = error.is_absence();
                last = Some(error);
                if !go_on {
                    break;
                }
            }
        }
    }
    // A chain without a step is refused when it is read.
    let last = Box::new(last.unwrap_or_else(|| unknown(registry, &chain.name)));
    Err(OpenError::Chain { name: chain.name.clone(), defined: chain.defined.clone(), steps, last })
}

pub(crate) fn open_entry(registry: &Registry, entry: &Entry) -> Result<Opened, OpenError> {
    let plugin = load(registry, entry).map_err(|reason| OpenError::NotLoadable {
        name: entry.name.clone(),
        defined: entry.defined.clone(),
        reason,
    })?;
    let no_device =
        |failure| OpenError::NoDevice { name: entry.name.clone(), defined: entry.defined.clone(), failure };
    let plugin = dat_layers::over(plugin, &entry.layers).map_err(no_device)?;
    let device = plugin.open(&config(entry)).map_err(no_device)?;
    tracing::debug!(target: "dat.registry", ia = %entry.name, library = %entry.library, "opened");
    let reason = plugin_line(&plugin);
    let steps = vec![Step { name: entry.name.clone(), opened: true, reason }];
    Ok(Opened { device, plugin, ia_name: entry.name.clone(), steps })
}

/// The plugin of an entry, loaded now or earlier.
pub(crate) fn load(registry: &Registry, entry: &Entry) -> Result<Plugin, LoadFailure> {
    if let Some(provider) = builtin_name(entry) {
        let missing = || LoadFailure::NotBuiltIn { provider: provider.to_owned() };
        return registry.builtin.get(provider).cloned().ok_or_else(missing);
    }
    let file = locate(entry, &search::places(entry, &registry.environment))?;
    let trusted = Trusted::of_process(&registry.environment);
    let canonical = check_library(&file, entry.sha256.as_deref(), &trusted)?;
    load_file(&canonical, entry.sha256.is_some())
}

/// Loads a checked file. Libraries are never unloaded, so a path is loaded once in a process. IA names share it. If the file
/// has a digest, the loaded file must still be there, because that file was checked.
pub(crate) fn load_file(canonical: &Path, has_digest: bool) -> Result<Plugin, LoadFailure> {
    static LOADED: Mutex<BTreeMap<PathBuf, (Plugin, Option<Identity>)>> = Mutex::new(BTreeMap::new());
    // Held during the load, so no library is started twice. A panic leaves the map unchanged.
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let now = identity(canonical);
    if let Some((plugin, then)) = loaded.get(canonical) {
        if has_digest && now != *then {
            let reason = "the file was replaced after this process loaded it, so its sha256 says nothing about what runs; \
                          start the program anew"
                .to_owned();
            return Err(LoadFailure::Untrusted { path: canonical.to_owned(), reason });
        }
        return Ok(plugin.clone());
    }
    let plugin =
        Plugin::load(canonical).map_err(|error| LoadFailure::Load { path: canonical.to_owned(), error })?;
    tracing::debug!(target: "dat.registry", path = %canonical.display(), name = plugin.name(), "loaded");
    loaded.insert(canonical.to_owned(), (plugin.clone(), now));
    Ok(plugin)
}

/// Device, number, and the time of the last change of contents or attributes: another one for any other file.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let found = path.metadata().ok()?;
    Some((found.dev(), found.ino(), found.ctime(), found.ctime_nsec()))
}

/// The first searched path that exists.
pub(crate) fn locate(entry: &Entry, places: &[Looked]) -> Result<PathBuf, LoadFailure> {
    match places.iter().find(|place| place.exists) {
        Some(place) => Ok(place.path.clone()),
        None => Err(LoadFailure::NotFound {
            library: entry.library.clone(),
            folders: places.iter().filter_map(|place| place.path.parent()).map(Path::to_owned).collect(),
        }),
    }
}

/// NAME of `builtin:NAME`.
pub(crate) fn builtin_name(entry: &Entry) -> Option<&str> {
    entry.library.strip_prefix("builtin:")
}

pub(crate) fn config(entry: &Entry) -> Config {
    Config { ia_name: entry.name.clone(), params: entry.params.clone() }
}

pub(crate) fn unknown(registry: &Registry, name: &str) -> OpenError {
    let known = registry.names();
    let nearest = nearest(name, known.iter().map(String::as_str));
    OpenError::UnknownName { name: name.to_owned(), known, nearest }
}

/// A plugin in one line.
pub(crate) fn plugin_line(plugin: &Plugin) -> String {
    let (major, minor) = plugin.abi();
    format!("{} {}, interface {major}.{minor}", plugin.name(), plugin.version())
}
