//! What everything else stands on: errors, identities, the state machine and outstanding work of endpoints.

pub(crate) mod agent;
pub(crate) mod comm;
pub(crate) mod context;
pub(crate) mod counters;
pub(crate) mod deferred;
pub(crate) mod error;
pub(crate) mod id;
pub(crate) mod interest;
pub(crate) mod lock;
pub(crate) mod ring;
pub(crate) mod segments;
pub(crate) mod shared_memory;
pub mod states;
pub(crate) mod status_map;
