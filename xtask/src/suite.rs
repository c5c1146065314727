//! `cargo xtask test`: all legs in order, each with its time and result, and a table at the end.

use std::time::{Duration, Instant};

use crate::leg::{Leg, Outcome, Report};
use crate::output::Log;
use crate::{bench, deps, docs, legs, output};

/// Quick ones first, so that a small mistake is told early.
const LEGS: [Leg; 26] = [
    Leg { name: "set-up", quick: true, run: set_up },
    Leg { name: "format", quick: true, run: legs::checks::format },
    Leg { name: "dependencies", quick: true, run: deps::run },
    Leg { name: "printed docs", quick: true, run: || docs::run(true) },
    Leg { name: "clippy", quick: true, run: legs::checks::clippy },
    Leg { name: "doc", quick: true, run: legs::checks::doc },
    Leg { name: "plugins", quick: true, run: legs::checks::plugins },
    Leg { name: "tests", quick: true, run: legs::checks::tests },
    Leg { name: "conformance", quick: true, run: || legs::conformance::run(false) },
    Leg { name: "provider in C", quick: true, run: legs::authors::provider_c },
    Leg { name: "uDAPL programs", quick: true, run: legs::capi::run },
    Leg { name: "faults", quick: true, run: legs::faults::run },
    Leg { name: "frozen plugins", quick: false, run: || legs::evolution::frozen(false) },
    Leg { name: "nightly plugin", quick: false, run: legs::evolution::by_nightly },
    Leg { name: "template", quick: false, run: legs::authors::template },
    Leg { name: "loom", quick: false, run: legs::loom::run },
    Leg { name: "miri", quick: false, run: legs::miri::run },
    Leg { name: "thread sanitizer", quick: false, run: legs::tsan::run },
    Leg { name: "libfabric", quick: false, run: legs::libfabric::run },
    Leg { name: "two hosts", quick: false, run: legs::two_hosts::run },
    Leg { name: "libfabric faults", quick: false, run: legs::faults::over_libfabric },
    Leg { name: "rdma", quick: false, run: legs::rdma::run },
    Leg { name: "uDAPL on RDMA", quick: false, run: legs::capi::rdma },
    Leg { name: "instructions", quick: false, run: || legs::instructions::run(false) },
    Leg { name: "bench smoke", quick: false, run: bench::smoke },
    Leg { name: "matrix", quick: false, run: || legs::matrix::run(false) },
];

/// Lines that are repeated of all legs that failed. With the table of legs, what a page of a log shows.
const REPEATED: usize = 90;

/// Runs the legs; goes on after a failure, so that one run tells everything.
pub fn run(options: &[String]) -> Report {
    let has = |option: &str| options.iter().any(|given| given == option);
    let legs = LEGS.iter().filter(|leg| leg.quick || !has("--quick"));
    if has("--list") {
        legs.for_each(|leg| println!("{}", leg.name));
        return Ok(Outcome::passed("that is all"));
    }
    let live = output::watched() || has("--verbose");
    let results: Vec<Ran> = legs.map(|leg| run_leg(leg, live)).collect();
    why(&results);
    summary(&results)
}

/// What the machine has, and where on it this runs.
fn set_up() -> Report {
    legs::place::is_trusted()?;
    legs::place::reaches_itself()?;
    legs::setup::run()
}

/// A leg that ran.
struct Ran {
    leg: &'static Leg,
    time: Duration,
    report: Report,
    log: Option<Log>,
    /// What went wrong at the first try, if that was not the last.
    first: Option<(String, Option<Log>)>,
}

impl Ran {
    /// Whether only a second try went well.
    fn is_unsteady(&self) -> bool {
        self.first.is_some() && self.report.is_ok()
    }
}

/// Runs a leg, and once more when it fails: on a busy machine a deadline can pass for want of a processor. What failed
/// at first is told and counted all the same, and a second failure is final.
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

/// Repeats at the end why legs failed, at the first try and at the last: the reasons need not be the same. Of all that only
/// the end of a log may be shown, so it is short however many there are.
fn why(results: &[Ran]) {
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
        println!("\n=== why {what}");
        log.iter().flat_map(|log| log.why(room)).for_each(|line| println!("{line}"));
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
