//! Random numbers that can be reproduced, and the lengths of runs.

use std::time::Duration;

use fastrand::Rng;

/// A generator, seeded at random or by the variable `DAT_TEST_SEED`. The seed is printed.
pub fn random() -> Rng {
    let given = std::env::var("DAT_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("DAT_TEST_SEED={seed}");
    Rng::with_seed(seed)
}

/// A time below `limit`, in whole microseconds.
pub fn random_time(random: &mut Rng, limit: Duration) -> Duration {
    Duration::from_micros(random.u64(..limit.as_micros() as u64))
}

/// A number that a long run by hand sets by a variable.
///
/// # Panics
/// When it is set to something else.
pub fn setting(name: &str, usual: u64) -> u64 {
    let parse =
        |text: String| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number"));
    std::env::var(name).map_or(usual, parse)
}
