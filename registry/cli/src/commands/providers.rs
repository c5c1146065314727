//! `dat providers`: every configured name, and how far it gets.

use std::process::ExitCode;

use dat::registry::{Chain, ProviderStatus, State};
use serde_json::json;

use crate::failure::Outcome;
use crate::output::{Shared, Table};

/// Lists them. Having found out is success, whatever was found.
pub fn run(shared: &Shared) -> Outcome<ExitCode> {
    let registry = shared.registry()?;
    let providers = registry.status();
    let chains = registry.chains();
    shared.print(|| json!({ "providers": providers, "chains": chains }), || text(&providers, chains))?;
    Ok(ExitCode::SUCCESS)
}

fn text(providers: &[ProviderStatus], chains: &[Chain]) -> String {
    if providers.is_empty() {
        return "No provider is configured; docs/plugins-toml.md tells how to add one.".into();
    }
    let mut table =
        Table::new(&["NAME", "STATUS", "PLUGIN", "VERSION", "ABI", "LIBRARY", "REASON"], usize::MAX);
    for provider in providers {
        let dash = || "-".to_owned();
        let (plugin, version, abi) = match &provider.plugin {
            Some(facts) => {
                (facts.name.clone(), facts.version.clone(), format!("{}.{}", facts.abi.0, facts.abi.1))
            }
            None => (dash(), dash(), dash()),
        };
        let optional = if provider.optional && provider.state != State::Usable { " (optional)" } else { "" };
        let reason = provider.reason.lines().next().unwrap_or_default().to_owned();
        let status = format!("{}{optional}", provider.state);
        table.row(vec![
            provider.name.clone(),
            status,
            plugin,
            version,
            abi,
            provider.library.clone(),
            reason,
        ]);
    }
    let mut text = table.text();
    for chain in chains {
        text.push_str(&format!(
            "chain {}: {} ({})\n",
            chain.name,
            chain.steps.join(", then "),
            chain.defined
        ));
    }
    text
}
