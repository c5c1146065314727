//! Results as tables, in Markdown, which also reads well on a terminal.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use dat_measure::{show_nanos, show_size};
use serde_json::Value;

use crate::markdown::Markdown;
use crate::values::list;

/// A table: its name in the page, the test, its heading, what it is compared with, and what the ratio is to.
struct Comparison {
    name: &'static str,
    heading: &'static str,
    peers: &'static [&'static str],
    /// What is no peer but a limit.
    limit: Option<&'static str>,
    /// Further columns, of figures that nothing is compared with.
    besides: &'static [&'static str],
    /// Smaller is better.
    less: bool,
}

const COMPARISONS: [Comparison; 10] = [
    Comparison {
        peers: &["UCX", "UCX am", "UCX uct", "libfabric"],
        limit: Some("probe"),
        less: true,
        ..more("send_latency", "Message, one way")
    },
    Comparison { peers: &["UCX", "UCX am", "UCX uct"], ..more("send_rate", "Messages, millions a second") },
    Comparison { besides: &[MANY], ..more("send_bandwidth", "Messages, GB/s") },
    Comparison {
        limit: Some("probe"),
        less: true,
        ..more("heap_latency", "Message, one way, ordinary memory")
    },
    Comparison { besides: &[MANY], ..more("heap_bandwidth", "Messages, GB/s, ordinary memory") },
    Comparison {
        peers: &["UCX"],
        limit: Some("probe"),
        less: true,
        ..more("write_latency", "RDMA write, one way")
    },
    one_sided("write_bandwidth", "RDMA write, GB/s"),
    one_sided("read_bandwidth", "RDMA read, GB/s"),
    Comparison { peers: &["libfabric"], less: true, ..more("tcp_latency", "Message over TCP, one way") },
    Comparison {
        peers: &[],
        limit: Some("eventfd"),
        less: true,
        ..more("wake_up", "Message to a sleeper, one way")
    },
];

const MANY: &str = "dat, many buffers";

/// Where more is better, beside both ways of UCX to send.
const fn more(name: &'static str, heading: &'static str) -> Comparison {
    Comparison { name, heading, peers: &["UCX", "UCX am"], limit: None, besides: &[], less: false }
}

const fn one_sided(name: &'static str, heading: &'static str) -> Comparison {
    let besides = &["memcpy, many buffers", MANY];
    Comparison { peers: &["UCX"], limit: Some("memcpy"), besides, ..more(name, heading) }
}

/// All tables, with headings, for the terminal.
pub fn all(result: &Value) -> String {
    let mut out = String::new();
    for (name, table) in named(result) {
        let heading = COMPARISONS.iter().find(|c| c.name == name).map_or(name, |c| c.heading);
        let _ = write!(out, "\n{heading}\n\n{table}");
    }
    out
}

/// Every table with its name in the page.
pub fn named(result: &Value) -> Vec<(&'static str, String)> {
    let mut out = vec![("machine", machine(result))];
    out.extend(COMPARISONS.iter().map(|c| (c.name, comparison(c, result))));
    out.push(("connections", connections(result)));
    out.push(("layers", layers(result)));
    out.push(("missing", missing(result)));
    out
}

fn row<'a>(result: &'a Value, test: &str, size: u64, place: &str, who: &str) -> Option<&'a Value> {
    list(&result["rows"])
        .iter()
        .find(|row| row["test"] == test && row["size"] == size && row["place"] == place && row["who"] == who)
}

