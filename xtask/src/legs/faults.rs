//! Our own providers with delays and reordering below the engine: nothing an application is promised may change. One seed, so
//! that a failure can be had again.

use std::ffi::OsString;

use fs_err as fs;

use super::authors::{conformance, dat};
use super::libfabric::ROWS;
use crate::cargo::build;
use crate::need;
use crate::report::{Parts, Report};

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
    let built = build("dev", &["dat-loopback", "dat-shm", "dat-cli"])?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("plugins.toml");
    let names = [("loopback0", "libdat_loopback.so"), ("shm0", "libdat_shm.so")];
    let entry = |(name, library)| {
        format!(
            "[provider.{name}]\nlibrary = {:?}\nlayers = [\"trace\", \"count\", {{ name = \"faults\", seed = 7, \
             delay_us = 300, reorder_one_in = 4 }}]\n",
            built.join(library)
        )
    };
    fs::write(&file, names.map(entry).concat())?;
    let mut all = Parts::default();
    for (name, _) in names {
        // Held back completions make everything slower, by a little; the bounds of the clauses are for fast providers.
        let arguments: [OsString; 5] =
            ["--plugins".into(), file.clone().into(), "--scale".into(), "2".into(), name.into()];
        all.add(name, conformance(&dat()?, &arguments));
    }
    all.report()
}

/// Some clauses over libfabric, with connected endpoints and with datagrams.
pub fn over_libfabric() -> Report {
    need::libfabric()?;
    let built = build("dev", &["dat-libfabric", "dat-cli"])?;
    let mut all = Parts::default();
    for row in &ROWS {
        let mut arguments = row.provider(&built);
        let options = [("--ia-name", row.name), ("--layer", LAYERS), ("--scale", "3")];
        let filters = SOME.iter().map(|clauses| ("--filter", *clauses));
        arguments.extend(options.into_iter().chain(filters).flat_map(|(o, v)| [o.to_owned(), v.to_owned()]));
        all.add(row.name, conformance(&dat()?, &arguments));
    }
    all.report()
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
