//! Undefined behaviour: everything that runs without shared memory between processes, interpreted.

use std::thread;

use crate::cargo::{Tests, nightly};
use crate::leg::{Outcome, Report};

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
    if !nightly().args(["miri", "--version"]).works() {
        let reason = "no miri; try `rustup toolchain install nightly` and `rustup +nightly component add miri rust-src`";
        return Ok(Outcome::not_run(reason));
    }
    let results = thread::scope(|scope| {
        let lanes = LANES.map(|subjects| scope.spawn(|| lane(subjects)));
        lanes.map(|lane| lane.join().unwrap_or_else(|_| Err("a lane panicked".into())))
    });
    let mut all = Tests::default();
    for result in results {
        all = all.and(result?);
    }
    Ok(Outcome::passed(all.words()))
}

fn lane(subjects: &[&[&str]]) -> Result<Tests, String> {
    let mut all = Tests::default();
    for subject in subjects {
        // The engine sleeps on descriptors and reads the clock.
        let run =
            nightly().args(["miri", "test"]).args(*subject).env("MIRIFLAGS", "-Zmiri-disable-isolation");
        // Interpreted, the default of 256 random cases a property takes too long.
        let run = run.env("PROPTEST_CASES", "8");
        let tests = Tests::of(run).map_err(|message| format!("{}: {message}", subject.join(" ")))?;
        all = all.and(tests);
    }
    Ok(all)
}
