//! What third parties write: the template of a provider in Rust and the example in C, each from nothing to a passing
//! conformance run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::cargo::{build, cargo, target_dir};
use crate::process::Run;
use crate::report::{Report, Result};
use crate::root::{files_below, root};
use crate::{need, new_provider};

/// The commands an author types after `cargo xtask new-provider`.
pub fn template() -> Report {
    let dat = dat()?;
    let start = Instant::now();
    // Not under the target directory: outside of any workspace, as an author's would be.
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("fabric");
    new_provider::write("fabric", &path)?;
    let manifest = path.join("Cargo.toml");
    // Its own folder for what is built; what the workspace has built is of no use to another one.
    let target = target_dir()?.join("template");
    let cargo_in = |what: &str| {
        let run = cargo().args([what, "--offline", "--manifest-path"]).args([&manifest]);
        run.env("CARGO_TARGET_DIR", &target).run()
    };
    cargo_in("build")?;
    let plugin = target.join("debug/libdat_fabric.so");
    inspect(&dat, &plugin)?;
    let said = conformance(&dat, &[Path::new("--plugin"), &plugin])?;
    let took = start.elapsed();
    cargo_in("test")?;
    match took.as_secs() {
        // Of what is promised: ten minutes from nothing to the first passing run.
        0..600 => Ok(format!("{said}; from nothing in {} s", took.as_secs())),
        secs => Err(format!("it took {secs} s to the first passing run; 600 are promised").into()),
    }
}

/// The example in C, with each C compiler found, and a renamed copy of it, as an author begins.
pub fn provider_c() -> Report {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    need::programs(&[(&compiler, "gcc"), ("make", "make")])?;
    let dat = dat()?;
    let plugin = target_dir()?.join("libdat_example_c.so");
    compile_c(&compiler, &plugin)?;
    inspect(&dat, &plugin)?;
    let plain = conformance(&dat, &[Path::new("--plugin"), &plugin])?;
    let folder = tempfile::tempdir()?;
    let plugin = copy_of_c(folder.path())?;
    inspect(&dat, &plugin)?;
    let mut faults: Vec<&Path> =
        ["--scale", "2", "--layer", "count,faults:seed=7", "--plugin"].map(Path::new).into();
    faults.push(&plugin);
    let under = conformance(&dat, &faults)?;
    match under.starts_with("copied under ") {
        true => Ok(format!("{plain}; {under}")),
        false => Err(format!("the copy does not have its own name: {under}").into()),
    }
}

/// The commands an author types to begin from the example.
fn copy_of_c(folder: &Path) -> Result<PathBuf> {
    let root = root().canonicalize()?;
    let copy = folder.join("copied");
    Run::new("cp").args([Path::new("-r"), &root.join("examples/provider_c"), &copy]).run()?;
    // A library that was built in the tree before must not be used.
    Run::new("make").args([Path::new("-C"), &copy, Path::new("clean")]).run()?;
    let include = format!("INCLUDE={}", root.join("include").display());
    let make = Run::new("make").args([Path::new("-C"), &copy]);
    make.args(["NAME=copied", "VERSION=1.2.3", &include]).run()?;
    Ok(copy.join("libdat_copied.so"))
}

pub(super) fn compile_c(compiler: &str, plugin: &Path) -> Result<()> {
    let folder = root().join("examples/provider_c");
    let mut sources = files_below(&folder)?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "c"));
    let flags = "-std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -pedantic -fPIC -fvisibility=hidden -O2 -g -shared \
                 -Wl,-z,defs";
    Run::new(compiler)
        .args(flags.split_whitespace())
        .args([Path::new("-I"), &root().join("include"), Path::new("-o"), plugin])
        .args(&sources)
        .args(["-lpthread"])
        .run()
}

/// The command, built.
pub(super) fn dat() -> Result<PathBuf> {
    Ok(build("dev", &["dat-cli"])?.join("dat"))
}

pub(super) fn inspect(dat: &Path, plugin: &Path) -> Result<()> {
    Run::new(&dat.to_string_lossy()).args([Path::new("inspect"), Path::new("--try"), plugin]).run()
}

/// Runs the suite; its own last line but one, which counts. A run that did nothing is none.
pub(super) fn conformance<S: AsRef<OsStr>>(dat: &Path, arguments: &[S]) -> Report {
    let mut counts = String::new();
    let run = Run::new(&dat.to_string_lossy()).args(["conformance"]).args(arguments);
    run.lines(|line| {
        if line.contains(" clauses ") {
            counts = line.to_owned();
        }
    })?;
    Ok(counted(&counts).ok_or(format!("the suite did not print how many clauses passed: {counts:?}"))?)
}

/// The counts of a run, out of the line that has them; none of a run that did nothing.
pub(super) fn counted(line: &str) -> Option<String> {
    let did = line.contains(" clauses ") && line.contains(" passed ") && !line.contains(" passed 0 ");
    did.then(|| line.split_whitespace().collect::<Vec<_>>().join(" "))
}
