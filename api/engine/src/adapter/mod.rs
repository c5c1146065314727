//! An open adapter without its objects: the device, the table of objects, progress without calls.

mod counters;
pub(crate) mod driver;
pub(crate) mod inner;
pub(crate) mod object;
pub(crate) mod objects;
pub(crate) mod pending_memory;
pub(crate) mod progress;

pub use inner::{Ia, IaOptions, Rules};
