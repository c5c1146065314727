//! A plugin in C++ that lets an exception out of its functions: a report and not the end of the command. Nothing written in
//! Rust can catch one, so in an application it ends the process, even if the application has a handler.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::dat;

/// How each report names what happened.
const LET_OUT: &str = "signal 6 (abort), because an exception or a panic left a function of the plugin";

/// `tests/plugins/throws.cpp`; none without a C++ compiler.
fn throws(folder: &Path, test: &str, more: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = folder.join("libthrows.so");
    let run = Command::new(std::env::var_os("CXX").unwrap_or("c++".into()))
        .args(["-std=c++17", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared"])
        .args(["-I".as_ref(), root.join("include").as_os_str(), "-o".as_ref(), out.as_os_str()])
        .arg(root.join("tests/plugins/throws.cpp"))
        .args(more)
        .output();
    match run {
        Ok(run) => {
            assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
            Some(out)
        }
        Err(error) => {
            eprintln!("NOT RUN: {test}: no C++ compiler: {error}");
            None
        }
    }
}

#[test]
fn an_exception_while_loading_is_a_report() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = "an_exception_while_loading_is_a_report";
    let Some(library) = throws(folder.path(), test, &["-DTHROWS_IN_INIT"]) else { return };
    let tried = dat(&["inspect", "--try", &library.display().to_string()]).failed();
    assert!(tried.out.contains(&format!("ended the child that loaded it: {LET_OUT}")), "{}", tried.out);
}

#[test]
fn an_exception_in_a_clause_is_that_clauses_verdict() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = "an_exception_in_a_clause_is_that_clauses_verdict";
    let Some(library) = throws(folder.path(), test, &[]) else { return };
    let library = library.display().to_string();
    let run = |param: &str| {
        let filter = ["--param", param, "--filter", "P-006", "--json"];
        dat(&[&["conformance", "--plugin", &library][..], &filter].concat())
    };
    let report = run("throws=open_queue").failed().json();
    let expected = format!("the process that ran it ended: {LET_OUT}");
    assert_eq!(report["clauses"][0]["message"], expected, "{report}");
    let report = run("throws=open").failed().json();
    let lost = report["lost"][0].as_str().expect("a sentence");
    assert!(lost.contains("while the provider was loaded and opened") && lost.ends_with(LET_OUT), "{lost}");
    // What an author does about it: the exception's sentence is the failure's.
    let caught = run("throws=caught");
    assert_eq!(caught.code(), 2, "{}", caught.out);
    assert!(caught.err.contains("thrown in open, and caught"), "{}", caught.err);
}

#[test]
fn an_exception_in_a_listing_is_a_line_of_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let test = "an_exception_in_a_listing_is_a_line_of_it";
    let Some(library) = throws(folder.path(), test, &[]) else { return };
    let entry = |name: &str, throws: &str| {
        format!(
            "[provider.{name}]\nlibrary = {:?}\nparams = {{ throws = {throws:?} }}\n",
            library.display().to_string()
        )
    };
    let file = folder.path().join("plugins.toml");
    let text = ["none", "open", "caught"].map(|throws| entry(&format!("a_{throws}"), throws)).concat();
    fs::write(&file, format!("{text}{}", entry("b_none", "none"))).expect("written");
    let listed = dat(&["--plugins", &file.display().to_string(), "providers", "--json"]).ok().json();
    let of = |name: &str, key: &str| {
        let rows = listed["providers"].as_array().expect("a list");
        let row = rows.iter().find(|row| row["name"] == name).unwrap_or_else(|| panic!("{name}: {listed}"));
        row[key].as_str().expect("text").to_owned()
    };
    for name in ["a_none", "b_none"] {
        assert_eq!(of(name, "state"), "usable", "{listed}");
    }
    assert_eq!(of("a_open", "state"), "installed");
    assert_eq!(of("a_open", "reason"), format!("it ended the process that loaded and opened it: {LET_OUT}"));
    assert!(of("a_caught", "reason").contains("thrown in open, and caught"), "{listed}");
}
