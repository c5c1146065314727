//! The shared-memory provider: processes of one host.
//!
//! # How it works
//! Each connection has rings for both directions in a sealed `memfd`, and a Unix socket that stays open for control and
//! tells of the peer's death. Two devices keep their knowledge of each other for the next connection. Posting and polling
//! run on the caller's thread and make no system call. Connecting, stopping, and work for a peer whose application is
//! away run in `poll_events`.
//!
//! # Who checks what
//! The engine checked local segments. What comes from a peer, over the socket or through memory, is checked here, and
//! an invalid packet breaks that connection and nothing else. Processes of one user trust each other as far as the kernel lets
//! them anyway (they may trace each other); other users are refused unless `allow_users` names them.
//!
//! # Not here
//! DAT's states, cookies, events and flushing: the engine's.
//!
//! # Modules
//! [`abi`] implements the plugin's traits; [`control`] makes and ends connections; [`data`] moves bytes; [`memory`] maps and
//! registers; [`notify`] wakes sleepers. Imports go down that list.

mod abi;
mod address;
mod control;
mod data;
mod foreign;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod notify;
mod params;
mod probe;

// The tests of a hostile peer speak the protocol itself, so they are inside; their helpers are those of the others.
// The fuzzer's peer is that of the tests.
#[cfg(any(test, fuzzing))]
extern crate self as dat_shm;
#[cfg(any(test, fuzzing))]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(any(test, fuzzing))]
#[cfg_attr(fuzzing, allow(dead_code, unused_imports, reason = "of the tests"))]
mod hostile;

use std::sync::Arc;

use dat_plugin::{Caps, Config, Failure, Probe, Provider, ProviderInfo};

pub use control::device::ShmDevice;

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

    const CAPS: Option<Caps> = Some(control::device::CAPS);

    fn open(config: &Config) -> Result<Arc<ShmDevice>, Failure> {
        ShmDevice::open(config).map(Arc::new)
    }

    fn probe(config: &Config) -> Vec<Probe> {
        probe::candidates(config)
    }
}

dat_plugin::export_provider!(Shm);
