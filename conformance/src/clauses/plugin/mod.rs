//! The plugin interface: what the engine relies on, tested without the engine.

pub(crate) mod channels;
pub(crate) mod device;
mod pair;
pub(crate) mod process;
pub(crate) mod queues;
