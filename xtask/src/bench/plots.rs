//! Results as drawings.

use dat_measure::chart::{self, Dash, Line, Panel};
use dat_measure::{show_nanos, show_size};
use serde_json::Value;

use crate::values::list;

/// Every drawing with its file's name.
pub fn all(result: &Value) -> Vec<(&'static str, String)> {
    let size = |size: f64| show_size(size as u32);
    let number = |value: f64| value.to_string();
    let panel = |test, heading: &str, x, y| Panel {
        heading: heading.to_owned(),
        lines: lines(result, test, &["dat", "UCX", "UCX am", "libfabric", "memcpy"]),
        x,
        y,
    };
    let latency = [
        panel("send_latency", "message, one way", size, show_nanos),
        panel("write_latency", "RDMA write, one way", size, show_nanos),
    ];
    let bandwidth = [
        panel("send_bandwidth", "messages, GB/s", size, number),
        panel("write_bandwidth", "RDMA write, GB/s", size, number),
        panel("read_bandwidth", "RDMA read, GB/s", size, number),
    ];
    let connections = [
        panel("echo_among_idle", "echo over one connection, half a round trip", number, show_nanos),
        panel("empty_poll", "poll that finds nothing", number, show_nanos),
    ];
    vec![
        ("latency.svg", chart::svg("Latency over size, medians", &latency)),
        ("bandwidth.svg", chart::svg("Bandwidth over size, medians", &bandwidth)),
        ("connections.svg", chart::svg("One dispatcher, many connections", &connections)),
    ]
}

/// A line for each program and place: a colour by program, whole when near and dashed when far.
fn lines(result: &Value, test: &str, programs: &[&str]) -> Vec<Line> {
    let places = [("near", Dash::Whole), ("far", Dash::Long), ("same", Dash::Dots), ("-", Dash::Whole)];
    let of = |who: &str, place: &str| {
        let rows = list(&result["rows"]).iter();
        rows.filter(|row| row["test"] == test && row["who"] == who && row["place"] == place)
            .filter_map(|row| Some((row["size"].as_f64()?, row["median"].as_f64()?)))
            .filter(|(_, value)| *value > 0.0)
            .collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    for (colour, who) in programs.iter().enumerate() {
        for (place, dash) in places {
            let points = of(who, place);
            if !points.is_empty() {
                let name = if place == "-" { (*who).to_owned() } else { format!("{who}, {place}") };
                out.push(Line { name, colour, dash, points });
            }
        }
    }
    out
}
