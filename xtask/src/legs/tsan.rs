//! Data races: the engine and the loopback provider under ThreadSanitizer.

use std::path::Path;

use crate::cargo::{Tests, nightly, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;

/// The one target the sanitizer is used on.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Runs the tests that use threads. The standard library is built along: without its instrumentation the sanitizer
/// takes the test harness's own channels and reference counts for races.
pub fn run() -> Report {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Ok(Outcome::not_run(format!("only on {TARGET}")));
    }
    if !has_standard_library_source() {
        let reason = "no nightly toolchain with the standard library's source; try `rustup toolchain install \
                      nightly` and `rustup component add --toolchain nightly rust-src`";
        return Ok(Outcome::not_run(reason));
    }
    let run = nightly()
        .args([
            "test",
            "-Zbuild-std",
            "--target",
            TARGET,
            "-p",
            "dat-engine",
            "-p",
            "dat-loopback",
            "--tests",
        ])
        .env("RUSTFLAGS", "-Zsanitizer=thread")
        .env("CARGO_TARGET_DIR", target_dir()?.join("tsan"));
    Tests::of(run).map(|tests| Outcome::passed(tests.words()))
}

fn has_standard_library_source() -> bool {
    let rustc = Run::new("rustc").without_env("RUSTUP_TOOLCHAIN").args(["+nightly", "--print", "sysroot"]);
    let sysroot = rustc.output().unwrap_or_default();
    Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/Cargo.toml").exists()
}