/// Figures by size and place, and ratios: of ours to the best peer, of ours to the limit.
fn comparison(of: &Comparison, result: &Value) -> String {
    let mut points = BTreeSet::new();
    for row in list(&result["rows"]).iter().filter(|row| row["test"] == of.name) {
        let place = row["place"].as_str().unwrap_or("-");
        let order = ["same", "near", "far", "-"].iter().position(|known| *known == place).unwrap_or(9);
        points.insert((row["size"].as_u64().unwrap_or(0), order, place));
    }
    if points.is_empty() {
        return "Not run.\n".to_owned();
    }
    let of_probe = of.limit == Some("probe");
    let mut heads = vec!["size", "place"];
    heads.extend(of.limit);
    heads.push("dat");
    heads.extend(of.peers);
    let (to_peer, to_limit) = ("dat / best peer".to_owned(), of.limit.map(|limit| format!("dat / {limit}")));
    if !of.peers.is_empty() {
        heads.push(&to_peer);
    }
    heads.extend(to_limit.as_deref());
    heads.extend(of.besides);
    let mut table = Markdown::new(&heads, 2);
    for (size, _, place) in points {
        let value = |who: &str| row(result, of.name, size, place, who).and_then(|row| row["median"].as_f64());
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| self::show(value, of.less));
        let ours = value("dat");
        let limit = of.limit.and_then(|limit| match of_probe {
            true => row(result, of.name, size, place, "dat").and_then(|row| row["probe"].as_f64()),
            false => value(limit),
        });
        let peers: Vec<Option<f64>> = of.peers.iter().map(|who| value(who)).collect();
        let best = peers.iter().flatten().copied().reduce(|a, b| if of.less { a.min(b) } else { a.max(b) });
        let ratio = |to: Option<f64>| match (ours, to) {
            (Some(ours), Some(to)) if to > 0.0 => format!("{:.2}", ours / to),
            _ => "-".to_owned(),
        };
        let mut cells = vec![show_size(size as u32), place.to_owned()];
        cells.extend(of.limit.map(|_| show(limit)));
        cells.push(show(ours));
        cells.extend(peers.iter().map(|value| show(*value)));
        if !of.peers.is_empty() {
            cells.push(ratio(best));
        }
        cells.extend(of.limit.map(|_| ratio(limit)));
        cells.extend(of.besides.iter().map(|who| show(value(who))));
        table.row(cells);
    }
    table.text()
}

fn show(value: f64, time: bool) -> String {
    match value {
        value if time => show_nanos(value),
        value if value < 0.1 => format!("{value:.4}"),
        value if value < 10.0 => format!("{value:.2}"),
        value => format!("{value:.1}"),
    }
}

/// By number of connections.
fn connections(result: &Value) -> String {
    let rows = list(&result["rows"]);
    let with = |test: &'static str| rows.iter().filter(move |row| row["test"] == test);
    let counts: BTreeSet<u64> = with("empty_poll").filter_map(|row| row["size"].as_u64()).collect();
    if counts.is_empty() {
        return "Not run.\n".to_owned();
    }
    let heads = [
        "connections",
        "connect + accept",
        "the same of a unix socket",
        "echo, half, near",
        "echo, half, far",
        "empty poll",
        "memory each",
        "descriptors each",
    ];
    let mut table = Markdown::new(&heads, 0);
    for count in counts {
        let value = |test: &str, place: &str, who: &str| {
            row(result, test, count, place, who).and_then(|row| row["median"].as_f64())
        };
        let time = |value: Option<f64>| value.map_or("-".to_owned(), show_nanos);
        table.row(vec![
            count.to_string(),
            time(value("connect", "-", "dat")),
            time(value("connect", "-", "unix socket")),
            time(value("echo_among_idle", "near", "dat")),
            time(value("echo_among_idle", "far", "dat")),
            value("empty_poll", "-", "dat").map_or("-".to_owned(), |ns| format!("{ns:.1} ns")),
            value("memory", "-", "dat").map_or("-".to_owned(), |bytes| format!("{:.1} KiB", bytes / 1024.0)),
            value("descriptors", "-", "dat").map_or("-".to_owned(), |each| format!("{each:.1}")),
        ]);
    }
    table.text()
}

