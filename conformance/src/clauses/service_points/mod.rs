//! Service points and connection requests.

pub(crate) mod common;
pub(crate) mod public;
pub(crate) mod reserved;
