//! `cargo xtask test`: all legs in order, each with its time and result, and a table at the end.

use std::time::{Duration, Instant};

use crate::leg::When::{All, Full, Quick};
use crate::leg::{Leg, Outcome, Report};
use crate::output::Log;
use crate::{bench, demo, deps, legs, output};

/// The steps of CI. Quick ones come first, so that a small mistake shows early.
const LEGS: [Leg; 33] = [
    Leg { name: "set-up", when: Quick, run: set_up },
    Leg { name: "format", when: Quick, run: legs::checks::format },
    Leg { name: "dependencies", when: Quick, run: || deps::run(&[]) },
    Leg { name: "cargo-deny", when: All, run: legs::deny::install },
    Leg { name: "deny", when: Full, run: legs::deny::dependencies },
    Leg { name: "advisories", when: Full, run: legs::deny::advisories },
    Leg { name: "clippy", when: Quick, run: legs::checks::clippy },
    Leg { name: "doc", when: Quick, run: legs::checks::doc },
    Leg { name: "plugins", when: Quick, run: legs::checks::plugins },
    Leg { name: "tests", when: Quick, run: legs::checks::tests },
    Leg { name: "conformance", when: Quick, run: || legs::conformance::run(false) },
    Leg { name: "provider in C", when: Quick, run: legs::authors::provider_c },
    Leg { name: "uDAPL programs", when: Quick, run: legs::capi::run },
    Leg { name: "faults", when: Quick, run: legs::faults::run },
    Leg { name: "frozen plugins", when: Full, run: || legs::evolution::frozen(false) },
    Leg { name: "nightly plugin", when: Full, run: legs::evolution::by_nightly },
    Leg { name: "template", when: Full, run: legs::authors::template },
    Leg { name: "loom", when: Full, run: legs::loom::run },
    Leg { name: "miri", when: Full, run: legs::miri::run },
    Leg { name: "thread sanitizer", when: Full, run: legs::sanitizers::thread },
    Leg { name: "fuzz", when: All, run: legs::fuzz::short },
    Leg { name: "address sanitizer", when: All, run: legs::sanitizers::address },
    Leg { name: "libfabric", when: Full, run: legs::libfabric::run },
    Leg { name: "MPI", when: Full, run: legs::mpi::run },
    Leg { name: "Debian 13", when: All, run: || legs::debian::run("13") },
    Leg { name: "two hosts", when: Full, run: legs::two_hosts::run },
    Leg { name: "libfabric faults", when: Full, run: legs::faults::over_libfabric },
    Leg { name: "rdma", when: Full, run: legs::rdma::run },
    Leg { name: "uDAPL on RDMA", when: Full, run: legs::capi::rdma },
    Leg { name: "MPI on RDMA", when: All, run: legs::mpi::rdma },
    Leg { name: "instructions", when: Full, run: || legs::instructions::run(false) },
    Leg { name: "bench smoke", when: Full, run: bench::smoke },
    Leg { name: "matrix", when: Full, run: || legs::matrix::run(false) },
];

/// The steps in another distribution, where only what it brings can make a difference.
const DISTRIBUTION: [Leg; 6] = [
    Leg { name: "demo", when: Quick, run: demo::run },
    Leg { name: "plugins", when: Quick, run: legs::checks::plugins },
    Leg { name: "conformance", when: Quick, run: || legs::conformance::run(false) },
    Leg { name: "libfabric", when: Quick, run: legs::libfabric::clauses },
    Leg { name: "uDAPL programs", when: Quick, run: legs::capi::run },
    Leg { name: "tests", when: Quick, run: legs::checks::tests },
];

/// Lines repeated for all failed legs together: with the table of legs, one page of a log.
const REPEATED: usize = 90;

/// Runs the legs. A failure does not stop the run, so one run shows everything.
pub fn run(options: &[String]) -> Report {
    let has = |option: &str| options.iter().any(|given| given == option);
    let most = match (has("--quick"), has("--all")) {
        (true, _) => Quick,
        (_, true) => All,
        _ => Full,
    };
    let legs = LEGS.iter().filter(|leg| leg.when <= most);
    if has("--list") {
        legs.for_each(|leg| println!("{}", leg.name));
        return Ok(Outcome::passed("that is all"));
    }
    let live = output::is_terminal() || has("--verbose");
    let results: Vec<Ran> = legs.map(|leg| run_leg(leg, live)).collect();
    print_failures(&results);
    summary(&results)
}

