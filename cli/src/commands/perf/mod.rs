//! `dat perf`: how fast is it?
//!
//! Batches are short and their tenth percentile counts, because an average on a shared machine measures other programs. A
//! probe before and after each sample records the distance of the two processors.

mod measure;
mod plan;
mod plot;
mod report;

use std::fs;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use crate::args::Perf;
use crate::cpu;
use crate::failure::{Context, Outcome};
use crate::link::{Link, Shape};
use crate::output::Shared;
use crate::peer::Peer;
use crate::protocol::Control;
use crate::serve;
use crate::units::{Cpus, show_size};
use report::Line;

/// Measures, or is the peer.
pub fn run(shared: &Shared, perf: &Perf) -> Outcome<ExitCode> {
    let cpus = processors(perf);
    if let Some(qual) = perf.side.listen {
        if let Some(cpus) = cpus {
            cpu::pin(cpus.peer)?;
        }
        return serve::listening(shared, &perf.name, qual, &perf.side);
    }
    let share = perf.side.connect.is_none() && share_one(cpus, cpu::two());
    let perf = &Perf { wait: perf.wait || share, ..perf.clone() };
    let ia = shared.ia(&perf.name).open()?;
    let limit = perf.side.timeout;
    let peer = match perf.side.connect {
        Some(target) => {
            if let Some(cpus) = cpus {
                cpu::pin(cpus.own)?;
            }
            Peer::elsewhere(target)
        }
        None => Peer::start(shared, &ia, limit, cpus)?,
    };
    let peer_cpu = cpus.filter(|_| peer.is_ours()).map(|cpus| cpus.peer);
    let sizes = plan::sizes(perf);
    let bar = progress(sizes.len() * plan::count(perf));
    let (mut lines, mut path) = (Vec::new(), String::new());
    let of = |&size| plan::depths(perf, size).into_iter().map(move |depth| (size, depth));
    let mut connections = sizes.iter().flat_map(of).peekable();
    while let Some((size, depth)) = connections.next() {
        let buffers = perf.buffers.unwrap_or(depth);
        let shape = Shape { size, depth, wait: perf.wait, heap: perf.heap, buffers, limit };
        let mut link = Link::connect(&ia, peer.target, shape)?;
        for row in plan::rows(perf, size, depth, link.depth()) {
            let what = format!("{} {} of {}", row.operation.name(), row.metric.name(), show_size(size));
            bar.set_message(what.clone());
            let samples = measure::row(&mut link, &row, perf, peer_cpu)
                .context(|| format!("{what} bytes with {}", peer.describe()))?;
            lines.extend(report::lines(&row, &samples));
            bar.inc(1);
        }
        // Now, because providers choose a path by what they measured.
        path = link.path();
        if connections.peek().is_some() {
            link.request(Control::More)?;
        }
        link.close()?;
    }
    bar.finish_and_clear();
    // Measured by size, printed by test.
    lines.sort_by_key(|line: &Line| (line.operation as u8, line.metric as u8, line.size, line.place));
    let title = title(ia.name(), &peer, cpus, perf);
    if let Some(file) = &perf.plot {
        fs::write(file, plot::svg(&title, &lines))
            .context(|| format!("{} cannot be written", file.display()))?;
    }
    shared.print(
        || {
            json!({
                "name": ia.name(),
                "peer": peer.describe(),
                "path": path,
                "cpus": cpus.map(|cpus| [cpus.own, cpus.peer]),
                "wait": perf.wait,
                "heap": perf.heap,
                "buffers": perf.buffers,
                "results": lines,
            })
        },
        || format!("{title}\npath: {path}\n{}{LEGEND}", report::text(&lines)),
    )?;
    Ok(ExitCode::SUCCESS)
}

const LEGEND: &str = "P10 is the tenth percentile of the batches from the best one, G is 10^9, M is 10^6. PLACE is the \
                      distance of\nthe processors: compare figures of one place only.";

/// Whether the two sides share a processor. If both polled, each would wait for the end of the other's time slice. `chosen`
/// overrides `two`, the first two usable processors.
fn share_one(chosen: Option<Cpus>, two: Option<Cpus>) -> bool {
    chosen.or(two).is_none_or(|cpus| cpus.own == cpus.peer)
}

/// The two processors. None with `--no-pin`, or without two processors.
fn processors(perf: &Perf) -> Option<Cpus> {
    match (perf.no_pin, perf.cpus) {
        (true, _) => None,
        (false, Some(chosen)) => Some(chosen),
        (false, None) => {
            let two = cpu::two();
            if two.is_none() && perf.side.connect.is_none() && perf.side.listen.is_none() {
                eprintln!(
                    "dat: there is only one processor: neither side is pinned, and both sleep while they wait"
                );
            }
            two
        }
    }
}

fn title(name: &str, peer: &Peer, cpus: Option<Cpus>, perf: &Perf) -> String {
    let pinned = match cpus {
        Some(cpus) if peer.is_ours() => format!("processors {} and {}", cpus.own, cpus.peer),
        Some(cpus) => format!("processor {} here", cpus.own),
        None => "not pinned".to_owned(),
    };
    let how = if perf.wait { "sleeping" } else { "polling" };
    let memory = if perf.heap { "; ordinary memory" } else { "" };
    let buffers = perf.buffers.map_or(String::new(), |most| format!("; buffers: {most} at most"));
    format!("{name}: with {}; {pinned}; {how}{memory}{buffers}", peer.describe())
}

/// On standard error, when that is a terminal.
fn progress(rows: usize) -> ProgressBar {
    let bar = ProgressBar::new(rows as u64);
    // The template is fixed and right; the plain style is as good.
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, {eta} to go");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_share_a_processor_when_there_is_one_or_one_was_chosen_for_both() {
        let cpus = |own, peer| Some(Cpus { own, peer });
        assert!(share_one(None, None) && share_one(cpus(1, 1), cpus(0, 1)));
        assert!(!share_one(None, cpus(0, 1)) && !share_one(cpus(0, 1), cpus(0, 1)));
        // Started by a program that is bound to one processor, with --cpus 0,1.
        assert!(!share_one(cpus(0, 1), None));
    }
}
