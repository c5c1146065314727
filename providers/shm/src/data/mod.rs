//! The data path: rings, both directions of a channel, completion queues, one-sided operations.

pub(crate) mod completion;
pub(crate) mod conn;
pub(crate) mod doorbell;
pub(crate) mod link;
pub(crate) mod one_sided;
pub(crate) mod protocol;
pub(crate) mod queue;
pub(crate) mod queue_pair;
pub(crate) mod recv;
pub(crate) mod ring;
pub(crate) mod rx;
pub(crate) mod segment;
pub(crate) mod select;
pub(crate) mod sizes;
pub(crate) mod slab;
pub(crate) mod srq;
pub(crate) mod tx;
