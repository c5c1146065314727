//! The shm ring under loom: its synchronisation in the interleavings of small cases.

use crate::cargo::{Tests, cargo, target_dir};
use crate::leg::{Outcome, Report};

/// Runs the models; own target directory, since the flag changes every crate.
pub fn run() -> Report {
    let run = cargo()
        .args(["test", "-p", "dat-shm", "--lib", "ring::"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", target_dir()?.join("loom"));
    Tests::of(run).map(|tests| Outcome::passed(tests.words()))
}
