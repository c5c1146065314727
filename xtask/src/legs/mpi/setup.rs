//! The MPI, the program and the library, and starting the ranks.

use crate::report::{Result, Stop};
use fs_err as fs;
use std::path::{Path, PathBuf};

use crate::capi;
use crate::cargo::target_folder;
use crate::process::Run;

const PACKAGE: &str = "impi==2018.0.0";

const PLUGINS: &str = r#"[provider.ofi-tcp]
library = "libdat_libfabric.so"
params = { fabric = "tcp", endpoint = "msg", address = "127.0.0.1" }
[provider.ofi-rdm]
library = "libdat_libfabric.so"
params = { fabric = "tcp;ofi_rxm", endpoint = "rdm", address = "127.0.0.1" }
"#;

/// The name over an RDMA device.
pub const RDMA: &str = "ibverbs0";

/// Lines of a failed run that are shown.
const SHOWN: usize = 30;

/// Seconds for one run. It takes about one on a calm machine, and ten on an emulated one.
const DEADLINE: u64 = 120;

const STRICT: [&str; 5] = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"];

/// The last lines of a run's output.
pub fn ending(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN)..].join("\n")
}

/// A folder with all of it.
pub struct Setup {
    folder: PathBuf,
    library: PathBuf,
    plugins: PathBuf,
}

impl Setup {
    /// Lays out the library, gets the MPI and builds the program.
    pub fn new() -> Result<Setup> {
        let folder = target_folder("mpi")?;
        knows_itself().and_then(|()| get(&folder.join("impi"))).map_err(Stop::into_not_run)?;
        let laid_out = capi::lay_out()?.join("lib");
        let setup = Setup::in_folder(&folder)?;
        // A link, so that the folder alone says where everything is.
        let _ = fs::remove_file(&setup.library);
        std::os::unix::fs::symlink(&laid_out, &setup.library)?;
        fs::write(&setup.plugins, PLUGINS)?;
        let lib = setup.mpi().join("lib");
        Run::new("cc")
            .args(STRICT)
            .args([
                Path::new("tests/mpi/check.c"),
                Path::new("-o"),
                &setup.check(),
                &lib.join("libmpi.so.12"),
            ])
            .args([format!("-Wl,-rpath,{}", lib.display()), "-Wl,--allow-shlib-undefined".to_owned()])
            .run()?;
        Run::new("cc")
            .args(STRICT)
            .args(["-shared", "-fPIC", "tests/mpi/memlock.c", "-o"])
            .args([setup.preload()])
            .run()?;
        Ok(setup)
    }

    /// One that was made before.
    pub fn in_folder(folder: &Path) -> Result<Setup> {
        let folder = folder.canonicalize()?;
        let (library, plugins) = (folder.join("lib"), folder.join("plugins.toml"));
        Ok(Setup { library, plugins, folder })
    }

    /// The same with the name of an RDMA device's provider.
    pub fn with_device(mut self, device: &str) -> Result<Setup> {
        self.plugins = self.folder.join("plugins-rdma.toml");
        let entry = format!(
            "[provider.{RDMA}]\nlibrary = \"libdat_ibverbs.so\"\nparams = {{ device = \"{device}\" }}\n"
        );
        fs::write(&self.plugins, &entry)?;
        Ok(self)
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn mpi(&self) -> PathBuf {
        self.folder.join("impi")
    }

    fn check(&self) -> PathBuf {
        self.folder.join("check")
    }

    fn preload(&self) -> PathBuf {
        self.folder.join("memlock.so")
    }

    /// Starts the ranks, over uDAPL by this name or over the MPI's own shared memory; gives what they printed. The
    /// message of a failure ends with it.
    pub fn start(
        &self,
        name: Option<&str>,
        ranks: u32,
        settings: &[(&str, &str)],
        argument: &str,
    ) -> Result<String> {
        let fabric = name.map_or("shm", |_| "dapl");
        let library = self.library.join("libdat2.so.2").display().to_string();
        let preload = self.preload().display().to_string();
        let mut pairs = vec![
            // It reads a NULL when an RDMA device has no NUMA node.
            ("I_MPI_INFO_NUMA_NODE_MAP", ""),
            ("I_MPI_FABRICS", fabric),
            ("I_MPI_FALLBACK", "0"),
            ("I_MPI_DEBUG", "5"),
            ("I_MPI_DAT_LIBRARY", &library),
            ("I_MPI_DAPL_PROVIDER", name.unwrap_or_default()),
            ("LD_PRELOAD", &preload),
        ];
        pairs.extend(settings);
        let run = Run::new(&self.mpi().join("bin/mpiexec.hydra").display().to_string())
            .args(["-n".to_owned(), ranks.to_string()])
            .env("I_MPI_ROOT", self.mpi())
            .env("DAT_PLUGINS", &self.plugins)
            .env(
                "LD_LIBRARY_PATH",
                format!("{}:{}", self.library.display(), self.mpi().join("lib").display()),
            );
        let run = pairs.iter().fold(run, |run, (key, value)| run.args(["-genv", key, value]));
        let run = run.args([self.check().as_os_str(), argument.as_ref()]).deadline(DEADLINE);
        let (text, ended) = run.transcript();
        match ended {
            Ok(()) => Ok(text),
            Err(stop) => fail!("{}; it printed last:\n{}", stop.words(), ending(&text)),
        }
    }
}

/// The MPI's starter looks up the name of its own host, and fails without an address.
fn knows_itself() -> Result<()> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match Run::new("getent").args(["hosts", name.trim()]).works() {
        true => Ok(()),
        false => {
            Err(format!("this host's own name {:?} has no address (see /etc/hosts)", name.trim()).into())
        }
    }
}

/// Gets the MPI into `folder`, once.
fn get(folder: &Path) -> Result<()> {
    if folder.join("lib/libmpi.so.12").exists() {
        return Ok(());
    }
    let made = Run::new("python3").args([Path::new("-m"), Path::new("venv"), folder]).output();
    made.map_err(|stop| stop.of("no Python environment (apt-get install python3-venv)"))?;
    let pip = folder.join("bin/pip").display().to_string();
    let got =
        Run::new(&pip).args(["install", "--quiet", "--disable-pip-version-check", PACKAGE]).deadline(300);
    got.output().map(drop).map_err(|stop| stop.of(format!("cannot get {PACKAGE} from the Python index")))
}
