//! The error every call returns: a DAT return code, and for people: which call, which object, what to do.

use std::error::Error as StdError;
use std::fmt;

use crate::{ReturnCode, ReturnType, Subtype};

/// Result of a DAT call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: the DAT return code, and a sentence that names the culprit and says what to do.
///
/// Calls that are polled or posted in a loop return errors made by [`Error::bare`] and [`Error::fixed`], which allocate
/// nothing.
pub struct Error {
    code: ReturnCode,
    context: Context,
}

enum Context {
    None,
    Fixed { call: &'static str, message: &'static str },
    Full(Box<Full>),
}

struct Full {
    call: &'static str,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with a sentence: `call` is the DAT name of the call, `message` what was wrong and what to do.
    pub fn new(call: &'static str, kind: ReturnType, subtype: Subtype, message: impl Into<String>) -> Error {
        let context = Context::Full(Box::new(Full { call, message: message.into(), source: None }));
        Error { code: ReturnCode::error(kind, subtype), context }
    }

    /// An error without a sentence.
    pub const fn bare(kind: ReturnType, subtype: Subtype) -> Error {
        Error { code: ReturnCode::error(kind, subtype), context: Context::None }
    }

    /// An error with a sentence known in advance.
    pub const fn fixed(
        call: &'static str,
        kind: ReturnType,
        subtype: Subtype,
        message: &'static str,
    ) -> Error {
        Error { code: ReturnCode::error(kind, subtype), context: Context::Fixed { call, message } }
    }

    /// The same with the error below it; for errors made by [`Error::new`].
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        if let Context::Full(full) = &mut self.context {
            full.source = Some(source.into());
        }
        self
    }

    /// The DAT return code.
    pub fn code(&self) -> ReturnCode {
        self.code
    }

    /// The type field of the code: what programs compare.
    pub fn kind(&self) -> ReturnType {
        self.code.kind().unwrap_or(ReturnType::InternalError)
    }

    /// The subtype field of the code: a hint.
    pub fn subtype(&self) -> Subtype {
        self.code.subtype().unwrap_or(Subtype::None)
    }

    /// The DAT name of the call, if the error has a sentence.
    pub fn call(&self) -> Option<&'static str> {
        match &self.context {
            Context::None => None,
            Context::Fixed { call, .. } => Some(call),
            Context::Full(full) => Some(full.call),
        }
    }

    /// The sentence, if there is one.
    pub fn message(&self) -> Option<&str> {
        match &self.context {
            Context::None => None,
            Context::Fixed { message, .. } => Some(message),
            Context::Full(full) => Some(&full.message),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Context::None => write!(f, "{}", self.code),
            Context::Fixed { call, message } => write!(f, "{call}: {}: {message}", self.code),
            Context::Full(full) => write!(f, "{}: {}: {}", full.call, self.code, full.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.context {
            Context::Full(full) => full.source.as_ref().map(|source| source.as_ref() as _),
            _ => None,
        }
    }
}
