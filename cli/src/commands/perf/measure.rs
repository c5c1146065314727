//! The measuring side of perf: the measured loops and their samples.

use std::time::{Duration, Instant};

use super::plan::Row;
use crate::args::{Metric, Operation, Perf};
use crate::cpu::{self, Placement};
use crate::failure::{Failure, Outcome};
use crate::link::Link;
use crate::protocol::{Control, mark};

/// Minimum and maximum number of samples of a row. `--quick` accepts one.
const SAMPLES: std::ops::RangeInclusive<usize> = 3..=2000;

/// Minimum length of a piece of a latency sample, in clock reads. A read takes 30 ns on most machines, and microseconds on
/// some virtual ones.
const CLOCK_SHARE: f64 = 200.0;
/// Steps of a trial run, and the number of trial runs.
const TRIAL: u32 = 4;
const TRIALS: u32 = 3;

/// Time for a row with `--quick`.
const QUICK: Duration = Duration::from_millis(100);

/// A short run between two probes.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Placement of the two processors.
    pub place: Placement,
    /// Time of one operation, in nanoseconds, one value per batch.
    pub nanos: Vec<f64>,
}

/// Takes samples of a row until its time is up.
pub fn row(link: &mut Link, row: &Row, perf: &Perf, peer_cpu: Option<usize>) -> Outcome<Vec<Sample>> {
    let start = Instant::now();
    let (time, least) = if perf.quick { (QUICK, 1) } else { (perf.seconds, *SAMPLES.start()) };
    let mut samples = Vec::new();
    let mut before = probe(peer_cpu)?;
    while samples.len() < least || start.elapsed() < time && samples.len() < *SAMPLES.end() {
        let nanos = sample(link, row)?;
        let after = probe(peer_cpu)?;
        let place = match (before, after) {
            (Some(before), Some(after)) => Placement::between(before, after),
            _ => Placement::Unknown,
        };
        samples.push(Sample { place, nanos });
        before = after;
        // Operations are slow: the samples taken must suffice.
        if start.elapsed() > perf.side.timeout {
            break;
        }
    }
    Ok(samples)
}

/// The peer sleeps between samples, so its processor is free for the probe.
fn probe(peer_cpu: Option<usize>) -> Outcome<Option<f64>> {
    peer_cpu.map(cpu::probe).transpose()
}

fn sample(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    match (row.operation, row.metric) {
        (Operation::Send, Metric::Latency) => ping_pong(link, row),
        (Operation::Write, Metric::Latency) if row.is_one_way() => write_pong(link, row),
        (Operation::Write | Operation::Read, Metric::Latency) => to_completion(link, row),
        (Operation::Send, _) => stream_of_messages(link, row),
        (Operation::Write | Operation::Read, _) => stream(link, row),
    }
}

fn ping_pong(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    link.request(Control::PingPong { messages: row.steps(), length: row.size })?;
    // The previous message's receive is posted while the next message travels.
    let mut last = None;
    let times = steps(row, 2, |_| {
        link.send(0, row.size, false)?;
        if let Some(message) = last.take() {
            link.release(message)?;
        }
        last = Some(link.receive()?);
        Ok(())
    })?;
    if let Some(message) = last {
        link.release(message)?;
    }
    link.drain_to(0)?;
    Ok(times)
}

fn write_pong(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    let last = row.size as usize - 1;
    link.window().write(last, &[0]);
    link.request(Control::WritePong { writes: row.steps(), length: row.size })?;
    steps(row, 2, |step| {
        let mark = mark(step);
        link.put_byte(last, mark);
        link.write(0, row.size, false)?;
        // Its completion is taken while the write travels. The source is then free for the next write.
        link.drain_to(0)?;
        link.wait_for_byte(last, mark)
    })
}

fn to_completion(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    steps(row, 1, |_| {
        post(link, row, 0, false)?;
        link.drain_to(0)
    })
}

fn stream_of_messages(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    link.request(Control::Sink { messages: row.batch, batches: row.batches })?;
    batches(row, |every| {
        flood(link, row, every)?;
        match link.receive_control()? {
            Control::Done => Ok(()),
            other => Err(Failure::new(format!("the peer answered {other:?}"))),
        }
    })
}

fn stream(link: &mut Link, row: &Row) -> Outcome<Vec<f64>> {
    batches(row, |every| flood(link, row, every))
}

/// A batch with the maximum of outstanding operations, and one completion in `every`.
#[inline]
fn flood(link: &mut Link, row: &Row, every: u32) -> Outcome {
    let window = u64::from(link.depth());
    for i in 0..row.batch {
        link.drain_to(window - 1)?;
        // The last completion of a batch includes all earlier ones.
        let suppressed = (i + 1) % every != 0 && i + 1 != row.batch;
        post(link, row, i, suppressed)?;
    }
    link.drain_to(0)
}

#[inline]
fn post(link: &mut Link, row: &Row, index: u32, suppressed: bool) -> Outcome {
    match row.operation {
        Operation::Send => link.send(index, row.size, suppressed),
        Operation::Write => link.write(index, row.size, suppressed),
        Operation::Read => link.read(index, row.size, suppressed),
    }
}

/// Times the steps of a sample, `parts` operations each, in pieces as short as the clock allows. For slow steps the median is
/// that of single steps, and an interruption affects one piece only.
#[inline]
fn steps(row: &Row, parts: u32, mut step: impl FnMut(u32) -> Outcome) -> Outcome<Vec<f64>> {
    let mut next = 0;
    let mut piece = |length: u32| {
        let start = Instant::now();
        for i in next..next + length {
            step(i)?;
        }
        next += length;
        Ok::<f64, Failure>(start.elapsed().as_nanos() as f64 / f64::from(length))
    };
    let mut left = row.steps();
    let length = match row.piece {
        Some(length) => length,
        None => {
            // The peer wakes up during the first.
            let mut best = f64::INFINITY;
            for _ in 0..TRIALS {
                best = best.min(piece(TRIAL)?);
            }
            left -= TRIALS * TRIAL;
            ((CLOCK_SHARE * clock() / best).ceil() as u32).clamp(1, left)
        }
    };
    let mut times = Vec::with_capacity((left / length) as usize + 1);
    while left > 0 {
        let length = length.min(left);
        times.push(piece(length)? / f64::from(parts));
        left -= length;
    }
    Ok(times)
}

/// Nanoseconds that reading the clock takes.
fn clock() -> f64 {
    let read = |_| {
        let start = Instant::now();
        start.elapsed().as_nanos() as f64
    };
    (0..TRIALS).map(read).fold(f64::INFINITY, f64::min).max(1.0)
}

/// Times the batches of a sample.
fn batches(row: &Row, mut batch: impl FnMut(u32) -> Outcome) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(row.batches as usize);
    for _ in 0..row.batches {
        let start = Instant::now();
        batch(row.every)?;
        times.push(start.elapsed().as_nanos() as f64 / f64::from(row.batch));
    }
    Ok(times)
}
