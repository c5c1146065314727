//! A run of the conformance suite over one provider: a row of the matrix.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::matrix;
use crate::cargo::{target_dir, target_folder};
use crate::process::Run;
use crate::report::{Report, Result};
use crate::root::root;

/// The suite's own program, which must be built.
pub(super) fn runner() -> Result<Run> {
    Ok(Run::new(&target_dir()?.join("debug/dat-conformance").to_string_lossy()))
}

/// Where the reports are.
pub(super) fn reports() -> Result<PathBuf> {
    target_folder("conformance")
}

/// The option that names the failures expected of a row, if there are some.
pub(super) fn expected(row: &str) -> Vec<PathBuf> {
    let list = root().join(format!("conformance/expected/{}.toml", file(row)));
    if list.exists() { vec!["--expected".into(), list] } else { Vec::new() }
}

/// Runs the suite over the provider that the arguments name, and leaves the report of the row `name`.
pub(super) fn clauses(name: &str, run: Run) -> Report {
    let json = reports()?.join(file(name) + ".json");
    // What an earlier run left must not be taken for the result of this one.
    let _ = fs::remove_file(&json);
    let junit = json.with_extension("junit.xml");
    let ended = run.args(["--name", name, "--json"]).args([&json]).args(["--junit".into(), junit]).run();
    let counts = counts(&json)?;
    ended?;
    Ok(format!("{name} {counts}"))
}

/// Passed and run, of a report. A run of nothing proves nothing.
pub(super) fn counts(json: &Path) -> Report {
    let report = matrix::read(json)?;
    match report["ran"].as_u64() {
        None | Some(0) => fail!("no clause ran"),
        Some(ran) => Ok(format!("{}/{ran}", report["passed"])),
    }
}

/// A row's name as that of a file.
fn file(name: &str) -> String {
    name.replace(", ", "-").replace(['/', ' '], "-")
}
