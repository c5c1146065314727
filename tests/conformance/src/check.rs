//! How a clause ends, and the checks that end it.

use std::fmt::{Debug, Display};

use dat_engine::WaitError;
use dat_types::{Error, ReturnCode, ReturnType};

use crate::kit::Kit;

/// What a clause returns.
pub type Outcome = Result<(), Stop>;

/// Why a clause did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The provider or the engine does not conform.
    Failed(String),
    /// The contract lets the provider refuse this, and it does.
    NotSupported(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(format!("a call that should succeed gave {error}"))
    }
}

impl From<WaitError> for Stop {
    fn from(error: WaitError) -> Stop {
        Stop::Failed(format!("a wait that should give an event gave {error}"))
    }
}

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
pub(crate) fn holds(condition: bool, message: impl Into<String>) -> Outcome {
    match condition {
        true => Ok(()),
        false => Err(Stop::Failed(message.into())),
    }
}

/// Fails unless both are equal; `what` says of what.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, got: T, want: T) -> Outcome {
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

impl Kit {
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
