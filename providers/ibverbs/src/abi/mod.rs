//! The plugin interface's objects: thin, each over its inner object.

pub(crate) mod channel;
pub(crate) mod device;
pub(crate) mod listener;
pub(crate) mod queue;
pub(crate) mod srq;
