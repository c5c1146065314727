//! What programs of tests print, read line by line: which tests failed, what each of those printed, and how many there
//! were. What a test printed is shown after all of them and may look like anything, the output of other programs of
//! tests included: nothing in it counts as a result.

use std::collections::{BTreeMap, BTreeSet};

use crate::process::Run;
use crate::report::{Result, Stop};

/// Where in a program's output the reader is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Part {
    /// Between programs.
    #[default]
    Outside,
    /// A line for each test.
    Results,
    /// What tests printed.
    Quoted,
}

/// What any number of programs of tests printed, one after another.
#[derive(Default)]
pub struct Tests {
    part: Part,
    /// The number of tests that the program announced.
    expected: u64,
    /// The program's tests.
    names: BTreeSet<String>,
    failures: Vec<Failure>,
    /// Whether the last failure's output goes on.
    within: bool,
    passed: u64,
    ignored: u64,
    /// Programs after which another began before their results.
    cut_short: usize,
    /// The reasons of tests that could not run, and how often each was printed.
    not_run: BTreeMap<String, u64>,
}

/// A test that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its name.
    pub name: String,
    /// What it printed.
    pub output: Vec<String>,
}

impl Tests {
    /// Runs a `cargo test` and counts. Fails when a test failed or when none ran: a run of nothing proves nothing.
    pub fn of(run: Run) -> Result<Tests> {
        Tests::with(run, |_| {})
    }

    /// The same, with each line handed to `look` as well.
    pub fn with(run: Run, mut look: impl FnMut(&str)) -> Result<Tests> {
        let mut tests = Tests::default();
        let ended = run.lines(|line| {
            tests.line(line);
            look(line);
        });
        tests.verdict(ended)?;
        Ok(tests)
    }

    /// Several runs as one.
    pub fn sum(runs: impl IntoIterator<Item = Tests>) -> Tests {
        runs.into_iter().fold(Tests::default(), |mut sum, run| {
            sum.passed += run.passed;
            sum.ignored += run.ignored;
            for (reason, count) in run.not_run {
                *sum.not_run.entry(reason).or_default() += count;
            }
            sum
        })
    }

    /// In words. A test that printed NOT RUN is not counted as passed.
    pub fn words(&self) -> String {
        let not_run: u64 = self.not_run.values().sum();
        let passed = self.passed.saturating_sub(not_run);
        let mut words = format!("{passed} tests passed, {} ignored", self.ignored);
        if not_run > 0 {
            let reasons = self.not_run.iter().map(|(reason, count)| format!("{count} {reason}"));
            words += &format!(", {not_run} NOT RUN ({})", reasons.collect::<Vec<_>>().join("; "));
        }
        words
    }

    fn verdict(&self, ended: Result<()>) -> Result<()> {
        let failed: Vec<&str> = self.failures.iter().map(|failure| failure.name.as_str()).collect();
        let mut wrong = Vec::new();
        if !failed.is_empty() {
            wrong.push(format!("{} failed: {}", failed.len(), failed.join(", ")));
        }
        if self.cut_short() > 0 {
            let how = ended.clone().err().map_or("with status 0".to_owned(), Stop::words);
            wrong.push(format!("{} program of tests ended before its result: {how}", self.cut_short()));
        }
        if !wrong.is_empty() {
            fail!("{}", wrong.join("; "));
        }
        ended?;
        match self.passed {
            0 => fail!("not a single test ran"),
            _ => Ok(()),
        }
    }

    /// The next line. Returns whether it is one between programs, which is no test's. A test that lacks something
    /// prints `NOT RUN: reason` and passes.
    pub fn line(&mut self, line: &str) -> bool {
        if let Some(reason) = line.strip_prefix("NOT RUN: ") {
            *self.not_run.entry(reason.to_owned()).or_default() += 1;
        }
        match self.part {
            Part::Outside => self.outside(line),
            Part::Results => {
                self.result(line);
                false
            }
            Part::Quoted => {
                self.quoted(line);
                false
            }
        }
    }

    /// The tests that failed, with what each printed.
    pub fn failures(&self) -> &[Failure] {
        &self.failures
    }

    /// How many programs printed no result: each was killed or crashed.
    pub fn cut_short(&self) -> usize {
        self.cut_short + usize::from(self.part != Part::Outside)
    }

    fn outside(&mut self, line: &str) -> bool {
        let Some(expected) = begins(line) else { return true };
        (self.part, self.expected, self.within) = (Part::Results, expected, false);
        self.names.clear();
        false
    }

    fn result(&mut self, line: &str) {
        if let Some((name, failed)) = verdict(line) {
            self.names.insert(name.to_owned());
            if failed {
                self.failures.push(Failure { name: name.to_owned(), output: Vec::new() });
            }
        } else if matches!(line, "successes:" | "failures:") {
            self.part = Part::Quoted;
        } else if begins(line).is_some() {
            self.cut_short += 1;
            self.outside(line);
        } else {
            self.ends(line);
        }
    }

