//! Choosing a provider by a chain of names, tried in order. Only a chain leads to another name.
//!
//! `choose_provider [NAME]`: a fabric this machine does not have, then NAME (`shm0` by default).
#![forbid(unsafe_code)]

use dat::registry::Registry;
use dat::{IaBuilder, ReturnType};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The contents of a `plugins.toml`. Usually an administrator writes it, not the program.
const PLUGINS: &str = r#"
    [provider.fabric0]
    library = "libdat_of_a_fabric_this_machine_lacks.so"

    [provider.shm0]
    library = "libdat_shm.so"

    [provider.loopback0]
    library = "libdat_loopback.so"

    [chain]
    fastest = ["fabric0", "NAME"]
"#;

fn main() -> Outcome<()> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "shm0".into());
    // `Registry::open()` reads the files of this machine. This registry is a text. Neither loads a library.
    let registry = Registry::from_str("choose_provider.toml", &PLUGINS.replace("NAME", &name))?;

    println!("names:");
    for entry in registry.entries() {
        println!("  {:10} {}", entry.name, entry.library);
    }

    // A provider's name opens, or fails with a reason. It never falls back.
    match IaBuilder::new("fabric0").open_in(&registry) {
        Ok(_) => println!("\nfabric0 opened"),
        Err(error) if error.kind() == ReturnType::ProviderNotFound => {
            println!("\nfabric0 did not open:\n  {error}")
        }
        Err(error) => return Err(error.into()),
    }

    // Only a chain has alternatives. Each step is recorded.
    let ia = IaBuilder::new("fastest").open_in(&registry)?;
    println!("\nfastest opened {}:", ia.name());
    for step in ia.steps() {
        println!("  {:10} {:6} {}", step.name, if step.opened { "opened" } else { "failed" }, step.reason);
    }
    println!("\n{}: {}", ia.name(), ia.describe()?);
    Ok(())
}
