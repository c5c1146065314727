//! Inspection of a plugin's file: its note, read without running it, and a trial load.

use std::path::{Path, PathBuf};

use dat_plugin::host::{Inspection, Plugin, Root, inspect};
use dat_plugin::{Caps, Config};
use serde::{Deserialize, Serialize};

use crate::explain::{PluginFacts, ProbeVerdict, Verdict};

/// Report about a plugin's file.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Whether this host would load it, as far as known without running it, and why not.
    pub loads: Verdict,
    /// The file's facts; none if it is not a plugin.
    pub says: Option<Said>,
}

/// The facts in a plugin's file.
#[derive(Clone, Debug, Serialize)]
pub struct Said {
    /// Short name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The interface it was built for: major, minor.
    pub abi: (u32, u32),
    /// Capabilities of its devices at most; none if the file does not list them.
    pub capabilities: Option<Vec<String>>,
    /// How its tables are exported: `rust NAME` or `c NAME`.
    pub root: Option<String>,
    /// Libraries it needs.
    pub needed: Vec<String>,
    /// Where the dynamic loader looks for them first.
    pub run_path: Option<String>,
}

/// Result of a load, reported by the loading process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Why it did not load.
    pub error: Option<String>,
    /// The loaded plugin.
    pub plugin: Option<PluginFacts>,
    /// Devices or mechanisms that are usable without parameters, and the reasons for others.
    pub probes: Vec<ProbeVerdict>,
    /// How long the load took, in microseconds.
    pub load_us: u64,
}

/// Reads the file's facts. None of its code runs.
pub fn file(path: &Path) -> FileReport {
    let path = path.to_owned();
    let (says, verdict) = match inspect(&path) {
        Ok(found) => (Some(Said::of(&found)), found.verdict()),
        Err(error) => (None, Err(error)),
    };
    let loads = match verdict {
        Ok(()) => Verdict { ok: true, reason: "nothing in the file keeps this host from loading it".into() },
        Err(error) => Verdict { ok: false, reason: format!("{} {error}", path.display()) },
    };
    FileReport { path, loads, says }
}

/// Loads the file into this process and probes the provider. The process may crash, so use a child.
pub fn trial(path: &Path) -> Trial {
    let start = std::time::Instant::now();
    let loaded = Plugin::load(path);
    let load_us = start.elapsed().as_micros() as u64;
    match loaded {
        Err(error) => {
            let error = Some(format!("{} {error}", path.display()));
            Trial { error, plugin: None, probes: Vec::new(), load_us }
        }
        Ok(plugin) => {
            let config = Config { ia_name: "trial".into(), ..Config::default() };
            let probes = plugin.probe(&config).into_iter().map(ProbeVerdict::from).collect();
            Trial { error: None, plugin: Some(PluginFacts::of(&plugin)), probes, load_us }
        }
    }
}

impl Said {
    fn of(found: &Inspection) -> Said {
        Said {
            name: found.name.clone(),
            version: found.version.clone(),
            abi: found.abi,
            capabilities: found.caps.map(names),
            root: match &found.root {
                Root::Header(symbol) => Some(format!("rust {symbol}")),
                Root::Function(symbol) => Some(format!("c {symbol}")),
                _ => None,
            },
            needed: found.needed.clone(),
            run_path: found.run_path.clone(),
        }
    }
}

/// Names of the bits. Unknown bits are shown as numbers.
fn names(caps: Caps) -> Vec<String> {
    let bits = (0..u64::BITS).map(|bit| Caps(1 << bit)).filter(|bit| caps.contains(*bit));
    bits.map(|bit| bit.name().map_or_else(|| format!("{:#x}", bit.0), str::to_owned)).collect()
}
