//! The tests that use threads and memory of other processes, under ThreadSanitizer and AddressSanitizer.

use crate::cargo::{nightly, target_dir};
use crate::libtest::Tests;
use crate::need::{self, TARGET};
use crate::report::Report;

/// Data races. The standard library is built too: without its instrumentation the sanitizer takes the test harness's
/// own channels and reference counts for races.
pub fn thread() -> Report {
    need::nightly_with(&["rust-src"])?;
    run("thread", &["dat-engine", "dat-loopback"], &["-Zbuild-std"])
}

/// Memory errors and leaks.
pub fn address() -> Report {
    need::nightly_with(&[])?;
    run("address", &["dat-sync", "dat-kit", "dat-loopback", "dat-engine", "dat-shm"], &[])
}

fn run(sanitizer: &str, packages: &[&str], more: &[&str]) -> Report {
    need::x86_linux()?;
    let run = nightly()
        .args(["test", "--target", TARGET, "--tests"])
        .args(more)
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        // Memory that a device may still write is kept for ever, on purpose.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("CARGO_TARGET_DIR", target_dir()?.join(format!("sanitizer-{sanitizer}")));
    Ok(Tests::of(run)?.words())
}
