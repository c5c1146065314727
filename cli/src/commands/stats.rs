//! `dat stats`: the counters of a running process.

use std::process::ExitCode;
use std::time::Duration;

use dat::registry::stats::{DeviceStats, OpStats, Stats as Counters, read};
use serde_json::json;

use crate::args::Stats;
use crate::failure::{Failure, Outcome};
use crate::output::{Shared, Table, print};

/// Time limit for the answer of a running process.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks and shows.
pub fn run(shared: &Shared, asked: &Stats) -> Outcome<ExitCode> {
    let stats = read(asked.pid, PATIENCE).map_err(Failure::new)?;
    match asked.prometheus {
        true => print(&stats.to_prometheus())?,
        false => shared.print(|| json!(stats), || text(&stats, asked.channels))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(stats: &Counters, channels: bool) -> String {
    let mut text = format!("process {}: {}\n", stats.pid, stats.program);
    for device in &stats.devices {
        text.push_str(&format!(
            "\n{}: provider {}, open for {:.1} s, {} channels open, {} closed\n",
            device.ia,
            device.provider,
            device.open_seconds,
            device.channels.len(),
            device.closed_channels
        ));
        text.push_str(&calls(device));
        text.push_str(&operations("all channels", &device.totals));
        for channel in device.channels.iter().filter(|_| channels) {
            let name = format!("channel {} ({})", channel.channel, channel.state);
            text.push_str(&operations(&name, &channel.ops));
        }
    }
    text
}

fn calls(device: &DeviceStats) -> String {
    let mut line = String::from("calls:");
    for (name, [ok, failed]) in &device.calls {
        line.push_str(&format!(" {name} {ok}"));
        if *failed > 0 {
            line.push_str(&format!(" (and {failed} failed)"));
        }
    }
    line.push_str("\nevents:");
    device.events.iter().for_each(|(kind, count)| line.push_str(&format!(" {kind} {count}")));
    line.push('\n');
    line
}

fn operations(whose: &str, ops: &[OpStats]) -> String {
    let headings = [whose, "POSTED", "REFUSED", "DONE", "FAILED", "BYTES", "MEDIAN", "99%", "MAX"];
    let mut table = Table::new(&headings, 1);
    for op in ops {
        let mut row = vec![format!("  {}", op.op)];
        row.extend([op.posted, op.refused, op.completed, op.failed, op.bytes].map(|n| n.to_string()));
        let timed = op.latency.count() > 0;
        let time = |ns: u64| if timed { format!("{:?}", Duration::from_nanos(ns)) } else { "-".into() };
        let latency = &op.latency;
        row.extend([latency.quantile(0.5), latency.quantile(0.99), latency.max_ns].map(time));
        table.row(row);
    }
    table.text()
}
