//! Legs that are one cargo command each.

use std::path::Path;

use crate::cargo::{Tests, cargo};
use crate::leg::{Outcome, Report};

/// The plugins applications load by name.
const PLUGINS: [&str; 4] = ["dat-shm", "dat-loopback", "dat-ibverbs", "dat-libfabric"];

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

/// The reference documentation. That of the command comes first: it has the name of the library `dat`, whose pages
/// then replace it.
pub fn doc() -> Report {
    for packages in [&["-p", "dat-cli"][..], &["--workspace", "--exclude", "dat-cli"]] {
        let run = cargo().args(["doc", "--no-deps", "--document-private-items"]).args(packages);
        // Links to private items are fine, since their pages are made.
        run.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links").run()?;
    }
    Ok(Outcome::passed("no warning"))
}

/// The plugins as shared objects, for the tests that load them.
pub fn plugins() -> Report {
    cargo().args(["build"]).args(PLUGINS.iter().flat_map(|plugin| ["-p", plugin])).run()?;
    Ok(Outcome::passed(PLUGINS.join(", ")))
}

/// What a test may lack: a file that shows it is here, and the variable that has a test fail rather than say that it did
/// not run. A test that lacks its headers although they are installed is one that fails.
const REQUIRED: [(&str, &[&str]); 3] = [
    ("DAT_REQUIRE_RDMA_HEADERS", &["/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"]),
    ("DAT_REQUIRE_LIBFABRIC", &["/usr/include/rdma/fabric.h"]),
    ("DAT_REQUIRE_UDAPL", &["/usr/include/dat2/udat.h", "/usr/bin/dapltest"]),
];

/// Unit, integration and documentation tests. Of the conformance suite only its own unit tests: it has a leg of its own.
/// Tests that could not run here are counted, by the line each of them prints.
pub fn tests() -> Report {
    let all = ["test", "--workspace", "--exclude", "dat-conformance"];
    // Building takes as long as the machine takes; the tests themselves have a bound.
    cargo().args(all).args(["--no-run"]).run()?;
    let run = cargo().args(all).args(["--no-fail-fast"]);
    let here = REQUIRED.iter().filter(|(_, files)| files.iter().all(|file| Path::new(file).exists()));
    let run = here.fold(run, |run, (variable, _)| run.env(variable, "1"));
    let most = Tests::of(run.args(["--", "--show-output"]).deadline(900))?;
    let suite = Tests::of(cargo().args(["test", "-p", "dat-conformance", "--lib"]))?;
    Ok(Outcome::passed(most.and(suite).words()))
}
