//! The error of a post that gives its buffer back.

use dat_types::Error;

use crate::Buffer;

/// A post of a buffer that was not accepted: why, and the buffer.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// Given back.
    pub buffer: Buffer,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<Refused> for Error {
    /// Drops the buffer.
    fn from(refused: Refused) -> Error {
        refused.error
    }
}
