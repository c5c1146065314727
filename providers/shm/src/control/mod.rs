//! How devices meet: connection set-up and teardown, peers, timers, the event thread.

pub(crate) mod connection;
pub(crate) mod device;
pub(crate) mod handshake;
pub(crate) mod listener;
pub(crate) mod peer;
pub(crate) mod session;
pub(crate) mod timer;
pub(crate) mod trust;
