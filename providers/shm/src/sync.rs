//! The atomics the ring stands on; under `cfg(loom)` loom's, so that the model checker sees every access.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::Ordering;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::Ordering;
