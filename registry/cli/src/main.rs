//! The dat command: providers, info, explain, check, ping, perf.
fn main() {}
