//! The benchmark of the layers, for a moment: it must work and measure something; its figures are not judged here.

use serde_json::Value;

use crate::cargo::cargo;
use crate::leg::{Outcome, Report};

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
        true => Ok(Outcome::passed(format!("{} layers measured", rows.len()))),
        false => Err(format!("no time for some layer: {report}")),
    }
}
