//! Opening a name: a provider, a chain or a route.

use crate::entry::name_fault;
use crate::error::OpenError;
use crate::open::{Opened, open_chain, open_entry, unknown};
use crate::registry::Registry;
use crate::route;

impl Registry {
    /// Opens the IA of exactly this name, the first of a chain that opens, or all children of a route.
    /// Only chains and routes lead to other names.
    pub fn open_device(&self, name: &str) -> Result<Opened, OpenError> {
        open_device(self, name)
    }
}

fn open_device(registry: &Registry, name: &str) -> Result<Opened, OpenError> {
    if let Some(reason) = name_fault(name) {
        return Err(OpenError::InvalidName { name: name.to_owned(), reason });
    }
    if let Some(chain) = registry.chain(name) {
        return open_chain(registry, chain);
    }
    match (registry.entry(name), registry.route(name)) {
        (Some(entry), _) => open_entry(registry, entry),
        (None, Some(route)) => route::open(registry, route),
        (None, None) => Err(unknown(registry, name)),
    }
}
