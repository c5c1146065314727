//! Ours beside others', in one interleaved run.
//!
//! A virtual machine's host moves its processors about, and everything made of cache-line transfers changes with that by
//! a factor of 3 to 5. So nothing is compared that was not measured in turns: each round takes one sample of each
//! program at each point, a probe of the raw cache line is taken before and after each sample, and samples whose two
//! probes disagree are dropped. The others are kept by place, same core, near or far, and the median of a place counts.
//!
//! What cannot run is named in the result, with the reason.

mod connections;
mod copies;
mod ours;
mod peers;
mod programs;
mod serve;
mod sleep;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use dat_measure::cpu::{self, Place};
use dat_measure::show_size;
use serde_json::{Value, json};

pub(crate) use serve::serve;

/// What is measured: a name in the result, and what the figures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Test {
    SendLatency,
    SendRate,
    SendBandwidth,
    /// The two of messages from and to ordinary memory.
    HeapLatency,
    HeapBandwidth,
    WriteLatency,
    WriteBandwidth,
    ReadBandwidth,
    TcpLatency,
    WakeUp,
    Connect,
    EmptyPoll,
    EchoAmongIdle,
    Memory,
    Descriptors,
}

impl Test {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Test::SendLatency => "send_latency",
            Test::SendRate => "send_rate",
            Test::SendBandwidth => "send_bandwidth",
            Test::HeapLatency => "heap_latency",
            Test::HeapBandwidth => "heap_bandwidth",
            Test::WriteLatency => "write_latency",
            Test::WriteBandwidth => "write_bandwidth",
            Test::ReadBandwidth => "read_bandwidth",
            Test::TcpLatency => "tcp_latency",
            Test::WakeUp => "wake_up",
            Test::Connect => "connect",
            Test::EmptyPoll => "empty_poll",
            Test::EchoAmongIdle => "echo_among_idle",
            Test::Memory => "memory",
            Test::Descriptors => "descriptors",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Test::SendRate => "M/s",
            test if test.is_bandwidth() => "GB/s",
            Test::Memory => "bytes",
            Test::Descriptors => "descriptors",
            _ => "ns",
        }
    }

    /// Whether a smaller figure is the better one.
    fn less_is_better(self) -> bool {
        self != Test::SendRate && !self.is_bandwidth()
    }

    fn is_bandwidth(self) -> bool {
        use Test::*;
        matches!(self, SendBandwidth | HeapBandwidth | WriteBandwidth | ReadBandwidth)
    }
}

/// A point: a test at a size. For tests of connections the size is their number.
pub(crate) type Point = (Test, u32);

/// Something that can be measured at a point.
pub(crate) trait Contender {
    /// As the tables name it.
    fn name(&self) -> &str;
    /// Whether it has this test.
    fn takes(&self, point: Point) -> bool;
    /// One sample, in the test's unit. What knows the places of its figures itself gives one for each.
    fn measure(&mut self, point: Point) -> Result<Vec<(Option<Place>, f64)>, String>;
}

/// The figures of all rounds.
#[derive(Default)]
pub(crate) struct Figures {
    rows: BTreeMap<(Test, u32, &'static str, String), Samples>,
    /// Who could not be measured, why, and how often.
    missing: BTreeMap<(String, String), u32>,
    dropped: u32,
    /// Samples of each test and program, dropped ones too.
    taken: BTreeMap<(Test, String), u32>,
}

#[derive(Default)]
struct Samples {
    values: Vec<f64>,
    probes: Vec<f64>,
}

impl Figures {
    pub(crate) fn add(&mut self, (test, size): Point, who: &str, place: Place, probe: f64, value: f64) {
        *self.taken.entry((test, who.to_owned())).or_default() += 1;
        if place == Place::Mixed {
            self.dropped += 1;
            return;
        }
        let row = self.rows.entry((test, size, place.name(), who.to_owned())).or_default();
        row.values.push(value);
        row.probes.push(probe);
    }

    pub(crate) fn miss(&mut self, who: &str, why: &str) {
        *self.missing.entry((who.to_owned(), why.to_owned())).or_default() += 1;
    }

