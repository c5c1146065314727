//! Running cargo, and counting the tests it ran.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::libtest::Reader;
use crate::process::Run;

/// Seconds for what builds: everything, on a slow machine that has built nothing yet and does other things meanwhile.
const BUILD: u64 = 2400;

/// The profile of builds whose instructions are counted.
pub const COUNTED: &str = "counted";

/// The cargo that runs this program.
pub fn cargo() -> Run {
    Run::new(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())).deadline(BUILD)
}

/// The nightly cargo, by way of rustup.
pub fn nightly() -> Run {
    // Set by the stable cargo for its children; they would steer the nightly one wrong.
    ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(Run::new("cargo"), Run::without_env)
        .args(["+nightly"])
        .deadline(BUILD)
}

/// The output of `cargo metadata` for the workspace's own crates.
pub fn metadata() -> Result<Value, String> {
    let text = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output()?;
    serde_json::from_str(&text).map_err(|error| format!("cargo metadata printed no JSON: {error}"))
}

/// The target directory in use.
pub fn target_dir() -> Result<PathBuf, String> {
    let metadata = metadata()?;
    let dir = metadata["target_directory"].as_str().ok_or("cargo metadata names no target directory")?;
    Ok(PathBuf::from(dir))
}

/// Tests that ran, by what `cargo test` printed.
#[derive(Clone, Default)]
pub struct Tests {
    passed: u64,
    ignored: u64,
    /// The reasons of tests that could not run, and how often each was printed.
    not_run: BTreeMap<String, u64>,
}

impl Tests {
    /// Runs a `cargo test` and counts. Fails when a test failed or when none ran: a run of nothing proves nothing.
    pub fn of(run: Run) -> Result<Tests, String> {
        let mut reading = Reading::default();
        let ended = run.lines(|line| reading.line(line));
        reading.verdict(ended)
    }

    /// The sum of two runs.
    pub fn and(mut self, other: Tests) -> Tests {
        self.passed += other.passed;
        self.ignored += other.ignored;
        for (reason, count) in other.not_run {
            *self.not_run.entry(reason).or_default() += count;
        }
        self
    }

    /// In words. A test that printed NOT RUN is not counted as passed.
    pub fn words(&self) -> String {
        let not_run: u64 = self.not_run.values().sum();
        let mut words =
            format!("{} tests passed, {} ignored", self.passed.saturating_sub(not_run), self.ignored);
        if not_run > 0 {
            let reasons: Vec<String> =
                self.not_run.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            words.push_str(&format!(", {not_run} NOT RUN ({})", reasons.join("; ")));
        }
        words
    }
}

/// Reading what a `cargo test` prints.
#[derive(Default)]
struct Reading {
    reader: Reader,
    not_run: BTreeMap<String, u64>,
}

impl Reading {
    /// A line. A test that lacks something prints `NOT RUN: reason` and passes.
    fn line(&mut self, line: &str) {
        self.reader.line(line);
        if let Some(reason) = line.strip_prefix("NOT RUN: ") {
            *self.not_run.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn verdict(self, ended: Result<(), String>) -> Result<Tests, String> {
        let failed: Vec<&str> = self.reader.failures().iter().map(|failure| failure.name.as_str()).collect();
        let cut_short = self.reader.cut_short();
        let mut said = Vec::new();
        if !failed.is_empty() {
            said.push(format!("{} failed: {}", failed.len(), failed.join(", ")));
        }
        if cut_short > 0 {
            let what = ended.as_ref().err().map_or("all succeeded none the less", String::as_str);
            said.push(format!("{cut_short} program of tests ended before its result: {what}"));
        }
        if !said.is_empty() {
            return Err(said.join("; "));
        }
        ended?;
        match self.reader.counts() {
            (0, _) => Err("not a single test ran".to_owned()),
            (passed, ignored) => Ok(Tests { passed, ignored, not_run: self.not_run }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a run that prints these lines. They are not printed here: this is a test, and its output is read as well.
    fn of(lines: &[&str], ended: Result<(), &str>) -> Result<Tests, String> {
        let mut reading = Reading::default();
        lines.iter().for_each(|line| reading.line(line));
        reading.verdict(ended.map_err(str::to_owned))
    }

    const PASSED: &str =
        "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s";

    #[test]
    fn counts_what_cargo_prints() {
        let tests = of(&["running 4 tests", PASSED, "running 4 tests", PASSED], Ok(()));
        assert_eq!(tests.map(|tests| tests.words()).as_deref(), Ok("6 tests passed, 2 ignored"));
    }

    #[test]
    fn what_says_that_it_did_not_run_does_not_count_as_passed() {
        let not_run = "NOT RUN: for want of headers";
        let tests = of(&["running 4 tests", not_run, not_run, PASSED], Ok(()));
        let words = tests.map(|tests| tests.and(Tests::default()).words());
        assert_eq!(words.as_deref(), Ok("1 tests passed, 1 ignored, 2 NOT RUN (2 for want of headers)"));
    }

    #[test]
    fn failed_tests_are_named() {
        let failed =
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s";
        let lines = ["running 2 tests", "test a::b ... ok", "test a::c ... FAILED", failed];
        assert_eq!(of(&lines, Err("exited with status 101")).err().as_deref(), Some("1 failed: a::c"));
        let message = of(&lines[..3], Err("not finished after 9 s")).err().unwrap_or_default();
        assert!(message.starts_with("1 failed: a::c; 1 program of tests"), "{message}");
        assert!(message.ends_with("not finished after 9 s"), "{message}");
    }

    #[test]
    fn a_program_of_tests_that_crashes_fails() {
        let lines = ["running 3 tests", "test a ... ok", "running 4 tests", PASSED];
        for (lines, ended) in [(&lines[..2], Err("exited with status 101")), (&lines[..], Ok(()))] {
            let message = of(lines, ended).err().unwrap_or_default();
            assert!(message.starts_with("1 program of tests ended before its result"), "{message}");
        }
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let message = Run::new("sh").args(["-c", "sleep 1000 & wait"]).deadline(0).run();
        assert!(message.is_err_and(|message| message.contains("not finished")));
    }

    #[test]
    fn a_run_of_no_test_fails() {
        let result =
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s";
        let message = of(&["running 0 tests", result], Ok(())).err();
        assert_eq!(message.as_deref(), Some("not a single test ran"));
    }
}
