//! Where results are kept, and a list in them.

use serde_json::Value;

pub const FOLDER: &str = "docs/bench";
pub const RESULTS: &str = "docs/bench/results.json";
pub const RESULTS_VM: &str = "docs/bench/vm.json";

/// A list; an empty one where there is none.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
