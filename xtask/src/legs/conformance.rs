//! The clauses of the specification over the providers that need nothing of the machine.

use std::path::PathBuf;

use super::clauses::{clauses, expected, reports, runner};
use super::matrix;
use crate::cargo::build;
use crate::report::{Parts, Report, parts};

/// Builds the runner and runs the providers that need nothing of the machine; with `save` those of other legs too, and
/// keeps the matrix.
pub fn run(save: bool) -> Report {
    let built = build("dev", &["dat-conformance", "dat-shm"])?;
    let mut all = Parts::default();
    all.add("loopback0", clauses("loopback0", runner()?.args(["loopback"]).args(expected("loopback0"))));
    // Peers of a plugin are processes of their own, which load it as applications do.
    let plugin = [PathBuf::from("--plugin"), built.join("libdat_shm.so")];
    all.add("shm0", clauses("shm0", runner()?.args(plugin).args(expected("shm0"))));
    if save {
        // Takes minutes, and needs an emulated machine or a device; so only for the page that is kept.
        all.add(
            "other legs",
            parts([("libfabric", super::libfabric::run()), ("ibverbs", super::rdma::run())]),
        );
        matrix::run(true)?;
    }
    Ok(format!("{}; reports in {}", all.report()?, reports()?.display()))
}
