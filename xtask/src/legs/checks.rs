//! Legs that are one cargo command each.

use crate::cargo::{Tests, cargo};
use crate::leg::{Outcome, Report};

/// The plugins applications load by name.
const PLUGINS: [&str; 2] = ["dat-shm", "dat-loopback"];

/// Formatting.
pub fn format() -> Report {
    cargo().args(["fmt", "--all", "--check"]).run()?;
    Ok(Outcome::passed("formatted"))
}

/// Lints, all denied.
pub fn clippy() -> Report {
    cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()?;
    Ok(Outcome::passed("no warning"))
}

/// The reference documentation.
pub fn doc() -> Report {
    let run = cargo().args(["doc", "--workspace", "--no-deps", "--document-private-items"]);
    run.env("RUSTDOCFLAGS", "-D warnings").run()?;
    Ok(Outcome::passed("no warning"))
}

/// The plugins as shared objects, for the tests that load them.
pub fn plugins() -> Report {
    cargo().args(["build"]).args(PLUGINS.iter().flat_map(|plugin| ["-p", plugin])).run()?;
    Ok(Outcome::passed(PLUGINS.join(", ")))
}

/// Unit, integration and documentation tests. The conformance suite has a leg of its own.
pub fn tests() -> Report {
    let run = cargo().args(["test", "--workspace", "--exclude", "dat-conformance", "--no-fail-fast"]);
    Tests::of(run.deadline(900)).map(|tests| Outcome::passed(tests.words()))
}
