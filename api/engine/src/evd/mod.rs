//! Event dispatchers.

mod calls;
mod completions;
pub(crate) mod core;
mod counters;
mod drain;
mod feeds;
pub(crate) mod inner;
mod notify;
mod poll;
mod sleeper;
pub(crate) mod streams;
mod wait;

pub use inner::{Evd, EvdParam};
pub use wait::WaitError;
