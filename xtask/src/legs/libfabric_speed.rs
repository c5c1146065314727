//! The libfabric provider beside libfabric's own `fi_pingpong`, over TCP on this machine: messages there and back, 8 bytes
//! and 1 MiB, over both kinds of endpoints. Both programs pinned alike, with a buffer each way, in turns, without the kernel's
//! pacing where that can be; medians of the pairs.

use fs_err as fs;
use std::thread;

use serde_json::Value;

use crate::cargo::build;
use crate::need;
use crate::process::Run;
use crate::report::{Report, Result, Stop};
use crate::values::{list, median};

/// What is compared: a name for people, the fabric, the kind of endpoint.
const KINDS: [(&str, &str, &str); 2] = [("tcp-msg", "tcp", "msg"), ("tcp-rdm", "tcp;ofi_rxm", "rdm")];

/// Bytes of a message, as both programs take them, and round trips of a run.
const SIZES: [(&str, &str, u32); 2] = [("8", "8", 4000), ("1048576", "1M", 100)];

const PAIRS: usize = 7;

/// Builds, measures, prints a table. Never at real-time priority: two polling programs would leave no processor to
/// end them.
pub fn run() -> Report {
    need::programs(&[("fi_pingpong", "libfabric-bin"), ("taskset", "util-linux")])?;
    if thread::available_parallelism().map_or(1, |count| count.get()) < 2 {
        return Err(Stop::not_run("two processors are needed, one for each side"));
    }
    let built = build("release", &["dat-cli", "dat-libfabric"])?;
    let names = built.join("libfabric-speed.toml");
    let entries = KINDS.map(|(name, fabric, endpoint)| {
        let library = built.join("libdat_libfabric.so");
        format!(
            "[provider.{name}]\nlibrary = {:?}\nparams = {{ fabric = {fabric:?}, endpoint = {endpoint:?}, \
             address = \"127.0.0.1\" }}\n",
            library.to_string_lossy()
        )
    });
    fs::write(&names, entries.join("\n"))?;
    let mut words = Vec::new();
    let mut port = 47_600;
    println!("{:<8} {:>8} {:>14} {:>14} {:>8}", "fabric", "bytes", "dat, us", "fi_pingpong", "ratio");
    for (name, fabric, endpoint) in KINDS {
        for (bytes, size, rounds) in SIZES {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for _ in 0..PAIRS {
                port += 1;
                theirs.push(ping_pong(fabric, endpoint, bytes, rounds, port)?);
                ours.push(perf(&built.join("dat").to_string_lossy(), &names, name, size)?);
            }
            let (ours, theirs) = median(ours).zip(median(theirs)).ok_or("no pair was measured")?;
            let ratio = ours / theirs;
            println!("{name:<8} {bytes:>8} {ours:>14.2} {theirs:>14.2} {ratio:>8.3}");
            words.push(format!("{name} {bytes} B {ratio:.3}"));
        }
    }
    Ok(format!("one way, ours over fi_pingpong's: {}", words.join(", ")))
}

/// Microseconds one way by libfabric's program.
fn ping_pong(fabric: &str, endpoint: &str, bytes: &str, rounds: u32, port: u16) -> Result<f64> {
    let (rounds, port) = (rounds.to_string(), port.to_string());
    let common = ["fi_pingpong", "-p", fabric, "-e", endpoint, "-I", &rounds, "-S", bytes];
    // Both sides in one shell, and so in one network namespace.
    let sides = "port=$1; shift; taskset -c 0 \"$@\" -B $port > /dev/null & \
                 sleep 0.4; taskset -c 1 \"$@\" -P $port 127.0.0.1 && wait $!";
    let both = Run::unpaced("sh").args(["-c", sides, "sh", &port]).args(common).deadline(60);
    // The last line: bytes, sent, received, total, time, MB/s, microseconds, M/s.
    let text = both.output()?;
    let mut columns = text.lines().last().unwrap_or_default().split_whitespace().rev();
    let micros = columns.nth(1).and_then(|column| column.parse().ok());
    Ok(micros.ok_or_else(|| format!("fi_pingpong printed no figure: {text}"))?)
}

/// The same by ours.
fn perf(dat: &str, names: &std::path::Path, name: &str, size: &str) -> Result<f64> {
    let measure = "-t send -m latency --seconds 150ms --cpus 1,0 --buffers 1";
    let arguments = ["--json", "perf", name, "-s", size].into_iter().chain(measure.split(' '));
    let program = Run::unpaced(dat);
    let text = program.args(arguments).env("DAT_PLUGINS", names).deadline(60).output()?;
    let report: Value = serde_json::from_str(&text).map_err(|error| format!("dat perf: {error}: {text}"))?;
    let nanos = list(&report["results"]).iter().filter_map(|line| line["median"].as_f64()).collect();
    Ok(median(nanos).ok_or_else(|| format!("dat perf measured nothing: {text}"))? / 1e3)
}
