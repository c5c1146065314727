//! The checks that end a clause.

use std::fmt::{Debug, Display};

use dat_engine::WaitError;
use dat_types::{Error, ReturnCode, ReturnType};

use crate::fixture::Fixture;
pub use crate::outcome::{Outcome, Stop};

/// A failure with the reason of an error.
pub(crate) trait Failed<T> {
    fn failed(self, what: &str) -> Result<T, Stop>;
}

impl<T, E: Display> Failed<T> for Result<T, E> {
    fn failed(self, what: &str) -> Result<T, Stop> {
        self.map_err(|error| Stop::Failed(format!("{what}: {error}")))
    }
}

/// An error with a DAT return code.
pub(crate) trait Coded: Display {
    fn code(&self) -> ReturnCode;
    fn call(&self) -> Option<&'static str>;
}

impl Coded for Error {
    fn code(&self) -> ReturnCode {
        Error::code(self)
    }

    fn call(&self) -> Option<&'static str> {
        Error::call(self)
    }
}

impl Coded for WaitError {
    fn code(&self) -> ReturnCode {
        self.error.code()
    }

    fn call(&self) -> Option<&'static str> {
        self.error.call()
    }
}

/// Fails with `message` unless `condition` holds.
pub(crate) fn ensure(condition: bool, message: impl Into<String>) -> Outcome {
    match condition {
        true => Ok(()),
        false => Err(Stop::Failed(message.into())),
    }
}

/// Fails unless both are equal; `what` says of what.
pub(crate) fn ensure_eq<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Outcome {
    match got == want {
        true => Ok(()),
        false => Err(Stop::Failed(format!("{what}: {got:?} instead of {want:?}"))),
    }
}

pub(crate) fn fail<T>(message: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::Failed(message.into()))
}

pub(crate) fn not_supported<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotSupported(reason.into()))
}

pub(crate) fn not_applicable<T>(reason: impl Into<String>) -> Result<T, Stop> {
    Err(Stop::NotApplicable(reason.into()))
}

impl Fixture {
    /// Fails unless `result` is a refusal of type `want`. Every code seen is kept for the clause that inspects them.
    pub(crate) fn refused<T, E: Coded>(&self, what: &str, result: Result<T, E>, want: ReturnType) -> Outcome {
        self.refused_as(what, result, &[want])
    }

    /// The same with several types to choose from.
    pub(crate) fn refused_as<T, E: Coded>(
        &self,
        what: &str,
        result: Result<T, E>,
        want: &[ReturnType],
    ) -> Outcome {
        let Err(error) = result else {
            return fail(format!("{what}: succeeded instead of {want:?}"));
        };
        let code = error.code();
        {
            let mut seen = self.codes.lock();
            seen.codes.insert(code.0);
            seen.met.extend(crate::codes::noted(error.call(), code));
        }
        match code.kind() {
            Some(kind) if want.contains(&kind) => Ok(()),
            _ => fail(format!("{what}: {error} instead of {want:?}")),
        }
    }
}
