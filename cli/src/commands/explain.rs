//! `dat explain`: how a name is resolved, step by step.

use std::process::ExitCode;

use serde_json::json;

use crate::failure::Outcome;
use crate::output::Shared;

/// Explains; fails when the name does not open.
pub fn run(shared: &Shared, name: &str) -> Outcome<ExitCode> {
    let explanation = shared.registry()?.explain(name);
    shared.print(|| json!(explanation), || explanation.to_string())?;
    Ok(if explanation.chosen.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
