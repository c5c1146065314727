//! What legs and the programs they run print. All of it goes to one file per leg. A terminal shows it as it comes.
//! Without a terminal, as in CI, only the reasons of failed legs are shown, at the end.

use std::fs::File;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::libtest::{Failure, Tests};

/// Lines before an error line that are repeated with it.
const BEFORE: usize = 3;

/// Last lines that are repeated when no line is an error line.
const LAST: usize = 25;

/// Fewest lines for a failed test: its name, where it panicked, and the message.
const LEAST: usize = 6;

/// Lines after an error line, up to an empty one, that are repeated: a compiler prints the position there.
const AFTER: usize = 8;

/// The leg that runs; `None` in a single command, which prints directly.
static LEG: Mutex<Option<Log>> = Mutex::new(None);

/// What one leg has printed.
pub struct Log {
    file: Option<File>,
    path: Option<PathBuf>,
    lines: Vec<Line>,
    live: bool,
}

/// A line of either stream, in the order of arrival.
struct Line {
    text: String,
    is_stderr: bool,
}

/// Whether the output goes to a terminal.
pub fn is_terminal() -> bool {
    stdout().is_terminal()
}

/// Begins a leg's log, in `target/xtask/`. Each try has its own.
pub fn begin(leg: &str, again: bool, live: bool) {
    let path = log_file(&format!("{leg}{}", if again { "-again" } else { "" }));
    let file = path.as_ref().and_then(|path| File::create(path).ok());
    *leg_under_way() = Some(Log { file, path, lines: Vec::new(), live });
}

/// Ends the leg's log and returns it.
pub fn end() -> Option<Log> {
    leg_under_way().take()
}

/// Prints a line. A closed pipe is ignored: the exit status stays the same.
pub fn print(text: std::fmt::Arguments<'_>) {
    if cfg!(test) {
        // The test harness captures this one.
        return std::println!("{text}");
    }
    let _ = writeln!(stdout(), "{text}");
}

/// A line of a program's output.
pub fn stdout_line(text: &str) {
    if keep(text, false) {
        println!("{text}");
    }
}

/// A line of a program's error output.
pub fn stderr_line(text: &str) {
    if keep(text, true) {
        println!("{text}");
    }
}

/// Prints a line in every run: a table, or what is installed.
pub fn show(text: &str) {
    keep(text, false);
    println!("{text}");
}

impl Log {
    /// At most `room` lines that show why the leg failed: the failed tests with their messages. Without one, the error
    /// lines with their context. Without those, the last lines.
    pub fn failure_excerpt(&self, room: usize) -> Vec<String> {
        let mut tests = Tests::default();
        let mut outside_tests = Vec::new();
        for line in &self.lines {
            outside_tests.push(line.is_stderr || tests.line(&line.text));
        }
        let mut lines = match tests.failures() {
            [] => last(self.error_lines(&outside_tests, tests.cut_short() > 0), room),
            failures => failed_tests(failures, room),
        };
        if let Some(path) = &self.path {
            lines.push(format!("[all of it: {}]", path.display()));
        }
        lines
    }

    fn error_lines(&self, outside_tests: &[bool], cut_short: bool) -> Vec<String> {
        let mut wanted = vec![false; self.lines.len()];
        for (at, line) in self.lines.iter().enumerate() {
            if outside_tests[at] && is_error(&line.text) {
                let rest = self.lines[at..].iter().take(AFTER);
                let end = at + rest.take_while(|line| !line.text.is_empty()).count();
                wanted[at.saturating_sub(BEFORE)..end].fill(true);
            }
        }
        // A test program that was killed has printed no reason; its last lines are the best there is.
        if cut_short || !wanted.contains(&true) {
            let last = self.lines.len().saturating_sub(LAST);
            wanted[last..].fill(true);
        }
        let chosen = self.lines.iter().zip(wanted).filter(|(_, wanted)| *wanted);
        chosen.map(|(line, _)| line.text.clone()).collect()
    }
}

/// The last of the lines.
fn last(mut lines: Vec<String>, room: usize) -> Vec<String> {
    let left_out = lines.len().saturating_sub(room);
    if left_out > 0 {
        lines.splice(..left_out, [format!("[{left_out} lines before]")]);
    }
    lines
}

/// Each failed test with its message, and what it printed before as far as there is room.
fn failed_tests(failures: &[Failure], room: usize) -> Vec<String> {
    let each = (room / failures.len()).max(LEAST);
    let shown = (room / each).clamp(1, failures.len());
    let mut lines = Vec::new();
    for failure in &failures[..shown] {
        lines.push(format!("---- {} failed", failure.name));
        lines.extend(excerpt(failure, each - 1).into_iter().map(str::to_owned));
    }
    if shown < failures.len() {
        lines.push(format!("[and {} more]", failures.len() - shown));
    }
    lines
}

