//! Legs that are one cargo command each.

use std::path::Path;

use crate::cargo::{build, cargo};
use crate::libtest::Tests;
use crate::process::Run;
use crate::report::Report;

/// The plugins applications load by name.
const PLUGINS: [&str; 4] = ["dat-shm", "dat-loopback", "dat-ibverbs", "dat-libfabric"];

/// The last commit whose subject may be long.
const LONG_SUBJECTS_UNTIL: &str = "3239722";

/// Characters in the subject of a commit, at most.
const SUBJECT: usize = 72;

/// Formatting, and the subjects of commits where there is a history.
pub fn format() -> Report {
    cargo().args(["fmt", "--all", "--check"]).run()?;
    let since = format!("{LONG_SUBJECTS_UNTIL}..HEAD");
    let Ok(log) = Run::new("git").args(["log", "--format=%h %s", &since]).output() else {
        return Ok("formatted; subjects of commits NOT RUN: there is no history here".into());
    };
    match long_subjects(&log).as_slice() {
        [] => Ok(format!("formatted; {} subjects of commits", log.lines().count())),
        long => Err(format!("subjects of more than {SUBJECT} characters: {}", long.join("; ")).into()),
    }
}

/// The commits with a subject that is too long, from lines of hash and subject.
fn long_subjects(log: &str) -> Vec<&str> {
    let long =
        |line: &&str| line.split_once(' ').is_some_and(|(_, subject)| subject.chars().count() > SUBJECT);
    log.lines().filter(long).collect()
}

/// Lints, all denied.
pub fn clippy() -> Report {
    cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]).run()?;
    Ok("no warning".into())
}

/// The reference documentation. The command's comes first: the library `dat` has the same name, and its pages replace
/// the command's.
pub fn doc() -> Report {
    for packages in [&["-p", "dat-cli"][..], &["--workspace", "--exclude", "dat-cli"]] {
        let run = cargo().args(["doc", "--no-deps", "--document-private-items"]).args(packages);
        // Links to private items are fine, since their pages are made.
        run.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links").run()?;
    }
    Ok("no warning".into())
}

/// The plugins as shared objects, for the tests that load them.
pub fn plugins() -> Report {
    build("dev", &PLUGINS)?;
    Ok(PLUGINS.join(", "))
}

/// What tests may lack: the variable that makes such a test fail instead of printing NOT RUN, and the files that show
/// that it is installed.
const REQUIRED: [(&str, &[&str]); 3] = [
    ("DAT_REQUIRE_RDMA_HEADERS", &["/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"]),
    ("DAT_REQUIRE_LIBFABRIC", &["/usr/include/rdma/fabric.h"]),
    ("DAT_REQUIRE_UDAPL", &["/usr/include/dat2/udat.h", "/usr/bin/dapltest"]),
];

/// Unit, integration and documentation tests. The conformance suite has its own leg; here only its unit tests run.
/// Tests that could not run here are counted by the line that each of them prints.
pub fn tests() -> Report {
    let all = ["test", "--workspace", "--exclude", "dat-conformance"];
    // Built first, so that the deadline of the tests does not depend on the compiler.
    cargo().args(all).args(["--no-run"]).run()?;
    let run = cargo().args(all).args(["--no-fail-fast"]);
    let here = REQUIRED.iter().filter(|(_, files)| files.iter().all(|file| Path::new(file).exists()));
    let run = here.fold(run, |run, (variable, _)| run.env(variable, "1"));
    let most = Tests::of(run.args(["--", "--show-output"]).deadline(900))?;
    let suite = Tests::of(cargo().args(["test", "-p", "dat-conformance", "--lib"]))?;
    Ok(Tests::sum([most, suite]).words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_of_73_characters_is_too_long() {
        let log = format!("1234567 {}\n89abcde {}\n", "a".repeat(72), "\u{fc}".repeat(73));
        let long = long_subjects(&log);
        assert_eq!(long.len(), 1);
        assert!(long[0].starts_with("89abcde "));
    }
}
