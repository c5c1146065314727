//! Undefined behaviour: everything that runs without shared memory between processes, interpreted.

use crate::cargo::{Tests, nightly};
use crate::leg::{Outcome, Report};

/// What runs under miri. Each must run at least one test.
const SUBJECTS: [&[&str]; 5] = [
    &["-p", "dat-types"],
    &["-p", "dat-sync"],
    &["-p", "dat-engine", "--lib", "--test", "pair"],
    &["-p", "dat-loopback"],
    &["-p", "dat-shm", "--lib", "data::ring::"],
];

/// Runs the subjects.
pub fn run() -> Report {
    if !nightly().args(["miri", "--version"]).works() {
        let reason = "no miri; try `rustup toolchain install nightly` and `rustup +nightly component add miri rust-src`";
        return Ok(Outcome::not_run(reason));
    }
    let mut all = Tests::default();
    for subject in SUBJECTS {
        // The engine sleeps on descriptors and reads the clock.
        let run = nightly().args(["miri", "test"]).args(subject).env("MIRIFLAGS", "-Zmiri-disable-isolation");
        // Interpreted, the default of 256 random cases a property takes too long.
        let run = run.env("PROPTEST_CASES", "8");
        let tests = Tests::of(run).map_err(|message| format!("{}: {message}", subject.join(" ")))?;
        all = all.and(tests);
    }
    Ok(Outcome::passed(all.words()))
}
