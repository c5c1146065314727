//! One leg of the test suite and how it can end.

/// How a leg ended that did not fail.
pub enum Outcome {
    /// It ran and found nothing wrong; what it did, in a few words.
    Passed(String),
    /// It could not run here, and why. Never counted as passed.
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

/// What a leg says at its end; an error is a failure in one line.
pub type Report = Result<Outcome, String>;

/// A leg.
pub struct Leg {
    /// Short name.
    pub name: &'static str,
    /// Whether `--quick` runs it.
    pub quick: bool,
    /// Does it.
    pub run: fn() -> Report,
}
