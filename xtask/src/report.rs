//! How commands and legs end.

use std::fmt::Display;

/// What was done, in a few words.
pub type Report = Result;

/// A result of this program. `?` takes any error that can be shown.
pub type Result<T = String, E = Stop> = std::result::Result<T, E>;

/// Why something did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It cannot run here, for this reason. Never counted as passed.
    NotRun(String),
    /// It failed.
    Failed(String),
}

impl<E: Display> From<E> for Stop {
    fn from(error: E) -> Stop {
        Stop::Failed(error.to_string())
    }
}

impl Stop {
    /// It cannot run here.
    pub fn not_run(reason: impl Into<String>) -> Stop {
        Stop::NotRun(reason.into())
    }

    /// The reason in words.
    pub fn words(self) -> String {
        match self {
            Stop::NotRun(reason) => format!("NOT RUN: {reason}"),
            Stop::Failed(message) => message,
        }
    }

    /// The same where a failure only means that something cannot run here.
    pub fn into_not_run(self) -> Stop {
        Stop::NotRun(match self {
            Stop::NotRun(reason) | Stop::Failed(reason) => reason,
        })
    }

    /// The same with the name of the part that stopped.
    pub fn of(self, part: impl Display) -> Stop {
        match self {
            Stop::NotRun(reason) => Stop::NotRun(format!("{part}: {reason}")),
            Stop::Failed(message) => Stop::Failed(format!("{part}: {message}")),
        }
    }
}

/// Parts that all run, even after one of them failed.
#[derive(Default)]
pub struct Parts {
    words: Vec<String>,
    not_run: Vec<String>,
    failures: Vec<String>,
}

impl Parts {
    /// Adds a part that ended.
    pub fn add(&mut self, name: impl Display, report: Report) {
        match report {
            Ok(words) => self.words.push(words),
            Err(Stop::NotRun(reason)) => self.not_run.push(format!("NOT RUN: {name}: {reason}")),
            Err(Stop::Failed(message)) => self.failures.push(format!("{name}: {message}")),
        }
    }

    /// All parts as one: failed if one failed, not run if none ran.
    pub fn report(self) -> Report {
        let Parts { mut words, not_run, failures } = self;
        if !failures.is_empty() {
            fail!("{}", failures.join("; "));
        }
        if words.is_empty() {
            return Err(Stop::NotRun(not_run.join("; ").replace("NOT RUN: ", "")));
        }
        words.extend(not_run);
        Ok(words.join("; "))
    }
}

/// Several parts as one.
pub fn parts<const N: usize>(parts: [(&str, Report); N]) -> Report {
    let mut sum = Parts::default();
    parts.into_iter().for_each(|(name, report)| sum.add(name, report));
    sum.report()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_part_fails_all_and_parts_that_did_not_run_are_named() {
        let passed = || ("a", Ok("done".to_owned()));
        let not_run = || ("b", Err(Stop::not_run("why")));
        let failed = || ("c", Err("bad".into()));
        assert_eq!(parts([passed(), not_run()]), Ok("done; NOT RUN: b: why".to_owned()));
        assert_eq!(parts([passed(), not_run(), failed()]), Err("c: bad".into()));
        assert_eq!(parts([not_run()]), Err(Stop::not_run("b: why")));
    }
}
