//! Random numbers that can be had again.

use std::time::{Duration, SystemTime};

/// A generator (xorshift); its seed is printed, so that a failure can be looked into.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// Seeded by the clock, or by the variable `DAT_TEST_SEED`.
    pub fn new() -> Random {
        let clock =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64);
        let seed =
            std::env::var("DAT_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(clock);
        println!("DAT_TEST_SEED={seed}");
        Random(seed | 1)
    }

    /// The next number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }

    /// A time below `limit`.
    pub fn time(&mut self, limit: Duration) -> Duration {
        Duration::from_micros(self.below(limit.as_micros() as u64))
    }
}

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}
