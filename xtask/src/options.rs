//! Words of the command line.

/// Whether an option is given.
pub fn has(words: &[String], option: &str) -> bool {
    words.iter().any(|given| given == option)
}
