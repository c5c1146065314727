//! What the command says of RDMA on a machine that lacks something for it; the other providers work there as anywhere.

mod support;

use std::fs;

use serde_json::Value;
use support::{Done, start_with};

/// A provider's row of `dat providers --json`.
fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["providers"].as_array().expect("a list");
    rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

fn reason(report: &Value) -> &str {
    row(report, "ibverbs0")["reason"].as_str().expect("a sentence")
}

#[test]
fn a_missing_library_is_named_and_the_others_are_unaffected() {
    // A file that the dynamic linker refuses takes the library's place: so it is also where the library is installed.
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("libibverbs.so.1"), "").expect("an empty file");
    let path = folder.path().to_str().expect("plain letters");
    let dat = |arguments: &[&str]| -> Done { start_with(arguments, &[("LD_LIBRARY_PATH", path)]).end() };
    let said = |text: &str| {
        let named = text.contains("libibverbs.so.1 cannot be loaded") && text.contains("file too short");
        named && text.contains("install libibverbs1 and ibverbs-providers")
    };

    let report = dat(&["providers", "--json"]).ok().json();
    assert_eq!(row(&report, "ibverbs0")["state"], "loadable", "{report:#}");
    assert!(said(reason(&report)), "{report:#}");
    for other in ["shm0", "loopback0"] {
        assert_eq!(row(&report, other)["state"], "usable", "{report:#}");
    }
    let explained = dat(&["explain", "ibverbs0"]).failed();
    assert!(said(&explained.out), "{}", explained.out);
}

#[test]
fn a_machine_without_a_device_is_told_how_to_get_one() {
    if fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()) {
        println!("NOT RUN: this machine has an RDMA device");
        return;
    }
    let report = start_with(&["providers", "--json"], &[]).end().ok().json();
    if reason(&report).contains("cannot be loaded") {
        println!("NOT RUN: this machine has no libibverbs or no librdmacm: {}", reason(&report));
        return;
    }
    assert_eq!(row(&report, "ibverbs0")["state"], "loadable", "{report:#}");
    let precise = reason(&report).contains("/sys/class/infiniband is empty")
        && reason(&report).contains("rdma link add");
    assert!(precise, "{report:#}");
    assert_eq!(row(&report, "shm0")["state"], "usable", "{report:#}");
}
