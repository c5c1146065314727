//! Compared with the system's own library, where that can be done without a device.

mod support;

use support::{Kit, finish, library, system_library};

/// Not asked: the first needs no handle, the others read a registry that differs.
const NOT_ASKED: [&str; 5] = [
    "dat_strerror",
    "dat_ia_openv",
    "dat_registry_list_providers",
    "dat_registry_add_provider",
    "dat_registry_remove_provider",
];

#[test]
fn null_handles_are_answered_with_the_same_codes() {
    let kit = Kit::new();
    let Some(systems) = system_library() else { return };
    let program = kit.build("nulls");
    let names: Vec<&str> = include_str!("../exports.map")
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("dat") && !NOT_ASKED.contains(name))
        .collect();
    assert!(names.len() > 60);
    let ask = |library: &std::path::Path| {
        let mut command = kit.command(&program);
        command.env_remove("LD_LIBRARY_PATH").arg(library).args(&names);
        let (status, output) = finish(&mut command);
        assert_eq!(status, Some(0), "{output}");
        output
    };
    let (ours, theirs) = (ask(&library()), ask(&systems));
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs, "ours, then the system's");
    }
    assert_eq!(ours.lines().count(), names.len());
}

#[test]
fn the_systems_library_loads_this_one_as_a_provider() {
    let kit = Kit::new();
    let Some(_) = system_library() else { return };
    // Ours by the link in the kit: a path in that library's dat.conf ends at a space, and there may be one in the path of
    // what is built.
    let ours = kit.path().join("libdat2.so.2").display().to_string();
    if ours.contains(' ') {
        println!(
            "NOT RUN: the_systems_library_loads_this_one_as_a_provider: {ours:?} has a space, which dat.conf cannot name"
        );
        return;
    }
    let program = kit.build("transfer");
    let lines: String = ["loopback0", "shm0"]
        .map(|name| format!("{name} u2.0 nonthreadsafe default {ours} dapl.2.0 \"{name}\" \"\"\n"))
        .concat();
    let file = kit.path().join("dat.conf");
    std::fs::write(&file, lines).expect("written");
    for ia in ["loopback0", "shm0"] {
        let mut command = kit.command(&program);
        // The one in the kit is ours; without the path the system's is found.
        command.env_remove("LD_LIBRARY_PATH").env("DAT_OVERRIDE", &file).arg(ia);
        let (status, output) = finish(&mut command);
        assert_eq!(status, Some(0), "{ia}: {output}");
    }
}
