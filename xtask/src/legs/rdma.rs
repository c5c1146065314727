//! The ibverbs provider on a kernel's RDMA stack: conformance, random programs, the provider's own tests, and `rping` at
//! the other end; and the libfabric provider over libfabric's verbs: conformance and random programs. In the emulated machine, or on the real device that `DAT_TEST_IBVERBS` names.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::authors::{counted, dat};
use super::libfabric::counts_in;
use super::matrix;
use crate::cargo::{cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::root::root;
use crate::vm::{Machine, Trouble};

/// The report's name under the target directory's `conformance`.
pub const REPORT: &str = "ibverbs0.json";
const OVER_LIBFABRIC: &str = "libfabric-verbs.json";

/// Emulation is so much slower than hardware that deadlines of seconds need this factor.
const EMULATED: &str = "3";

/// Seconds for all of it.
const DEADLINE: u64 = 1200;

/// Builds, and runs `tests/vm/rdma.sh` where there is a device.
pub fn run() -> Report {
    let packages = ["dat-conformance", "dat-differential", "dat-ibverbs", "dat-libfabric"];
    cargo().args(["build"]).args(packages.into_iter().flat_map(|package| ["-p", package])).run()?;
    dat()?;
    cargo().args(["build", "-p", "dat-examples", "--example", "rping"]).run()?;
    let tests = test_program()?;
    let built = target_dir()?.join("debug");
    let reports = target_dir()?.join("conformance");
    fs::create_dir_all(&reports).map_err(|error| format!("{}: {error}", reports.display()))?;
    // What an earlier run left must not be taken for the result of this one.
    for report in [REPORT, OVER_LIBFABRIC] {
        let _ = fs::remove_file(reports.join(report));
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let absolute = root().canonicalize().map_err(|error| format!("{}: {error}", root().display()))?;
    let script = absolute.join("tests/vm/rdma.sh");
    let mut environment = vec![
        ("BUILT".to_owned(), text(&built)),
        ("ROOT".to_owned(), text(&absolute)),
        ("TESTS".to_owned(), text(&tests)),
    ];
    let mut programs = Vec::new();
    let mut faults = None;
    let under = |line: &str| counted(line).filter(|_| line.contains("faults:"));
    let place = match std::env::var("DAT_TEST_IBVERBS") {
        Ok(device) => {
            let own = [("DEVICE", device.clone()), ("SCALE", "1".to_owned()), ("OUT", text(&reports))];
            environment.extend(own.map(|(key, value)| (key.to_owned(), value)));
            let run = Run::new("bash").args([&script]).deadline(DEADLINE);
            let run = environment.iter().fold(run, |run, (key, value)| run.env(key, value));
            run.lines(|line| {
                programs.extend(counts_in(line));
                faults = under(line).or(faults.take());
            })?;
            device
        }
        Err(_) => {
            let out = "/run/dat-vm/out".to_owned();
            let own = [("DEVICE", "rxe0".to_owned()), ("SCALE", EMULATED.to_owned()), ("OUT", out)];
            environment.extend(own.map(|(key, value)| (key.to_owned(), value)));
            let machine = Machine { environment, deadline: DEADLINE, ..Machine::default() };
            let ended = match machine.run(&format!("bash '{}'", script.display())) {
                Ok(ended) => ended,
                Err(Trouble::Unavailable(why)) => return Ok(Outcome::not_run(why)),
                Err(Trouble::Failed(why)) => return Err(why),
            };
            for file in fs::read_dir(ended.out.path().join("out")).into_iter().flatten().flatten() {
                fs::copy(file.path(), reports.join(file.file_name())).map_err(|error| error.to_string())?;
            }
            let failed: Vec<&str> = ended.output.lines().filter(|line| line.contains(": FAILED")).collect();
            programs.extend(ended.output.lines().filter_map(counts_in));
            faults = ended.output.lines().find_map(under);
            if ended.status != 0 {
                return Err(format!("{} steps failed: {}", ended.status, failed.join("; ")));
            }
            "Soft-RoCE, emulated".to_owned()
        }
    };
    let counts = |name: &str| {
        let report = matrix::read(&reports.join(name))?;
        match report["ran"].as_u64() {
            None | Some(0) => Err(format!("{name}: no clause ran")),
            Some(ran) => Ok(format!("conformance {} of {ran}", report["passed"])),
        }
    };
    let ibverbs = counts(REPORT)?;
    // The script prints a line when libfabric is missing.
    let there = reports.join(OVER_LIBFABRIC).exists();
    let libfabric = if there { counts(OVER_LIBFABRIC)? } else { "NOT RUN".to_owned() };
    if programs.len() != if there { 2 } else { 1 } {
        return Err(format!(
            "the random programs did not say how many they were, or too often: {programs:?}"
        ));
    }
    let faults = faults.ok_or("the clauses under faults did not say how many they were")?;
    let mut programs = programs.into_iter();
    let mut next = || programs.next().map(|counts| format!(", {counts}")).unwrap_or_default();
    Ok(Outcome::passed(format!(
        "{place}: {ibverbs}{}; {faults}; over libfabric: {libfabric}{}",
        next(),
        next()
    )))
}

/// The provider's own test program, built.
fn test_program() -> Result<PathBuf, String> {
    let build = ["test", "-p", "dat-ibverbs", "--test", "device", "--no-run", "--message-format=json"];
    let messages = cargo().args(build).output()?;
    let mut programs = messages.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found =
        programs.find(|message| message["target"]["name"] == "device" && message["executable"].is_string());
    let path = found.and_then(|message| message["executable"].as_str().map(PathBuf::from));
    path.ok_or_else(|| "cargo did not say where the provider's test program is".to_owned())
}
