//! What the thread of an adapter works on.

mod alarm;
pub(crate) mod inbox;
pub(crate) mod mailbox;
