//! Owners of the objects of libibverbs and librdmacm.
//!
//! Each owner keeps alive what it was made from and gives its object back when dropped. A child made by fork gives nothing
//! back: the kernel's objects are the parent's.

pub(crate) mod cm;
pub(crate) mod common;
pub(crate) mod completion_queue;
pub(crate) mod context;
pub(crate) mod queue_pair;
pub(crate) mod registration;
