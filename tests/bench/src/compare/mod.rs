//! Ours beside others', in one interleaved run.
//!
//! A virtual machine's host moves its processors about, and everything made of cache-line transfers changes with that by
//! a factor of 3 to 5. So nothing is compared that was not measured in turns: each round takes one sample of each
//! program at each point, a probe of the raw cache line is taken before and after each sample, and samples whose two
//! probes disagree are dropped. The others are kept by place, same core, near or far, and the median of a place counts.
//!
//! What cannot run is named in the result, with the reason.

mod connections;
mod copies;
mod descriptors;
mod figures;
mod ours;
mod peers;
mod points;
mod programs;
mod serve;
mod sleep;

use std::path::PathBuf;
use std::time::Instant;

use dat_measure::cpu::{self, Placement};
use dat_measure::show_size;
use serde_json::json;

use figures::Figures;
use points::{Contender, Point, points};
pub(crate) use serve::serve;

/// `compare [--quick] [--rounds N] [--only TEST] --dat PROGRAM`: measures, and prints the result as JSON. `connections`
/// stands for all tests of connections.
pub(crate) fn run(args: &[String]) {
    let after = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let quick = args.iter().any(|arg| arg == "--quick");
    let rounds: Option<u32> = after("--rounds").map(|n| n.parse().expect("--rounds takes a number"));
    let rounds = rounds.unwrap_or(if quick { 1 } else { 5 });
    let dat = PathBuf::from(after("--dat").expect("--dat PROGRAM: the command under test"));
    let Some(cpus) = cpu::two() else {
        println!("{}", json!({ "not_run": "there is one processor only; two are needed" }));
        return;
    };
    // Asked before anything is pinned or loaded.
    let machine = programs::machine();
    let start = Instant::now();
    let mut figures = Figures::default();
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(ours::Dat::new(&dat, cpus, quick)),
        Box::new(peers::Ucx::new(cpus, quick)),
        Box::new(peers::Ucx::active(cpus, quick)),
        Box::new(peers::Ucx::transport(cpus, quick)),
        Box::new(peers::Fabric::new(cpus, quick)),
        Box::new(ours::Dat::many_buffers(&dat, cpus, quick)),
        Box::new(copies::Memcpy { one_buffer: true }),
        Box::new(copies::Memcpy { one_buffer: false }),
        Box::new(sleep::EventFd(cpus)),
        Box::new(sleep::Sleepers(cpus)),
    ];
    let only = after("--only");
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let points: Vec<Point> = points(quick).into_iter().filter(|(test, _)| wanted(test.name())).collect();
    for round in 0..rounds {
        for &point in &points {
            eprintln!(
                "round {} of {}, {:.0} s: {} {}",
                round + 1,
                rounds,
                start.elapsed().as_secs_f64(),
                point.0.name(),
                show_size(point.1)
            );
            for contender in contenders.iter_mut().filter(|contender| contender.takes(point)) {
                sample(contender.as_mut(), point, cpus, &mut figures);
            }
        }
        // Each a process of its own with all its connections.
        if wanted("connections") {
            connections::run(quick, cpus, &mut figures);
        }
    }
    cpu::pin(cpus.0).expect("pinned before");
    let layers = crate::cost::measure(if quick { 100 } else { 2000 });
    let (rows, missing) = figures.to_json();
    println!(
        "{:#}",
        json!({
            "machine": machine,
            "programs": programs::versions(),
            "cpus": [cpus.0, cpus.1],
            "rounds": rounds,
            "seconds": start.elapsed().as_secs(),
            "dropped": figures.dropped,
            "taken": figures.taken.iter().map(|((test, who), count)| json!({
                "test": test.name(), "who": who, "samples": count })).collect::<Vec<_>>(),
            "rows": rows,
            "layers": { "phases": crate::cost::PHASES, "rows": layers.iter().map(|(name, ns)| json!({
                "layer": name, "ns": ns.map(|ns| (ns * 10.0).round() / 10.0) })).collect::<Vec<_>>() },
            "missing": missing,
        })
    );
}

fn sample(contender: &mut dyn Contender, point: Point, cpus: (usize, usize), figures: &mut Figures) {
    let probe = || cpu::pin(cpus.0).and_then(|()| cpu::probe(cpus.1)).unwrap_or(f64::INFINITY);
    let before = probe();
    let values = contender.measure(point);
    let after = probe();
    match values {
        Ok(values) => {
            let around = Placement::between(before, after);
            for (inside, value) in values {
                // Somewhere else than both probes say: it moved there and back.
                let place = match inside {
                    Some(place) if place != around && place != Placement::Unknown => Placement::Mixed,
                    Some(place) => place,
                    None => around,
                };
                figures.add(point, contender.name(), place, before.min(after), value);
            }
        }
        Err(why) => figures.miss(contender.name(), &why),
    }
}
