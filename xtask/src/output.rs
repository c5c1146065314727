//! What legs and the programs they run print: all of it in a file per leg; on the terminal as it comes when somebody
//! watches, and otherwise, as in CI, only what tells why a leg failed, at the end, where it is found.

use std::fs::File;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Lines of a failed leg that are repeated at the end.
const REPEATED: usize = 120;

/// Lines before a complaint that are repeated with it.
const BEFORE: usize = 3;

/// The leg under way in a run of all legs; `None` in a command of its own, which prints as it goes.
static LEG: Mutex<Option<Log>> = Mutex::new(None);

/// What one leg has printed.
pub struct Log {
    file: Option<File>,
    lines: Vec<String>,
    live: bool,
}

/// Whether somebody watches a run of all legs.
pub fn watched() -> bool {
    stdout().is_terminal()
}

/// Begins a leg's log, in `target/xtask/`.
pub fn begin(leg: &str, live: bool) {
    let file = log_file(leg).and_then(|path| File::create(path).ok());
    *leg_under_way() = Some(Log { file, lines: Vec::new(), live });
}

/// Ends the leg's log and returns it.
pub fn end() -> Option<Log> {
    leg_under_way().take()
}

/// A line of a program's output.
pub fn line(text: &str) {
    if keep(text) {
        println!("{text}");
    }
}

/// Something every run shows: a table, or what was installed.
pub fn show(text: &str) {
    keep(text);
    println!("{text}");
}

impl Log {
    /// The lines that tell why the leg failed: what failing tests printed and other complaints with a little of what
    /// came before each, or the last lines when nothing looks like a complaint.
    pub fn why(&self) -> Vec<&str> {
        let mut wanted = vec![false; self.lines.len()];
        let mut within = false;
        for (at, line) in self.lines.iter().enumerate() {
            within = (within || line == "failures:") && !line.starts_with("test result:");
            if within {
                wanted[at] = true;
            } else if complains(line) {
                wanted[at.saturating_sub(BEFORE)..=at].fill(true);
            }
        }
        let chosen: Vec<&str> = self
            .lines
            .iter()
            .zip(&wanted)
            .filter(|(_, wanted)| **wanted)
            .map(|(line, _)| line.as_str())
            .collect();
        let from = if chosen.is_empty() { self.lines.iter().map(String::as_str).collect() } else { chosen };
        from[from.len().saturating_sub(REPEATED)..].to_vec()
    }
}

/// Keeps a line in the log. Returns whether it is to be printed now.
fn keep(text: &str) -> bool {
    let mut leg = leg_under_way();
    let Some(log) = leg.as_mut() else { return true };
    if let Some(file) = &mut log.file {
        // The log is for reading afterwards; the run does not fail for a full disk here, but where it matters.
        let _ = writeln!(file, "{text}");
    }
    log.lines.push(text.to_owned());
    log.live
}

fn complains(line: &str) -> bool {
    let start = line.trim_start();
    line.contains("FAILED")
        || ["error", "ERROR", "FAIL", "fail ", "not ok", "failed"].iter().any(|word| start.starts_with(word))
}

fn log_file(leg: &str) -> Option<PathBuf> {
    let dir = crate::cargo::target_dir().ok()?.join("xtask");
    std::fs::create_dir_all(&dir).ok()?;
    Some(dir.join(format!("{}.log", leg.replace(' ', "-"))))
}

fn leg_under_way() -> std::sync::MutexGuard<'static, Option<Log>> {
    LEG.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> Log {
        Log { file: None, lines: lines.iter().map(|line| (*line).to_owned()).collect(), live: false }
    }

    #[test]
    fn a_failing_test_is_repeated_whole() {
        let log = log(&[
            "test a ... ok",
            "failures:",
            "---- b stdout ----",
            "left: 1",
            "test result: FAILED. 1 passed; 1 failed",
            "x",
        ]);
        assert_eq!(log.why()[..3], ["failures:", "---- b stdout ----", "left: 1"]);
        assert!(!log.why().contains(&"x"));
    }

    #[test]
    fn without_a_complaint_the_end_is_repeated() {
        assert_eq!(log(&["one", "two"]).why(), ["one", "two"]);
    }
}
