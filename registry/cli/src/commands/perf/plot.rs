//! Latency and bandwidth over size as an SVG: two panels, logarithmic axes, one line per operation.

use std::fmt::Write as _;

use super::report::Line;
use crate::args::{Metric, Operation};
use crate::cpu::Place;
use crate::units::{show_nanos, show_size};

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
const GAP: f64 = 110.0;

/// The whole drawing. Metrics that were not measured have no panel.
pub fn svg(title: &str, lines: &[Line]) -> String {
    let panels: Vec<Panel<'_>> = [Metric::Latency, Metric::Bandwidth, Metric::Rate]
        .iter()
        .filter_map(|&m| Panel::new(m, lines))
        .collect();
    let width = LEFT + panels.len() as f64 * (WIDTH + GAP);
    let height = TOP + HEIGHT + 70.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    for (number, panel) in panels.iter().enumerate() {
        panel.draw(&mut out, LEFT + number as f64 * (WIDTH + GAP));
    }
    out.push_str("</svg>\n");
    out
}

struct Panel<'a> {
    metric: Metric,
    lines: Vec<&'a Line>,
    sizes: (f64, f64),
    values: (f64, f64),
}

impl<'a> Panel<'a> {
    fn new(metric: Metric, lines: &'a [Line]) -> Option<Panel<'a>> {
        let drawable = |line: &&Line| line.metric == metric && line.median.is_finite() && line.median > 0.0;
        let lines: Vec<&Line> = lines.iter().filter(drawable).collect();
        if lines.is_empty() {
            return None;
        }
        let sizes = span(lines.iter().map(|line| f64::from(line.size)), 2.0);
        let values = span(lines.iter().map(|line| line.median), 10.0);
        Some(Panel { metric, lines, sizes, values })
    }

    fn draw(&self, out: &mut String, left: f64) {
        let (bottom, right) = (TOP + HEIGHT, left + WIDTH);
        let heading = match self.metric {
            Metric::Latency => "latency, median",
            Metric::Bandwidth => "bandwidth, median, GB/s",
            Metric::Rate => "rate, median, million operations a second",
        };
        let _ = writeln!(out, "<text x=\"{left}\" y=\"{}\" fill=\"#444\">{heading}</text>", TOP - 12.0);
        for tick in ticks(self.values, 10.0) {
            let y = self.y(tick);
            let label = if self.metric == Metric::Latency { show_nanos(tick) } else { tick.to_string() };
            let _ = writeln!(out, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        let mut sizes: Vec<u32> = self.lines.iter().map(|line| line.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        for size in sizes {
            let x = self.x(size.into(), left);
            let label = show_size(size);
            let _ = writeln!(out, "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#eee\"/>");
            let _ = writeln!(
                out,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                bottom + 18.0
            );
        }
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#888\"/>"
        );
        let mut drawn = 0;
        for (operation, colour) in Operation::ALL.into_iter().zip(["#1f6fb4", "#d1641c", "#2a8a3e"]) {
            for (place, dash) in [
                (Place::Same, "1 3"),
                (Place::Near, "none"),
                (Place::Far, "6 4"),
                (Place::Mixed, "2 4"),
                (Place::Unknown, "none"),
            ] {
                drawn += u32::from(self.curve(out, left, (operation, place), (colour, dash), drawn));
            }
        }
    }

    /// One line, its dots and its entry in the legend; `false` when there is nothing to draw.
    fn curve(
        &self,
        out: &mut String,
        left: f64,
        what: (Operation, Place),
        look: (&str, &str),
        number: u32,
    ) -> bool {
        let chosen = self.lines.iter().filter(|line| (line.operation, line.place) == what);
        let mut points: Vec<(u32, f64)> = chosen.map(|line| (line.size, line.median)).collect();
        if points.is_empty() {
            return false;
        }
        points.sort_by_key(|point| point.0);
        let (colour, dash) = look;
        let at = |(size, value): &(u32, f64)| (self.x(f64::from(*size), left), self.y(*value));
        let path: Vec<String> = points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            path.join(" ")
        );
        for (x, y) in points.iter().map(at) {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let (x, y) =
            (left + f64::from(number % 4) * 115.0, TOP + HEIGHT + 38.0 + f64::from(number / 4) * 16.0);
        let name = match what.1 {
            Place::Unknown => what.0.name().to_owned(),
            known => format!("{}, {}", what.0.name(), known.name()),
        };
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}h22\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{name}</text>",
            y - 4.0,
            x + 28.0
        );
        true
    }

    fn x(&self, size: f64, left: f64) -> f64 {
        left + WIDTH * share(size, self.sizes)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - share(value, self.values))
    }
}

/// Least and greatest, widened to powers of `base`; never empty.
fn span(values: impl Iterator<Item = f64>, base: f64) -> (f64, f64) {
    let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    let low = base.powf((low.ln() / base.ln() + 1e-9).floor());
    let high = base.powf((high.ln() / base.ln() - 1e-9).ceil());
    (low, if high > low { high } else { low * base })
}

fn ticks((low, high): (f64, f64), base: f64) -> Vec<f64> {
    std::iter::successors(Some(low), |tick| Some(tick * base))
        .take_while(|tick| *tick <= high * 1.001)
        .collect()
}

/// Where a value lies on a logarithmic axis, from 0 to 1.
fn share(value: f64, (low, high): (f64, f64)) -> f64 {
    (value / low).ln() / (high / low).ln()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_all_values_even_a_single_one() {
        for values in [vec![55.0], vec![100.0], vec![0.3, 47.0]] {
            let axis = span(values.iter().copied(), 10.0);
            assert!(
                values.iter().all(|v| (-0.001..=1.001).contains(&share(*v, axis))),
                "{values:?} on {axis:?}"
            );
            assert!(ticks(axis, 10.0).len() >= 2, "{axis:?}");
        }
    }
}
