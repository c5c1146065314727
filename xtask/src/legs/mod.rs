//! The legs of `cargo xtask test` that run other programs.

pub mod authors;
pub mod bench;
pub mod checks;
pub mod conformance;
pub mod loom;
pub mod miri;
pub mod rdma;
pub mod setup;
pub mod tsan;
