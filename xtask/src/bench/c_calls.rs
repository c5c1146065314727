//! What calls through the C library cost over the same calls in Rust.

use crate::cargo::{COUNTED, cargo, target_dir};
use crate::output;
use crate::process::Run;
use crate::report::Result;

/// What a C call costs over the Rust call, in nanoseconds.
pub fn overhead() -> Result<String> {
    let packages = ["-p", "dat-capi", "-p", "dat-loopback"];
    // Examples alone would be run with whichever library was built before.
    let build = cargo().args(["build", "--profile", COUNTED, "--lib", "--examples"]).args(packages);
    build.run()?;
    let program = target_dir()?.join(COUNTED).join("examples/overhead");
    let text = Run::new(&program.to_string_lossy()).args(["2000"]).output()?;
    output::stdout_line(&text);
    let more = |line: &str| {
        let mut words = line.split_whitespace();
        let call = words.next()?;
        let figures: Vec<f64> = words.filter_map(|word| word.parse().ok()).collect();
        let all_there = figures.len() == 3 && figures[0] > 0.0 && figures[1] > 0.0;
        all_there.then(|| format!("{call} {:+.1} ns", figures[2]))
    };
    let found: Vec<String> = text.lines().filter_map(more).collect();
    match found.len() {
        3 => Ok(found.join(", ")),
        count => Err(format!("{count} of 3 calls were measured: {text}").into()),
    }
}
