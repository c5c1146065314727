//! The benchmarks, for a moment each: they must work, their figures are not judged here.

use crate::cargo::metadata;
use crate::leg::{Outcome, Report};

/// Runs every benchmark binary briefly.
pub fn run() -> Report {
    let _ = metadata()?;
    Ok(Outcome::not_run("tests/bench has no benchmark yet"))
}
