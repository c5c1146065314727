//! `cargo xtask vm COMMAND`: runs a command as root in an emulated machine with a real kernel RDMA stack.
//!
//! The machine boots a distribution's kernel in QEMU, by emulation, so that no virtualisation is needed. Its devices
//! are Soft-RoCE on dummy interfaces: `rxe0` at 192.168.77.1 and `rxe1` at 192.168.78.1. Its root is this machine's,
//! read-only under an overlay in memory: what is built here runs there, and what it writes there is gone afterwards,
//! except under `/run/dat-vm/out`. See docs/rdma-vm.md.

mod cpio;
mod image;

use std::fs;
use std::path::PathBuf;

use crate::leg::{Outcome, Report};
use crate::process::Run;

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";

const SETUP: &str = include_str!("../../../tests/vm/setup.sh");

/// The kernel's command line. Left to itself the kernel finds the processors' counters not to agree, which emulated ones
/// do, and takes its time from a device instead: 2 µs for a look at the clock, of which programs that measure pay and
/// those that read the counter themselves do not.
const KERNEL: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable clocksource=tsc";

/// What an emulated machine is given.
pub struct Machine {
    /// MiB of memory.
    pub memory: u32,
    /// Processors.
    pub processors: u32,
    /// Seconds from power-on to power-off.
    pub deadline: u64,
    /// Environment of the command.
    pub environment: Vec<(String, String)>,
}

/// How a command in the machine ended.
pub struct Ended {
    /// The command's exit status.
    pub status: i32,
    /// What it printed.
    pub output: String,
    /// What it left in `/run/dat-vm/out`, on this side; removed with this.
    pub out: tempfile::TempDir,
}

/// Why there is no [`Ended`].
pub enum Trouble {
    /// There can be no such machine here, and why.
    Unavailable(String),
    /// It came up, or should have, and did not get to the command's end.
    Failed(String),
}

impl Default for Machine {
    fn default() -> Machine {
        Machine { memory: 3072, processors: 2, deadline: 900, environment: Vec::new() }
    }
}

impl Machine {
    /// Runs a shell command line in the machine, its output shown as it comes.
    pub fn run(&self, command: &str) -> Result<Ended, Trouble> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Trouble::Unavailable("only on x86-64 Linux".to_owned()));
        }
        tools().map_err(Trouble::Unavailable)?;
        let image = image::get().map_err(Trouble::Unavailable)?;
        let failed = |what: &str, error: &dyn std::fmt::Display| Trouble::Failed(format!("{what}: {error}"));
        let job = tempfile::tempdir().map_err(|error| failed("a folder for the job", &error))?;
        let directory = std::env::current_dir().map_err(|error| failed("current directory", &error))?;
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let mut shell = format!("directory={}\n", quoted(&directory.to_string_lossy()));
        for (key, value) in &self.environment {
            shell.push_str(&format!("export {key}={}\n", quoted(value)));
        }
        fs::create_dir(job.path().join("out")).map_err(|error| failed("out", &error))?;
        for (name, text) in [("setup.sh", SETUP), ("job.sh", &shell), ("command.sh", command)] {
            fs::write(job.path().join(name), text).map_err(|error| failed(name, &error))?;
        }
        let folder = job.path().to_string_lossy();
        let console = job.path().join("console");
        let share = |path: &str, tag: &str, more: &str| {
            format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}")
        };
        let mut output = String::new();
        let ended = Run::new(QEMU)
            .args([
                "-accel",
                "tcg,thread=multi",
                "-cpu",
                "max",
                "-display",
                "none",
                "-no-reboot",
                "-nic",
                "none",
            ])
            .args(["-smp".to_owned(), self.processors.to_string(), "-m".to_owned(), self.memory.to_string()])
            .args(["-serial".to_owned(), format!("file:{}", console.display())])
            .args(["-chardev", "stdio,id=out,signal=off", "-serial", "chardev:out", "-monitor", "none"])
            .args(["-virtfs", &share("/", "host", ",readonly=on"), "-virtfs", &share(&folder, "job", "")])
            .args([PathBuf::from("-kernel"), image.kernel, "-initrd".into(), image.initrd])
            .args(["-append", KERNEL])
            .deadline(self.deadline)
            .lines(|line| {
                output.push_str(line);
                output.push('\n');
            });
        let status = fs::read_to_string(job.path().join("status")).ok();
        match (ended, status.and_then(|status| status.trim().parse().ok())) {
            (Ok(()), Some(status)) => Ok(Ended { status, output, out: job }),
            (ended, _) => {
                let why = ended.err().unwrap_or_else(|| "the command did not come to its end".to_owned());
                let console = fs::read_to_string(&console).unwrap_or_default();
                let lines: Vec<&str> = console.lines().collect();
                let last = lines[lines.len().saturating_sub(12)..].join("\n");
                Err(Trouble::Failed(format!("{why}; the console's last lines:\n{last}")))
            }
        }
    }
}

/// Everything that is needed from this machine, or what is missing.
fn tools() -> Result<(), String> {
    let needed = [
        (QEMU, "qemu-system-x86"),
        ("modprobe", "kmod"),
        ("depmod", "kmod"),
        ("dpkg", "dpkg"),
        ("rdma", "iproute2"),
        ("busybox", "busybox-static"),
    ];
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let there = |tool: &str| folders.iter().any(|folder| PathBuf::from(folder).join(tool).exists());
    let missing: Vec<&str> =
        needed.iter().filter(|(tool, _)| !there(tool)).map(|(_, package)| *package).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(format!("missing here; run `apt-get install {}`", missing.join(" "))),
    }
}

/// The command `vm`: all arguments are the command to run in the machine.
pub fn run(arguments: &[String]) -> Report {
    if arguments.is_empty() {
        return Err("say which command to run in the machine, as in `cargo xtask vm rping -h`".to_owned());
    }
    let number = |key: &str, default: u64| match std::env::var(key) {
        Ok(text) => text.parse().map_err(|_| format!("{key} = {text:?} is no number")),
        Err(_) => Ok(default),
    };
    let default = Machine::default();
    let machine = Machine {
        memory: number("DAT_VM_MEMORY", default.memory.into())? as u32,
        processors: number("DAT_VM_PROCESSORS", default.processors.into())? as u32,
        deadline: number("DAT_VM_DEADLINE", default.deadline)?,
        environment: Vec::new(),
    };
    let quoted: Vec<String> =
        arguments.iter().map(|argument| format!("'{}'", argument.replace('\'', r"'\''"))).collect();
    // A single argument is a line for the shell, several are a program and its arguments.
    let command = if let [line] = arguments { line.clone() } else { quoted.join(" ") };
    match machine.run(&command) {
        Ok(Ended { status: 0, .. }) => Ok(Outcome::passed("exit status 0")),
        Ok(Ended { status, .. }) => Err(format!("the command's exit status is {status}")),
        Err(Trouble::Unavailable(why)) => Ok(Outcome::not_run(why)),
        Err(Trouble::Failed(why)) => Err(why),
    }
}
