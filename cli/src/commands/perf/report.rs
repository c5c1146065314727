//! What was measured, as a table and as JSON.

use serde::Serialize;

use super::measure::Sample;
use super::plan::Row;
use crate::args::{Metric, Operation};
use crate::cpu::Placement;
use crate::output::Table;
use crate::units::{show_nanos, show_size};

/// A row of the result: one measurement in one place.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was done.
    pub operation: Operation,
    /// What was measured.
    pub metric: Metric,
    /// Bytes per operation.
    pub size: u32,
    /// Placement of the two processors.
    pub place: Placement,
    /// What the figure is.
    pub meaning: &'static str,
    /// `ns`, `GB/s` of 10^9 bytes, or `M/s`.
    pub unit: &'static str,
    /// The tenth percentile of the batches, counted from the best.
    pub p10: f64,
    /// The median of the batches.
    pub median: f64,
    /// The best batch.
    pub best: f64,
    /// How many batches.
    pub batches: usize,
    /// Operations under way at most, with bandwidths and rates.
    pub depth: u32,
    /// Operations per completion.
    pub every: u32,
}

/// One line per place the samples were taken in. Samples during which the place changed count only when there are no
/// others.
pub fn lines(row: &Row, samples: &[Sample]) -> Vec<Line> {
    let mut places: Vec<Placement> = samples.iter().map(|sample| sample.place).collect();
    places.sort();
    places.dedup();
    if places.iter().any(|&place| place != Placement::Mixed) {
        places.retain(|&place| place != Placement::Mixed);
    }
    places.into_iter().map(|place| line(row, place, samples)).collect()
}

fn line(row: &Row, place: Placement, samples: &[Sample]) -> Line {
    let here = samples.iter().filter(|sample| sample.place == place);
    let mut nanos: Vec<f64> = here.flat_map(|sample| sample.nanos.iter().copied()).collect();
    nanos.sort_by(f64::total_cmp);
    let (unit, convert): (_, fn(f64, f64) -> f64) = match row.metric {
        Metric::Latency => ("ns", |nanos, _| nanos),
        Metric::Bandwidth => ("GB/s", |nanos, size| size / nanos),
        Metric::Rate => ("M/s", |nanos, _| 1e3 / nanos),
    };
    // The shortest time is the best of each metric.
    let at = |index: usize| convert(nanos.get(index).copied().unwrap_or(f64::NAN), f64::from(row.size));
    Line {
        operation: row.operation,
        metric: row.metric,
        size: row.size,
        place,
        meaning: row.meaning(),
        unit,
        p10: at(nanos.len() / 10),
        median: at(nanos.len() / 2),
        best: at(0),
        batches: nanos.len(),
        depth: row.depth,
        every: row.every,
    }
}

/// The table.
pub fn text(lines: &[Line]) -> String {
    let headings = ["TEST", "METRIC", "MEANING", "PLACE", "SIZE", "P10", "MEDIAN", "BEST", "BATCHES"];
    let mut table = Table::new(&headings, 4);
    for line in lines {
        let show = |value: f64| match line.metric {
            Metric::Latency => show_nanos(value),
            Metric::Bandwidth if value < 0.01 => format!("{:.3} MB/s", value * 1e3),
            Metric::Bandwidth if value < 1.0 => format!("{:.0} MB/s", value * 1e3),
            _ if value < 10.0 => format!("{value:.2} {}", line.unit),
            _ => format!("{value:.1} {}", line.unit),
        };
        table.row(vec![
            line.operation.name().into(),
            line.metric.name().into(),
            line.meaning.into(),
            line.place.name().into(),
            show_size(line.size),
            show(line.p10),
            show(line.median),
            show(line.best),
            line.batches.to_string(),
        ]);
    }
    table.text()
}
