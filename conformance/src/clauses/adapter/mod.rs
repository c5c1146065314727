//! Interface adapters, and what all objects have.

pub(crate) mod objects;
pub(crate) mod open_close;
