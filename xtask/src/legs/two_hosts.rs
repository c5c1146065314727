//! The libfabric provider between two hosts: network namespaces with a pair of veths as the cable. The clauses with their
//! peers on the other host, and what happens when the cable is pulled.

use std::path::Path;

use fs_err as fs;

use super::clauses::{clauses, expected};
use super::libfabric::{ROWS, Row};
use crate::cargo::build;
use crate::need;
use crate::process::Run;
use crate::report::{Parts, Report, Stop};
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
    need::libfabric()?;
    let two_hosts = || Run::new(&root().join(TWO_HOSTS).to_string_lossy());
    if !two_hosts().args(["true"]).works() {
        let why = "no network namespaces here: root, or user namespaces, and iproute2 are needed";
        return Err(Stop::not_run(why));
    }
    let built = build("dev", &["dat-conformance", "dat-cli", "dat-libfabric"])?;
    let mut all = Parts::default();
    for row in &ROWS {
        let run = two_hosts()
            .args(["sh", "-c", "exec \"$@\" --peer-by \"$ELSEWHERE\"", "sh"])
            .args([built.join("dat-conformance")])
            .args(row.provider(&built))
            .args(["--param", HERE, "--peer-param", THERE])
            .args(expected(row.name));
        let name = format!("{}, two hosts", row.name);
        all.add(&name, clauses(&name, run));
        all.add(format!("{}, cable pulled", row.name), cable(row, &built, two_hosts()));
    }
    all.report()
}

fn cable(row: &Row, built: &Path, two_hosts: Run) -> Report {
    let folder = tempfile::tempdir()?;
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
        fs::write(&path, text).map(|()| path)
    });
    let mut said = None;
    two_hosts
        .args([root().join(CABLE)])
        .env("DAT", built.join("dat"))
        .env("PLUGINS", here?)
        .env("PLUGINS_THERE", there?)
        .env("NAME", "cable")
        .env("WITHIN", WITHIN)
        .deadline(120)
        .lines(|line| said = line.strip_prefix("cable: ").map(str::to_owned).or(said.take()))?;
    Ok(format!("cable pulled: {}", said.ok_or("it printed nothing of what was found")?))
}
