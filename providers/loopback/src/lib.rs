//! In-process provider: the executable model of the provider interface.
//!
//! All devices of one process that are configured with the same `domain` form a network and see each other. Nothing
//! leaves the process, and it needs no hardware and no memory mapping. So the provider runs wherever Rust does, under miri
//! and ThreadSanitizer too. It is written to be read: it settles doubts that the interface's text leaves.
//!
//! # Design
//! One lock per network guards everything but the completion queues, each of which has its own; the order is network
//! first, then queue. Work is done where it is posted: the later of a send and its receive matches and copies the message.
//! The lock makes this provider simple rather than fast.
//!
//! # Parameters
//! - `domain` (`default`): name of the network.
//! - `address` (`127.0.0.1`): the device's own address. Peers may also use any loopback address.
//! - `rnr_timeout_ms` (0): how long a message may wait for a receive; 0 is without limit.
//! - `max_channels`, `max_regions`: limits of the device, for tests of what happens at limits.
//! - `qos`: qualities of service offered besides best effort, as DAT numbers them (default 0).
//! - `fail`: comma list of `open_queue`, `open_channel`, `listen`, `register`, `alloc`, `connect`, `accept`: these calls
//!   fail as if resources had run out. `second_connect`: the first connect passes, later ones fail so.
//!   `silent_connect`: a connect is never answered. `no_peer`: no peer is reachable. `free_port`: there is no free port to listen on.
#![deny(unsafe_code)]

mod adapter;
mod channel;
mod device;
mod export;
mod limits;
mod listener;
mod memory;
mod network;
mod params;
mod queue;
mod srq;
mod wake;

use std::sync::Arc;

use dat_plugin::{Caps, Config, Failure, Probe, Provider, ProviderInfo};

pub use channel::LoopChannel;
pub use device::LoopDevice;
pub use listener::LoopListener;
pub use queue::LoopQueue;

/// The provider.
#[derive(Debug)]
pub struct Loopback;

impl Provider for Loopback {
    type Device = LoopDevice;

    const INFO: ProviderInfo = ProviderInfo {
        name: "loopback",
        version: env!("CARGO_PKG_VERSION"),
        description: "devices of one process, for tests and for trying things out",
    };

    const CAPS: Option<Caps> = Some(limits::CAPS);

    fn open(config: &Config) -> Result<Arc<LoopDevice>, Failure> {
        LoopDevice::open(params::Params::parse(config)?).map(Arc::new)
    }

    fn probe(config: &Config) -> Vec<Probe> {
        let (usable, reason) = match params::Params::parse(config) {
            Ok(params) => (true, format!("needs nothing; network {:?} of this process", params.domain)),
            Err(failure) => (false, failure.message),
        };
        vec![Probe { candidate: "in-process".into(), usable, reason }]
    }
}
