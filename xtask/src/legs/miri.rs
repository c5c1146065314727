//! Undefined behaviour: everything that runs without shared memory between processes, interpreted.

use std::thread;

use crate::cargo::nightly;
use crate::libtest::Tests;
use crate::need::nightly_with;
use crate::report::{Report, Result};

/// What runs under miri. Each must run at least one test. The interpreter uses one processor, so the two lists run side
/// by side; they take about the same time.
const LANES: [&[&[&str]]; 2] = [
    &[&["-p", "dat-loopback"]],
    &[
        &["-p", "dat-types"],
        &["-p", "dat-sync"],
        &["-p", "dat-engine", "--lib", "--test", "pair"],
        &["-p", "dat-shm", "--lib", "data::ring::"],
    ],
];

/// Runs the lanes.
pub fn run() -> Report {
    nightly_with(&["miri", "rust-src"])?;
    let results = thread::scope(|scope| {
        let lanes = LANES.map(|subjects| scope.spawn(|| lane(subjects)));
        lanes.map(|lane| lane.join().unwrap_or_else(|_| Err("a lane panicked".into())))
    });
    Ok(Tests::sum(results.into_iter().collect::<Result<Vec<_>>>()?).words())
}

fn lane(subjects: &[&[&str]]) -> Result<Tests> {
    let run = |subject: &&[&str]| {
        // The engine sleeps on descriptors and reads the clock.
        let run =
            nightly().args(["miri", "test"]).args(*subject).env("MIRIFLAGS", "-Zmiri-disable-isolation");
        // Interpreted, the default of 256 random cases a property takes too long.
        Tests::of(run.env("PROPTEST_CASES", "8")).map_err(|stop| stop.of(subject.join(" ")))
    };
    Ok(Tests::sum(subjects.iter().map(run).collect::<Result<Vec<_>>>()?))
}
