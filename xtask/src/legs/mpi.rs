//! A real MPI over the C library: Intel MPI 2018, unmodified, in six modes over each provider that is here, with two
//! ranks and with four. `tests/mpi/check.c` verifies each byte. The MPI is a package of the Python index; without it the
//! leg is NOT RUN.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo::target_dir;
use crate::leg::{Outcome, Report};
use crate::process::Run;
use crate::{capi, output};

const PACKAGE: &str = "impi==2018.0.0";

/// Names, and their lines in `plugins.toml`. Those with `true` need libfabric.
const NAMES: [(&str, bool); 3] = [("shm0", false), ("ofi-tcp", true), ("ofi-rdm", true)];

const PLUGINS: &str = r#"[provider.ofi-tcp]
library = "libdat_libfabric.so"
params = { fabric = "tcp", endpoint = "msg", address = "127.0.0.1" }
[provider.ofi-rdm]
library = "libdat_libfabric.so"
params = { fabric = "tcp;ofi_rxm", endpoint = "rdm", address = "127.0.0.1" }
"#;

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

/// The MPI, the programs and the library of one run.
struct Setup {
    mpi: PathBuf,
    check: PathBuf,
    preload: PathBuf,
    plugins: PathBuf,
    library: PathBuf,
}

/// All modes over all names, with two ranks and four.
pub fn run() -> Report {
    let setup = match Setup::new()? {
        Ok(setup) => setup,
        Err(why) => return Ok(Outcome::not_run(why)),
    };
    let libfabric = Run::new("fi_info").args(["--version"]).works();
    let (mut words, mut failures) = (Vec::new(), Vec::new());
    for (name, needs_libfabric) in NAMES {
        if needs_libfabric && !libfabric {
            words.push(format!("{name} NOT RUN: libfabric is not installed"));
            continue;
        }
        let mut passed = 0;
        for ranks in [2, 4] {
            for (mode, settings) in MODES {
                match setup.checks(name, ranks, settings) {
                    Ok(()) => passed += 1,
                    Err(why) => failures.push(format!("{name}, {ranks} ranks, {mode}: {why}")),
                }
            }
        }
        words.push(format!("{name} {passed} of {} runs", 2 * MODES.len()));
    }
    match failures.is_empty() {
        true => Ok(Outcome::passed(words.join("; "))),
        false => Err(failures.join("\n")),
    }
}

/// Latency and bandwidth of the MPI over each name, beside its own shared memory fabric, as a table.
pub fn speed() -> Report {
    let setup = match Setup::new()? {
        Ok(setup) => setup,
        Err(why) => return Ok(Outcome::not_run(why)),
    };
    let mut table = "| fabric | bytes | latency, us | bandwidth, MB/s |\n|---|---|---|---|\n".to_owned();
    let fabrics =
        [("its own shared memory", None)].into_iter().chain(NAMES.map(|(name, _)| (name, Some(name))));
    for (shown, name) in fabrics {
        let text = setup.start(name, 2, &[], "1048576")?;
        for line in text.lines() {
            if let ["latency", bytes, time] = line.split(' ').collect::<Vec<_>>()[..] {
                let start = format!("bandwidth {bytes} ");
                let rate = text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or("-");
                let _ = writeln!(table, "| {shown} | {bytes} | {time} | {rate} |");
            }
        }
    }
    output::show(&table);
    Ok(Outcome::passed("the table above"))
}

impl Setup {
    /// Lays out the library, gets the MPI and builds the program; the inner error is why that is not possible here.
    fn new() -> Result<Result<Setup, String>, String> {
        let folder = target_dir()?.join("mpi");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mpi = folder.join("impi");
        if let Err(why) = get(&mpi) {
            return Ok(Err(why));
        }
        let library = capi::lay_out()?.join("lib");
        let setup = Setup {
            check: folder.join("check"),
            preload: folder.join("memlock.so"),
            plugins: folder.join("plugins.toml"),
            library,
            mpi,
        };
        fs::write(&setup.plugins, PLUGINS)
            .map_err(|error| format!("{}: {error}", setup.plugins.display()))?;
        let lib = setup.mpi.join("lib");
        Run::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "tests/mpi/check.c", "-o"])
            .args([&setup.check, &lib.join("libmpi.so.12")])
            .args([format!("-Wl,-rpath,{}", lib.display()), "-Wl,--allow-shlib-undefined".to_owned()])
            .run()?;
        Run::new("cc")
            .args([
                "-std=gnu11",
                "-O1",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-shared",
                "-fPIC",
                "tests/mpi/memlock.c",
            ])
            .args([Path::new("-o"), &setup.preload])
            .run()?;
        Ok(Ok(setup))
    }

    /// One run of all checks.
    fn checks(&self, name: &str, ranks: u32, settings: &[(&str, &str)]) -> Result<(), String> {
        let most = if ranks == 2 { "4194304" } else { "65536" };
        let text = self.start(Some(name), ranks, settings, most)?;
        let all_passed =
            text.lines().any(|line| line.starts_with("checks: ") && line.ends_with(" ok, 0 failed"));
        match text.contains("dapl data transfer mode") {
            _ if !all_passed => Err(text),
            false => Err("it did not use uDAPL".to_owned()),
            true => Ok(()),
        }
    }

    /// Starts the ranks, over uDAPL by this name or over the MPI's own shared memory; gives what they printed.
    fn start(
        &self,
        name: Option<&str>,
        ranks: u32,
        settings: &[(&str, &str)],
        most: &str,
    ) -> Result<String, String> {
        let fabric = name.map_or("shm", |_| "dapl");
        let library = self.library.join("libdat2.so.2").display().to_string();
        let mut pairs = vec![
            // It reads a NULL when an RDMA device has no NUMA node.
            ("I_MPI_INFO_NUMA_NODE_MAP", ""),
            ("I_MPI_FABRICS", fabric),
            ("I_MPI_FALLBACK", "0"),
            ("I_MPI_DEBUG", "5"),
            ("I_MPI_DAT_LIBRARY", &library),
            ("I_MPI_DAPL_PROVIDER", name.unwrap_or_default()),
        ];
        pairs.extend(settings);
        let preload = self.preload.display().to_string();
        pairs.push(("LD_PRELOAD", &preload));
        let run = Run::new(&self.mpi.join("bin/mpiexec.hydra").display().to_string())
            .args(["-n".to_owned(), ranks.to_string()])
            .env("I_MPI_ROOT", &self.mpi)
            .env("DAT_PLUGINS", &self.plugins)
            .env("LD_LIBRARY_PATH", format!("{}:{}", self.library.display(), self.mpi.join("lib").display()));
        let run = pairs.iter().fold(run, |run, (key, value)| run.args(["-genv", key, value]));
        run.args([self.check.as_os_str(), most.as_ref()]).deadline(120).output()
    }
}

/// Gets the MPI into `folder`, once.
fn get(folder: &Path) -> Result<(), String> {
    if folder.join("lib/libmpi.so.12").exists() {
        return Ok(());
    }
    let made = Run::new("python3").args([Path::new("-m"), Path::new("venv"), folder]).output();
    made.map_err(|why| format!("no Python environment (apt-get install python3-venv): {why}"))?;
    let pip = folder.join("bin/pip").display().to_string();
    let got =
        Run::new(&pip).args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]).deadline(300);
    got.output().map(drop).map_err(|why| format!("cannot get {PACKAGE} from the Python index: {why}"))
}
