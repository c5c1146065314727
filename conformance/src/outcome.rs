//! How a clause ends.

use dat_engine::WaitError;
use dat_types::Error;

/// What a clause returns.
pub type Outcome = Result<(), Stop>;

/// Why a clause did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The provider or the engine does not conform.
    Failed(String),
    /// The specification makes this optional, and the provider does not offer it.
    NotSupported(String),
    /// The situation of the clause cannot arise with this provider, or cannot be arranged.
    NotApplicable(String),
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
