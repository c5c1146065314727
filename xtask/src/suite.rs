//! `cargo xtask test`: all legs in order, each with its time and result, and a table at the end.

use std::time::{Duration, Instant};

use crate::leg::{Leg, Outcome, Report};
use crate::{deps, docs, legs};

/// Quick ones first, so that a small mistake is told early.
const LEGS: [Leg; 22] = [
    Leg { name: "set-up", quick: true, run: legs::setup::run },
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
    Leg { name: "faults", quick: true, run: legs::authors::faults },
    Leg { name: "frozen plugins", quick: false, run: || legs::evolution::frozen(false) },
    Leg { name: "nightly plugin", quick: false, run: legs::evolution::by_nightly },
    Leg { name: "template", quick: false, run: legs::authors::template },
    Leg { name: "loom", quick: false, run: legs::loom::run },
    Leg { name: "miri", quick: false, run: legs::miri::run },
    Leg { name: "thread sanitizer", quick: false, run: legs::tsan::run },
    Leg { name: "libfabric", quick: false, run: legs::libfabric::run },
    Leg { name: "rdma", quick: false, run: legs::rdma::run },
    Leg { name: "bench smoke", quick: false, run: legs::bench::run },
    Leg { name: "matrix", quick: false, run: || legs::matrix::run(false) },
];

/// Runs the legs; goes on after a failure, so that one run tells everything.
pub fn run(options: &[String]) -> Report {
    let has = |option: &str| options.iter().any(|given| given == option);
    let legs = LEGS.iter().filter(|leg| leg.quick || !has("--quick"));
    if has("--list") {
        legs.for_each(|leg| println!("{}", leg.name));
        return Ok(Outcome::passed("that is all"));
    }
    let results: Vec<(&Leg, Duration, Report)> = legs
        .map(|leg| {
            println!("\n=== {}", leg.name);
            let start = Instant::now();
            let report = (leg.run)();
            println!("=== {}: {} ({:.1} s)", leg.name, words(&report), start.elapsed().as_secs_f64());
            (leg, start.elapsed(), report)
        })
        .collect();
    summary(&results)
}

fn summary(results: &[(&Leg, Duration, Report)]) -> Report {
    println!("\n{:<18} {:>8}  result", "leg", "seconds");
    for (leg, time, report) in results {
        println!("{:<18} {:>8.1}  {}", leg.name, time.as_secs_f64(), words(report));
    }
    let count = |wanted: fn(&Report) -> bool| results.iter().filter(|(.., report)| wanted(report)).count();
    let failed = count(|report| report.is_err());
    let not_run = count(|report| matches!(report, Ok(Outcome::NotRun(_))));
    let passed = results.len() - failed - not_run;
    let total: Duration = results.iter().map(|(_, time, _)| *time).sum();
    let line = format!("{passed} passed, {failed} failed, {not_run} NOT RUN in {} s", total.as_secs());
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