    fn quoted(&mut self, line: &str) {
        if self.ends(line) {
            return;
        }
        let header = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = header.filter(|name| self.names.contains(*name)) {
            // The blocks of this program's failed tests; put last, to be gone on with.
            let own = |failure: &Failure| failure.name == name && failure.output.is_empty();
            let at = self.failures.iter().rposition(own);
            self.within = at.is_some();
            if let Some(at) = at {
                self.failures[at..].rotate_left(1);
            }
        } else if let Some(last) = self.failures.last_mut().filter(|_| self.within) {
            last.output.push(line.to_owned());
        }
    }

    /// Whether the line is the program's last, with as many tests as it announced.
    fn ends(&mut self, line: &str) -> bool {
        let Some(result) = line.strip_prefix("test result: ").filter(|rest| rest.contains("; finished in "))
        else {
            return false;
        };
        let number = |what: &str| {
            let part = result.split(['.', ';']).map(str::trim).find_map(|part| part.strip_suffix(what));
            part.and_then(|number| number.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let (passed, ignored) = (number(" passed"), number(" ignored"));
        if passed + ignored + number(" failed") + number(" measured") != self.expected {
            return false;
        }
        self.passed += passed;
        self.ignored += ignored;
        self.part = Part::Outside;
        if let Some(last) = self.failures.last_mut() {
            // The list of names at the end is no test's.
            let list = last.output.iter().rposition(|line| line == "failures:");
            last.output.truncate(list.filter(|_| self.within).unwrap_or(last.output.len()));
        }
        self.within = false;
        true
    }
}

/// The number of tests of a program that begins.
fn begins(line: &str) -> Option<u64> {
    let number = line.strip_prefix("running ")?;
    number.strip_suffix(" tests").or(number.strip_suffix(" test"))?.parse().ok()
}

/// The test a line of results is about, and whether it failed.
fn verdict(line: &str) -> Option<(&str, bool)> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    Some((name.strip_suffix(" - should panic").unwrap_or(name), verdict == "FAILED"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str]) -> (Tests, Vec<bool>) {
        let mut tests = Tests::default();
        let outside = lines.iter().map(|line| tests.line(line)).collect();
        (tests, outside)
    }

    /// The verdict on a run that prints these lines.
    fn of(lines: &[&str], ended: Result<()>) -> String {
        let (tests, _) = read(lines);
        tests.verdict(ended).map_or_else(Stop::words, |()| tests.words())
    }

    const FAILED: [&str; 21] = [
        "running 4 tests",
        "test a ... ok",
        "test b - should panic ... FAILED",
        "test c ... FAILED",
        "test d ... ignored, for want of a device",
        "",
        "successes:",
        "---- a stdout ----",
        "test x::y ... FAILED",
        "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        "---- x::y stdout ----",
        "failures:",
        "",
        "failures:",
        "---- c stdout ----",
        "left: 1",
        "---- x::y stdout ----",
        "---- b stdout ----",
        "right: 2",
        "failures:",
        "    b",
    ];
    const END: &str =
        "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";

    const PASSED: &str =
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";

    #[test]
    fn only_results_name_failures_and_what_is_quoted_is_theirs() {
        let (mut tests, outside) = read(&FAILED);
        assert!(outside.iter().all(|outside| !outside) && tests.cut_short() == 1);
        assert!(!tests.line(END) && tests.cut_short() == 0);
        assert!(tests.line("error: 1 target failed:"));
        let failures: Vec<_> =
            tests.failures().iter().map(|f| (f.name.as_str(), f.output.as_slice())).collect();
        let own = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>();
        let (of_c, of_b) = (own(&["left: 1", "---- x::y stdout ----"]), own(&["right: 2"]));
        assert_eq!(failures, [("c", of_c.as_slice()), ("b", of_b.as_slice())]);
        assert_eq!((tests.passed, tests.ignored), (1, 1));
        assert_eq!(tests.verdict(Ok(())), Err("2 failed: c, b".into()));
    }

    #[test]
    fn passed_ignored_and_tests_that_did_not_run_are_counted() {
        let begin = "running 4 tests";
        let not_run = "NOT RUN: no headers";
        assert_eq!(of(&[begin, PASSED, begin, PASSED], Ok(())), "6 tests passed, 2 ignored");
        let words = "1 tests passed, 1 ignored, 2 NOT RUN (2 no headers)";
        assert_eq!(of(&[begin, not_run, not_run, PASSED], Ok(())), words);
        let none =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s";
        assert_eq!(of(&["running 0 tests", none], Ok(())), "not a single test ran");
    }

    #[test]
    fn a_program_of_tests_that_crashes_fails() {
        let lines = ["running 3 tests", "test a ... ok", "running 4 tests", PASSED];
        for (lines, ended) in [(&lines[..2], Err("exit status: 101".into())), (&lines[..], Ok(()))] {
            let words = of(lines, ended);
            assert!(words.starts_with("1 program of tests ended before its result"), "{words}");
        }
        let words = of(&["running 2 tests", "test a ... FAILED"], Err("not finished after 9 s".into()));
        assert!(words.starts_with("1 failed: a; 1 program of tests"), "{words}");
        assert!(words.ends_with("not finished after 9 s"), "{words}");
    }
}
