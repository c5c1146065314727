//! Processors: pinning, and how far apart two of them are.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Round trips of one probe.
const ROUNDS: u32 = 1000;
/// A probe that takes longer was not running on both processors.
const LIMIT: Duration = Duration::from_millis(500);

/// Distance of the two processors at the moment. A hypervisor may move them, and all cache-line transfers change with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Hyperthreads of one core.
    Same,
    /// One cache.
    Near,
    /// No common cache.
    Far,
    /// It changed during the measurement, or another program disturbed it.
    Mixed,
    /// Not measured: a side is not pinned, or is on another machine.
    Unknown,
}

impl Placement {
    /// For tables.
    pub fn name(self) -> &'static str {
        match self {
            Placement::Same => "same",
            Placement::Near => "near",
            Placement::Far => "far",
            Placement::Mixed => "mixed",
            Placement::Unknown => "-",
        }
    }

    /// The placement from a probe before and one after.
    #[must_use]
    pub fn between(before: f64, after: f64) -> Placement {
        match (Placement::of(before), Placement::of(after)) {
            (a, b) if a == b => a,
            _ => Placement::Mixed,
        }
    }

    /// Bounds between what was seen on virtual and real machines: 25-27, 43-75 and 157-300 ns.
    fn of(one_way_nanos: f64) -> Placement {
        match one_way_nanos {
            n if n < 36.0 => Placement::Same,
            n if n < 120.0 => Placement::Near,
            n if n < 1000.0 => Placement::Far,
            _ => Placement::Mixed,
        }
    }
}

/// Binds the calling thread, and what it starts from now on, to one processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_to(&[cpu])
}

/// The same, to any of several.
pub fn pin_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// The first two processors this process may use, for the two sides.
pub fn two() -> Option<(usize, usize)> {
    match allowed()[..] {
        [own, peer, ..] => Some((own, peer)),
        _ => None,
    }
}

/// The processors this process may use.
pub fn allowed() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// One-way time of a cache line between the calling thread's processor and another, in nanoseconds: the tenth
/// percentile of short batches, so interruptions do not count. Both sides use a spin hint, which is fastest.
pub fn probe(other: usize) -> io::Result<f64> {
    let line = Line(AtomicU32::new(0));
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            pin(other)?;
            line.answer();
            Ok(())
        });
        let asked = line.ask();
        let answered: io::Result<()> = answering.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        answered.map(|()| asked)
    })
}

#[repr(align(128))]
struct Line(AtomicU32);

impl Line {
    /// Odd numbers are requests, even ones answers.
    fn ask(&self) -> f64 {
        const BATCH: u32 = 50;
        let deadline = Instant::now() + LIMIT;
        let mut times = Vec::with_capacity((ROUNDS / BATCH) as usize);
        let mut start = Instant::now();
        for round in 0..ROUNDS {
            self.0.store(2 * round + 1, Ordering::Release);
            if !self.comes(2 * round + 2, deadline) {
                break;
            }
            if round % BATCH == BATCH - 1 {
                let now = Instant::now();
                times.push((now - start).as_nanos() as f64 / f64::from(2 * BATCH));
                start = now;
            }
        }
        // The first batch contains the start of the other thread.
        let mut times = times.split_off(times.len().min(1));
        times.sort_by(f64::total_cmp);
        // No measurement: another program holds the other processor.
        times.get(times.len() / 10).copied().unwrap_or(f64::INFINITY)
    }

    fn answer(&self) {
        let deadline = Instant::now() + LIMIT;
        for round in 0..ROUNDS {
            if !self.comes(2 * round + 1, deadline) {
                break;
            }
            self.0.store(2 * round + 2, Ordering::Release);
        }
    }

    fn comes(&self, value: u32, deadline: Instant) -> bool {
        loop {
            for _ in 0..10_000 {
                if self.0.load(Ordering::Acquire) == value {
                    return true;
                }
                std::hint::spin_loop();
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }
}
