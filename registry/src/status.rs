//! Installed, loadable, usable: three states of a provider, for listings.

use serde::{Deserialize, Serialize};

use crate::entry::{Entry, Location, Scope};
use crate::explain::{PluginFacts, candidate};
use crate::registry::Registry;

/// State of a provider on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its library is not there.
    Missing,
    /// Its library is there, but is not trusted or does not load.
    Installed,
    /// It loads, but gives no device with this configuration.
    Loadable,
    /// It gives a device.
    Usable,
}

/// A provider in a listing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProviderStatus {
    /// The IA name.
    pub name: String,
    /// As configured.
    pub library: String,
    /// Its state.
    pub state: State,
    /// The reason, or a description of the opened device.
    pub reason: String,
    /// Whether the configuration is wrong or the library untrusted. A chain stops there.
    pub mistake: bool,
    /// Whether listings accept that it is unusable.
    pub optional: bool,
    /// As configured; may be empty.
    pub description: String,
    /// The plugin, once loaded.
    pub plugin: Option<PluginFacts>,
    /// Where it is configured.
    pub defined: Location,
    /// In which scope.
    pub scope: Scope,
}

impl ProviderStatus {
    /// Whether a listing should count it as an error.
    pub fn is_error(&self) -> bool {
        self.state != State::Usable && !self.optional
    }

    /// Status of a provider whose plugin ended the process that loaded it.
    pub fn lost(entry: &Entry, reason: String) -> ProviderStatus {
        ProviderStatus {
            name: entry.name.clone(),
            library: entry.library.clone(),
            state: State::Installed,
            reason,
            mistake: false,
            optional: entry.optional,
            description: entry.description.clone(),
            plugin: None,
            defined: entry.defined.clone(),
            scope: entry.scope,
        }
    }
}

impl Registry {
    /// State of each provider: missing, installed, loadable or usable, and why. It loads the libraries.
    pub fn status(&self) -> Vec<ProviderStatus> {
        self.entries().iter().map(|entry| self.status_of(entry)).collect()
    }

    /// State of one provider, as in [`Registry::status`].
    pub fn status_of(&self, entry: &Entry) -> ProviderStatus {
        of(self, entry)
    }
}

fn of(registry: &Registry, entry: &Entry) -> ProviderStatus {
    let it = candidate(registry, entry);
    let (state, verdict) = match (&it.open, &it.load, &it.trust) {
        (Some(open), ..) if open.ok => (State::Usable, open),
        (Some(open), ..) => (State::Loadable, open),
        (None, Some(load), _) => (State::Installed, load),
        (None, None, Some(trust)) => (State::Installed, trust),
        (None, None, None) => (State::Missing, &it.found),
    };
    ProviderStatus {
        state,
        reason: verdict.reason.clone(),
        mistake: !it.chain_goes_on,
        name: it.name,
        library: it.library,
        optional: entry.optional,
        description: entry.description.clone(),
        plugin: it.plugin,
        defined: it.defined,
        scope: it.scope,
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            State::Missing => "missing",
            State::Installed => "installed",
            State::Loadable => "loadable",
            State::Usable => "usable",
        })
    }
}
