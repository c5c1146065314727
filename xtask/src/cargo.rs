//! Running cargo, and counting the tests it ran.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::process::Run;

/// The cargo that runs this program.
pub fn cargo() -> Run {
    Run::new(&std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
}

/// The nightly cargo, by way of rustup.
pub fn nightly() -> Run {
    // Set by the stable cargo for its children; they would steer the nightly one wrong.
    ["CARGO", "RUSTC", "RUSTDOC", "RUSTUP_TOOLCHAIN"]
        .into_iter()
        .fold(Run::new("cargo"), Run::without_env)
        .args(["+nightly"])
}

/// What `cargo metadata` says of the workspace's own crates.
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
    /// What tests that could not run said, and how often.
    not_run: BTreeMap<String, u64>,
}

impl Tests {
    /// Runs a `cargo test` and counts. Fails when a test failed or when none ran: a run of nothing proves nothing.
    pub fn of(run: Run) -> Result<Tests, String> {
        let mut tests = Tests::default();
        let mut failed = Vec::new();
        // What tests printed is shown after them, and may look like anything.
        let mut quoting = false;
        let ended = run.lines(|line| {
            tests.count(line);
            let end = line.starts_with("test result: ") && line.contains("; finished in ");
            quoting = matches!(line, "successes:" | "failures:") || quoting && !end;
            let name = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
            failed.extend(name.filter(|_| !quoting).map(str::to_owned));
        });
        if !failed.is_empty() {
            return Err(format!("{} failed: {}", failed.len(), failed.join(", ")));
        }
        ended?;
        match tests.passed {
            0 => Err("not a single test ran".to_owned()),
            _ => Ok(tests),
        }
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

    /// In words. A test that says it did not run is not among those that passed.
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

    /// Reads `test result: ok. 3 passed; 0 failed; 1 ignored; …`, and `NOT RUN: why`, which a test prints that passes for
    /// want of something.
    fn count(&mut self, line: &str) {
        if let Some(reason) = line.strip_prefix("NOT RUN: ") {
            *self.not_run.entry(reason.to_owned()).or_default() += 1;
        }
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let number = |what: &str| {
            let part = result.split(['.', ';']).map(str::trim).find_map(|part| part.strip_suffix(what))?;
            part.trim().parse::<u64>().ok()
        };
        self.passed += number(" passed").unwrap_or(0);
        self.ignored += number(" ignored").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_cargo_prints() {
        let mut tests = Tests::default();
        tests.count("running 4 tests");
        tests.count(
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.01s",
        );
        tests.count(
            "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s",
        );
        assert_eq!((tests.passed, tests.ignored), (15, 1));
    }

    #[test]
    fn what_says_that_it_did_not_run_does_not_count_as_passed() {
        let mut tests = Tests::default();
        tests.count("NOT RUN: for want of headers");
        tests.count("NOT RUN: for want of headers");
        tests.count("test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out;");
        let words = tests.and(Tests::default()).words();
        assert_eq!(words, "3 tests passed, 0 ignored, 2 NOT RUN (2 for want of headers)");
    }

    #[test]
    fn failed_tests_are_named() {
        let script = "echo 'test a::b ... ok'; echo 'test a::c ... FAILED'; exit 101";
        let message = Tests::of(Run::new("sh").args(["-c", script])).err();
        assert_eq!(message.as_deref(), Some("1 failed: a::c"));
    }

    #[test]
    fn what_takes_too_long_is_ended_with_its_children() {
        let message = Run::new("sh").args(["-c", "sleep 1000 & wait"]).deadline(0).run();
        assert!(message.is_err_and(|message| message.contains("not finished")));
    }

    #[test]
    fn a_run_of_no_test_fails() {
        let nothing = Run::new("echo").args(["test result: ok. 0 passed; 0 failed; 0 ignored;"]);
        assert!(Tests::of(nothing).is_err());
    }
}
