//! Looking at a plugin's file: what it says of itself, read without running it, and what a load of it does.

use std::path::{Path, PathBuf};

use dat_plugin::host::{Inspection, Plugin, Root, inspect};
use dat_plugin::{Caps, Config};
use serde::{Deserialize, Serialize};

use crate::explain::{PluginFacts, ProbeVerdict, Verdict};

/// What a plugin's file says of itself.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Whether this host would load it, as far as can be told without running it, and why not.
    pub loads: Verdict,
    /// What it says; none when it is no plugin.
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
    /// What its devices can have at most; none when the file does not say.
    pub capabilities: Option<Vec<String>>,
    /// How its tables are exported: `rust NAME` or `c NAME`.
    pub root: Option<String>,
    /// Libraries it needs.
    pub needed: Vec<String>,
    /// Where the dynamic loader looks for them first.
    pub run_path: Option<String>,
}

/// What a load did, told by the process that did it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Why it did not load.
    pub error: Option<String>,
    /// The loaded plugin.
    pub plugin: Option<PluginFacts>,
    /// What the provider could use without parameters, and why not the rest.
    pub probes: Vec<ProbeVerdict>,
    /// How long the load took, in microseconds.
    pub load_us: u64,
}

/// Reads what the file says. Nothing of it runs.
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

/// Loads the file into this process, with all it does, and asks the provider what it could use. Meant for a process
/// that may be lost.
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

/// The names of the bits, an unknown one as a number.
fn names(caps: Caps) -> Vec<String> {
    let bits = (0..u64::BITS).map(|bit| Caps(1 << bit)).filter(|bit| caps.contains(*bit));
    bits.map(|bit| bit.name().map_or_else(|| format!("{:#x}", bit.0), str::to_owned)).collect()
}
