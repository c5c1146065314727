//! `deny.toml`: licences, sources, duplicate versions and advisories of all dependencies, by cargo-deny. It takes minutes
//! to build, so only `--all` installs it.

use crate::cargo::cargo;
use crate::options::has;
use crate::report::{Report, Result, Stop, parts};

/// The command: both checks, and the tool first where that is wanted.
pub fn run(words: &[String]) -> Report {
    if has(words, "--install") {
        install()?;
    }
    parts([("dependencies", dependencies()), ("advisories", advisories())])
}

/// Builds cargo-deny where it is missing.
pub fn install() -> Report {
    if is_installed().is_ok() {
        return Ok("installed already".into());
    }
    cargo().args(["install", "--locked", "cargo-deny"]).run()?;
    Ok("installed".into())
}

/// Checks that need nothing but the lock file and the crates it names.
pub fn dependencies() -> Report {
    is_installed()?;
    cargo().args(["deny", "check", "bans", "licenses", "sources"]).run()?;
    Ok("bans, licences and sources".into())
}

/// Known faults of dependencies, by the RustSec database, which is fetched from GitHub.
pub fn advisories() -> Report {
    is_installed()?;
    if let Err(stop) = cargo().args(["deny", "fetch", "db"]).deadline(120).output() {
        let words = stop.words();
        let line = words.lines().next_back().unwrap_or_default();
        return Err(Stop::not_run(format!("the RustSec database cannot be fetched: {line}")));
    }
    cargo().args(["deny", "check", "--disable-fetch", "advisories"]).run()?;
    Ok("no advisory but those deny.toml names".into())
}

fn is_installed() -> Result<()> {
    let missing = "cargo-deny is not installed; `cargo xtask deny --install` builds it, which takes minutes";
    cargo().args(["deny", "--version"]).output().map(drop).map_err(|_| Stop::not_run(missing))
}
