//! Many connections of two processes: how fast they are made, what they hold, and what a message or an empty poll costs
//! when most of them are idle. One dispatcher serves all of them.

use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use dat::{DtoOperation, Ep, Evd, EvdFlags, Event, Ia, Privileges, Pz, Slice};
use dat_measure::cpu::{self, Placement};

use super::descriptors::many_descriptors;
use super::figures::{Figures, median};
use super::points::Test;
use super::serve::{LENGTH, MOST, attr};

const LIMIT: Duration = Duration::from_secs(20);

/// One round: all figures of all numbers of connections.
pub(crate) fn run(quick: bool, cpus: (usize, usize), figures: &mut Figures) {
    many_descriptors();
    let result = Serving::start(cpus).and_then(|serving| {
        let counts: &[usize] = if quick { &[1, 100] } else { &[1, 10, 100, 1000] };
        measure(&serving, counts, cpus, figures)
    });
    if let Err(why) = result {
        figures.miss("dat, many connections", &why);
    }
}

/// The other process.
struct Serving {
    child: Child,
    address: std::net::IpAddr,
    qual: u64,
    socket: String,
}

impl Serving {
    fn start(cpus: (usize, usize)) -> Result<Serving, String> {
        let program = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
        let mut command = Command::new(program);
        command.arg("serve").arg(cpus.1.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("the other process: {error}"))?;
        let mut line = String::new();
        // Ends at the latest with the process.
        let _ = BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line);
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = match words[..] {
            [address, qual, socket] => address.parse().ok().zip(qual.parse().ok()).zip(Some(socket)),
            _ => None,
        };
        match said {
            Some(((address, qual), socket)) => {
                Ok(Serving { child, address, qual, socket: socket.to_owned() })
            }
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err("the other process did not start".to_owned())
            }
        }
    }

    /// Bytes both processes hold, a page that both have counted once.
    fn memory(&self) -> Result<f64, String> {
        let of = |process: &str| {
            let file = format!("/proc/{process}/smaps_rollup");
            let text = fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?;
            let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
            let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            kib.map(|kib| kib * 1024.0).ok_or_else(|| format!("{file} has no line Pss"))
        };
        Ok(of("self")? + of(&self.child.id().to_string())?)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It ends with its input.
        drop(self.child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This side's objects.
struct Own {
    ia: Ia,
    pz: Pz,
    connections: Evd,
    completions: Evd,
    into: Slice,
    from: Slice,
}

fn measure(
    serving: &Serving,
    counts: &[usize],
    cpus: (usize, usize),
    figures: &mut Figures,
) -> Result<(), String> {
    let text = |error: dat::Error| error.to_string();
    cpu::pin(cpus.0).map_err(|error| error.to_string())?;
    let ia = dat::open("shm0").map_err(text)?;
    let pz = ia.pz().map_err(text)?;
    let region = pz.region(2 * LENGTH, Privileges::ALL).map_err(text)?;
    let own = Own {
        connections: ia.evd_of(64, EvdFlags::CONNECTION).map_err(text)?,
        completions: ia.evd_of(4 * MOST, EvdFlags::DTO).map_err(text)?,
        into: region.slice(..LENGTH),
        from: region.slice(LENGTH..2 * LENGTH),
        ia,
        pz,
    };
    let mut eps = vec![own.connect(serving)?];
    // What is made once is not counted.
    own.echo(&eps[0], 100)?;
    let (memory, descriptors) = (serving.memory()?, descriptors());
    for &count in counts {
        let mut times = Vec::new();
        while eps.len() < count {
            let start = Instant::now();
            eps.push(own.connect(serving)?);
            times.push(start.elapsed().as_nanos() as f64);
        }
        let size = count as u32;
        if count >= 100 {
            figures.add((Test::Connect, size), "dat", Placement::Unknown, 0.0, median(&times));
            let sockets = plain(serving, times.len())?;
            figures.add((Test::Connect, size), "unix socket", Placement::Unknown, 0.0, sockets);
            let each = (serving.memory()? - memory) / (count - 1) as f64;
            figures.add((Test::Memory, size), "dat", Placement::Unknown, 0.0, each);
            let each = (self::descriptors() - descriptors) as f64 / (count - 1) as f64;
            figures.add((Test::Descriptors, size), "dat", Placement::Unknown, 0.0, each);
        }
        // Those that were made last take a moment to be idle.
        std::thread::sleep(Duration::from_millis(50));
        own.echo(&eps[0], 1000)?;
        for _ in 0..10 {
            let before = probe(cpus);
            let mut halves = Vec::new();
            for _ in 0..10 {
                let start = Instant::now();
                own.echo(&eps[0], 500)?;
                halves.push(start.elapsed().as_nanos() as f64 / 1000.0);
            }
            let after = probe(cpus);
            let place = Placement::between(before, after);
            figures.add((Test::EchoAmongIdle, size), "dat", place, before.min(after), median(&halves));
        }
        let start = Instant::now();
        const POLLS: u32 = 100_000;
        for _ in 0..POLLS {
            if black_box(own.completions.poll().map_err(text)?).is_some() {
                return Err("an event nobody caused".to_owned());
            }
        }
        let each = start.elapsed().as_nanos() as f64 / f64::from(POLLS);
        figures.add((Test::EmptyPoll, size), "dat", Placement::Unknown, 0.0, each);
    }
    Ok(())
}

/// The other side sleeps when nothing has come for a while, so its processor is free then.
fn probe(cpus: (usize, usize)) -> f64 {
    std::thread::sleep(Duration::from_millis(5));
    cpu::probe(cpus.1).unwrap_or(f64::INFINITY)
}

/// Median of connecting, over a plain socket, until the other side has it.
fn plain(serving: &Serving, count: usize) -> Result<f64, String> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        let stream = UnixStream::connect(&serving.socket);
        let ended = stream.and_then(|mut stream| stream.read_to_end(&mut Vec::new()));
        ended.map_err(|error| format!("{}: {error}", serving.socket))?;
        times.push(start.elapsed().as_nanos() as f64);
    }
    Ok(median(&times))
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or_default()
}

impl Own {
    fn connect(&self, serving: &Serving) -> Result<Ep, String> {
        let make = || {
            let ep = self.ia.ep(&self.pz).connect_evd(&self.connections);
            let ep = ep.recv_evd(&self.completions).request_evd(&self.completions).attr(attr()).create()?;
            ep.connect(serving.address, serving.qual).timeout(LIMIT).establish()?;
            Ok(ep)
        };
        make().map_err(|error: dat::Error| format!("connecting: {error}"))
    }

    /// Messages to and fro, with a completion for each end.
    fn echo(&self, ep: &Ep, rounds: u32) -> Result<(), String> {
        let text = |error: dat::Error| error.to_string();
        for _ in 0..rounds {
            ep.recv_into(&[self.into]).post().map_err(text)?;
            ep.send_from(&[self.from]).post().map_err(text)?;
            let mut left = 2;
            let mut polls = 0u32;
            let mut deadline = None;
            while left > 0 {
                match self.completions.poll().map_err(text)? {
                    Some(Event::Completion(done)) if done.status.is_success() => {
                        debug_assert!(matches!(done.operation, DtoOperation::Receive | DtoOperation::Send));
                        left -= 1;
                    }
                    Some(other) => return Err(format!("instead of a completion: {other:?}")),
                    None => polls += 1,
                }
                if polls > 100_000 {
                    polls = 0;
                    if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + LIMIT) {
                        return Err(format!("no answer within {LIMIT:?}"));
                    }
                }
            }
        }
        Ok(())
    }
}
