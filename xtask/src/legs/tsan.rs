//! Data races: the engine and the loopback provider under ThreadSanitizer.

use crate::cargo::{Tests, nightly, target_dir};
use crate::leg::{Outcome, Report};

/// The one target the sanitizer is used on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests that use threads. The standard library is not instrumented, for which it would have to be built here.
pub fn run() -> Report {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Ok(Outcome::not_run(format!("only on {TARGET}")));
    }
    if !nightly().args(["--version"]).works() {
        return Ok(Outcome::not_run("no nightly toolchain; try `rustup toolchain install nightly`"));
    }
    let run = nightly()
        .args(["test", "--target", TARGET, "-p", "dat-engine", "-p", "dat-loopback", "--tests"])
        .env("RUSTFLAGS", "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer")
        .env("CARGO_TARGET_DIR", target_dir()?.join("tsan"));
    Tests::of(run).map(|tests| Outcome::passed(tests.words()))
}
