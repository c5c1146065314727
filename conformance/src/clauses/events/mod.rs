//! Event dispatchers and notification objects.

pub(crate) mod dispatchers;
pub(crate) mod notification;
