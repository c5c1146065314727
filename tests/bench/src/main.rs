//! What each layer costs: the same 8-byte messages through the shared-memory provider called directly, through the
//! plugin tables, through the engine, and through the safe API.
//!
//! Both ends are on one thread, so that no cache line moves and what is left is the price of the code. A round posts a
//! batch of receives, posts a batch of sends, takes all receive completions, takes all send completions; each phase is
//! timed and divided by the batch. Rounds of the layers take turns, so that a machine that changes its speed changes
//! it for all; the median of the rounds is printed, and the difference to the direct calls.
//!
//! `cargo run --release -p dat-bench [-- --json] [-- --rounds N]`

mod layers;

use std::time::Instant;

use layers::Layer;

/// Messages a round; fits every queue and the provider's default ring.
pub(crate) const BATCH: usize = 64;

/// Nanoseconds an operation: post a receive, post a send, take a receive completion, take a send completion.
type Sample = [f64; 4];

const PHASES: [&str; 4] = ["post_recv", "post_send", "recv completion", "send completion"];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|arg| arg == "--json");
    let rounds = args
        .iter()
        .position(|arg| arg == "--rounds")
        .and_then(|at| args.get(at + 1))
        .map_or(2000, |n| n.parse().expect("--rounds takes a number"));
    pin();
    let mut layers: Vec<Box<dyn Layer>> = vec![
        Box::new(layers::direct::Direct::new()),
        Box::new(layers::abi::Abi::new()),
        Box::new(layers::engine::Engine::new()),
        Box::new(layers::api::Api::new()),
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
    let medians: Vec<Sample> = samples.iter().map(|samples| median(samples)).collect();
    let names: Vec<&str> = layers.iter().map(|layer| layer.name()).collect();
    if json {
        let rows: Vec<_> = names
            .iter()
            .zip(&medians)
            .map(|(name, sample)| serde_json::json!({ "layer": name, "phases": PHASES, "ns": sample }))
            .collect();
        println!("{}", serde_json::json!({ "batch": BATCH, "rounds": rounds, "rows": rows }));
        return;
    }
    println!("8-byte messages, batches of {BATCH}, median of {rounds} rounds, ns an operation (over direct)");
    println!("{:<10} {:>18} {:>18} {:>18} {:>18}", "layer", PHASES[0], PHASES[1], PHASES[2], PHASES[3]);
    for (name, sample) in names.iter().zip(&medians) {
        print!("{name:<10}");
        for (ns, base) in sample.iter().zip(&medians[0]) {
            print!(" {:>18}", format!("{ns:.1} ({:+.1})", ns - base));
        }
        println!();
    }
}

fn time(layer: &mut dyn Layer) -> Sample {
    let mut sample = [0.0; 4];
    let phases: [fn(&mut dyn Layer); 4] =
        [|l| l.post_recvs(), |l| l.post_sends(), |l| l.take_recvs(), |l| l.take_sends()];
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
    let mut set = rustix::thread::CpuSet::new();
    set.set(0);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("not pinned: {error}");
    }
}
