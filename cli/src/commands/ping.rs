//! `dat ping`: two sides connect by a name, move bytes by every operation, and verify each byte.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::args::Ping;
use crate::cpu;
use crate::failure::{Context, Failure, Outcome};
use crate::link::{Link, Shape};
use crate::output::{Shared, Table};
use crate::peer::Peer;
use crate::protocol::{Control, bytes, difference};
use crate::serve;
use crate::units;

/// Few operations are outstanding, and waits sleep after a short poll, so ping adds little load to a busy machine.
const DEPTH: u32 = 16;

/// Pings, or is the peer.
pub fn run(shared: &Shared, ping: &Ping) -> Outcome<ExitCode> {
    if let Some(qual) = ping.side.listen {
        return serve::listening(shared, &ping.name, qual, &ping.side);
    }
    let ia = shared.ia(&ping.name).open()?;
    let limit = ping.side.timeout;
    let peer = match ping.side.connect {
        Some(target) => Peer::elsewhere(target),
        // Two processors, as for two programs. A scheduler puts a parent and its child on one processor at first.
        None => Peer::start(shared, &ia, limit, cpu::two())?,
    };
    let start = Instant::now();
    let shape = Shape { size: ping.size, depth: DEPTH, wait: true, heap: false, buffers: DEPTH, limit };
    let mut link = Link::connect(&ia, peer.target, shape)?;
    let connected = start.elapsed();
    let path = link.path();
    let mut times = Times::default();
    for round in 0..ping.count {
        if round > 0 && !ping.interval.is_zero() {
            thread::sleep(ping.interval);
        }
        // Seeds go up by four a round: each pattern is of its own.
        let seed = (round as u32).wrapping_mul(4);
        one(&mut link, seed, ping.size, &mut times)
            .context(|| format!("round {} of {} with {}", round + 1, ping.count, peer.describe()))?;
    }
    link.close()?;
    let done = Done { name: ia.name(), peer: &peer.describe(), path: &path, connected, ping, times };
    shared.print(|| done.json(), || done.text())?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Default)]
struct Times {
    message: Vec<f64>,
    write: Vec<f64>,
    read: Vec<f64>,
}

/// A message there and back, a write, a read.
fn one(link: &mut Link, seed: u32, length: u32, times: &mut Times) -> Outcome {
    link.put(&bytes(seed, length));
    link.request(Control::Echo { seed, length })?;
    let start = Instant::now();
    link.send(0, length, false)?;
    let message = link.receive()?;
    times.message.push(nanos(start));
    let mut reply = vec![0; message.length as usize];
    link.copy(message, &mut reply);
    link.release(message)?;
    if let Some((offset, byte)) = difference(&bytes(seed.wrapping_add(1), length), &reply) {
        return Err(match Control::decode(&reply) {
            Some(Control::Mismatch { offset, found }) => wrong("the peer received", offset, found),
            _ => wrong("the echo has", offset, byte),
        });
    }
    link.drain_to(0)?;

    let seed = seed.wrapping_add(2);
    link.put(&bytes(seed, length));
    let start = Instant::now();
    link.write(0, length, false)?;
    link.drain_to(0)?;
    times.write.push(nanos(start));
    link.request(Control::Verify { seed, length }).context(|| "RDMA write".into())?;

    let seed = seed.wrapping_add(1);
    link.request(Control::Fill { seed, length })?;
    let start = Instant::now();
    link.read(0, length, false)?;
    link.drain_to(0)?;
    times.read.push(nanos(start));
    let mut found = vec![0; length as usize];
    link.get(&mut found);
    match difference(&bytes(seed, length), &found) {
        None => Ok(()),
        Some((offset, byte)) => Err(wrong("the RDMA read gave", offset, byte)),
    }
}

fn wrong(what: &str, offset: u32, byte: u32) -> Failure {
    Failure::new(format!("{what} {byte:#04x} at byte {offset}, which is not what was sent"))
}

fn nanos(start: Instant) -> f64 {
    start.elapsed().as_nanos() as f64
}

struct Done<'a> {
    name: &'a str,
    peer: &'a str,
    path: &'a str,
    connected: Duration,
    ping: &'a Ping,
    times: Times,
}

impl Done<'_> {
    /// What was measured: name, times, what the times are.
    fn rows(&self) -> [(&'static str, &[f64]); 3] {
        [
            ("message, there and back", &self.times.message),
            ("RDMA write, to completion", &self.times.write),
            ("RDMA read, to completion", &self.times.read),
        ]
    }

    fn json(&self) -> Value {
        let [message, write, read] = self.rows().map(|(_, times)| {
            let [min, median, max] = summary(times);
            json!({ "min_ns": min, "median_ns": median, "max_ns": max })
        });
        json!({
            "name": self.name,
            "peer": self.peer,
            "path": self.path,
            "connect_us": self.connected.as_micros() as u64,
            "count": self.ping.count,
            "size": self.ping.size,
            "verified_bytes": self.verified(),
            "round_trip": message,
            "write": write,
            "read": read,
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new(&["", "MIN", "MEDIAN", "MAX"], 1);
        for (what, times) in self.rows() {
            let shown = summary(times).map(units::show_nanos);
            table.row([what.to_owned()].into_iter().chain(shown).collect());
        }
        format!(
            "{}: connected to {} in {}\npath: {}\n{} rounds of {} bytes; {} bytes verified, none wrong; disconnected gracefully\n{}",
            self.name,
            self.peer,
            units::show_nanos(self.connected.as_nanos() as f64),
            self.path,
            self.ping.count,
            self.ping.size,
            self.verified(),
            table.text(),
        )
    }

    /// There, back, written, read.
    fn verified(&self) -> u64 {
        4 * self.ping.count * u64::from(self.ping.size)
    }
}

/// Least, median, greatest.
fn summary(times: &[f64]) -> [f64; 3] {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    [at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1))]
}
