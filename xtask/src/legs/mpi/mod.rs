//! A real MPI over the C library: Intel MPI 2018, unmodified, in six modes over each provider that is here, with two
//! ranks and with four. `tests/mpi/check.c` verifies each byte. The MPI is a package of the Python index; without it the
//! leg is NOT RUN.

mod setup;
mod speed;

use std::path::Path;

use crate::need;
use crate::options::has;
use crate::output;
use crate::report::{Report, Result};
use crate::vm::Machine;
use setup::{RDMA, Setup, ending};

/// A name that the MPI opens, and whether it needs libfabric.
const NAMES: [(&str, bool); 3] = [("shm0", false), ("ofi-tcp", true), ("ofi-rdm", true)];

/// Ways in which the MPI uses uDAPL, with the settings that choose them.
const MODES: [(&str, &[(&str, &str)]); 6] = [
    ("default", &[]),
    ("rendezvous from 8 KiB", &[("I_MPI_DAPL_DIRECT_COPY_THRESHOLD", "8192")]),
    ("rendezvous by write", &[("I_MPI_DAPL_RDMA_RNDV_WRITE", "1")]),
    (
        "immediate data",
        &[
            ("I_MPI_DAPL_RDMA_WRITE_IMM", "1"),
            ("I_MPI_DAPL_SCALABLE_PROGRESS", "1"),
            ("I_MPI_DAPL_EVD_POLLING", "1"),
        ],
    ),
    ("polled dispatcher", &[("I_MPI_DAPL_EVD_POLLING", "enable")]),
    ("waiting", &[("I_MPI_WAIT_MODE", "enable")]),
];

/// After so many failed runs the rest is left out: each may take its whole deadline.
const ENOUGH: usize = 2;

/// Seconds for all modes in the emulated machine.
const EMULATED: u64 = 900;

/// The command.
pub fn command(words: &[String]) -> Report {
    match (has(words, "--rdma"), has(words, "--speed")) {
        (true, _) => rdma(),
        (_, true) => speed::run(has(words, "--save"), &NAMES),
        _ => run(),
    }
}

/// All modes over all names, with two ranks and four.
pub fn run() -> Report {
    let setup = Setup::new()?;
    let mut runs = Runs::default();
    for (name, needs_libfabric) in NAMES {
        match needs_libfabric && need::libfabric().is_err() {
            true => runs.words.push(format!("{name} NOT RUN: libfabric is not installed")),
            false => runs.over(&setup, name, &[2, 4]),
        }
    }
    runs.report()
}

/// All modes with two ranks over an RDMA device: in the emulated machine, or here on the device that `DAT_TEST_IBVERBS`
/// names. The machine sees this one's files, so nothing is copied there.
pub fn rdma() -> Report {
    let setup = Setup::new()?;
    if let Ok(device) = std::env::var("DAT_TEST_IBVERBS") {
        return on_device(&setup.with_device(&device)?);
    }
    let own = std::env::current_exe()?;
    let command = format!("'{}' mpi-device '{}'", own.display(), setup.folder().display());
    let environment = vec![("DAT_TEST_IBVERBS".to_owned(), "rxe0".to_owned())];
    let ended = Machine { environment, deadline: EMULATED, ..Machine::default() }.run_well(&command)?;
    let last = ended.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    Ok(format!("Soft-RoCE, emulated: {}", last.trim_start_matches("xtask mpi-device: ")))
}

/// What [`rdma`] starts where the device is: the folder of a finished set-up.
pub fn device(arguments: &[String]) -> Report {
    let [folder] = arguments else { return Err("give the folder of the set-up".into()) };
    let device = std::env::var("DAT_TEST_IBVERBS").map_err(|_| "DAT_TEST_IBVERBS names no device")?;
    on_device(&Setup::in_folder(Path::new(folder))?.with_device(&device)?)
}

fn on_device(setup: &Setup) -> Report {
    let mut runs = Runs::default();
    runs.over(setup, RDMA, &[2]);
    runs.report()
}

/// Runs that were made.
#[derive(Default)]
struct Runs {
    words: Vec<String>,
    failures: Vec<String>,
}

impl Runs {
    /// All modes over one name.
    fn over(&mut self, setup: &Setup, name: &str, ranks: &[u32]) {
        let (mut passed, all) = (0, ranks.len() * MODES.len());
        let runs = ranks.iter().flat_map(|ranks| MODES.map(|mode| (*ranks, mode)));
        for (ranks, (mode, settings)) in runs {
            if self.failures.len() >= ENOUGH {
                break;
            }
            let shown = format!("{name}, {ranks} ranks, {mode}");
            match checks(setup, name, ranks, settings) {
                Ok(words) => {
                    passed += 1;
                    output::stdout_line(&format!("{shown}: {words}"));
                }
                Err(why) => self.failures.push(why.of(shown).words()),
            }
        }
        self.words.push(format!("{name} {passed} of {all} runs"));
    }

    fn report(self) -> Report {
        let words = self.words.join("; ");
        match self.failures.is_empty() {
            true => Ok(words),
            false => Err(format!("{words}; first failures:\n{}", self.failures.join("\n")).into()),
        }
    }
}

/// One run of all checks; gives the line that counts them.
fn checks(setup: &Setup, name: &str, ranks: u32, settings: &[(&str, &str)]) -> Result<String> {
    let most = if ranks == 2 { "4194304" } else { "65536" };
    let text = setup.start(Some(name), ranks, settings, most)?;
    let counted = text.lines().find(|line| line.starts_with("checks: ") && line.ends_with(" ok, 0 failed"));
    match (counted, text.contains("dapl data transfer mode")) {
        (None, _) => Err(format!("not all checks passed:\n{}", ending(&text)).into()),
        (_, false) => Err(format!("it did not use uDAPL:\n{}", ending(&text)).into()),
        (Some(counted), true) => Ok(counted.to_owned()),
    }
}
