//! Where results are kept.

pub const FOLDER: &str = "docs/bench";
pub const RESULTS: &str = "docs/bench/results.json";
pub const RESULTS_VM: &str = "docs/bench/vm.json";
