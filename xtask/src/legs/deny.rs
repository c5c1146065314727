//! `deny.toml`: licences, sources, duplicate versions and advisories of all dependencies, by cargo-deny. It takes minutes
//! to build, so only `--all` installs it.

use crate::cargo::cargo;
use crate::leg::{Outcome, Report};

/// Builds cargo-deny where it is missing.
pub fn install() -> Report {
    if is_installed() {
        return Ok(Outcome::passed("installed already"));
    }
    cargo().args(["install", "--locked", "cargo-deny"]).run()?;
    Ok(Outcome::passed("installed"))
}

/// Checks that need nothing but the lock file and the crates it names.
pub fn dependencies() -> Report {
    if !is_installed() {
        return Ok(Outcome::not_run(MISSING));
    }
    cargo().args(["deny", "check", "bans", "licenses", "sources"]).run()?;
    Ok(Outcome::passed("bans, licences and sources"))
}

/// Known faults of dependencies, by the RustSec database, which is fetched from GitHub.
pub fn advisories() -> Report {
    if !is_installed() {
        return Ok(Outcome::not_run(MISSING));
    }
    if let Err(reason) = cargo().args(["deny", "fetch", "db"]).deadline(120).output() {
        let line = reason.lines().next_back().unwrap_or_default();
        return Ok(Outcome::not_run(format!("the RustSec database cannot be fetched: {line}")));
    }
    cargo().args(["deny", "check", "--disable-fetch", "advisories"]).run()?;
    Ok(Outcome::passed("no advisory but those deny.toml names"))
}

const MISSING: &str =
    "cargo-deny is not installed; `cargo xtask deny --install` builds it, which takes minutes";

fn is_installed() -> bool {
    cargo().args(["deny", "--version"]).works()
}
