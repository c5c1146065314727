//! The shared-memory provider: processes of one host.
//!
//! # How it works
//! Each connection has rings for both directions in a sealed `memfd`, and a Unix socket that stays open for control and
//! tells of the peer's death. What two devices have of each other is kept for the next connection. Posting and polling
//! run on the caller's thread and make no system call. Connecting, stopping, and work for a peer whose application is
//! away run in `poll_events`.
//!
//! # Who checks what
//! The engine checked local segments. What comes from a peer, over the socket or through memory, is checked here, and
//! nonsense breaks that connection and nothing else. Processes of one user trust each other as far as the kernel lets
//! them anyway (they may trace each other); other users are refused unless `allow_users` names them.
//!
//! # Not here
//! DAT's states, cookies, events and flushing: the engine's.
//!
//! # Modules
//! [`ring`] is arithmetic, [`sizes`] says how large rings are, [`segment`] is the shared layout, [`slab`] where segments come from, [`handshake`] the socket's
//! packets, [`peer`] what is known of another device; `tx` and `rx` are the two halves of a channel's data path,
//! `one_sided` the ways to reach a peer's memory.

mod address;
mod board;
mod bytes;
mod channel;
mod device;
mod handshake;
mod link;
mod listener;
mod memory;
mod one_sided;
mod params;
mod peer;
mod probe;
mod queue;
mod ring;
mod rx;
mod segment;
mod sizes;
mod slab;
mod srq;
mod stage;
mod timer;
mod tx;
mod wait;

// The tests of a hostile peer speak the protocol itself, so they are inside; their helpers are those of the others.
#[cfg(test)]
extern crate self as dat_shm;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod hostile;

use std::sync::Arc;

use dat_plugin::{Caps, Config, Failure, Probe, Provider, ProviderInfo};

pub use device::ShmDevice;

/// The shared-memory provider.
#[derive(Clone, Copy, Debug)]
pub struct Shm;

impl Provider for Shm {
    type Device = ShmDevice;

    const INFO: ProviderInfo = ProviderInfo {
        name: "shm",
        version: env!("CARGO_PKG_VERSION"),
        description: "shared memory between processes of one host",
    };

    const CAPS: Option<Caps> = Some(device::CAPS);

    fn open(config: &Config) -> Result<Arc<ShmDevice>, Failure> {
        ShmDevice::open(config).map(Arc::new)
    }

    fn probe(config: &Config) -> Vec<Probe> {
        probe::candidates(config)
    }
}

dat_plugin::export_provider!(Shm);
