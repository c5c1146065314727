//! The headers of `include/dat2`: they compile alone in every standard, and declare what Debian's declare.

#[path = "../support/mod.rs"]
mod support;

mod declarations;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use declarations::{Declarations, INCLUDES, compile};

/// No libdat2 exports these functions; a program that names one does not link.
const NOT_EXPORTED: &str = "exported by no libdat2: the macro of dat_registry.h makes the call";
/// The macro's own text is no C.
const CANNOT_BE_USED: &str = "Debian's expands to what is not declared";

/// What Debian's headers declare and ours do not, and why.
const LEFT_OUT: [(&str, &str); 11] = [
    ("dat_cno_fd_create", NOT_EXPORTED),
    ("dat_cno_trigger", NOT_EXPORTED),
    ("dat_csp_create", NOT_EXPORTED),
    ("dat_csp_free", NOT_EXPORTED),
    ("dat_csp_query", NOT_EXPORTED),
    ("dat_ep_common_connect", NOT_EXPORTED),
    ("dat_ep_post_rdma_read_to_rmr", NOT_EXPORTED),
    ("dat_ep_post_send_with_invalidate", NOT_EXPORTED),
    ("dat_registry_providers_related", "exported by no libdat2"),
    ("dat_rmr_create_for_ep", NOT_EXPORTED),
    ("DAT_IA_FIELD_IA_MAX_DTO_PER_OP", CANNOT_BE_USED),
];

/// What ours declare besides, and why.
const ADDED: [(&str, &str); 2] = [
    ("DAT_THROUGH_TABLE", "what the macros of udat_redirection.h have in common"),
    ("DAT_IB_CONTEXT", "a cast without a warning, for the macros of extensions"),
];

/// Macros of Debian's that are wrong and right in ours.
const MENDED: [(&str, &str); 6] = [
    ("DAT_IA_HA_RELATED", "Debian's has no parameters, and names a slot that the table has not"),
    ("dat_ib_collective_alltoallv", "Debian's leaves a parameter out and names another that is not there"),
    ("dat_ib_collective_read_clock", "Debian's has one parenthesis too many"),
    ("dat_ib_collective_set_clock", "Debian's reads the clock, and misspells a parameter"),
    ("dat_ib_start_counter", "Debian's names a type that does not exist"),
    ("dat_ib_stop_counter", "Debian's names a type that does not exist"),
];

/// Members whose type differs, and why. Size and offset do not.
const OTHER_TYPES: [(&str, &str); 1] = [(
    "struct dat_provider_attr evd_stream_merging_supported",
    "not const: C++ could not make an object of the structure",
)];

const STANDARDS: [(&str, &str, &str); 8] = [
    ("cc", "c", "c89"),
    ("cc", "c", "gnu89"),
    ("cc", "c", "c99"),
    ("cc", "c", "c11"),
    ("cc", "c", "c17"),
    ("c++", "c++", "c++11"),
    ("c++", "c++", "c++17"),
    ("c++", "c++", "c++20"),
];

/// Files of ours that a program may include, in any order and alone.
fn files() -> Vec<String> {
    let folder = support::headers().join("dat2");
    let names =
        std::fs::read_dir(folder).expect("our headers").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    // Parts of dat_ib_extensions.h.
    names.retain(|name| !["dat_ib_collectives.h", "dat_ib_counters.h"].contains(&name.as_str()));
    names.sort();
    names
}

/// Compiles with all warnings as errors. Nothing of another dat2 may be found on the way.
fn alone(folder: &Path, (compiler, language, standard): (&str, &str, &str), source: &str, what: &str) {
    let file = folder.join("alone.c");
    std::fs::write(&file, source).expect("written");
    let ran = Command::new(compiler)
        .args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-pedantic", "-Werror"])
        .args(["-H", "-fsyntax-only", "-I"])
        .arg(support::headers())
        .arg(&file)
        .output()
        .unwrap_or_else(|error| panic!("{compiler}: {error}; install gcc and g++"));
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{what}, {standard}:\n{said}");
    let foreign = said.lines().find(|line| line.contains("/dat2/") && !line.contains("api/capi/include"));
    assert!(foreign.is_none(), "{what}, {standard}: {foreign:?}");
}

#[test]
fn each_file_compiles_alone_in_every_standard() {
    let folder = tempfile::tempdir().expect("a folder");
    for standard in STANDARDS {
        if !support::works(standard.0) {
            println!("NOT RUN: headers in {}: no such compiler", standard.2);
            continue;
        }
        for name in files() {
            alone(
                folder.path(),
                standard,
                &format!("#include <dat2/{name}>\nint main(void) {{ return 0; }}\n"),
                &name,
            );
        }
    }
}

#[test]
fn every_macro_compiles_in_every_standard() {
    let folder = tempfile::tempdir().expect("a folder");
    let source = include_str!("../c/macros.c");
    for standard in STANDARDS.iter().filter(|(compiler, ..)| support::works(compiler)) {
        alone(folder.path(), *standard, source, "macros.c");
    }
    let ours = Declarations::read(folder.path(), Some(&support::headers()));
    let used = |name: &str| source.contains(&format!("{name}("));
    // The collectives are one cast beside the other; their texts are compared with Debian's.
    let missing: Vec<&String> = ours
        .macros
        .iter()
        .filter(|(name, parameters)| parameters.is_some() && !name.contains("collective") && !used(name))
        .map(|(name, _)| name)
        .collect();
    assert!(missing.is_empty(), "macros.c does not use {missing:?}");
}

