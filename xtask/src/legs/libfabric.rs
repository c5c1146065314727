//! The clauses of the specification over the libfabric provider, and random programs: connected endpoints over TCP, and
//! datagram endpoints over TCP, UDP and shared memory. Before that the clauses over the stand-in for libfabric, which needs
//! nothing installed.

use std::path::Path;

use super::clauses::{clauses, counts, expected, runner};
use super::instructions::stand_in;
use crate::cargo::{build, cargo};
use crate::need;
use crate::options::has;
use crate::process::Run;
use crate::report::{Parts, Report};

/// A row of the matrix: its label, the provider's parameters, and how many random programs are run, always the same
/// ones, in half a minute or so. A datagram endpoint takes libfabric long to open.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) params: &'static [&'static str],
    programs: &'static str,
}

impl Row {
    /// The arguments of a runner that name the provider.
    pub(super) fn provider(&self, built: &Path) -> Vec<String> {
        let mut words = vec!["--plugin".to_owned(), built.join("libdat_libfabric.so").display().to_string()];
        words.extend(self.params.iter().flat_map(|param| ["--param", param]).map(str::to_owned));
        words
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

/// The command: the rows, or the speed.
pub fn command(words: &[String]) -> Report {
    if has(words, "--bench") { super::libfabric_speed::run() } else { run() }
}

/// Runs the rows, after the provider's own tests and the comparison of its bindings with C.
pub fn run() -> Report {
    let over_stand_in = over_the_stand_in()?;
    need::libfabric().map_err(|stop| stop.of(&over_stand_in))?;
    let tests = cargo().args(["test", "-p", "libfabric-sys", "-p", "dat-libfabric"]);
    tests.env("DAT_REQUIRE_LIBFABRIC", "1").run()?;
    Ok(format!("{over_stand_in}; {}", rows(ROWS.iter().chain(&OTHERS))?))
}

/// The rows over TCP alone, without the provider's own tests.
pub fn tcp() -> Report {
    need::libfabric()?;
    rows(ROWS.iter())
}

/// The clauses and the random programs over each row.
fn rows<'a>(rows: impl Iterator<Item = &'a Row>) -> Report {
    let built = build("dev", &["dat-conformance", "dat-differential", "dat-libfabric"])?;
    let mut all = Parts::default();
    for row in rows {
        let provider = row.provider(&built);
        all.add(row.name, clauses(row.name, runner()?.args(&provider).args(expected(row.name))));
        all.add(row.name, programs(&built, &provider, row.programs));
    }
    all.report()
}

/// The clauses over the stand-in that instructions are counted over, so that what is counted is a provider at work; with
/// frames, too. Its peers are adapters of the same process.
fn over_the_stand_in() -> Report {
    let built = build("dev", &["dat-conformance", "dat-libfabric", "dat-fabric-double"])?;
    let work = tempfile::tempdir()?;
    let libraries = work.path().join("lib");
    stand_in(&built, &libraries)?;
    let over = |frames: &str| {
        let json = work.path().join(format!("{frames}.json"));
        let run = runner()?.args(["--plugin".into(), built.join("libdat_libfabric.so")]);
        let run =
            run.args(["--one-process", "--param", "fabric=double", "--param", &format!("frames={frames}")]);
        run.args(["--json".into(), json.clone()]).env("LD_LIBRARY_PATH", &libraries).deadline(300).run()?;
        counts(&json)
    };
    let of =
        |frames: &str| over(frames).map_err(|stop| stop.of(format!("over the stand-in, frames {frames}")));
    Ok(format!("over the stand-in {} and {}", of("auto")?, of("on")?))
}

/// Runs the random programs; returns their summary.
fn programs(built: &Path, provider: &[String], count: &str) -> Report {
    let mut counts = None;
    Run::new(&built.join("dat-differential").to_string_lossy())
        .args(provider)
        .args(["--count", count])
        .deadline(300)
        .lines(|line| counts = counts_in(line).or(counts.take()))?;
    Ok(counts.ok_or("the random programs ended without their counts")?)
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