    fn to_json(&self) -> (Vec<Value>, Vec<Value>) {
        let rows = self.rows.iter().map(|((test, size, place, who), samples)| {
            let mut sorted = samples.values.clone();
            sorted.sort_by(f64::total_cmp);
            if !test.less_is_better() {
                sorted.reverse();
            }
            json!({
                "test": test.name(), "size": size, "place": place, "who": who, "unit": test.unit(),
                "median": rounded(sorted[sorted.len() / 2]), "best": rounded(sorted[0]),
                "worst": rounded(sorted[sorted.len() - 1]), "samples": sorted.len(),
                "probe": rounded(median(&samples.probes)),
            })
        });
        let missing =
            self.missing.iter().map(|((who, why), times)| json!({ "who": who, "why": why, "times": times }));
        (rows.collect(), missing.collect())
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Four digits are more than any of the figures is worth.
fn rounded(value: f64) -> f64 {
    if !value.is_finite() || value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(3 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// `compare [--quick] [--rounds N] [--only TEST] --dat PROGRAM`: measures, and prints the result as JSON. `connections`
/// stands for all tests of connections.
pub(crate) fn run(args: &[String]) {
    let after = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let quick = args.iter().any(|arg| arg == "--quick");
    let rounds: Option<u32> = after("--rounds").map(|n| n.parse().expect("--rounds takes a number"));
    let rounds = rounds.unwrap_or(if quick { 1 } else { 5 });
    let dat = PathBuf::from(after("--dat").expect("--dat PROGRAM: the command under test"));
    let Some(cpus) = cpu::two() else {
        println!("{}", json!({ "not_run": "there is one processor only; two are needed" }));
        return;
    };
    // Asked before anything is pinned or loaded.
    let machine = programs::machine();
    let start = Instant::now();
    let mut figures = Figures::default();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(ours::Dat::new(&dat, cpus, quick)),
        Box::new(peers::Ucx::new(cpus, quick)),
        Box::new(peers::Ucx::active(cpus, quick)),
        Box::new(peers::Ucx::transport(cpus, quick)),
        Box::new(peers::Fabric::new(cpus, quick)),
        Box::new(ours::Dat::many_buffers(&dat, cpus, quick)),
        Box::new(copies::Memcpy { one_buffer: true }),
        Box::new(copies::Memcpy { one_buffer: false }),
        Box::new(sleep::EventFd(cpus)),
        Box::new(sleep::Sleepers(cpus)),
    ];
    let only = after("--only");
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let points: Vec<Point> = points(quick).into_iter().filter(|(test, _)| wanted(test.name())).collect();
    for round in 0..rounds {
        for &point in &points {
            eprintln!(
                "round {} of {}, {:.0} s: {} {}",
                round + 1,
                rounds,
                start.elapsed().as_secs_f64(),
                point.0.name(),
                show_size(point.1)
            );
            for contender in contenders.iter_mut().filter(|contender| contender.takes(point)) {
                sample(contender.as_mut(), point, cpus, &mut figures);
            }
        }
        // Each a process of its own with all its connections.
        if wanted("connections") {
            connections::run(quick, cpus, &mut figures);
        }
    }
    cpu::pin(cpus.0).expect("pinned before");
    let layers = crate::cost::measure(if quick { 100 } else { 2000 });
    let (rows, missing) = figures.to_json();
    println!(
        "{:#}",
        json!({
            "machine": machine,
            "programs": programs::versions(),
            "cpus": [cpus.0, cpus.1],
            "rounds": rounds,
            "seconds": start.elapsed().as_secs(),
            "dropped": figures.dropped,
            "taken": figures.taken.iter().map(|((test, who), count)| json!({
                "test": test.name(), "who": who, "samples": count })).collect::<Vec<_>>(),
            "rows": rows,
            "layers": { "phases": crate::cost::PHASES, "rows": layers.iter().map(|(name, ns)| json!({
                "layer": name, "ns": ns.map(|ns| (ns * 10.0).round() / 10.0) })).collect::<Vec<_>>() },
            "missing": missing,
        })
    );
}

fn sample(contender: &mut dyn Contender, point: Point, cpus: (usize, usize), figures: &mut Figures) {
    let probe = || cpu::pin(cpus.0).and_then(|()| cpu::probe(cpus.1)).unwrap_or(f64::INFINITY);
    let before = probe();
    let values = contender.measure(point);
    let after = probe();
    match values {
        Ok(values) => {
            let around = Place::between(before, after);
            for (inside, value) in values {
                // Somewhere else than both probes say: it moved there and back.
                let place = match inside {
                    Some(place) if place != around && place != Place::Unknown => Place::Mixed,
                    Some(place) => place,
                    None => around,
                };
                figures.add(point, contender.name(), place, before.min(after), value);
            }
        }
        Err(why) => figures.miss(contender.name(), &why),
    }
}

fn points(quick: bool) -> Vec<Point> {
    use Test::*;
    let sizes: &[u32] = match quick {
        true => &[8, 4 << 10, 1 << 20],
        false => &[8, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20],
    };
    let at = |test: Test, from: u32, to: u32| {
        sizes.iter().filter(move |size| (from..=to).contains(*size)).map(move |&size| (test, size))
    };
    let most = u32::MAX;
    let mut points: Vec<Point> = at(SendLatency, 0, most).collect();
    points.extend(at(WriteLatency, 0, 64 << 10));
    points.extend(at(SendRate, 0, 64));
    points.extend(at(SendBandwidth, 1 << 10, most));
    points.extend(at(HeapLatency, 4 << 10, 1 << 20));
    points.extend(at(HeapBandwidth, 4 << 10, most));
    points.extend(at(WriteBandwidth, 4 << 10, most));
    points.extend(at(ReadBandwidth, 4 << 10, most));
    points.extend(at(TcpLatency, 0, 1 << 20).filter(|(_, size)| quick || *size != 1 << 10));
    points.push((WakeUp, 8));
    points
}
