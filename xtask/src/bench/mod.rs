//! `cargo xtask bench`: ours beside the programs of UCX, libfabric and perftest. The measuring is `dat-bench compare`'s;
//! here are building, the tables and drawings, and keeping them in `docs/`.

mod c_calls;
pub mod page;
mod plots;
mod results;
pub mod tables;
mod vm;

use fs_err as fs;

use serde_json::Value;

use results::{FOLDER, RESULTS, RESULTS_VM};

use crate::values::list;

use crate::cargo::{COUNTED, build, cargo};
use crate::markdown::PAGE;
use crate::options::has;
use crate::output;
use crate::process::Run;
use crate::report::{Report, Result, Stop};
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

/// The command. `--quick`: three sizes, one round, to see that everything works. `--save`: keep results, tables and
/// drawings. `--vm`: measure ibverbs beside perftest, too. `--tables`: write what is printed of kept results alone.
pub fn run(words: &[String]) -> Report {
    if has(words, "--tables") {
        page::write()?;
        return Ok(format!("tables of {PAGE} and drawings of {FOLDER} written"));
    }
    let result = measure(has(words, "--quick"))?;
    output::show(&tables::all(&result));
    let beside = if has(words, "--vm") { Some(vm::measure()) } else { None };
    let mut said = format!("{} figures in {} s{}", number(&result), result["seconds"], missing(&result));
    let beside = match beside.transpose() {
        Err(stop @ Stop::NotRun(_)) => {
            said += &format!("; {}", stop.of("the emulated machine").words());
            None
        }
        other => other?,
    };
    if let Some(beside) = &beside {
        output::show(&tables::vm(beside));
    }
    if has(words, "--save") {
        keep(RESULTS, &result)?;
        if let Some(beside) = &beside {
            keep(RESULTS_VM, beside)?;
        }
        page::write()?;
    }
    Ok(said)
}

/// The leg of CI: a short run, in which all of ours must have been measured. How good the figures are is not judged, nor
/// whether the processors stood still for one to be kept.
pub fn smoke() -> Report {
    let result = measure(true)?;
    output::show(&tables::all(&result));
    let there =
        |test: &str| list(&result["taken"]).iter().any(|row| row["test"] == test && row["who"] == "dat");
    let without: Vec<&str> = OURS.into_iter().filter(|test| !there(test)).collect();
    match without.is_empty() {
        true => {
            let (figures, c_calls, parts) = (number(&result), c_calls::overhead()?, parts()?);
            Ok(format!(
                "{figures} figures; C over Rust: {c_calls}; {parts} benchmarks of parts work{}",
                missing(&result)
            ))
        }
        false => Err(format!("no figure of ours for {}{}", without.join(", "), missing(&result)).into()),
    }
}

/// Runs each benchmark of a part once, not optimised: whether they work. How many did.
fn parts() -> Result<usize> {
    let run = cargo().args(["test", "-p", "dat-bench", "--benches"]).deadline(1800);
    let mut worked = 0;
    run.lines(|line| worked += usize::from(line == "Success"))?;
    match worked {
        0 => Err("no benchmark of a part ran: `cargo test -p dat-bench --benches`".into()),
        _ => Ok(worked),
    }
}

fn measure(quick: bool) -> Result<Value> {
    // A short run judges no figure, so it takes the profile that the leg before it has built most of.
    let profile = if quick { COUNTED } else { "release" };
    let built = build(profile, &["dat-cli", "dat-bench", "dat-shm", "dat-libfabric"])?;
    let run = Run::unpaced(&built.join("dat-bench").to_string_lossy());
    let run = run.args(["compare".into(), "--dat".into(), built.join("dat")]).deadline(1200);
    let text = run.args(quick.then_some("--quick")).output_shown()?;
    let result: Value = serde_json::from_str(&text)?;
    match result["not_run"].as_str() {
        Some(why) => Err(Stop::not_run(why)),
        None => Ok(result),
    }
}

fn keep(file: &str, result: &Value) -> Result<()> {
    fs::create_dir_all(root().join(FOLDER))?;
    Ok(fs::write(root().join(file), format!("{result:#}\n"))?)
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
