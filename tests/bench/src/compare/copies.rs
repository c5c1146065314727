//! What the processor's own copy does, both sides in cache: the measure of one-sided transfers.

use std::hint::black_box;
use std::time::{Duration, Instant};

use dat_measure::cpu::Placement;

use super::figures::median;
use super::points::{Contender, Point, Test};

pub(crate) struct Memcpy {
    /// One buffer, as `dat` and the others have; otherwise as many as `dat, many buffers`.
    pub(crate) one_buffer: bool,
}

impl Contender for Memcpy {
    fn name(&self) -> &str {
        if self.one_buffer { "memcpy" } else { "memcpy, many buffers" }
    }

    fn takes(&self, (test, _): Point) -> bool {
        matches!(test, Test::WriteBandwidth | Test::ReadBandwidth)
    }

    fn measure(&mut self, (_, size): Point) -> Result<Vec<(Option<Placement>, f64)>, String> {
        let size = size as usize;
        let slots = if self.one_buffer { 1 } else { ((4 << 20) / size).clamp(1, 64) };
        let (from, mut to) = (vec![1u8; size * slots], vec![2u8; size * slots]);
        let batch = ((16 << 20) / size).max(4);
        let mut rates = Vec::new();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(100) || rates.len() < 3 {
            let begin = Instant::now();
            for i in 0..batch {
                let at = i % slots * size;
                black_box(&mut to[at..at + size]).copy_from_slice(black_box(&from[at..at + size]));
            }
            rates.push((batch * size) as f64 / begin.elapsed().as_nanos() as f64);
        }
        Ok(vec![(None, median(&rates))])
    }
}
