//! How a sleeper learns of work: the bitmap of ready channels, barriers, and the fork guard.

pub(crate) mod barrier;
pub(crate) mod ready_bitmap;
pub(crate) mod wake;