/// Runs the steps of another distribution, in it: what `cargo xtask debian` starts.
pub fn distribution() -> Report {
    legs::preconditions::is_trusted()?;
    legs::preconditions::reaches_itself()?;
    let results: Vec<Ran> = DISTRIBUTION.iter().map(|leg| run_leg(leg, true)).collect();
    print_failures(&results);
    summary(&results)
}

/// Checks the folder and the network, then installs what is missing.
fn set_up() -> Report {
    legs::preconditions::is_trusted()?;
    legs::preconditions::reaches_itself()?;
    legs::setup::run()
}

/// A leg that ran.
struct Ran {
    leg: &'static Leg,
    time: Duration,
    report: Report,
    log: Option<Log>,
    /// The failure of the first try, if there was a second.
    first: Option<(String, Option<Log>)>,
}

impl Ran {
    /// Whether only the second try passed.
    fn is_unsteady(&self) -> bool {
        self.first.is_some() && self.report.is_ok()
    }
}

/// Runs a leg, and once more when it fails: on a busy machine a deadline can pass because no processor is free. The first
/// failure is shown and counted, and a second one is final.
fn run_leg(leg: &'static Leg, live: bool) -> Ran {
    let start = Instant::now();
    let (mut report, mut log) = attempt(leg, false, live);
    let mut first = None;
    if let Err(message) = report {
        first = Some((message, log));
        (report, log) = attempt(leg, true, live);
    }
    Ran { leg, time: start.elapsed(), report, log, first }
}

fn attempt(leg: &Leg, again: bool, live: bool) -> (Report, Option<Log>) {
    println!("\n=== {}", leg.name);
    output::begin(leg.name, again, live);
    let start = Instant::now();
    let report = (leg.run)();
    let log = output::end();
    println!("=== {}: {} ({:.1} s)", leg.name, words(&report), start.elapsed().as_secs_f64());
    (report, log)
}

/// Repeats at the end why legs failed, at both tries. It stays short, because CI systems may show only the end of a log.
fn print_failures(results: &[Ran]) {
    let mut failures = Vec::new();
    for Ran { leg, report, log, first, .. } in results {
        if let Some((message, log)) = first {
            failures.push((format!("{} failed at the first try", leg.name), message, log));
        }
        if let Err(message) = report {
            failures.push((format!("{} failed", leg.name), message, log));
        }
    }
    let room = REPEATED / failures.len().max(1);
    for (what, message, log) in failures {
        println!("\n=== {what}");
        log.iter().flat_map(|log| log.failure_excerpt(room)).for_each(|line| println!("{line}"));
        let message: Vec<&str> = message.lines().collect();
        let end = message.len().saturating_sub(room.max(2) - 1).max(1);
        message.iter().take(1).chain(&message[end.min(message.len())..]).for_each(|line| println!("{line}"));
    }
}

fn summary(results: &[Ran]) -> Report {
    println!("\n{:<18} {:>8}  result", "leg", "seconds");
    for ran @ Ran { leg, time, report, .. } in results {
        let steady = if ran.is_unsteady() { "UNSTEADY, passed at the second try; " } else { "" };
        println!("{:<18} {:>8.1}  {steady}{}", leg.name, time.as_secs_f64(), words(report));
    }
    let count = |wanted: fn(&Report) -> bool| results.iter().filter(|result| wanted(&result.report)).count();
    let failed = count(|report| report.is_err());
    let not_run = count(|report| matches!(report, Ok(Outcome::NotRun(_))));
    let passed = results.len() - failed - not_run;
    let total: Duration = results.iter().map(|result| result.time).sum();
    let unsteady = results.iter().filter(|ran| ran.is_unsteady()).count();
    let total = total.as_secs();
    let line =
        format!("{passed} passed ({unsteady} UNSTEADY), {failed} failed, {not_run} NOT RUN in {total} s");
    match failed {
        0 => Ok(Outcome::Passed(line)),
        _ => Err(line),
    }
}

fn words(report: &Report) -> String {
    match report {
        Ok(Outcome::Passed(detail)) => format!("passed: {detail}"),
        Ok(Outcome::NotRun(reason)) => format!("NOT RUN: {reason}"),
        Err(message) => format!("FAILED: {}", message.lines().next().unwrap_or_default()),
    }
}
