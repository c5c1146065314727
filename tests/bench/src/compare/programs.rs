//! Other programs: started pinned, ended in time; their versions, and the machine's.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use dat_measure::cpu;
use serde_json::{Value, json};

/// How long a program may take.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether a program is there.
pub(crate) fn there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Starts a program on one processor; the calling thread stays on the other.
fn start(command: &mut Command, on: usize, back_to: usize) -> Result<Child, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let pinned = |cpu| cpu::pin(cpu).map_err(|error| format!("pinning to processor {cpu}: {error}"));
    pinned(on)?;
    let child = command.stdin(Stdio::null()).spawn();
    pinned(back_to)?;
    child.map_err(|error| format!("{name} does not start: {error}"))
}

/// Runs a program to its end and gives what it printed.
pub(crate) fn output(command: &mut Command, on: usize, back_to: usize) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let mut child = start(command.stdout(Stdio::piped()).stderr(Stdio::piped()), on, back_to)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let reader = |stream: Option<Box<dyn Read + Send>>| {
        thread::spawn(move || {
            let mut text = String::new();
            // What cannot be read is not there.
            let _ = stream.map(|mut stream| stream.read_to_string(&mut text));
            text
        })
    };
    let out = reader(out.map(|out| Box::new(out) as Box<dyn Read + Send>));
    let err = reader(err.map(|err| Box::new(err) as Box<dyn Read + Send>));
    let ended = end(&mut child, LIMIT);
    let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
    match ended {
        Some(true) => Ok(out),
        Some(false) => Err(format!("{name} failed: {}", err.lines().next().unwrap_or("it says nothing"))),
        None => Err(format!("{name} did not end within {LIMIT:?}")),
    }
}

/// Waits for its end: whether it succeeded; nothing when it had to be ended.
fn end(child: &mut Child, limit: Duration) -> Option<bool> {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status.success());
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// A server that listens on a TCP port, and its client, which ends it by ending; what the client printed.
pub(crate) fn pair(
    server: &mut Command,
    client: &mut Command,
    port: u16,
    cpus: (usize, usize),
) -> Result<String, String> {
    let mut serving = start(server.stdout(Stdio::null()).stderr(Stdio::null()), cpus.1, cpus.0)?;
    let listens = listening(port);
    let printed = match listens {
        true => output(client, cpus.0, cpus.0),
        false => Err(format!("{} does not listen", server.get_program().to_string_lossy())),
    };
    if printed.is_err() {
        // No program will connect any more.
        let _ = serving.kill();
    }
    end(&mut serving, Duration::from_secs(5));
    printed
}

/// A port that was not used by this program before.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 20_000 + (std::process::id() % 20_000) as u16;
    base + NEXT.fetch_add(1, Ordering::Relaxed) % 10_000
}

fn listening(port: u16) -> bool {
    let wanted = format!(":{port:04X}");
    let listens = |file: &str| {
        let table = fs::read_to_string(file).unwrap_or_default();
        table.lines().any(|line| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().unwrap_or_default();
            local.ends_with(&wanted) && fields.nth(1) == Some("0A")
        })
    };
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        if listens("/proc/net/tcp") || listens("/proc/net/tcp6") {
            return true;
        }
        thread::sleep(Duration::from_millis(5));
    }
    false
}

/// The programs compared with, by their own words.
pub(crate) fn versions() -> Value {
    let first = |program: &str, argument: &str, wanted: &str| {
        let out = Command::new(program).arg(argument).stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let line = text.lines().find(|line| line.contains(wanted))?;
        Some(line.trim_matches(['#', ' ']).to_owned())
    };
    json!({
        "dat": env!("CARGO_PKG_VERSION"),
        "UCX": first("ucx_info", "-v", "ersion"),
        "libfabric": first("fi_info", "--version", "libfabric:"),
    })
}

/// What was measured on.
pub(crate) fn machine() -> Value {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let field = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let cpuinfo = read("/proc/cpuinfo");
    let virtual_ =
        field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    json!({
        "processor": field(&cpuinfo, "model name"),
        "processors": cpu::allowed().len(),
        "virtual": virtual_,
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load": read("/proc/loadavg").trim(),
        "tcp_congestion_control": read("/proc/sys/net/ipv4/tcp_congestion_control").trim(),
    })
}
