//! Finds, checks and loads provider plugins by name.
//!
//! A [`Registry`] is the layered view of every `plugins.toml` that applies: names of interface adapters (IAs), the
//! library behind each, and chains of names. Reading it loads nothing. [`Registry::open_device`] loads the one library
//! it needs, after checking that nobody but its owner could have put it there; [`Registry::explain`] says of every
//! candidate what was found, checked and decided, and why. The file format, the layers and the trust rules are
//! described in `docs/plugins-toml.md`.
#![forbid(unsafe_code)]

mod dat_conf;
mod entry;
mod environment;
mod error;
mod explain;
pub mod inspection;
mod layers;
mod open;
mod read;
mod schema;
mod search;
mod status;
mod trust;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dat_plugin::host::Plugin;

pub use dat_layers as layer;
pub use dat_layers::stats;
pub use entry::{Chain, Diagnostic, Entry, Layer, Location, Severity};
pub use error::{LoadFailure, OpenError, RegistryError};
pub use explain::{Candidate, Explanation, PluginFacts, ProbeVerdict, Verdict};
pub use open::{Opened, Step};
pub use search::Looked;
pub use status::{ProviderStatus, State};

use environment::Environment;

/// Every name that can be opened, from all layers. Cheap to clone; loads nothing until asked to open or explain.
#[derive(Clone, Debug)]
pub struct Registry {
    entries: Vec<Entry>,
    chains: Vec<Chain>,
    environment: Environment,
    builtin: BTreeMap<String, Plugin>,
}

impl Registry {
    /// The layered lookup: `DAT_PLUGINS`, then the user's files, the system's, the vendors', and the built-in default.
    /// A name in an earlier layer overrides the same name in a later one.
    pub fn open() -> Result<Registry, RegistryError> {
        let environment = Environment::of_process();
        layers::layered(&environment).map(|found| Registry::new(found, environment))
    }

    /// Just this file; no other layer is looked at.
    pub fn from_file(path: &Path) -> Result<Registry, RegistryError> {
        layers::explicit(path).map(|found| Registry::new(found, Environment::of_process()))
    }

    /// A file's content given as text; `name` stands for the file in messages, and its folder for relative paths.
    pub fn from_str(name: &str, toml: &str) -> Result<Registry, RegistryError> {
        layers::text(name, toml).map(|found| Registry::new(found, Environment::of_process()))
    }

    fn new((entries, chains): layers::Found, environment: Environment) -> Registry {
        Registry { entries, chains, environment, builtin: BTreeMap::new() }
    }

    /// Adds a provider linked into the process; entries address it as `library = "builtin:NAME"`.
    pub fn with_static(mut self, plugin: Plugin) -> Registry {
        self.builtin.insert(plugin.name().to_owned(), plugin);
        self
    }

    /// Looks for plugins in this folder too, before the system's: for a library that brings its plugins along.
    pub fn also_search(mut self, folder: PathBuf) -> Registry {
        self.environment.beside.push(folder);
        self
    }

    /// The providers, by name.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The chains, by name.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The provider of exactly this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The chain of exactly this name.
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// Opens the IA of exactly this name, or the first of a chain that opens. A name that is no chain never falls back
    /// to another.
    pub fn open_device(&self, name: &str) -> Result<Opened, OpenError> {
        open::open_device(self, name)
    }

    /// Every candidate for this name with its verdicts: file, trust, loader, probes, and whether it opens. Loads and
    /// opens what it can, and closes it again.
    pub fn explain(&self, name: &str) -> Explanation {
        explain::explain(self, name)
    }

    /// One line per provider: missing, installed, loadable or usable, and why. Loads what can be loaded.
    pub fn status(&self) -> Vec<ProviderStatus> {
        self.entries.iter().map(|entry| self.status_of(entry)).collect()
    }

    /// How far one provider gets, as [`Registry::status`] tells of all.
    pub fn status_of(&self, entry: &Entry) -> ProviderStatus {
        status::of(self, entry)
    }

    /// Reads the lines of a uDAPL `dat.conf`. Lines that cannot be used are said so in the diagnostics, each with its
    /// number.
    pub fn import_dat_conf(text: &str, file: &str) -> (Vec<Entry>, Vec<Diagnostic>) {
        dat_conf::import(text, file)
    }

    /// All names that can be opened, sorted.
    fn names(&self) -> Vec<String> {
        let chains = self.chains.iter().map(|chain| chain.name.clone());
        let mut names: Vec<String> =
            self.entries.iter().map(|entry| entry.name.clone()).chain(chains).collect();
        names.sort();
        names
    }
}
