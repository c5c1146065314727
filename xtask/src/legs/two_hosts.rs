//! The libfabric provider between two hosts: network namespaces with a pair of veths as the cable. The clauses with their
//! peers on the other host, and what happens when the cable is pulled.

use std::fs;
use std::path::Path;

use super::libfabric::{ROWS, Row};
use super::matrix;
use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::root::root;

/// Runs its command on the first of two hosts, and has words for the second in `$ELSEWHERE`.
const TWO_HOSTS: &str = "tests/network/two_hosts.sh";
/// Pulls the cable.
const CABLE: &str = "tests/network/cable.sh";
/// The hosts' addresses, as the script gives them.
const HERE: &str = "address=10.99.0.1";
const THERE: &str = "address=10.99.0.2";
/// How long a peer may be silent, and the seconds after which its absence must be known: a life sign that is under way
/// when the cable is pulled counts, and a busy machine is slow to look.
const KEEPALIVE_MS: u32 = 1000;
const WITHIN: &str = "5";

/// Runs both, over connected endpoints and over datagrams.
pub fn run() -> Report {
    if !Run::new("fi_info").args(["--version"]).works() {
        return Ok(Outcome::not_run("libfabric is not installed and could not be"));
    }
    if !Run::new(&root().join(TWO_HOSTS).to_string_lossy()).args(["true"]).works() {
        return Ok(Outcome::not_run(
            "no network namespaces here: root, or user namespaces, and iproute2 are needed",
        ));
    }
    cargo().args(["build", "-p", "dat-conformance", "-p", "dat-cli", "-p", "dat-libfabric"]).run()?;
    let built = target_dir()?.join("debug");
    let out = target_dir()?.join("conformance");
    fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut failures = Vec::new();
    let mut words = Vec::new();
    for row in &ROWS {
        let name = format!("{}, two hosts", row.name);
        match clauses(row, &name, &built, &out) {
            Ok(counts) => words.push(counts),
            Err(message) => failures.push(format!("{name}: {message}")),
        }
        match cable(row, &built) {
            Ok(said) => words.push(said),
            Err(message) => failures.push(format!("{}, cable pulled: {message}", row.name)),
        }
    }
    match failures.is_empty() {
        true => Ok(Outcome::passed(words.join(", "))),
        false => Err(failures.join("; ")),
    }
}

fn clauses(row: &Row, name: &str, built: &Path, out: &Path) -> Result<String, String> {
    let json = out.join(format!("{}-two-hosts.json", row.file()));
    // What an earlier run left must not be taken for the result of this one.
    let _ = fs::remove_file(&json);
    let mut words: Vec<String> =
        [TWO_HOSTS, "sh", "-c", "exec \"$@\" --peer-by \"$ELSEWHERE\"", "sh"].map(str::to_owned).to_vec();
    words[0] = root().join(TWO_HOSTS).display().to_string();
    words.push(built.join("dat-conformance").display().to_string());
    words.extend(["--plugin".to_owned(), built.join("libdat_libfabric.so").display().to_string()]);
    for param in row.params.iter().chain([&HERE]) {
        words.extend(["--param".to_owned(), (*param).to_owned()]);
    }
    words.extend(["--peer-param", THERE, "--name", name, "--json"].map(str::to_owned));
    words.push(json.display().to_string());
    if let Some(expected) = row.expected() {
        words.extend(["--expected".to_owned(), expected.display().to_string()]);
    }
    let ran = Run::new(&words[0]).args(&words[1..]).run();
    let report = matrix::read(&json)?;
    ran?;
    match report["ran"].as_u64() {
        None | Some(0) => Err("no clause ran".to_owned()),
        Some(_) => Ok(format!("{name} {}/{}", report["passed"], report["ran"])),
    }
}

fn cable(row: &Row, built: &Path) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("a folder: {error}"))?;
    let [here, there] = [("here.toml", HERE), ("there.toml", THERE)].map(|(file, address)| {
        let params: Vec<String> = row
            .params
            .iter()
            .filter(|param| !param.starts_with("address="))
            .chain([&address])
            .filter_map(|param| param.split_once('='))
            .map(|(key, value)| format!("{key} = {value:?}"))
            .collect();
        let library = built.join("libdat_libfabric.so");
        let text = format!(
            "[provider.cable]\nlibrary = {library:?}\nparams = {{ {}, keepalive_ms = {KEEPALIVE_MS} }}\n",
            params.join(", ")
        );
        let path = folder.path().join(file);
        fs::write(&path, text).map(|()| path).map_err(|error| format!("{file}: {error}"))
    });
    let mut said = None;
    Run::new(&root().join(TWO_HOSTS).to_string_lossy())
        .args([root().join(CABLE)])
        .env("DAT", built.join("dat"))
        .env("PLUGINS", here?)
        .env("PLUGINS_THERE", there?)
        .env("NAME", "cable")
        .env("WITHIN", WITHIN)
        .deadline(120)
        .lines(|line| said = line.strip_prefix("cable: ").map(str::to_owned).or(said.take()))?;
    said.map(|said| format!("cable pulled: {said}"))
        .ok_or_else(|| "it said nothing of what was found".to_owned())
}