#[test]
fn debians_headers_declare_the_same() {
    if !support::there("/usr/include/dat2/udat.h", "Debian's headers (libdapl-dev)") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (path, headers) = (support::headers(), None);
    let ours = Declarations::read(folder, Some(&path));
    let theirs = Declarations::read(folder, headers);
    assert!(theirs.enumerators.len() > 400 && theirs.functions.len() > 80, "Debian's headers were not read");
    names(&ours, &theirs);
    types(folder, &path, &ours, &theirs);
    let written_otherwise = macros(folder, &path, &ours, &theirs);
    let source = numbers(&theirs, &written_otherwise);
    let [one, other] = [Some(path.as_path()), headers].map(|headers| {
        compile(folder, headers, &source, &["-std=gnu11", "-o", "numbers"])
            .unwrap_or_else(|said| panic!("{said}"));
        let ran = Command::new(folder.join("numbers")).output().expect("runs");
        String::from_utf8(ran.stdout).expect("text")
    });
    let wrong: Vec<String> = one
        .lines()
        .zip(other.lines())
        .filter(|(ours, theirs)| ours != theirs)
        .map(|(ours, theirs)| format!("ours: {ours}; Debian's: {theirs}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count = one.lines().count();
    assert!(count == other.lines().count() && count > 1000, "{count} numbers");
    println!("{} names, {count} numbers", theirs.names().len());
}

/// Both declare the same names, but for the lists above.
fn names(ours: &Declarations, theirs: &Declarations) {
    let [ours, theirs] =
        [ours, theirs].map(|all| all.names().into_iter().map(String::as_str).collect::<BTreeSet<_>>());
    let listed = |list: &[(&'static str, &str)]| list.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>();
    assert_eq!(theirs.difference(&ours).copied().collect::<BTreeSet<_>>(), listed(&LEFT_OUT), "left out");
    assert_eq!(ours.difference(&theirs).copied().collect::<BTreeSet<_>>(), listed(&ADDED), "added");
}

/// Members have the same order and types. Debian's prototypes and simple types are declared again after ours: a compiler
/// takes that only when they are the same.
fn types(folder: &Path, headers: &Path, ours: &Declarations, theirs: &Declarations) {
    let mut differ = BTreeSet::new();
    for (tag, members) in &theirs.composites {
        let (same, other) = (&ours.composites[tag], members);
        let paths = |all: &[(String, String)]| all.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        assert_eq!(paths(same), paths(other), "{tag}");
        let both = same.iter().zip(other);
        differ.extend(
            both.filter(|((_, one), (_, two))| one != two).map(|((path, _), _)| format!("{tag} {path}")),
        );
    }
    assert_eq!(differ, OTHER_TYPES.iter().map(|(name, _)| (*name).to_owned()).collect());
    let mut source = INCLUDES.to_owned();
    let left_out = |name: &str| LEFT_OUT.iter().any(|(each, _)| *each == name);
    for (name, text) in &theirs.functions {
        if !left_out(name) {
            let _ = writeln!(source, "{text};");
        }
    }
    theirs.types.values().flatten().for_each(|text| source += &format!("{text};\n"));
    compile(folder, Some(headers), &source, &["-std=gnu11", "-fsyntax-only"])
        .unwrap_or_else(|said| panic!("{said}"));
}

/// Macros have the same parameters and expand to the same. Returns those that are written in another way and must be the
/// same number.
fn macros(folder: &Path, headers: &Path, ours: &Declarations, theirs: &Declarations) -> Vec<String> {
    let [one, other] =
        [(ours, Some(headers)), (theirs, None)].map(|(all, headers)| all.expansions(folder, headers));
    let (mut differ, mut numbers) = (BTreeSet::new(), Vec::new());
    for (name, parameters) in &theirs.macros {
        match ours.macros.get(name) {
            Some(same) if same == parameters && one[name] == other[name] => {}
            Some(None) if parameters.is_none() => numbers.push(name.clone()),
            Some(_) => drop(differ.insert(name.as_str())),
            None => {}
        }
    }
    assert_eq!(differ, MENDED.iter().map(|(name, _)| *name).collect(), "found, then listed");
    numbers
}

/// A program that prints each value, size and offset.
fn numbers(all: &Declarations, macros: &[String]) -> String {
    let mut source = format!("{INCLUDES}int main(void) {{\n");
    let mut print = |what: &str| {
        let _ = writeln!(source, "    printf(\"%s = %llu\\n\", \"{what}\", (unsigned long long) ({what}));");
    };
    all.enumerators.iter().chain(macros).for_each(|name| print(name));
    all.enumerations.iter().for_each(|tag| print(&format!("sizeof({tag})")));
    all.types.keys().for_each(|name| print(&format!("sizeof({name})")));
    for (tag, members) in &all.composites {
        print(&format!("sizeof({tag})"));
        for (path, _) in members.iter().filter(|(path, _)| !path.ends_with('*')) {
            print(&format!("offsetof({tag}, {path})"));
            print(&format!("sizeof((({tag} *) 0)->{path})"));
        }
    }
    source + "    return 0;\n}\n"
}
