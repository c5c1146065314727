//! The legs of `cargo xtask test` that run other programs.

pub mod authors;
pub mod capi;
pub mod checks;
mod clauses;
pub mod conformance;
pub mod debian;
pub mod deny;
pub mod evolution;
pub mod faults;
pub mod fuzz;
pub mod instructions;
pub mod libfabric;
pub mod libfabric_speed;
pub mod loom;
pub mod matrix;
pub mod miri;
pub mod mpi;
pub mod preconditions;
pub mod rdma;
pub mod sanitizers;
pub mod setup;
pub mod soak;
pub mod two_hosts;
