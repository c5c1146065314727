//! What perf measures: the rows, and how much of each makes a sample.

use crate::args::{Metric, Operation, Perf};

/// Bytes moved in a batch of a latency row at most, and of a bandwidth row.
const LATENCY_BYTES: u32 = 4 << 20;
const STREAM_BYTES: u32 = 16 << 20;
/// Operations under way at most; for rates of short messages more, so that one completion in 64 can be enough, as long
/// as the buffers stay in the caches.
const DEPTH: u32 = 64;
const RATE_DEPTH: u32 = 256;
const RATE_BYTES: u32 = 256 << 10;
/// Sizes of a short look.
const QUICK_SIZES: [u32; 3] = [8, 4 << 10, 1 << 20];

/// One line of the result.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is done.
    pub operation: Operation,
    /// What is measured.
    pub metric: Metric,
    /// Bytes per operation.
    pub size: u32,
    /// Steps per batch. Batches are short, so that most of them see no interruption.
    pub batch: u32,
    /// Steps timed together in a latency row, if that was asked for.
    pub piece: Option<u32>,
    /// Batches per sample.
    pub batches: u32,
    /// Operations under way at most.
    pub depth: u32,
    /// Operations per completion.
    pub every: u32,
    wait: bool,
}

impl Row {
    fn new(operation: Operation, metric: Metric, size: u32, perf: &Perf, depth: u32) -> Row {
        let (most, bytes, batches) = match metric {
            Metric::Latency if perf.wait => (50, LATENCY_BYTES, 5),
            Metric::Latency => (1000, LATENCY_BYTES, 10),
            _ => (4000, STREAM_BYTES, 5),
        };
        let batch = perf.iterations.unwrap_or((bytes / size).clamp(16, most));
        let every = if metric == Metric::Rate { (depth / 4).clamp(1, 64) } else { 1 };
        Row { operation, metric, size, batch, piece: perf.iterations, batches, depth, every, wait: perf.wait }
    }

    /// Steps of a sample of a latency row.
    pub fn steps(&self) -> u32 {
        self.batch * self.batches
    }

    /// Whether the latency is half of a round trip; otherwise it is the time from the post to the completion.
    pub fn is_one_way(&self) -> bool {
        match self.operation {
            Operation::Send => true,
            // What is written shows itself in memory only; one cannot sleep for that.
            Operation::Write => !self.wait,
            Operation::Read => false,
        }
    }

    /// What the figure is.
    pub fn meaning(&self) -> &'static str {
        match self.metric {
            Metric::Latency if self.is_one_way() => "one way",
            Metric::Latency => "post to completion",
            Metric::Bandwidth => "every completion",
            Metric::Rate => "few completions",
        }
    }
}

/// The sizes, in the order given.
pub fn sizes(perf: &Perf) -> Vec<u32> {
    if perf.quick { QUICK_SIZES.to_vec() } else { perf.sizes.clone() }
}

/// Depths to measure for a size. Each has a connection of its own.
pub fn depths(perf: &Perf, size: u32) -> Vec<u32> {
    let mut depths: Vec<u32> = metrics(perf).into_iter().map(|metric| depth_of(metric, size)).collect();
    depths.sort_unstable();
    depths.dedup();
    depths
}

/// How many rows there are for each size.
pub fn count(perf: &Perf) -> usize {
    operations(perf).len() * metrics(perf).len()
}

/// The rows of one size and of the requested depth, in the order of the command line. The connection has room for `depth`.
pub fn rows(perf: &Perf, size: u32, asked: u32, depth: u32) -> Vec<Row> {
    let metrics: Vec<Metric> =
        metrics(perf).into_iter().filter(|&metric| depth_of(metric, size) == asked).collect();
    let of = |operation| metrics.iter().map(move |&metric| (operation, metric));
    let pairs = operations(perf).into_iter().flat_map(of);
    pairs.map(|(operation, metric)| Row::new(operation, metric, size, perf, depth)).collect()
}

fn operations(perf: &Perf) -> Vec<Operation> {
    if perf.tests.is_empty() { Operation::ALL.to_vec() } else { perf.tests.clone() }
}

fn metrics(perf: &Perf) -> Vec<Metric> {
    match perf.metrics.is_empty() {
        false => perf.metrics.clone(),
        true if perf.quick => vec![Metric::Latency, Metric::Bandwidth],
        true => Metric::ALL.to_vec(),
    }
}

fn depth_of(metric: Metric, size: u32) -> u32 {
    match metric {
        Metric::Rate => (RATE_BYTES / size).clamp(DEPTH, RATE_DEPTH),
        _ => DEPTH,
    }
}
