//! Latency, bandwidth and rate over size as a drawing: one line per operation and place.

use dat_measure::chart::{self, Dash, Panel};

use super::report::Line;
use crate::args::{Metric, Operation};
use crate::cpu::Placement;
use crate::units::{show_nanos, show_size};

/// The whole drawing. Metrics that were not measured have no panel.
pub fn svg(title: &str, lines: &[Line]) -> String {
    let panels: Vec<Panel> = [Metric::Latency, Metric::Bandwidth, Metric::Rate]
        .iter()
        .map(|&metric| panel(metric, lines))
        .collect();
    chart::svg(title, &panels)
}

fn panel(metric: Metric, lines: &[Line]) -> Panel {
    let heading = match metric {
        Metric::Latency => "latency, median",
        Metric::Bandwidth => "bandwidth, median, GB/s",
        Metric::Rate => "rate, median, million operations a second",
    };
    let places = [Placement::Same, Placement::Near, Placement::Far, Placement::Mixed, Placement::Unknown];
    let operations = Operation::ALL.into_iter().enumerate();
    let curves = operations.flat_map(|(colour, operation)| {
        places.map(|place| chart::Line {
            name: match place {
                Placement::Unknown => operation.name().to_owned(),
                known => format!("{}, {}", operation.name(), known.name()),
            },
            colour,
            dash: dash(place),
            points: lines
                .iter()
                .filter(|line| (line.metric, line.operation, line.place) == (metric, operation, place))
                .filter(|line| line.median.is_finite() && line.median > 0.0)
                .map(|line| (f64::from(line.size), line.median))
                .collect(),
        })
    });
    Panel {
        heading: heading.to_owned(),
        lines: curves.collect(),
        x: |size| show_size(size as u32),
        y: if metric == Metric::Latency { show_nanos } else { |value| value.to_string() },
    }
}

/// The same for a place in all drawings.
fn dash(place: Placement) -> Dash {
    match place {
        Placement::Same => Dash::Dots,
        Placement::Far => Dash::Long,
        Placement::Mixed => Dash::Short,
        Placement::Near | Placement::Unknown => Dash::Whole,
    }
}
