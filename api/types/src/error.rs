//! The error every call returns: a DAT return code, and for people: which call, which object, what to do.

use std::error::Error as StdError;
use std::fmt;

use crate::{ReturnCode, ReturnType, Subtype};

/// Result of a DAT call.
pub type Result<T> = std::result::Result<T, Error>;

/// An error: the DAT return code, and unless it comes from a polling call, a sentence that names the culprit.
///
/// Polling calls ([`ReturnType::QueueEmpty`]) and posts return it without a sentence where building one would
/// allocate; see [`Error::bare`].
pub struct Error {
    code: ReturnCode,
    context: Option<Box<Context>>,
}

struct Context {
    call: &'static str,
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error with a sentence: `call` is the DAT name of the call, `message` what was wrong and what to do.
    pub fn new(call: &'static str, kind: ReturnType, subtype: Subtype, message: impl Into<String>) -> Error {
        let context = Context { call, message: message.into(), source: None };
        Error { code: ReturnCode::error(kind, subtype), context: Some(Box::new(context)) }
    }

    /// An error without a sentence; allocates nothing, for paths that are polled.
    pub const fn bare(kind: ReturnType, subtype: Subtype) -> Error {
        Error { code: ReturnCode::error(kind, subtype), context: None }
    }

    /// The same with the error below it.
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        if let Some(context) = &mut self.context {
            context.source = Some(source.into());
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

    /// The sentence, if there is one.
    pub fn message(&self) -> Option<&str> {
        self.context.as_ref().map(|context| context.message.as_str())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.context {
            Some(context) => write!(f, "{}: {}: {}", context.call, self.code, context.message),
            None => write!(f, "{}", self.code),
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
        let source = self.context.as_ref()?.source.as_ref()?;
        Some(source.as_ref())
    }
}
