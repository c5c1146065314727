//! The clauses of the specification over the libfabric provider, and random programs: connected endpoints over TCP, and
//! datagram endpoints over TCP, UDP and shared memory. Before that the clauses over the stand-in for libfabric, which needs
//! nothing installed.

use std::fs;
use std::path::{Path, PathBuf};

use super::instructions::stand_in;
use super::matrix;
use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::root::root;

/// A row of the matrix: its label, the provider's parameters, and how many random programs are run, always the same
/// ones, in half a minute or so. A datagram endpoint takes libfabric long to open.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) params: &'static [&'static str],
    programs: &'static str,
}

impl Row {
    /// Its name as that of a file.
    pub(super) fn file(&self) -> String {
        self.name.replace('/', "-")
    }

    /// The list of clauses it is expected to fail, if there is one.
    pub(super) fn expected(&self) -> Option<PathBuf> {
        let list = root().join(format!("conformance/expected/{}.toml", self.file()));
        list.exists().then_some(list)
    }
}

/// Rows that also run between two hosts, and with faults.
pub(super) const ROWS: [Row; 2] = [
    Row {
        name: "libfabric/tcp-msg",
        params: &["fabric=tcp", "endpoint=msg", "address=127.0.0.1"],
        programs: "2000",
    },
    Row {
        name: "libfabric/tcp-rdm",
        params: &["fabric=tcp;ofi_rxm", "endpoint=rdm", "address=127.0.0.1"],
        programs: "150",
    },
];

/// Rows that run only here: fabrics without wake-ups of waiting threads, with peers found by discovery.
const OTHERS: [Row; 2] = [
    Row {
        name: "libfabric/udp-rdm",
        params: &["fabric=udp;ofi_rxd", "endpoint=rdm", "address=127.0.0.1"],
        programs: "500",
    },
    Row {
        name: "libfabric/shm",
        params: &["fabric=shm", "endpoint=rdm", "address=127.0.0.1"],
        programs: "1000",
    },
];

/// Runs the rows, after the provider's own tests and the comparison of its bindings with C.
pub fn run() -> Report {
    let over_stand_in = over_the_stand_in()?;
    if let Some(why) = missing() {
        return Ok(Outcome::not_run(format!("{why}; {over_stand_in}")));
    }
    cargo()
        .args(["build", "-p", "dat-conformance", "-p", "dat-differential", "-p", "dat-libfabric"])
        .run()?;
    cargo()
        .args(["test", "-p", "libfabric-sys", "-p", "dat-libfabric"])
        .env("DAT_REQUIRE_LIBFABRIC", "1")
        .run()?;
    rows(ROWS.iter().chain(&OTHERS), vec![over_stand_in])
}

/// The rows over TCP alone, without the provider's own tests.
pub fn clauses() -> Report {
    if let Some(why) = missing() {
        return Ok(Outcome::not_run(why));
    }
    cargo()
        .args(["build", "-p", "dat-conformance", "-p", "dat-differential", "-p", "dat-libfabric"])
        .run()?;
    rows(ROWS.iter(), Vec::new())
}

/// The clauses and the random programs over each row; `words` are of what ran before.
fn rows<'a>(rows: impl Iterator<Item = &'a Row>, mut words: Vec<String>) -> Report {
    let built = target_dir()?.join("debug");
    let out = target_dir()?.join("conformance");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut failures = Vec::new();
    for row in rows {
        let json = out.join(format!("{}.json", row.file()));
        // What an earlier run left must not be taken for the result of this one.
        let _ = fs::remove_file(&json);
        let mut provider: Vec<PathBuf> = vec!["--plugin".into(), built.join("libdat_libfabric.so")];
        for param in row.params {
            provider.extend(["--param".into(), (*param).into()]);
        }
        let mut arguments = provider.clone();
        if let Some(expected) = row.expected() {
            arguments.extend(["--expected".into(), expected]);
        }
        arguments.extend(["--name".into(), row.name.into(), "--json".into(), json.clone()]);
        let runner = Run::new(&built.join("dat-conformance").to_string_lossy()).args(arguments);
        if let Err(message) = runner.run() {
            failures.push(format!("{}: {message}", row.name));
        }
        match matrix::read(&json) {
            Ok(report) if report["ran"].as_u64().unwrap_or(0) == 0 => {
                failures.push(format!("{}: no clause ran", row.name));
            }
            Ok(report) => words.push(format!("{} {}/{}", row.name, report["passed"], report["ran"])),
            Err(message) => failures.push(message),
        }
        match programs(&built, provider, row.programs) {
            Ok(counts) => words.push(counts),
            Err(message) => failures.push(format!("{}: {message}", row.name)),
        }
    }
    match failures.is_empty() {
        true => Ok(Outcome::passed(words.join(", "))),
        false => Err(failures.join("; ")),
    }
}

/// The clauses over the stand-in that instructions are counted over, so that what is counted is a provider at work; with
/// frames, too. Its peers are adapters of the same process.
fn over_the_stand_in() -> Result<String, String> {
    cargo()
        .args(["build", "-p", "dat-conformance", "-p", "dat-libfabric", "-p", "dat-fabric-double"])
        .run()?;
    let built = target_dir()?.join("debug");
    let work = tempfile::tempdir().map_err(|error| format!("a folder for the stand-in: {error}"))?;
    let libraries = work.path().join("lib");
    stand_in(&built, &libraries)?;
    let mut words = Vec::new();
    for frames in ["auto", "on"] {
        let json = work.path().join(format!("{frames}.json"));
        Run::new(&built.join("dat-conformance").to_string_lossy())
            .args(["--plugin".into(), built.join("libdat_libfabric.so")])
            .args(["--one-process", "--param", "fabric=double", "--param", &format!("frames={frames}")])
            .args(["--json".into(), json.clone()])
            .env("LD_LIBRARY_PATH", &libraries)
            .deadline(300)
            .run()
            .map_err(|message| format!("over the stand-in, frames {frames}: {message}"))?;
        let report = matrix::read(&json)?;
        if report["ran"].as_u64().unwrap_or(0) == 0 {
            return Err(format!("over the stand-in, frames {frames}: no clause ran"));
        }
        words.push(format!("{}/{}", report["passed"], report["ran"]));
    }
    Ok(format!("over the stand-in {}", words.join(" and ")))
}

/// Why it cannot be run here, if so.
pub(super) fn missing() -> Option<&'static str> {
    let missing =
        "libfabric is not installed and could not be (Debian: libfabric1, libfabric-bin, libfabric-dev)";
    (!Run::new("fi_info").args(["--version"]).works()).then_some(missing)
}

/// Runs the random programs; returns their summary.
fn programs(built: &Path, provider: Vec<PathBuf>, count: &str) -> Result<String, String> {
    let mut counts = None;
    Run::new(&built.join("dat-differential").to_string_lossy())
        .args(provider)
        .args(["--count", count])
        .deadline(300)
        .lines(|line| counts = counts_in(line).or(counts.take()))?;
    counts.ok_or_else(|| "the random programs ended without their counts".to_owned())
}

/// The number of programs and steps in the summary line.
pub(super) fn counts_in(line: &str) -> Option<String> {
    let (counts, _) = line.split_once(" steps over ")?;
    counts.contains(" programs, ").then(|| format!("{counts} steps"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_their_line_alone() {
        let line = "500 programs, 19683 steps over loopback, libfabric in 20.1 s (1492 programs a minute): 0 disagreements";
        assert_eq!(counts_in(line).as_deref(), Some("500 programs, 19683 steps"));
        assert_eq!(counts_in("shrunk to 4 steps:"), None);
    }
}