/// Nanoseconds an operation, each layer over the one before.
fn layers(result: &Value) -> String {
    let layers = &result["layers"];
    let phases: Vec<&str> = list(&layers["phases"]).iter().filter_map(Value::as_str).collect();
    let mut heads = vec!["layer"];
    heads.extend(&phases);
    let mut table = Markdown::new(&heads, 1);
    let figures = |row: &Value| -> Vec<f64> { list(&row["ns"]).iter().filter_map(Value::as_f64).collect() };
    let mut before: Option<Vec<f64>> = None;
    for row in list(&layers["rows"]) {
        let now = figures(row);
        let mut cells = vec![row["layer"].as_str().unwrap_or("?").to_owned()];
        cells.extend(now.iter().enumerate().map(
            |(at, ns)| match before.as_ref().and_then(|list| list.get(at)) {
                Some(below) => format!("{ns:.1} ns ({:+.1})", ns - below),
                None => format!("{ns:.1} ns"),
            },
        ));
        table.row(cells);
        before = Some(now);
    }
    table.text()
}

fn machine(result: &Value) -> String {
    let machine = &result["machine"];
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let programs = &result["programs"];
    let version = |name: &str| programs[name].as_str().map_or("not there".to_owned(), str::to_owned);
    let mut table = Markdown::new(&["", ""], 2);
    let processor = format!(
        "{}, {} of them{}",
        text(&machine["processor"]),
        machine["processors"],
        if machine["virtual"] == true { ", virtual" } else { "" }
    );
    for (key, value) in [
        ("processor", processor),
        ("memory", text(&machine["memory"])),
        ("kernel", text(&machine["kernel"])),
        ("load when it began", text(&machine["load"])),
        ("TCP's congestion control", text(&machine["tcp_congestion_control"])),
        ("UCX", version("UCX")),
        ("libfabric", version("libfabric")),
        ("processors used", result["cpus"].to_string()),
        ("rounds", result["rounds"].to_string()),
        ("seconds", result["seconds"].to_string()),
        ("samples dropped: the processors moved", result["dropped"].to_string()),
    ] {
        table.row(vec![key.to_owned(), value]);
    }
    table.text()
}

fn missing(result: &Value) -> String {
    let rows = list(&result["missing"]);
    if rows.is_empty() {
        return "Everything ran.\n".to_owned();
    }
    let mut table = Markdown::new(&["not run", "why", "times"], 2);
    for row in rows {
        let text = |key: &str| row[key].as_str().unwrap_or("?").replace('\n', " ");
        table.row(vec![text("who"), text("why"), row["times"].to_string()]);
    }
    table.text()
}

/// Ours beside perftest, in one boot of the emulated machine.
pub fn vm(result: &Value) -> String {
    let mut table = Markdown::new(&["test", "dat", "perftest", "dat / perftest", "rounds"], 1);
    for row in list(&result["rows"]) {
        let figure = |key: &str| row[key].as_f64();
        let unit = row["unit"].as_str().unwrap_or("");
        let show = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.3} {unit}"));
        let ratio = figure("dat").zip(figure("perftest")).map(|(ours, theirs)| ours / theirs);
        table.row(vec![
            row["test"].as_str().unwrap_or("?").to_owned(),
            show(figure("dat")),
            show(figure("perftest")),
            ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
            row["rounds"].to_string(),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ratios_are_to_the_best_peer_of_the_same_place() {
        let row = |who: &str, place: &str, median: f64| json!({ "test": "send_latency", "size": 8, "place": place, "who": who, "median": median, "probe": 50.0 });
        let result = json!({ "rows": [
            row("dat", "near", 100.0), row("UCX", "near", 125.0), row("UCX am", "near", 200.0),
            row("UCX", "far", 400.0),
        ] });
        let table = comparison(&COMPARISONS[0], &result);
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines.len(), 4, "{table}");
        let cells: Vec<&str> = lines[2].split('|').map(str::trim).collect();
        assert_eq!(cells[1..5], ["8", "near", "50 ns", "100 ns"], "{table}");
        assert_eq!(cells[cells.len() - 3..cells.len() - 1], ["0.80", "2.00"], "{table}");
        assert!(lines[3].contains("far") && lines[3].contains("400 ns"), "{table}");
    }
}
