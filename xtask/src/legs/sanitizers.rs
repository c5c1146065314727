//! The tests that use threads and memory of other processes, under ThreadSanitizer and AddressSanitizer.

use super::setup::has_nightly;
use crate::cargo::{Tests, nightly, target_dir};
use crate::leg::{Outcome, Report};

/// The one target with both sanitizers.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Data races. The standard library is built too: without its instrumentation the sanitizer takes the test harness's
/// own channels and reference counts for races.
pub fn thread() -> Report {
    match has_nightly("rust-src") {
        true => run("thread", &["dat-engine", "dat-loopback"], &["-Zbuild-std"]),
        false => Ok(Outcome::not_run(
            "the nightly toolchain has no source of the standard library; `rustup toolchain install nightly` and \
             `rustup component add --toolchain nightly rust-src`",
        )),
    }
}

/// Memory errors and leaks.
pub fn address() -> Report {
    run("address", &["dat-sync", "dat-kit", "dat-loopback", "dat-engine", "dat-shm"], &[])
}

fn run(sanitizer: &str, packages: &[&str], more: &[&str]) -> Report {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Ok(Outcome::not_run(format!("only on {TARGET}")));
    }
    if !nightly().args(["--version"]).works() {
        return Ok(Outcome::not_run("there is no nightly toolchain; `rustup toolchain install nightly`"));
    }
    let run = nightly()
        .args(["test", "--target", TARGET, "--tests"])
        .args(more)
        .args(packages.iter().flat_map(|package| ["-p", package]))
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        // Memory that a device may still write is kept for ever, on purpose.
        .env("ASAN_OPTIONS", "detect_leaks=0")
        .env("CARGO_TARGET_DIR", target_dir()?.join(format!("sanitizer-{sanitizer}")));
    Tests::of(run).map(|tests| Outcome::passed(tests.words()))
}
