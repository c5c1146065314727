//! Finds, checks and loads provider plugins by name.
//!
//! A [`Registry`] combines all `plugins.toml` files that apply: names of interface adapters (IAs), the library of each,
//! chains of names, and routes over names. Reading it loads nothing. [`Registry::open_device`] loads the one library it needs, after the
//! trust checks. [`Registry::explain`] reports for each candidate all findings, checks and decisions.
//! `docs/plugins-toml.md` describes the file format, the scopes and the trust rules.
#![forbid(unsafe_code)]

mod dat_conf;
mod entry;
mod environment;
mod error;
mod explain;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod inspection;
mod open;
mod read;
mod registry;
mod resolve;
mod route;
mod schema;
mod scopes;
mod search;
mod status;
mod trust;

pub use dat_layers as layer;
pub use dat_layers::stats;
pub use entry::{Chain, Diagnostic, Entry, Location, Route, Scope, Severity};
pub use error::{LoadFailure, OpenError, RegistryError, Step};
pub use explain::{Candidate, Explanation, PluginFacts, ProbeVerdict, Verdict};
pub use open::Opened;
pub use registry::Registry;
pub use search::Looked;
pub use status::{ProviderStatus, State};
