//! libfabric's endpoints: posting to them, the contexts of posted operations, datagram endpoints with receives for control
//! frames, and the peers they know. Nothing here knows what a channel is.

pub mod address_vector;
pub mod connected;
pub mod context;
pub mod link;
pub mod name;
pub mod outbox;
pub mod port;
pub mod shm_names;
