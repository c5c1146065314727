//! Memory of both sides: key tables, mappings of a peer's memory, the kernel's access to it, copies.

pub(crate) mod bytes;
pub(crate) mod cma;
pub(crate) mod keys;
pub(crate) mod mapped;
pub(crate) mod mapping;
pub(crate) mod peer_memory;
pub(crate) mod target;
