//! Our own providers with delays and reordering below the engine: nothing an application is promised may change. One seed, so
//! that a failure can be had again.

use std::fs;
use std::path::{Path, PathBuf};

use super::authors::{conformance, dat};
use super::libfabric::{ROWS, missing};
use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};

/// Where it takes minutes to run all: clauses of connecting and its data, of disconnecting with work outstanding, of
/// events, transfers, memory, windows and atomic operations. `tests/vm/rdma.sh` has the same.
const SOME: &[&str] = &[
    "C-04", "C-05", "C-10", "C-11", "C-24", "C-25", "C-26", "C-27", "C-28", "C-29", "C-30", "C-31", "C-36",
    "P-00",
];
/// The layers, as `--layer` takes them.
const LAYERS: &str = "trace,count,faults:seed=7,delay_us=300,reorder_one_in=4";

/// All clauses over the providers that need nothing of the machine, with layers named in a configuration.
pub fn run() -> Report {
    cargo().args(["build", "-p", "dat-loopback", "-p", "dat-shm"]).run()?;
    let dat = dat()?;
    let built = target_dir()?.join("debug");
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("plugins.toml");
    let mut text = String::new();
    let names = [("loopback0", "libdat_loopback.so"), ("shm0", "libdat_shm.so")];
    for (name, library) in names {
        let library = built.join(library);
        text.push_str(&format!(
            "[provider.{name}]\nlibrary = {:?}\nlayers = [\"trace\", \"count\", {{ name = \"faults\", seed = 7, \
             delay_us = 300, reorder_one_in = 4 }}]\n",
            library.display().to_string()
        ));
    }
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut said = Vec::new();
    for (name, _) in names {
        // Held back completions make everything slower, by a little; the bounds of the clauses are for fast providers.
        let arguments: [&Path; 5] =
            ["--plugins".as_ref(), &file, "--scale".as_ref(), "2".as_ref(), name.as_ref()];
        said.push(conformance(&dat, &arguments)?);
    }
    Ok(Outcome::passed(said.join("; ")))
}

/// Some clauses over libfabric, with connected endpoints and with datagrams.
pub fn over_libfabric() -> Report {
    if let Some(why) = missing() {
        return Ok(Outcome::not_run(why));
    }
    cargo().args(["build", "-p", "dat-libfabric"]).run()?;
    let dat = dat()?;
    let library = target_dir()?.join("debug/libdat_libfabric.so");
    let mut said = Vec::new();
    for row in &ROWS {
        let mut arguments: Vec<PathBuf> = vec!["--plugin".into(), library.clone()];
        let mut say = |option: &str, value: &str| arguments.extend([option.into(), value.into()]);
        row.params.iter().for_each(|param| say("--param", param));
        say("--ia-name", row.name);
        say("--layer", LAYERS);
        say("--scale", "3");
        SOME.iter().for_each(|clauses| say("--filter", clauses));
        let arguments: Vec<&Path> = arguments.iter().map(PathBuf::as_path).collect();
        said.push(conformance(&dat, &arguments)?);
    }
    Ok(Outcome::passed(said.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_emulated_machine_runs_the_same() {
        let script = crate::root::root().join("tests/vm/rdma.sh");
        let script = fs::read_to_string(&script).expect("there");
        assert!(script.contains(&format!("--layer {LAYERS}")), "{LAYERS}");
        assert!(script.contains(&format!("in {};", SOME.join(" "))), "{SOME:?}");
    }
}
