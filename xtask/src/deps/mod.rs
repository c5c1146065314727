//! `cargo xtask deps`: what may depend on what, between crates and between the modules of a crate, and how long a file
//! may be.

mod crates;
mod modules;
mod resolve;
mod source;

use std::path::Path;

use fs_err as fs;

use crate::cargo::metadata;
use crate::report::{Report, Result};
use crate::root::{files_below, root};

/// Lines of a source file, at most.
const LONGEST: usize = 500;

/// Files that are a table, which may be longer.
const TABLES: [&str; 1] = ["providers/rdma-sys/src/verbs.rs"];

/// Checks the crates, the modules inside each, and their files.
pub fn run() -> Report {
    let metadata = metadata()?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let (edges, mut wrong) = crates::check(packages);
    let (files, circles) = modules::check(packages)?;
    wrong.extend(circles);
    for package in packages {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        wrong.extend(too_long(manifest.parent().unwrap_or(manifest))?);
    }
    match wrong.is_empty() {
        true => Ok(format!(
            "{} crates, {edges} dependencies; {files} files, no circles, none above {LONGEST} lines but tables",
            packages.len()
        )),
        false => Err(wrong.join("; ").into()),
    }
}

/// The sources of a package that are too long.
fn too_long(package: &Path) -> Result<Vec<String>> {
    let tree = fs::canonicalize(root())?;
    let mut found = Vec::new();
    for folder in ["src", "tests", "benches", "examples"].map(|name| package.join(name)) {
        for file in files_below(&folder)? {
            let shown = file.strip_prefix(&tree).unwrap_or(&file).display().to_string();
            if shown.ends_with(".rs") && !TABLES.contains(&shown.as_str()) {
                let lines = fs::read_to_string(&file)?.lines().count();
                found.extend((lines > LONGEST).then(|| format!("{shown} has {lines} lines")));
            }
        }
    }
    Ok(found)
}
