//! `cargo xtask bench`: ours beside the programs of UCX, libfabric and perftest. The measuring is `dat-bench compare`'s;
//! here are building, the tables and drawings, and keeping them in `docs/`.

mod c_calls;
pub mod page;
mod plots;
mod results;
pub mod tables;
mod vm;

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use results::{FOLDER, RESULTS, RESULTS_VM, list};

use crate::cargo::{COUNTED, cargo, target_dir};
use crate::leg::{Outcome, Report};
use crate::markdown::PAGE;
use crate::output;
use crate::root::root;

/// What a short run must have figures of, ours.
const OURS: [&str; 12] = [
    "send_latency",
    "send_rate",
    "send_bandwidth",
    "heap_latency",
    "heap_bandwidth",
    "write_latency",
    "write_bandwidth",
    "read_bandwidth",
    "wake_up",
    "connect",
    "echo_among_idle",
    "memory",
];

/// The options of the command line.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Three sizes, one round: to see that everything works.
    pub quick: bool,
    /// Keep results, tables and drawings.
    pub save: bool,
    /// Measure ibverbs beside perftest in the emulated machine, too.
    pub vm: bool,
    /// Write tables and drawings of the results that are kept, without measuring.
    pub tables: bool,
}

/// The command.
pub fn run(options: Options) -> Report {
    if options.tables {
        page::write()?;
        return Ok(Outcome::passed(format!("tables of {PAGE} and drawings of {FOLDER} written")));
    }
    let result = measure(options.quick)?;
    if let Some(why) = result["not_run"].as_str() {
        return Ok(Outcome::not_run(why));
    }
    output::show(&tables::all(&result));
    let measured = number(&result);
    let beside = match options.vm {
        true => vm::measure()?,
        false => None,
    };
    if let Some(beside) = &beside {
        output::show(&tables::vm(beside));
    }
    if options.save {
        keep(RESULTS, &result)?;
        if let Some(beside) = &beside {
            keep(RESULTS_VM, beside)?;
        }
        page::write()?;
    }
    let mut words = format!("{measured} figures in {} s", result["seconds"]);
    if options.vm && beside.is_none() {
        words.push_str("; NOT RUN: the emulated machine");
    }
    Ok(Outcome::passed(words + &missing(&result)))
}

/// The leg of CI: a short run, in which all of ours must have been measured. How good the figures are is not judged, nor
/// whether the processors stood still for one to be kept.
pub fn smoke() -> Report {
    let result = measure(true)?;
    if let Some(why) = result["not_run"].as_str() {
        return Ok(Outcome::not_run(why));
    }
    output::show(&tables::all(&result));
    let there =
        |test: &str| list(&result["taken"]).iter().any(|row| row["test"] == test && row["who"] == "dat");
    let without: Vec<&str> = OURS.into_iter().filter(|test| !there(test)).collect();
    match without.is_empty() {
        true => {
            let (figures, c_calls, parts) = (number(&result), c_calls::overhead()?, parts()?);
            Ok(Outcome::passed(format!(
                "{figures} figures; C over Rust: {c_calls}; {parts} benchmarks of parts work{}",
                missing(&result)
            )))
        }
        false => Err(format!("no figure of ours for {}{}", without.join(", "), missing(&result))),
    }
}

/// Runs each benchmark of a part once, not optimised: whether they work. How many did.
fn parts() -> Result<usize, String> {
    let run = cargo().args(["test", "-p", "dat-bench", "--benches"]).deadline(1800);
    let mut worked = 0;
    run.lines(|line| worked += usize::from(line == "Success"))?;
    match worked {
        0 => Err("no benchmark of a part ran: `cargo test -p dat-bench --benches`".into()),
        _ => Ok(worked),
    }
}

fn measure(quick: bool) -> Result<Value, String> {
    let packages = ["dat-cli", "dat-bench", "dat-shm", "dat-libfabric"];
    // A short run judges no figure, so it takes the profile that the leg before it has built most of.
    let profile = if quick { COUNTED } else { "release" };
    let build = cargo().args(["build", "--profile", profile]);
    let build = build.args(packages.iter().flat_map(|name| ["-p", name])).env("CARGO_INCREMENTAL", "0");
    build.deadline(1800).run()?;
    let built = target_dir()?.join(profile);
    let program = built.join("dat-bench");
    let mut run = crate::process::Run::unpaced(&program.to_string_lossy())
        .args(["compare".into(), "--dat".into(), built.join("dat")])
        .deadline(1200);
    if quick {
        run = run.args(["--quick"]);
    }
    let text = run.output_shown()?;
    serde_json::from_str(&text).map_err(|error| format!("dat-bench printed no JSON: {error}"))
}

fn keep(file: &str, result: &Value) -> Result<(), String> {
    let path: PathBuf = root().join(file);
    fs::create_dir_all(root().join(FOLDER)).map_err(|error| format!("{FOLDER}: {error}"))?;
    fs::write(&path, format!("{result:#}\n")).map_err(|error| format!("{file}: {error}"))
}

fn number(result: &Value) -> usize {
    list(&result["rows"]).len()
}

/// Who had no figures, for the last line.
fn missing(result: &Value) -> String {
    let mut names: Vec<String> = list(&result["missing"])
        .iter()
        .map(|row| format!("{}: {}", row["who"].as_str().unwrap_or("?"), row["why"].as_str().unwrap_or("?")))
        .collect();
    names.sort();
    names.dedup();
    if names.is_empty() { String::new() } else { format!("; NOT RUN: {}", names.join("; ")) }
}
