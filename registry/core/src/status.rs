//! Installed, loadable, usable: three states of a provider, for listings.

use serde::{Deserialize, Serialize};

use crate::Registry;
use crate::entry::{Entry, Layer, Location};
use crate::explain::{PluginFacts, candidate};

/// How far a provider gets on this machine.
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
    /// How far it gets.
    pub state: State,
    /// What stopped it, or what it opened.
    pub reason: String,
    /// Whether not being usable is no error.
    pub optional: bool,
    /// As configured; may be empty.
    pub description: String,
    /// The plugin, once loaded.
    pub plugin: Option<PluginFacts>,
    /// Where it is configured.
    pub defined: Location,
    /// In which layer.
    pub layer: Layer,
}

impl ProviderStatus {
    /// Whether a listing should count it as an error.
    pub fn is_error(&self) -> bool {
        self.state != State::Usable && !self.optional
    }

    /// Of a provider whose plugin ended the process that loaded and opened it.
    pub fn lost(entry: &Entry, reason: String) -> ProviderStatus {
        ProviderStatus {
            name: entry.name.clone(),
            library: entry.library.clone(),
            state: State::Installed,
            reason,
            optional: entry.optional,
            description: entry.description.clone(),
            plugin: None,
            defined: entry.defined.clone(),
            layer: entry.layer,
        }
    }
}

pub(crate) fn of(registry: &Registry, entry: &Entry) -> ProviderStatus {
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
        name: it.name,
        library: it.library,
        optional: entry.optional,
        description: entry.description.clone(),
        plugin: it.plugin,
        defined: it.defined,
        layer: it.layer,
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
