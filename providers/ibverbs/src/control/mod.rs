//! The control path: connections from their set-up to their end, and the event thread.

pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod events;
pub(crate) mod sources;
