//! Models under loom: the shm ring and the lock of the data path, their synchronisation in the interleavings of small
//! cases.

use crate::cargo::{cargo, target_dir};
use crate::libtest::Tests;
use crate::report::Report;

/// Runs the models; own target directory, since the flag changes every crate.
pub fn run() -> Report {
    let mut words = Vec::new();
    for (package, which) in [("dat-shm", &["--lib", "data::ring::"][..]), ("dat-sync", &["--lib"])] {
        let run = cargo()
            .args(["test", "-p", package])
            .args(which)
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", target_dir()?.join("loom"));
        words.push(Tests::of(run)?.words());
    }
    Ok(words.join("; "))
}