/// At most `room` lines of a failed test's output: from its panic on, or its last ones. Stack addresses are left out.
fn excerpt(failure: &Failure, room: usize) -> Vec<&str> {
    let mut stack = false;
    let shown = |line: &&str| {
        stack = *line == "stack backtrace:" || stack && (line.starts_with(' ') || line.starts_with("note: "));
        !stack && !line.is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE")
    };
    let lines: Vec<&str> = failure.output.iter().map(String::as_str).filter(shown).collect();
    // Its own panic, if it can be distinguished from deliberate ones.
    let own = format!("thread '{}'", failure.name);
    let panics = |line: &&str| line.contains(" panicked at ");
    let panic = lines.iter().position(|line| panics(line) && line.starts_with(&own));
    let panic = panic.or_else(|| lines.iter().rposition(panics)).unwrap_or(lines.len());
    let from = panic.saturating_sub(1).min(lines.len().saturating_sub(room));
    lines[from..lines.len().min(from + room)].to_vec()
}

/// Keeps a line in the log. Returns whether to print it now.
fn keep(text: &str, is_stderr: bool) -> bool {
    let mut leg = leg_under_way();
    let Some(log) = leg.as_mut() else { return true };
    if let Some(file) = &mut log.file {
        // The log is only for later reading: a full disk is no reason to fail here.
        let _ = writeln!(file, "{text}");
    }
    log.lines.push(Line { text: text.to_owned(), is_stderr });
    log.live
}

fn is_error(line: &str) -> bool {
    let start = line.trim_start();
    line.contains("FAILED")
        || ["error", "ERROR", "Caused by:", "FAIL", "fail ", "not ok", "failed"]
            .iter()
            .any(|word| start.starts_with(word))
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
        let lines =
            lines.iter().map(|text| Line { text: (*text).to_owned(), is_stderr: text.starts_with("error") });
        Log { file: None, path: None, lines: lines.collect(), live: false }
    }

    #[test]
    fn a_failed_test_repeats_only_its_own_output() {
        let log = log(&[
            "running 2 tests",
            "test a ... ok",
            "test b ... FAILED",
            "",
            "successes:",
            "---- a stdout ----",
            "test quoted ... FAILED",
            "error: quoted",
            "failures:",
            "",
            "---- b stdout ----",
            "before",
            "thread 'b' (7) panicked at src/b.rs:1:2:",
            "left: 1",
            "stack backtrace:",
            "   0: somewhere",
            "             at /rustc/library",
            "note: Some details are omitted",
            "after",
            "",
            "failures:",
            "    b",
            "",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "running 1 test",
            "test c ... ok",
            "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s",
            "error: 1 target failed",
        ]);
        let panic = ["thread 'b' (7) panicked at src/b.rs:1:2:", "left: 1", "after"];
        assert_eq!(log.failure_excerpt(40), [&["---- b failed", "before"][..], &panic].concat());
    }

    #[test]
    fn each_of_many_failed_tests_is_named_with_its_panic() {
        let failures: Vec<Failure> = (0..10)
            .map(|number| {
                let mut output = vec!["talk".to_owned(); 50];
                output.push("thread '<unnamed>' (2) panicked at y.rs:1:1:".to_owned());
                output.extend(vec!["talk".to_owned(); 50]);
                output.push(format!("thread 't{number}' (1) panicked at x.rs:{number}:1:"));
                output.push("because".to_owned());
                output.extend(vec!["talk".to_owned(); 50]);
                Failure { name: format!("t{number}"), output }
            })
            .collect();
        let shown = failed_tests(&failures, 60);
        assert!(shown.len() <= 60, "{shown:?}");
        for number in 0..10 {
            let at = shown.iter().position(|line| *line == format!("---- t{number} failed")).expect("named");
            let panic = shown[at..].iter().position(|line| line.contains(&format!("x.rs:{number}:")));
            assert!(panic.is_some_and(|panic| panic < 6 && shown[at + panic + 1] == "because"), "{shown:?}");
        }
    }

    #[test]
    fn a_compiler_error_is_repeated_with_its_position() {
        let log = log(&["one", "two", "error[E1]: no", "  --> x.rs:1", "", "three", "four"]);
        assert_eq!(log.failure_excerpt(9), ["one", "two", "error[E1]: no", "  --> x.rs:1"]);
    }

    #[test]
    fn a_killed_test_program_repeats_the_last_lines() {
        let log = log(&["running 2 tests", "test a ... ok", "error: test failed", "last"]);
        assert!(
            log.failure_excerpt(9).ends_with(&["error: test failed".to_owned(), "last".to_owned()]),
            "{:?}",
            log.failure_excerpt(9)
        );
    }

    #[test]
    fn without_an_error_line_the_end_is_repeated() {
        assert_eq!(log(&["one", "two"]).failure_excerpt(9), ["one", "two"]);
        assert_eq!(log(&["one", "two", "three"]).failure_excerpt(2), ["[1 lines before]", "two", "three"]);
    }
}
