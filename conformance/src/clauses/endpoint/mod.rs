//! Endpoints: create, modify, query, reset, free.

pub(crate) mod completion_modes;
pub(crate) mod create;
pub(crate) mod lifecycle;
pub(crate) mod modify;
pub(crate) mod modify_states;
