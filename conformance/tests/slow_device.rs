//! Disconnecting over RDMA devices of any speed: the stand-in for libibverbs gives flushed work back after a given delay
//! to. What an endpoint shows at once may not depend on that.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Clauses of `dat_ep_disconnect`, `dat_ep_reset` and of what a failed connect flushes or brings, and of connections that break.
const CLAUSES: [&str; 15] = [
    "C-068", "C-099", "C-10", "C-11", "C-12", "C-13", "C-196", "C-229", "C-271", "C-285", "C-290", "C-306",
    "C-374", "C-375", "C-376",
];

/// How long the device keeps flushed work, in milliseconds. The last one is longer than the provider waits.
const DELAYS: [u32; 3] = [0, 50, 1000];

#[test]
fn disconnect_is_the_same_however_slow_the_device_is() {
    let plugin = built("dat-ibverbs", "libdat_ibverbs.so");
    let double = built("dat-verbs-double", "libdat_verbs_double.so");
    let folder = tempfile::tempdir().expect("a folder for the stand-in");
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        std::os::unix::fs::symlink(&double, folder.path().join(name)).expect("a link to the stand-in");
    }
    for delay in DELAYS {
        run(&plugin, folder.path(), delay);
    }
}

fn run(plugin: &Path, libraries: &Path, delay: u32) {
    let json = libraries.join(format!("{delay}.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat-conformance"));
    command
        .args(["--name", "ibverbs0", "--one-process", "--param", "address=127.0.0.1", "--plugin"])
        .arg(plugin);
    command.args(CLAUSES.iter().flat_map(|clause| ["--filter", clause]));
    command.arg("--json").arg(&json);
    command.env("LD_LIBRARY_PATH", libraries).env("DAT_FAKE_VERBS_FLUSH_MS", delay.to_string());
    let output = command.output().expect("the runner starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "a device that flushes after {delay} ms:\n{text}{errors}");
    let report = std::fs::read_to_string(&json).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("the report is JSON");
    let ran = report["ran"].as_u64().unwrap_or(0);
    assert!(ran >= 29, "only {ran} clauses ran:\n{text}");
    println!("flush after {delay} ms: {} of {ran} clauses pass", report["passed"]);
}

/// A library of the workspace, as cargo builds it now.
fn built(package: &str, file: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", package, "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{package} does not build:\n{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .flat_map(|message| message["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|name| name.as_str().map(PathBuf::from))
        .find(|name| name.ends_with(file));
    path.unwrap_or_else(|| panic!("cargo built {package} but named no {file}"))
}
