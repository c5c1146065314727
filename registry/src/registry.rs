//! All names that can be opened: providers, chains and routes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dat_plugin::host::Plugin;

use crate::entry::{Chain, Diagnostic, Entry, Route};
use crate::environment::Environment;
use crate::error::RegistryError;
use crate::{dat_conf, scopes};

/// All names that can be opened, from all scopes. It loads nothing before an open or an explain. Thread-safe.
#[derive(Clone, Debug)]
pub struct Registry {
    entries: Vec<Entry>,
    chains: Vec<Chain>,
    routes: Vec<Route>,
    pub(crate) environment: Environment,
    pub(crate) builtin: BTreeMap<String, Plugin>,
}

impl Registry {
    /// Reads all scopes: `DAT_PLUGINS`, then the user's files, the system's, the vendors', and the built-in default.
    /// A name in an earlier scope overrides the same name in a later one.
    pub fn open() -> Result<Registry, RegistryError> {
        let environment = Environment::of_process();
        scopes::all(&environment).map(|found| Registry::new(found, environment))
    }

    /// Reads this file alone, and no other scope.
    pub fn from_file(path: &Path) -> Result<Registry, RegistryError> {
        scopes::explicit(path).map(|found| Registry::new(found, Environment::of_process()))
    }

    /// Reads this file as [`Registry::from_file`] does, for a check. A chain step may also name a provider of another scope,
    /// as in a file that is used beside the others.
    pub fn check_file(path: &Path) -> Result<Registry, RegistryError> {
        // If the other scopes have errors, opening the registry reports them. Here this file counts.
        let others = Registry::open().map(|registry| registry.entries).unwrap_or_default();
        scopes::checked(path, &others).map(|found| Registry::new(found, Environment::of_process()))
    }

    /// Reads a text. `name` replaces the file name in messages; its folder is the start of relative paths.
    pub fn from_str(name: &str, toml: &str) -> Result<Registry, RegistryError> {
        scopes::text(name, toml).map(|found| Registry::new(found, Environment::of_process()))
    }

    fn new(found: scopes::Found, environment: Environment) -> Registry {
        let scopes::Found { entries, chains, routes } = found;
        Registry { entries, chains, routes, environment, builtin: BTreeMap::new() }
    }

    /// Adds a provider linked into the process; entries address it as `library = "builtin:NAME"`.
    pub fn with_static(mut self, plugin: Plugin) -> Registry {
        self.builtin.insert(plugin.name().to_owned(), plugin);
        self
    }

    /// Also searches this folder for plugins, before the system's folders. For a library with plugins beside it.
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

    /// The routes, by name.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// The provider of exactly this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// The chain of exactly this name.
    pub fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// The route of exactly this name.
    pub fn route(&self, name: &str) -> Option<&Route> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// Reads the lines of a uDAPL `dat.conf`. The diagnostics list unusable lines by number.
    pub fn import_dat_conf(text: &str, file: &str) -> (Vec<Entry>, Vec<Diagnostic>) {
        dat_conf::import(text, file)
    }

    /// All names that can be opened, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let chains = self.chains.iter().map(|chain| chain.name.clone());
        let routes = self.routes.iter().map(|route| route.name.clone());
        let entries = self.entries.iter().map(|entry| entry.name.clone());
        let mut names: Vec<String> = entries.chain(chains).chain(routes).collect();
        names.sort();
        names
    }
}
