//! Benchmarks: the provider directly against the provider under the engine.
