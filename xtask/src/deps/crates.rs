//! Which crate may depend on which: layers only look downwards. A dependency between the project's crates that is not in
//! the table is wrong, and so is a crate the table does not know.

use std::collections::BTreeSet;

use serde_json::Value;

/// Plugins that programs never link: a dev-dependency only has cargo build them for the tests that load them.
const PLUGINS: &[&str] = &["dat-loopback", "dat-shm"];

/// A crate, what it may depend on among ours, and what its tests may besides.
const ALLOWED: [(&str, &[&str], &[&str]); 26] = [
    ("dat-types", &[], &[]),
    ("dat-plugin", &[], &[]),
    ("dat-sync", &[], &[]),
    ("dat-engine", &["dat-types", "dat-plugin", "dat-sync"], &["dat-loopback"]),
    ("dat-registry", &["dat-types", "dat-plugin", "dat-layers", "dat-route"], &[]),
    ("dat", &["dat-sync", "dat-types", "dat-plugin", "dat-engine", "dat-registry"], PLUGINS),
    ("dat-kit", &["dat-plugin"], &[]),
    ("dat-layers", &["dat-plugin", "dat-kit"], &["dat-loopback"]),
    ("dat-loopback", &["dat-plugin", "dat-kit"], &[]),
    ("dat-route", &["dat-plugin", "dat-kit"], &["dat-loopback"]),
    ("dat-shm", &["dat-plugin", "dat-kit", "dat-sync"], &[]),
    ("rdma-sys", &[], &[]),
    ("dat-ibverbs", &["dat-plugin", "dat-kit", "dat-sync", "rdma-sys"], &[]),
    ("libfabric-sys", &[], &[]),
    ("dat-libfabric", &["dat-plugin", "dat-kit", "dat-sync", "libfabric-sys"], &[]),
    // The suite is a command of its own right: `dat conformance`.
    ("dat-capi", &["dat-sync", "dat-types", "dat-plugin", "dat-engine", "dat-registry"], PLUGINS),
    ("dat-cli", &["dat", "dat-conformance", "dat-measure"], &["dat-ibverbs", "dat-loopback", "dat-shm"]),
    ("dat-measure", &[], &[]),
    ("dat-examples", &["dat"], &["dat", "dat-loopback", "dat-shm"]),
    ("dat-process-tests", &["dat"], &["dat", "dat-loopback", "dat-shm"]),
    // It tests the engine and the plugin interface themselves, and has the loopback provider linked in.
    ("dat-conformance", &["dat-types", "dat-plugin", "dat-engine", "dat-registry", "dat-loopback"], PLUGINS),
    ("dat-differential", &["dat-types", "dat-plugin", "dat-engine", "dat-loopback"], PLUGINS),
    // It compares the provider called directly with the same one below the engine.
    (
        "dat-bench",
        &[
            "dat",
            "dat-types",
            "dat-plugin",
            "dat-engine",
            "dat-measure",
            "dat-shm",
            "rdma-sys",
            "libfabric-sys",
        ],
        &["dat-capi", "dat-kit", "dat-loopback", "dat-sync"],
    ),
    // They stand in for the libraries `rdma-sys` and `libfabric-sys` describe.
    ("dat-verbs-double", &["rdma-sys"], &[]),
    ("dat-fabric-double", &["libfabric-sys"], &[]),
    ("xtask", &["dat-measure"], &[]),
];

/// Plugins broken on purpose: what any third party's plugin has.
const TEST_PLUGIN: (&str, &[&str]) = ("dat-test-", &["dat-plugin"]);

/// External crates that one crate alone may name.
const CONFINED: [(&str, &str); 1] = [("abi_stable", "dat-plugin")];

/// Checks every edge. Returns how many there are, and which are wrong.
pub fn check(packages: &[Value]) -> (usize, Vec<String>) {
    let ours: BTreeSet<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let mut wrong = Vec::new();
    let mut edges = 0;
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some((normal, dev)) = allowed(name) else {
            wrong.push(format!(
                "{name} is not in the table of xtask/src/deps/crates.rs; add what it may depend on"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            edges += 1;
            if let Some((_, owner)) =
                CONFINED.iter().find(|(krate, owner)| *krate == target && *owner != name)
            {
                wrong.push(format!("{name} names {target}, which only {owner} may"));
            }
            let known = normal.contains(&target) || is_dev(dependency) && dev.contains(&target);
            if ours.contains(target) && !known {
                wrong.push(format!("{name} must not depend on {target}"));
            }
        }
    }
    (edges, wrong)
}

fn allowed(name: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    if name.starts_with(TEST_PLUGIN.0) {
        return Some((TEST_PLUGIN.1, &[]));
    }
    ALLOWED.iter().find(|(known, ..)| *known == name).map(|(_, normal, dev)| (*normal, *dev))
}

fn is_dev(dependency: &Value) -> bool {
    dependency["kind"].as_str() == Some("dev")
}
