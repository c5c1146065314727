//! Programs written for uDAPL over the C library: our examples, built against what `cargo xtask capi` lays out, and
//! Debian's `dapl2-utils` as they are, over every provider that is here. Debian 13 has no `dapl2-utils`; there, our own
//! programs run alone.
//!
//! Each provider is a column of the table. A column runs in a process of its own, in a network name space of its own
//! where that may be made, because the programs' ports are fixed; so the columns run side by side. The column of the
//! RDMA provider runs where there is a device: in the emulated machine.

mod cases;
mod examples;
mod field;
mod process;
mod table;

use fs_err as fs;
use std::path::Path;
use std::time::Instant;

use cases::{CASES, COLUMNS, Column, Place};
use field::{Device, Field};
use table::{Results, Verdict};

use crate::need;
use crate::process::Run;
use crate::report::{Parts, Report, Result};
use crate::vm::Machine;
use crate::{capi, output};

/// Emulation is so much slower than hardware that deadlines need this factor.
const EMULATED: u32 = 4;

/// The command.
pub fn command(words: &[String]) -> Report {
    match words.first().map(String::as_str) {
        Some("--programs") => run(),
        Some("--rdma") => rdma(),
        Some(_) => save(),
        None => capi::run(),
    }
}

/// Lays out, builds and runs the examples, runs all columns that need no device, and prints the table.
pub fn run() -> Report {
    let library = capi::lay_out()?;
    examples::build_own(&library)?;
    examples::run(&library, &COLUMNS[0])?;
    let folder = table::reports()?;
    let mut all = Parts::default();
    let mut columns = Vec::new();
    for column in COLUMNS.iter().filter(|column| column.place != Place::Rdma) {
        // What an earlier run left must not be taken for the result of this one.
        let _ = fs::remove_file(table::report_of(&folder, column.name));
        let lacking = if column.place == Place::HereWithLibfabric { need::libfabric().err() } else { None };
        match lacking {
            None => columns.push(column),
            Some(stop) => all.add(column.name, Err(stop)),
        }
    }
    let apart = apart();
    let start = |column: &&Column| in_a_process(column, &library, &folder, apart.as_deref());
    let ended: Vec<Result<()>> = match apart {
        Some(_) => std::thread::scope(|scope| {
            let running: Vec<_> = columns.iter().map(|column| scope.spawn(|| start(column))).collect();
            running.into_iter().map(|thread| thread.join().unwrap_or(Err("it panicked".into()))).collect()
        }),
        // One after the other: they would be in each other's way.
        None => columns.iter().map(start).collect(),
    };
    output::show(&format!("\n{}", table::page(&folder)));
    for (column, ended) in columns.iter().zip(ended) {
        let read = || Results::read(&table::report_of(&folder, column.name))?.summary(column.name);
        all.add(column.name, ended.and_then(|()| read()));
    }
    Ok(format!("examples; {}", all.report()?))
}

/// The column of the RDMA provider: in the emulated machine, or here with the device that `DAT_TEST_IBVERBS` names.
pub fn rdma() -> Report {
    let Some(column) = COLUMNS.iter().find(|column| column.place == Place::Rdma) else {
        return Err("there is no such column".into());
    };
    let library = capi::lay_out()?;
    examples::build_own(&library)?;
    let folder = table::reports()?;
    let report = table::report_of(&folder, column.name);
    let _ = fs::remove_file(&report);
    if let Ok(device) = std::env::var("DAT_TEST_IBVERBS") {
        in_a_process(column, &library, &folder, None).map_err(|stop| stop.of(format!("on {device}")))?;
    } else {
        let own = std::env::current_exe()?;
        let out = "/run/dat-vm/out";
        let command =
            format!("'{}' capi-column {} '{}' {out}", own.display(), column.name, library.display());
        let environment = [("DAT_TEST_IBVERBS", "rxe0".to_owned()), ("DAT_TEST_SCALE", EMULATED.to_string())];
        let environment = environment.map(|(key, value)| (key.to_owned(), value)).to_vec();
        let machine = Machine { environment, deadline: 600, ..Machine::default() };
        let ended = machine.run_well(&command)?;
        let left = table::report_of(&ended.out.path().join("out"), column.name);
        fs::copy(&left, &report)?;
    }
    output::show(&format!("\n{}", table::page(&folder)));
    Results::read(&report)?.summary(column.name)
}

/// The table of the reports there are, into the documentation.
pub fn save() -> Report {
    let page = table::page(&table::reports()?);
    output::show(&page);
    table::save(&page)?;
    Ok("docs/c-library.md".into())
}

/// One column, in this process: name, folder of the library, folder of the reports.
pub fn column(arguments: &[String]) -> Report {
    let [name, library, folder] = arguments else {
        return Err("give a column's name, the folder of the library, and one for the report".into());
    };
    let Some(column) = COLUMNS.iter().find(|column| column.name == name) else {
        let known: Vec<&str> = COLUMNS.iter().map(|column| column.name).collect();
        fail!("there is no column {name:?}; there are {}", known.join(", "));
    };
    let device = match column.place {
        Place::Rdma => rdma_device()?,
        _ => Device::software(column),
    };
    let field = Field::new(Path::new(library), column, device)?;
    let begin = Instant::now();
    let verdicts = CASES.iter().map(|case| {
        let start = Instant::now();
        let verdict = Verdict::from(field.run(case));
        let seconds = start.elapsed().as_secs_f64();
        output::show(&format!("{name:<18} {seconds:>5.1} s  {}: {}", case.shown(), verdict.words()));
        verdict
    });
    let results = Results { verdicts: verdicts.collect(), seconds: begin.elapsed().as_secs() };
    results.write(&table::report_of(Path::new(folder), name))?;
    Ok(format!("{name} in {} s", results.seconds))
}

/// The device `DAT_TEST_IBVERBS` names and its address.
fn rdma_device() -> Result<Device> {
    let device =
        std::env::var("DAT_TEST_IBVERBS").map_err(|_| "DAT_TEST_IBVERBS names no device".to_owned())?;
    let file = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    let interface = fs::read_to_string(&file)?;
    let shown = Run::new("ip").args(["-4", "-o", "addr", "show", "dev", interface.trim()]).output()?;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "inet").skip(1);
    let address = words.next().and_then(|network| network.split('/').next());
    let host = address.ok_or_else(|| format!("{} has no IPv4 address", interface.trim()))?.to_owned();
    let scale = std::env::var("DAT_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    Ok(Device { params: format!("device = \"{device}\""), host, scale })
}

/// Runs a column in a process of its own, behind the words of `apart`.
fn in_a_process(column: &Column, library: &Path, folder: &Path, apart: Option<&[String]>) -> Result<()> {
    let mut words: Vec<String> = apart.unwrap_or_default().to_vec();
    words.push(std::env::current_exe()?.display().to_string());
    words.extend(["capi-column".to_owned(), column.name.to_owned()]);
    words.extend([library, folder].map(|path| path.display().to_string()));
    let (program, arguments) = words.split_first().ok_or("nothing to run")?;
    Run::new(program).args(arguments).deadline(600).run()
}

/// The command in front that gives a process a network of its own, if that may be done here.
fn apart() -> Option<Vec<String>> {
    let shell = "ip link set lo up && exec \"$@\"";
    let with = |option: &str| {
        let words = ["unshare", option, "sh", "-c", shell, "sh"].map(str::to_owned).to_vec();
        Run::new(&words[0]).args(&words[1..]).args(["true"]).works().then_some(words)
    };
    // As root without a user name space, which would change what processes may do to each other.
    with("-n").or_else(|| with("-rn"))
}
