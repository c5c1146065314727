//! A leg is one step of CI: it has a name, a function and a result.

/// How a leg ended that did not fail.
pub enum Outcome {
    /// It ran and found nothing wrong; a short summary.
    Passed(String),
    /// It could not run here, for this reason. Never counted as passed.
    NotRun(String),
}

impl Outcome {
    /// Passed, with what was done.
    pub fn passed(detail: impl Into<String>) -> Outcome {
        Outcome::Passed(detail.into())
    }

    /// Could not run.
    pub fn not_run(reason: impl Into<String>) -> Outcome {
        Outcome::NotRun(reason.into())
    }
}

/// A leg's result; an error is a failure.
pub type Report = Result<Outcome, String>;

/// Which runs a leg is part of; each kind of run has the legs of those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Each run, `--quick` too.
    Quick,
    /// A run without options: what CI does.
    Full,
    /// Only `--all`: it takes long, and its result seldom changes.
    All,
}

/// A leg.
pub struct Leg {
    /// Short name.
    pub name: &'static str,
    /// Which runs it is part of.
    pub when: When,
    /// Does it.
    pub run: fn() -> Report,
}
