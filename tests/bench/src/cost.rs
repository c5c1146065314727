//! What each layer costs in nanoseconds.
//!
//! Both ends are on one thread, so that no cache line moves and what is left is the price of the code. A round posts a
//! batch of receives, posts a batch of sends, takes all receive completions, takes all send completions, and polls as often in vain; each phase is
//! timed and divided by the batch. Rounds of the layers take turns, so that a machine that changes its speed changes
//! it for all; the median of the rounds is printed, and the difference to the direct calls.

use std::time::Instant;

use dat_measure::cpu;
use dat_plugin::host::Plugin;
use dat_shm::Shm;

use crate::layers::{self, BATCH, Layer, config};

/// Nanoseconds an operation: post a receive, post a send, take a receive completion, take a send completion, find none.
pub(crate) type Sample = [f64; 5];

pub(crate) const PHASES: [&str; 5] =
    ["post_recv", "post_send", "recv completion", "send completion", "empty poll"];

/// Times the layers and prints the result; `--json`, `--rounds N`.
pub(crate) fn run(args: &[String]) {
    let json = args.iter().any(|arg| arg == "--json");
    let rounds = args
        .iter()
        .position(|arg| arg == "--rounds")
        .and_then(|at| args.get(at + 1))
        .map_or(2000, |n| n.parse().expect("--rounds takes a number"));
    let layers = measure(rounds);
    if json {
        let rows: Vec<_> = layers
            .iter()
            .map(|(name, sample)| serde_json::json!({ "layer": name, "phases": PHASES, "ns": sample }))
            .collect();
        println!("{}", serde_json::json!({ "batch": BATCH, "rounds": rounds, "rows": rows }));
        return;
    }
    println!("8-byte messages, batches of {BATCH}, median of {rounds} rounds, ns an operation (over direct)");
    print!("{:<10}", "layer");
    PHASES.iter().for_each(|phase| print!(" {phase:>18}"));
    println!();
    for (name, sample) in &layers {
        print!("{name:<10}");
        for (ns, base) in sample.iter().zip(&layers[0].1) {
            print!(" {:>18}", format!("{ns:.1} ({:+.1})", ns - base));
        }
        println!();
    }
}

/// The median of the rounds, layer by layer.
pub(crate) fn measure(rounds: usize) -> Vec<(&'static str, Sample)> {
    pin();
    let plugin = Plugin::of::<Shm>();
    let mut layers: Vec<Box<dyn Layer>> = vec![
        Box::new(layers::direct::Direct::new()),
        Box::new(layers::abi::Abi::new(&plugin, &config("abi"))),
        Box::new(layers::engine::Engine::new(&plugin, &config("engine"))),
        Box::new(layers::api::Api::new(|| {
            dat::open("shm0").expect("shm0 opens: build it with `cargo build --release -p dat-shm`")
        })),
        Box::new(layers::buffer::Buffers::new(|| dat::open("shm0").expect("shm0 opens"))),
    ];
    let mut samples: Vec<Vec<Sample>> = vec![Vec::new(); layers.len()];
    for round in 0..rounds + rounds / 10 {
        for (layer, samples) in layers.iter_mut().zip(&mut samples) {
            let sample = time(layer.as_mut());
            // The first tenth warms up.
            if round >= rounds / 10 {
                samples.push(sample);
            }
        }
    }
    layers.iter().zip(&samples).map(|(layer, samples)| (layer.name(), median(samples))).collect()
}

fn time(layer: &mut dyn Layer) -> Sample {
    let mut sample = [0.0; 5];
    let phases: [fn(&mut dyn Layer); 5] = [
        |l| l.post_recvs(),
        |l| l.post_sends(),
        |l| l.take_recvs(),
        |l| l.take_sends(),
        |l| l.poll_nothing(),
    ];
    for (phase, ns) in phases.into_iter().zip(&mut sample) {
        let start = Instant::now();
        phase(layer);
        *ns = start.elapsed().as_nanos() as f64 / BATCH as f64;
    }
    sample
}

fn median(samples: &[Sample]) -> Sample {
    std::array::from_fn(|phase| {
        let mut values: Vec<f64> = samples.iter().map(|sample| sample[phase]).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    })
}

/// To the first processor: a layer that moves between two measures the move.
fn pin() {
    if let Err(error) = cpu::allowed().first().map_or(Ok(()), |&first| cpu::pin(first)) {
        eprintln!("not pinned: {error}");
    }
}
