//! Selection of processors for the two sides, and pinning.

use dat_measure::cpu::{self, allowed};

use crate::failure::{Context, Outcome};
use crate::units::Cpus;

pub use dat_measure::cpu::Placement;

/// Binds the calling thread, and what it starts from now on, to one processor.
pub fn pin(cpu: usize) -> Outcome {
    cpu::pin(cpu).context(|| {
        let allowed: Vec<String> = allowed().iter().map(ToString::to_string).collect();
        format!(
            "processor {cpu} cannot be used; allowed are {}; choose with --cpus, or say --no-pin",
            allowed.join(",")
        )
    })
}

/// The first two processors this process may use, for the two sides.
pub fn two() -> Option<Cpus> {
    cpu::two().map(|(own, peer)| Cpus { own, peer })
}

/// One-way time of a cache line between the calling thread's processor and another, in nanoseconds.
pub fn probe(other: usize) -> Outcome<f64> {
    cpu::probe(other).context(|| "the probe between the processors".to_owned())
}
