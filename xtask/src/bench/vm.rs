//! The ibverbs provider beside perftest's programs, on Soft-RoCE in one boot of the emulated machine.

use crate::report::Result;
use serde_json::{Value, json};

use crate::cargo::build;
use crate::root::root;
use crate::values::{list, median};
use crate::vm::Machine;

/// A figure: its words in the script's output, the unit, and what perftest's is multiplied with to have it.
const FIGURES: [(&str, &str, &str, f64); 3] = [
    ("send_lat_8", "8 B message, one way", "us", 1.0),
    ("write_bw_65536", "64 KiB RDMA write", "MB/s", 1.048_576),
    ("send_bw_8", "8 B messages", "thousand/s", 1e3),
];

/// The figures.
pub fn measure() -> Result<Value> {
    let built = build("release", &["dat-cli", "dat-ibverbs"])?;
    let environment = vec![("BUILT".to_owned(), built.to_string_lossy().into_owned())];
    let script = root().canonicalize()?.join("tests/vm/perf.sh");
    let machine = Machine { environment, ..Machine::default() };
    read(&machine.run_well(&format!("bash '{}'", script.display()))?.output)
}

/// Medians of what the script printed.
fn read(output: &str) -> Result<Value> {
    let mut rows = Vec::new();
    for (name, words, unit, factor) in FIGURES {
        let lines = |who: &str| {
            let start = format!("{who} {name} ");
            output.lines().filter_map(|line| line.strip_prefix(&start)).map(str::to_owned).collect::<Vec<_>>()
        };
        let theirs: Vec<f64> =
            lines("perftest").iter().filter_map(|line| perftest(name, line)).map(|v| v * factor).collect();
        let ours: Vec<f64> = lines("dat").iter().filter_map(|line| dat(name, line)).collect();
        if ours.is_empty() {
            fail!("tests/vm/perf.sh printed no figure of ours for {name}");
        }
        let rounds = ours.len().min(theirs.len());
        rows.push(json!({
            "test": words, "unit": unit, "dat": median(ours), "perftest": median(theirs), "rounds": rounds,
        }));
    }
    Ok(json!({ "rows": rows }))
}

/// The typical latency in microseconds, the average rate in MiB/s or in million messages a second.
fn perftest(name: &str, line: &str) -> Option<f64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    fields.get(if name == "write_bw_65536" { 3 } else { 4 })?.parse().ok()
}

/// The median of the place with the most batches: what the processors of an emulated machine do is not looked into.
fn dat(name: &str, line: &str) -> Option<f64> {
    let result: Value = serde_json::from_str(line).ok()?;
    let row = list(&result["results"]).iter().max_by_key(|row| row["batches"].as_u64())?;
    let median = row["median"].as_f64()?;
    Some(match name {
        "send_lat_8" => median / 1e3,
        _ => median * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_brought_to_one_unit() {
        let dat = |metric: &str, median: f64| {
            format!("{{\"results\":[{{\"metric\":\"{metric}\",\"median\":{median},\"batches\":9}}]}}")
        };
        let output = format!(
            "perftest send_lat_8 8 2000 40.1 90.2 51.5 52.0 3.0 60 80\n\
             dat send_lat_8 {}\n\
             perftest write_bw_65536 65536 300 20.00 10.00 0.000\n\
             dat write_bw_65536 {}\n\
             perftest send_bw_8 8 10000 0.10 0.10 0.013\n\
             dat send_bw_8 {}\n",
            dat("latency", 50_000.0),
            dat("bandwidth", 0.011),
            dat("rate", 0.0125)
        );
        let result = read(&output).expect("figures");
        let row = |at: usize| &result["rows"][at];
        for (at, dat, perftest) in [(0, 50.0, 51.5), (1, 11.0, 10.485_76), (2, 12.5, 13.0)] {
            for (who, wanted) in [("dat", dat), ("perftest", perftest)] {
                let is = row(at)[who].as_f64().unwrap_or(0.0);
                assert!((is - wanted).abs() < 1e-6, "{who}: {is} and not {wanted}");
            }
        }
        assert!(read("").is_err());
    }
}
