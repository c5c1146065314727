//! Lines of another registry: names under which the system's `libdat2` registered this library.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::Mutex;

/// A line of another registry.
#[derive(Clone)]
pub struct Line {
    /// Its parameters.
    pub params: String,
    /// The version in its entry. The registry compares it with the provider's attributes.
    pub version: (u32, u32),
    /// Thread safety in its entry; compared in the same way.
    pub thread_safe: bool,
}

/// The lines that were registered, by name.
static LINES: LazyLock<Mutex<HashMap<String, Line>>> = LazyLock::new(Mutex::default);

/// The line that another registry has for this name.
pub fn line(name: &str) -> Option<Line> {
    LINES.lock().get(name).cloned()
}

/// Adds a line, in place of one with the same name.
pub fn insert(name: &str, line: Line) {
    LINES.lock().insert(name.to_owned(), line);
}

/// Removes a line.
pub fn remove(name: &str) {
    LINES.lock().remove(name);
}
