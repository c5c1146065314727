//! What the library exports: the functions of the reviewed list, in the version node programs ask for, and nothing else
//! but the door for other registries.

mod support;

use std::collections::BTreeSet;
use std::process::Command;

/// What a registry that loads this library looks for; without a version, as in every provider library.
const DOOR: [&str; 3] = ["dapl_extensions", "dat_provider_fini", "dat_provider_init"];

fn lines(program: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; install binutils"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

/// Names of defined functions, with their version.
fn exported(library: &std::path::Path) -> BTreeSet<String> {
    let library = library.display().to_string();
    let symbols = lines("nm", &["-D", "--defined-only", &library]);
    let functions = symbols.iter().filter_map(|line| line.split_once(" T ").map(|(_, name)| name.to_owned()));
    functions.collect()
}

fn reviewed() -> BTreeSet<String> {
    let map = include_str!("../exports.map");
    map.lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("dat"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn exactly_the_reviewed_list_is_exported() {
    let wanted: BTreeSet<String> =
        reviewed().iter().map(|name| format!("{name}@@DAT_2.0")).chain(DOOR.map(str::to_owned)).collect();
    assert_eq!(exported(&support::library()), wanted);
}

#[test]
fn the_reviewed_list_is_what_the_systems_library_has() {
    let Some(systems) = support::system_library() else { return };
    let theirs = exported(&systems);
    let ours: BTreeSet<String> = reviewed().iter().map(|name| format!("{name}@@DAT_2.0")).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn programs_find_it_by_the_name_they_were_linked_with() {
    let library = support::library().display().to_string();
    let dynamic = lines("readelf", &["-d", "-W", &library]);
    assert!(
        dynamic.iter().any(|line| line.contains("SONAME") && line.contains("[libdat2.so.2]")),
        "{dynamic:#?}"
    );
}

#[test]
fn it_stays_loaded_when_a_program_closes_it() {
    let library = support::library().display().to_string();
    let dynamic = lines("readelf", &["-d", "-W", &library]);
    assert!(dynamic.iter().any(|line| line.contains("FLAGS_1") && line.contains("NODELETE")), "{dynamic:#?}");
}
