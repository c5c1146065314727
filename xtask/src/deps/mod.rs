//! `cargo xtask deps`: what may depend on what, between crates and between the modules of a crate.

mod circles;
mod crates;
mod modules;
mod resolve;
mod source;

use crate::cargo::metadata;
use crate::leg::{Outcome, Report};

/// Checks the crates, then the modules inside each. `shown` names the crates to print circles of; `*` is all of them.
pub fn run(shown: &[String]) -> Report {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let (edges, mut wrong) = crates::check(packages);
    let (files, left, in_modules) = modules::check(packages, shown)?;
    wrong.extend(in_modules);
    match wrong.is_empty() {
        true => Ok(Outcome::passed(format!(
            "{} crates, {edges} dependencies; {files} files, {left} of them in circles that may only shrink",
            packages.len()
        ))),
        false => Err(wrong.join("; ")),
    }
}
