//! Memory regions and windows.

pub(crate) mod regions;
pub(crate) mod windows;
