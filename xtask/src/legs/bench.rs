//! The benchmarks of the layers and of C calls over Rust calls, for a moment: they must work and measure something; their
//! figures are shown, not judged.

use serde_json::Value;

use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::output;
use crate::process::Run;

/// Runs it for a few rounds and looks at its report.
pub fn run() -> Report {
    let build = cargo().args(["build", "--release", "-p", "dat-bench", "-p", "dat-shm"]);
    build.deadline(1200).run()?;
    let run =
        cargo().args(["run", "--quiet", "--release", "-p", "dat-bench", "--", "--rounds", "100", "--json"]);
    let text = run.output()?;
    let report: Value =
        serde_json::from_str(&text).map_err(|error| format!("it printed no JSON: {error}"))?;
    let rows = report["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let measured = |row: &Value| {
        let ns = row["ns"].as_array().map_or(&[][..], Vec::as_slice);
        !ns.is_empty() && ns.iter().all(|ns| ns.as_f64().is_some_and(|ns| ns > 0.0))
    };
    match !rows.is_empty() && rows.iter().all(measured) {
        true => Ok(Outcome::passed(format!("{} layers measured; C over Rust: {}", rows.len(), overhead()?))),
        false => Err(format!("no time for some layer: {report}")),
    }
}

/// What a C call costs over the Rust call, in nanoseconds.
fn overhead() -> Result<String, String> {
    let packages = ["-p", "dat-capi", "-p", "dat-loopback"];
    cargo().args(["build", "--release", "--examples"]).args(packages).deadline(1200).run()?;
    let program = target_dir()?.join("release/examples/overhead");
    let text = Run::new(&program.to_string_lossy()).args(["2000"]).output()?;
    output::line(&text);
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
        count => Err(format!("{count} of 3 calls were measured: {text}")),
    }
}
