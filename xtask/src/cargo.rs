//! Running cargo and the tests it builds.

use std::path::PathBuf;
use std::sync::OnceLock;

use fs_err as fs;
use serde_json::Value;

use crate::process::Run;
use crate::report::Result;

/// Seconds for what builds: everything, on a slow machine that has built nothing yet and does other things meanwhile.
const BUILD: u64 = 2400;

/// The profile of builds whose instructions are counted.
pub const COUNTED: &str = "counted";

/// The cargo that runs this program.
pub fn cargo() -> Run {
    Run::new(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())).deadline(BUILD)
}

/// The nightly cargo, by way of rustup.
pub fn nightly() -> Run {
    // Set by the stable cargo for its children; they would steer the nightly one wrong.
    ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(Run::new("cargo"), Run::without_env)
        .args(["+nightly"])
        .deadline(BUILD)
}

/// Builds packages with a profile; gives the folder with what was built.
pub fn build(profile: &str, packages: &[&str]) -> Result<PathBuf> {
    let packages = packages.iter().flat_map(|package| ["-p", package]);
    cargo().args(["build", "--profile", profile]).args(packages).run()?;
    Ok(target_dir()?.join(if profile == "dev" { "debug" } else { profile }))
}

/// The output of `cargo metadata` for the workspace's own crates.
pub fn metadata() -> Result<Value> {
    let text = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    Ok(serde_json::from_str(&text)?)
}

/// The target directory in use.
pub fn target_dir() -> Result<PathBuf> {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found.clone());
    }
    let metadata = metadata()?;
    let found = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(FOUND.get_or_init(|| PathBuf::from(found)).clone())
}

/// A folder below the target directory, made if it is not there.
pub fn target_folder(name: &str) -> Result<PathBuf> {
    let folder = target_dir()?.join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let ended = Run::new("sh").args(["-c", "sleep 1000 & wait"]).deadline(0).run();
        assert!(ended.is_err_and(|stop| stop.words().contains("not finished")));
    }
}
