//! `cargo xtask vm COMMAND`: runs a command as root in an emulated machine with a real kernel RDMA stack.
//!
//! The machine boots a distribution's kernel in QEMU, by emulation, so that no virtualisation is needed. Its devices
//! are Soft-RoCE on dummy interfaces: `rxe0` at 192.168.77.1 and `rxe1` at 192.168.78.1. Its root is this machine's,
//! read-only under an overlay in memory: what is built here runs there, and what it writes there is gone afterwards,
//! except under `/run/dat-vm/out`. See docs/rdma-vm.md.

mod image;

use fs_err as fs;
use std::path::PathBuf;

use crate::need;
use crate::process::Run;
use crate::report::{Report, Result, Stop};

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";

/// Programs that are needed from this machine, with their packages.
const TOOLS: [(&str, &str); 6] = [
    (QEMU, "qemu-system-x86"),
    ("modprobe", "kmod"),
    ("depmod", "kmod"),
    ("dpkg", "dpkg"),
    ("rdma", "iproute2"),
    ("busybox", "busybox-static"),
];

/// Lines of a failed run, or of the console, that are shown.
const SHOWN: usize = 30;

const SETUP: &str = include_str!("../../../tests/vm/setup.sh");

/// The kernel's command line. By default the kernel decides that the counters of emulated processors do not agree, and
/// takes the time from a device. Reading the clock then costs 2 µs, which would spoil measurements.
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

impl Default for Machine {
    fn default() -> Machine {
        Machine { memory: 3072, processors: 2, deadline: 900, environment: Vec::new() }
    }
}

impl Machine {
    /// Runs a shell command line in the machine, its output shown as it comes. Fails if it does not succeed.
    pub fn run_well(&self, command: &str) -> Result<Ended> {
        let ended = self.run(command)?;
        match ended.status {
            0 => Ok(ended),
            status => {
                let lines: Vec<&str> = ended.output.lines().collect();
                let failed: Vec<&str> =
                    lines.iter().copied().filter(|line| line.contains(": FAILED")).collect();
                let shown =
                    if failed.is_empty() { &lines[lines.len().saturating_sub(SHOWN)..] } else { &failed };
                fail!("in the emulated machine, exit status {status}:\n{}", shown.join("\n"))
            }
        }
    }

    /// The same, whatever its exit status is.
    pub fn run(&self, command: &str) -> Result<Ended> {
        need::x86_linux()?;
        need::programs(&TOOLS)?;
        let image = image::get().map_err(Stop::into_not_run)?;
        let job = tempfile::tempdir()?;
        let directory = std::env::current_dir()?;
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let mut shell = format!("directory={}\n", quoted(&directory.to_string_lossy()));
        for (key, value) in &self.environment {
            shell.push_str(&format!("export {key}={}\n", quoted(value)));
        }
        fs::create_dir(job.path().join("out"))?;
        for (name, text) in [("setup.sh", SETUP), ("job.sh", &shell), ("command.sh", command)] {
            fs::write(job.path().join(name), text)?;
        }
        let folder = job.path().to_string_lossy();
        let console = job.path().join("console");
        let share = |path: &str, tag: &str, more: &str| {
            format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{more}")
        };
        let mut output = String::new();
        let ended = Run::new(QEMU)
            .args("-accel tcg,thread=multi -cpu max -display none -no-reboot -nic none".split(' '))
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
                let why = ended.err().map_or("the command did not come to its end".to_owned(), Stop::words);
                let console = fs::read_to_string(&console).unwrap_or_default();
                let lines: Vec<&str> = console.lines().collect();
                let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
                fail!("{why}; the console's last lines:\n{last}")
            }
        }
    }
}

/// The command `vm`: all arguments are the command to run in the machine.
pub fn run(arguments: &[String]) -> Report {
    if arguments.is_empty() {
        return Err("say which command to run in the machine, as in `cargo xtask vm rping -h`".into());
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
    match machine.run(&command)?.status {
        0 => Ok("exit status 0".into()),
        status => fail!("the command's exit status is {status}"),
    }
}
