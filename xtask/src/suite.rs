//! `cargo xtask test`: all legs in order, each with its time and result, and a table at the end.

use std::time::{Duration, Instant};

use When::{All, Full, Quick};

use crate::options::has;
use crate::output::Log;
use crate::report::{Report, Stop};
use crate::{bench, demo, deps, legs, output};

/// Which runs a leg is part of; each kind of run has the legs of those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum When {
    /// Each run, `--quick` too.
    Quick,
    /// A run without options: what CI does.
    Full,
    /// Only `--all`: it takes long, and its result seldom changes.
    All,
}

/// A step of CI: its name, the runs it is part of, and what it does.
struct Leg(&'static str, When, fn() -> Report);

/// The steps of CI. Quick ones come first, so that a small mistake shows early.
const LEGS: [Leg; 33] = [
    Leg("set-up", Quick, set_up),
    Leg("format", Quick, legs::checks::format),
    Leg("dependencies", Quick, deps::run),
    Leg("cargo-deny", Full, legs::deny::fetch),
    Leg("deny", Full, legs::deny::dependencies),
    Leg("advisories", Full, legs::deny::advisories),
    Leg("clippy", Quick, legs::checks::clippy),
    Leg("doc", Quick, legs::checks::doc),
    Leg("plugins", Quick, legs::checks::plugins),
    Leg("tests", Quick, legs::checks::tests),
    Leg("conformance", Quick, || legs::conformance::run(false)),
    Leg("provider in C", Quick, legs::authors::provider_c),
    Leg("uDAPL programs", Quick, legs::capi::run),
    Leg("faults", Quick, legs::faults::run),
    Leg("frozen plugins", Full, || legs::evolution::frozen(false)),
    Leg("nightly plugin", Full, legs::evolution::by_nightly),
    Leg("template", Full, legs::authors::template),
    Leg("loom", Full, legs::loom::run),
    Leg("miri", Full, legs::miri::run),
    Leg("thread sanitizer", Full, legs::sanitizers::thread),
    Leg("fuzz", Full, legs::fuzz::short),
    Leg("address sanitizer", All, legs::sanitizers::address),
    Leg("libfabric", Full, legs::libfabric::run),
    Leg("MPI", Full, legs::mpi::run),
    Leg("Debian 13", All, || legs::debian::run("13")),
    Leg("two hosts", Full, legs::two_hosts::run),
    Leg("libfabric faults", Full, legs::faults::over_libfabric),
    Leg("rdma", Full, legs::rdma::run),
    Leg("uDAPL on RDMA", Full, legs::capi::rdma),
    Leg("MPI on RDMA", All, legs::mpi::rdma),
    Leg("instructions", Full, || legs::instructions::run(false)),
    Leg("bench smoke", Full, bench::smoke),
    Leg("matrix", Full, || legs::matrix::run(false)),
];

/// The steps in another distribution, where only what it brings can make a difference.
const DISTRIBUTION: [Leg; 6] = [
    Leg("demo", Quick, demo::run),
    Leg("plugins", Quick, legs::checks::plugins),
    Leg("conformance", Quick, || legs::conformance::run(false)),
    Leg("libfabric", Quick, legs::libfabric::tcp),
    Leg("uDAPL programs", Quick, legs::capi::run),
    Leg("tests", Quick, legs::checks::tests),
];

/// Lines repeated for all failed legs together: with the table of legs, one page of a log.
const REPEATED: usize = 90;

/// Runs the legs. A failure does not stop the run, so one run shows everything.
pub fn run(options: &[String]) -> Report {
    let most = match (has(options, "--quick"), has(options, "--all")) {
        (true, _) => Quick,
        (_, true) => All,
        _ => Full,
    };
    let legs = LEGS.iter().filter(|leg| leg.1 <= most);
    if has(options, "--list") {
        legs.for_each(|leg| println!("{}", leg.0));
        return Ok("that is all".into());
    }
    let live = output::is_terminal() || has(options, "--verbose");
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
        self.first.is_some() && !matches!(self.report, Err(Stop::Failed(_)))
    }
}

/// Runs a leg, and once more when it fails: on a busy machine a deadline can pass because no processor is free. The first
/// failure is shown and counted, and a second one is final.
fn run_leg(leg: &'static Leg, live: bool) -> Ran {
    let start = Instant::now();
    let (mut report, mut log) = attempt(leg, false, live);
    let mut first = None;
    if let Err(Stop::Failed(message)) = report {
        first = Some((message, log));
        (report, log) = attempt(leg, true, live);
    }
    Ran { leg, time: start.elapsed(), report, log, first }
}

fn attempt(leg: &Leg, again: bool, live: bool) -> (Report, Option<Log>) {
    println!("\n=== {}", leg.0);
    output::begin(leg.0, again, live);
    let start = Instant::now();
    let report = leg.2();
    let log = output::end();
    println!("=== {}: {} ({:.1} s)", leg.0, words(&report), start.elapsed().as_secs_f64());
    (report, log)
}

/// Repeats at the end why legs failed, at both tries. It stays short, because CI systems may show only the end of a log.
fn print_failures(results: &[Ran]) {
    let mut failures = Vec::new();
    for Ran { leg, report, log, first, .. } in results {
        if let Some((message, log)) = first {
            failures.push((format!("{} failed at the first try", leg.0), message, log));
        }
        if let Err(Stop::Failed(message)) = report {
            failures.push((format!("{} failed", leg.0), message, log));
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
        println!("{:<18} {:>8.1}  {steady}{}", leg.0, time.as_secs_f64(), words(report));
    }
    let count = |wanted: fn(&Report) -> bool| results.iter().filter(|result| wanted(&result.report)).count();
    let failed = count(|report| matches!(report, Err(Stop::Failed(_))));
    let not_run = count(|report| matches!(report, Err(Stop::NotRun(_))));
    let passed = results.len() - failed - not_run;
    let total: Duration = results.iter().map(|result| result.time).sum();
    let unsteady = results.iter().filter(|ran| ran.is_unsteady()).count();
    let total = total.as_secs();
    let line =
        format!("{passed} passed ({unsteady} UNSTEADY), {failed} failed, {not_run} NOT RUN in {total} s");
    match failed {
        0 => Ok(line),
        _ => Err(line.into()),
    }
}

fn words(report: &Report) -> String {
    match report {
        Ok(detail) => format!("passed: {detail}"),
        Err(Stop::NotRun(reason)) => format!("NOT RUN: {reason}"),
        Err(Stop::Failed(message)) => format!("FAILED: {}", message.lines().next().unwrap_or_default()),
    }
}
