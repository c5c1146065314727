//! Charts as SVG: panels side by side, logarithmic axes, lines with dots and a legend.

use std::fmt::Write as _;

const WIDTH: f64 = 460.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 60.0;
const GAP: f64 = 110.0;
const COLOURS: [&str; 6] = ["#1f6fb4", "#d1641c", "#2a8a3e", "#8a4fb0", "#777777", "#b0902a"];

/// One chart.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What stands above it.
    pub heading: String,
    /// Its lines; of a panel without any there is nothing to be seen.
    pub lines: Vec<Line>,
    /// How a value of the horizontal axis is written; all values that occur get a tick.
    pub x: fn(f64) -> String,
    /// How a value of the vertical axis is written.
    pub y: fn(f64) -> String,
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// Which of the colours: lines of one thing have one colour.
    pub colour: usize,
    /// How it is drawn.
    pub dash: Dash,
    /// Values above zero, by the horizontal one.
    pub points: Vec<(f64, f64)>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dash {
    /// In one.
    Whole,
    /// In long pieces.
    Long,
    /// In short pieces.
    Short,
    /// In dots.
    Dots,
}

impl Dash {
    fn array(self) -> &'static str {
        match self {
            Dash::Whole => "none",
            Dash::Long => "6 4",
            Dash::Short => "2 4",
            Dash::Dots => "1 3",
        }
    }
}

/// The whole drawing. Panels without lines are left out.
pub fn svg(title: &str, panels: &[Panel]) -> String {
    let drawable = |line: &&Line| !line.points.is_empty();
    let panels: Vec<Drawn<'_>> = panels
        .iter()
        .filter_map(|panel| Drawn::new(panel, panel.lines.iter().filter(drawable).collect()))
        .collect();
    let rows = panels.iter().map(|panel| panel.lines.len().div_ceil(LEGEND)).max().unwrap_or(0);
    let width = LEFT + panels.len() as f64 * (WIDTH + GAP);
    let height = TOP + HEIGHT + 40.0 + 16.0 * rows as f64;
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

/// Entries of the legend in a row.
const LEGEND: usize = 3;

struct Drawn<'a> {
    panel: &'a Panel,
    lines: Vec<&'a Line>,
    xs: (f64, f64),
    ys: (f64, f64),
}

impl<'a> Drawn<'a> {
    fn new(panel: &'a Panel, lines: Vec<&'a Line>) -> Option<Drawn<'a>> {
        let points = || lines.iter().flat_map(|line| line.points.iter());
        points().next()?;
        let xs = span(points().map(|point| point.0), 2.0);
        let ys = span(points().map(|point| point.1), 10.0);
        Some(Drawn { panel, lines, xs, ys })
    }

    fn draw(&self, out: &mut String, left: f64) {
        let (bottom, right) = (TOP + HEIGHT, left + WIDTH);
        let heading = escaped(&self.panel.heading);
        let _ = writeln!(out, "<text x=\"{left}\" y=\"{}\" fill=\"#444\">{heading}</text>", TOP - 12.0);
        for tick in ticks(self.ys, 10.0) {
            let y = self.y(tick);
            let label = (self.panel.y)(tick);
            let _ = writeln!(out, "<path d=\"M{left:.1} {y:.1}H{right:.1}\" stroke=\"#ddd\"/>");
            let _ = writeln!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                left - 6.0,
                y + 4.0
            );
        }
        let mut xs: Vec<f64> = self.lines.iter().flat_map(|line| &line.points).map(|point| point.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        for value in xs {
            let x = self.x(value, left);
            let label = (self.panel.x)(value);
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
        for (number, line) in self.lines.iter().enumerate() {
            self.line(out, left, line, number);
        }
    }

    /// One line, its dots and its entry in the legend.
    fn line(&self, out: &mut String, left: f64, line: &Line, number: usize) {
        let mut points = line.points.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (colour, dash) = (COLOURS[line.colour % COLOURS.len()], line.dash.array());
        let places: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (self.x(x, left), self.y(y))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>",
            path.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let x = left + (number % LEGEND) as f64 * 155.0;
        let y = TOP + HEIGHT + 38.0 + (number / LEGEND) as f64 * 16.0;
        let _ = writeln!(
            out,
            "<path d=\"M{x:.1} {:.1}h22\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>\
             <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
            y - 4.0,
            x + 28.0,
            escaped(&line.name)
        );
    }

    fn x(&self, value: f64, left: f64) -> f64 {
        left + WIDTH * share(value, self.xs)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT * (1.0 - share(value, self.ys))
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
