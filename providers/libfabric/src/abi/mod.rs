//! The plugin interface: each file implements one trait of `dat_plugin` by calls into the layers below.

pub mod channel;
pub mod device;
pub mod listener;
pub mod queue;
pub mod srq;
