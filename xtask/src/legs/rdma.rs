//! The ibverbs provider on a kernel's RDMA stack: conformance, random programs, the provider's own tests, and `rping` at
//! the other end; and the libfabric provider over libfabric's verbs: conformance and random programs. In the emulated
//! machine, or on the real device that `DAT_TEST_IBVERBS` names.

use fs_err as fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::authors::counted;
use super::clauses::{counts, reports};
use super::libfabric::counts_in;
use crate::cargo::{build, cargo};
use crate::process::Run;
use crate::report::{Report, Result};
use crate::root::{files_below, root};
use crate::vm::Machine;

/// The report's name under the target directory's `conformance`.
pub const REPORT: &str = "ibverbs0.json";
const OVER_LIBFABRIC: &str = "libfabric-verbs.json";

/// Emulation is so much slower than hardware that deadlines of seconds need this factor.
const EMULATED: &str = "3";

/// Seconds for all of it.
const DEADLINE: u64 = 1200;

/// Builds, and runs `tests/vm/rdma.sh` where there is a device.
pub fn run() -> Report {
    let built =
        build("dev", &["dat-conformance", "dat-differential", "dat-ibverbs", "dat-libfabric", "dat-cli"])?;
    cargo().args(["build", "-p", "dat-examples", "--example", "rping"]).run()?;
    let tests = test_program()?;
    let reports = reports()?;
    // What an earlier run left must not be taken for the result of this one.
    for report in [REPORT, OVER_LIBFABRIC] {
        let _ = fs::remove_file(reports.join(report));
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let absolute = root().canonicalize()?;
    let script = absolute.join("tests/vm/rdma.sh");
    let mut environment = vec![
        ("BUILT".to_owned(), text(&built)),
        ("ROOT".to_owned(), text(&absolute)),
        ("TESTS".to_owned(), text(&tests)),
    ];
    let mut add = |device: &str, scale: &str, out: &str| {
        let own = [("DEVICE", device), ("SCALE", scale), ("OUT", out)];
        environment.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    };
    let (mut lines, place) = (Vec::new(), std::env::var("DAT_TEST_IBVERBS"));
    let place = if let Ok(device) = place {
        add(&device, "1", &text(&reports));
        let run = Run::new("bash").args([&script]).deadline(DEADLINE);
        let run = environment.iter().fold(run, |run, (key, value)| run.env(key, value));
        run.lines(|line| lines.push(line.to_owned()))?;
        device
    } else {
        add("rxe0", EMULATED, "/run/dat-vm/out");
        let machine = Machine { environment, deadline: DEADLINE, ..Machine::default() };
        let ended = machine.run_well(&format!("bash '{}'", script.display()))?;
        for file in files_below(&ended.out.path().join("out"))? {
            fs::copy(&file, reports.join(file.file_name().unwrap_or_default()))?;
        }
        lines.extend(ended.output.lines().map(str::to_owned));
        "Soft-RoCE, emulated".to_owned()
    };
    let programs: Vec<String> = lines.iter().filter_map(|line| counts_in(line)).collect();
    let faults = lines.iter().find_map(|line| counted(line).filter(|_| line.contains("faults:")));
    let counts = |name: &str| Ok(format!("conformance {}", counts(&reports.join(name))?)) as Report;
    let ibverbs = counts(REPORT)?;
    // The script prints a line when libfabric is missing.
    let there = reports.join(OVER_LIBFABRIC).exists();
    let libfabric = if there { counts(OVER_LIBFABRIC)? } else { "NOT RUN".to_owned() };
    if programs.len() != 1 + usize::from(there) {
        fail!("the random programs did not print how many they were, or too often: {programs:?}");
    }
    let faults = faults.ok_or("the clauses under faults did not say how many they were")?;
    let of = |at: usize| programs.get(at).map_or(String::new(), |counts| format!(", {counts}"));
    Ok(format!("{place}: {ibverbs}{}; {faults}; over libfabric: {libfabric}{}", of(0), of(1)))
}

/// The provider's own test program, built.
fn test_program() -> Result<PathBuf> {
    let build = ["test", "-p", "dat-ibverbs", "--test", "device", "--no-run", "--message-format=json"];
    let messages = cargo().args(build).output()?;
    let mut programs = messages.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found =
        programs.find(|message| message["target"]["name"] == "device" && message["executable"].is_string());
    let path = found.and_then(|message| message["executable"].as_str().map(PathBuf::from));
    Ok(path.ok_or("cargo did not print where the provider's test program is")?)
}
