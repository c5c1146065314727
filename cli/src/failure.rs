//! Errors of commands, as they are printed.

use std::error::Error;
use std::fmt;

use serde_json::{Value, json};

/// A failed command: a line with culprit and remedy, and its causes. Boxed, so results of measured loops stay small.
#[derive(Debug)]
pub struct Failure(Box<Parts>);

#[derive(Debug)]
struct Parts {
    message: String,
    causes: Vec<String>,
    code: Option<String>,
}

/// Result of a command or a part of one.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with a sentence.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure(Box::new(Parts { message: message.into(), causes: Vec::new(), code: None }))
    }

    /// The same as the cause of a greater failure.
    pub fn because_of(mut self, message: impl Into<String>) -> Failure {
        let cause = std::mem::replace(&mut self.0.message, message.into());
        self.0.causes.insert(0, cause);
        self
    }

    fn with_code(mut self, code: dat::ReturnCode) -> Failure {
        self.0.code = Some(code.to_string());
        self
    }

    /// As JSON.
    pub fn to_json(&self) -> Value {
        let Parts { message, causes, code } = &*self.0;
        json!({ "error": { "message": message, "causes": causes, "code": code } })
    }

    /// Parses the output of [`Failure::to_json`] of another process.
    pub fn of_json(value: &Value) -> Failure {
        let parts = &value["error"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let causes = parts["causes"].as_array().map_or(&[][..], Vec::as_slice);
        Failure(Box::new(Parts {
            message: text(&parts["message"]).unwrap_or_default(),
            causes: causes.iter().filter_map(text).collect(),
            code: text(&parts["code"]),
        }))
    }

    fn of(error: &(dyn Error + 'static)) -> Failure {
        let mut failure = Failure::new(error.to_string());
        let parts = &mut *failure.0;
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Errors of lower crates usually contain their causes.
            if !parts.message.contains(&text) && parts.causes.iter().all(|known| !known.contains(&text)) {
                parts.causes.push(text);
            }
            source = cause.source();
        }
        failure
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dat: {}", self.0.message)?;
        self.0.causes.iter().try_for_each(|cause| write!(f, "\n  caused by: {cause}"))
    }
}

impl From<dat::Error> for Failure {
    fn from(error: dat::Error) -> Failure {
        Failure::of(&error).with_code(error.code())
    }
}

impl From<dat::registry::RegistryError> for Failure {
    fn from(error: dat::registry::RegistryError) -> Failure {
        Failure::of(&error).with_code(error.code())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::of(&error)
    }
}

/// Adds the current action to an error.
pub trait Context<T> {
    /// Wraps the error in this sentence.
    fn context(self, message: impl FnOnce() -> String) -> Outcome<T>;
}

impl<T, E: Into<Failure>> Context<T> for Result<T, E> {
    fn context(self, message: impl FnOnce() -> String) -> Outcome<T> {
        self.map_err(|error| error.into().because_of(message()))
    }
}
