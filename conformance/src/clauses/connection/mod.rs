//! Connections: connect, duplicate, disconnect.

pub(crate) mod connect;
pub(crate) mod connect_data;
pub(crate) mod disconnect;
pub(crate) mod disconnect_states;
pub(crate) mod dup_connect;
