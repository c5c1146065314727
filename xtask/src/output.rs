//! What legs and the programs they run print: all of it in a file per leg; on the terminal as it comes when somebody
//! watches, and otherwise, as in CI, only what tells why a leg failed, at the end, where it is found.

use std::fs::File;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::libtest::{Failure, Reader};

/// Lines before a complaint that are repeated with it.
const BEFORE: usize = 3;

/// Lines at the end of what was printed when nothing in it complains.
const LAST: usize = 25;

/// Lines for a failed test at the least: its name, where it panicked, and what it said.
const LEAST: usize = 6;

/// Lines after a complaint, up to an empty one, that are repeated with it: a compiler says there where it is.
const AFTER: usize = 8;

/// The leg under way in a run of all legs; `None` in a command of its own, which prints as it goes.
static LEG: Mutex<Option<Log>> = Mutex::new(None);

/// What one leg has printed.
pub struct Log {
    file: Option<File>,
    path: Option<PathBuf>,
    lines: Vec<Line>,
    live: bool,
}

/// A line, and whether it is of a program's error output: two streams, which are read as they come.
struct Line {
    text: String,
    aside: bool,
}

/// Whether somebody watches a run of all legs.
pub fn watched() -> bool {
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

/// Prints a line. Who no longer reads misses it; what this program does, and its exit status, stay the same.
pub fn print(text: std::fmt::Arguments<'_>) {
    if cfg!(test) {
        // The one whose output is shown with the test it belongs to.
        return std::println!("{text}");
    }
    let _ = writeln!(stdout(), "{text}");
}

/// A line of a program's output.
pub fn line(text: &str) {
    if keep(text, false) {
        println!("{text}");
    }
}

/// A line of a program's error output.
pub fn aside(text: &str) {
    if keep(text, true) {
        println!("{text}");
    }
}

/// Something every run shows: a table, or what was installed.
pub fn show(text: &str) {
    keep(text, false);
    println!("{text}");
}

impl Log {
    /// At most `room` lines that tell why the leg failed: the tests that failed with what each said, else what complains
    /// with a little of what came before and after it, else the last lines.
    pub fn why(&self, room: usize) -> Vec<String> {
        let mut tests = Reader::default();
        let mut of_no_test = Vec::new();
        for line in &self.lines {
            of_no_test.push(line.aside || tests.line(&line.text));
        }
        let mut lines = match tests.failures() {
            [] => last(self.complaints(&of_no_test, tests.cut_short() > 0), room),
            failures => failed_tests(failures, room),
        };
        if let Some(path) = &self.path {
            lines.push(format!("[all of it: {}]", path.display()));
        }
        lines
    }

    fn complaints(&self, of_no_test: &[bool], cut_short: bool) -> Vec<String> {
        let mut wanted = vec![false; self.lines.len()];
        for (at, line) in self.lines.iter().enumerate() {
            if of_no_test[at] && complains(&line.text) {
                let rest = self.lines[at..].iter().take(AFTER);
                let end = at + rest.take_while(|line| !line.text.is_empty()).count();
                wanted[at.saturating_sub(BEFORE)..end].fill(true);
            }
        }
        // A program of tests that was ended has told nothing of why; its last words are the best there is.
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

/// Each failed test with what it said when it failed; the fewer there are, the more of what it printed before.
fn failed_tests(failures: &[Failure], room: usize) -> Vec<String> {
    let each = (room / failures.len()).max(LEAST);
    let shown = (room / each).clamp(1, failures.len());
    let mut lines = Vec::new();
    for failure in &failures[..shown] {
        lines.push(format!("---- {} failed", failure.name));
        lines.extend(gist(failure, each - 1).into_iter().map(str::to_owned));
    }
    if shown < failures.len() {
        lines.push(format!("[and {} more]", failures.len() - shown));
    }
    lines
}

/// At most `room` lines of a failed test's output: its panic, some of what came before, most of what came after.
/// The addresses of a stack are of no use to a reader of a log.
fn gist(failure: &Failure, room: usize) -> Vec<&str> {
    let mut stack = false;
    let mut lines: Vec<&str> = Vec::new();
    for line in failure.output.iter().map(String::as_str) {
        stack = line == "stack backtrace:" || stack && (line.starts_with(' ') || line.starts_with("note: "));
        if !stack && !line.is_empty() && !line.starts_with("note: run with `RUST_BACKTRACE") {
            lines.push(line);
        }
    }
    // Its own, if it can be told from those that were on purpose.
    let own = format!("thread '{}'", failure.name);
    let panics = |line: &&str| line.contains(" panicked at ");
    let panic = lines.iter().position(|line| panics(line) && line.starts_with(&own));
    let panic = panic.or_else(|| lines.iter().rposition(panics)).unwrap_or(lines.len());
    let after = (lines.len() - panic).min((room - room / 4).max(room.saturating_sub(panic)));
    let from = panic.saturating_sub(room.saturating_sub(after));
    lines[from..panic + after].to_vec()
}

/// Keeps a line in the log. Returns whether it is to be printed now.
fn keep(text: &str, aside: bool) -> bool {
    let mut leg = leg_under_way();
    let Some(log) = leg.as_mut() else { return true };
    if let Some(file) = &mut log.file {
        // The log is for reading afterwards; the run does not fail for a full disk here, but where it matters.
        let _ = writeln!(file, "{text}");
    }
    log.lines.push(Line { text: text.to_owned(), aside });
    log.live
}

fn complains(line: &str) -> bool {
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
            lines.iter().map(|text| Line { text: (*text).to_owned(), aside: text.starts_with("error") });
        Log { file: None, path: None, lines: lines.collect(), live: false }
    }

    #[test]
    fn of_failed_tests_only_their_own_output_is_repeated() {
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
        assert_eq!(log.why(40), [&["---- b failed", "before"][..], &panic].concat());
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
        let told = failed_tests(&failures, 60);
        assert!(told.len() <= 60, "{told:?}");
        for number in 0..10 {
            let at = told.iter().position(|line| *line == format!("---- t{number} failed")).expect("named");
            let panic = told[at..].iter().position(|line| line.contains(&format!("x.rs:{number}:")));
            assert!(panic.is_some_and(|panic| panic < 6 && told[at + panic + 1] == "because"), "{told:?}");
        }
    }

    #[test]
    fn a_compilers_complaint_is_repeated_with_its_place() {
        let log = log(&["one", "two", "error[E1]: no", "  --> x.rs:1", "", "three", "four"]);
        assert_eq!(log.why(9), ["one", "two", "error[E1]: no", "  --> x.rs:1"]);
    }

    #[test]
    fn of_tests_that_came_to_no_end_the_last_words_are_repeated() {
        let log = log(&["running 2 tests", "test a ... ok", "error: test failed", "last"]);
        assert!(
            log.why(9).ends_with(&["error: test failed".to_owned(), "last".to_owned()]),
            "{:?}",
            log.why(9)
        );
    }

    #[test]
    fn without_a_complaint_the_end_is_repeated() {
        assert_eq!(log(&["one", "two"]).why(9), ["one", "two"]);
        assert_eq!(log(&["one", "two", "three"]).why(2), ["[1 lines before]", "two", "three"]);
    }
}
