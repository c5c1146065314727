//! `dat conformance` with the real plugins: what it prints, what it writes, and how it exits. A few clauses do here;
//! the suite's own tests run all of them.

mod support;

use std::fs;
use std::path::Path;

use support::dat;

/// The library as cargo built it for this test.
fn shm() -> String {
    let folder = Path::new(env!("CARGO_BIN_EXE_dat")).parent().expect("a folder");
    let found = ["libdat_shm.so", "deps/libdat_shm.so"].map(|file| folder.join(file));
    let path = found.iter().find(|path| path.is_file()).expect("cargo builds libdat_shm.so for this test");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_name_conforms_and_the_report_says_how_far() {
    let text = dat(&["conformance", "loopback0", "--filter", "C-00", "--all"]).ok().out;
    assert!(text.contains("C-001 passed") && text.contains("loopback0 conforms"), "{text}");
    assert!(text.contains("loopback0  clauses 9: run 9 / passed 9"), "{text}");
}

#[test]
fn a_library_is_tested_with_peers_in_processes_of_their_own() {
    let report =
        dat(&["conformance", "--plugin", &shm(), "--ia-name", "mine0", "--filter", "C-05", "--json"]);
    let report = report.ok().json();
    assert_eq!((&report["provider"], &report["conforming"]), (&"mine0".into(), &true.into()));
    // C-054 kills the peer, which is only possible if it is a process, and runs only then.
    let killed = report["clauses"].as_array().expect("a list").iter().find(|c| c["clause"] == "C-054");
    assert_eq!(killed.expect("C-054")["verdict"], "passed");
}

#[test]
fn parameters_reach_the_provider_and_its_peers() {
    let wrong = dat(&["conformance", "--plugin", &shm(), "--param", "colour=blue", "--filter", "C-001"]);
    assert_eq!(wrong.code(), 2);
    assert!(wrong.err.contains("colour"), "{}", wrong.err);
    let domain = format!("domain=conformance-{}", std::process::id());
    dat(&["conformance", "--plugin", &shm(), "--param", &domain, "--filter", "C-056"]).ok();
}

#[test]
fn not_conforming_is_1_and_is_written_as_junit_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    fs::write(path("expected.toml"), "C-001 = \"a reason that is out of date\"\n").expect("written");
    let (expected, junit) = (path("expected.toml"), path("junit.xml"));
    let run = ["conformance", "loopback0", "--filter", "C-001", "--expected", &expected, "--junit", &junit];
    let text = dat(&run).failed().out;
    assert!(text.contains("UNEXPECTED PASS") && text.contains("does NOT conform"), "{text}");
    let xml = fs::read_to_string(path("junit.xml")).expect("the JUnit file");
    assert!(xml.contains("tests=\"1\" failures=\"1\""), "{xml}");
}

#[test]
fn layers_lie_over_the_provider_and_the_report_says_so() {
    // The layer logs at level debug.
    let run = [
        "-vv",
        "conformance",
        "shm0",
        "--layer",
        "count,faults:seed=9",
        "--scale",
        "2",
        "--filter",
        "C-24",
        "--filter",
        "C-26",
    ];
    let done = dat(&run).ok();
    assert!(done.out.contains("shm0 under count,faults:seed=9 conforms"), "{}", done.out);
    assert!(done.err.contains("dat.faults: fault") && done.err.contains("seed=9"), "no fault was met");
    let wrong = dat(&["conformance", "shm0", "--layer", "fault"]);
    assert_eq!(wrong.code(), 2);
    assert!(wrong.err.contains("the layers are: trace, count, faults"), "{}", wrong.err);
}

#[test]
fn a_provider_that_crashes_is_a_verdict_and_not_a_crash() {
    let folder = tempfile::tempdir().expect("a folder");
    let library = in_c(folder.path(), "hostile.c", &["-lpthread"]);
    let library = library.to_str().expect("text");
    let run = |param: &str| {
        dat(&["conformance", "--plugin", library, "--param", param, "--filter", "P-00", "--json"])
    };
    // Any clause that opens a queue loses its process; those that do not go on.
    let report = run("lie=crashes").failed().json();
    let rows = report["clauses"].as_array().expect("a list");
    let of = |clause: &str| rows.iter().find(|row| row["clause"] == clause).expect("there");
    assert_eq!(rows.len(), 9, "{report}");
    assert_eq!(of("P-001")["verdict"], "passed", "{report}");
    let killed = of("P-006");
    assert_eq!(killed["verdict"], "failed");
    let said = "the process that ran it ended: signal 11 (segmentation fault)";
    assert_eq!(killed["message"], said, "{report}");
    assert_eq!(report["lost"].as_array().expect("a list").len(), 0, "{report}");

    let report = run("lie=aborts").failed().json();
    assert_eq!(report["ran"], 0);
    let lost = report["lost"][0].as_str().expect("a sentence");
    assert!(
        lost.contains("while the provider was loaded and opened the process ended: signal 6 (abort)"),
        "{lost}"
    );
}

#[test]
fn a_provider_that_frees_nothing_is_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/provider_c");
    let sources = fs::read_dir(&example).expect("there").map(|entry| entry.expect("an entry").path());
    let sources: Vec<_> = sources.filter(|path| path.extension().is_some_and(|end| end == "c")).collect();
    let report = |more: &[&str]| {
        let mut all = more.to_vec();
        all.extend(sources[1..].iter().map(|path| path.to_str().expect("text")));
        let library = in_c(folder.path(), sources[0].to_str().expect("text"), &all);
        dat(&["conformance", "--plugin", library.to_str().expect("text"), "--filter", "P-016", "--json"])
    };
    report(&["-lpthread"]).ok();
    let header = folder.path().join("frees_nothing.h");
    fs::write(&header, "#include <stdlib.h>\n#define free(what) (void)(what)\n").expect("written");
    let header = header.to_str().expect("text");
    let leaking = report(&["-lpthread", "-include", header]).failed().json();
    let said = leaking["clauses"][0]["message"].as_str().expect("a sentence");
    assert!(said.contains(" bytes of the heap ("), "{said}");
}

/// A file of `tests/plugins`, compiled. Linking Rust programs needs a C compiler too, so there is one.
fn in_c(folder: &Path, file: &str, more: &[&str]) -> std::path::PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = folder.join("libtest.so");
    let status = std::process::Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
        .args(["-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", "-I"])
        .args([&root.join("include"), Path::new("-o"), &out, &root.join("tests/plugins").join(file)])
        .args(more)
        .status()
        .expect("the C compiler runs");
    assert!(status.success());
    out
}

#[test]
fn a_run_that_cannot_be_made_is_2() {
    let unknown = dat(&["conformance", "shmm0"]);
    assert_eq!(unknown.code(), 2);
    assert!(unknown.err.contains("shm0"), "{}", unknown.err);
    let json = dat(&["conformance", "--plugin", "/etc/hosts", "--json"]);
    assert_eq!(json.code(), 2);
    assert!(json.json()["error"]["message"].as_str().expect("a sentence").contains("/etc/hosts"));
    assert_eq!(dat(&["conformance", "loopback0", "--filter", "C-9"]).code(), 2);
    assert_eq!(dat(&["conformance"]).code(), 2);
    assert_eq!(dat(&["conformance", "loopback0", "--param", "nonsense"]).code(), 2);
}

#[test]
fn repeated_runs_are_one_report() {
    let report =
        dat(&["conformance", "loopback0", "--filter", "C-056", "--repeat", "3", "--json"]).ok().json();
    assert_eq!((&report["runs"], &report["passed"]), (&3.into(), &1.into()));
}
