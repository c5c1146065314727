//! The libfabric provider: any fabric libfabric knows, through connected or datagram endpoints.
//!
//! # How it works
//! With `endpoint = "msg"` each connection has an endpoint of its own. With `"rdm"` a connection is a peer's address and a
//! tag on the device's only endpoint. Messages are libfabric's messages, RDMA is libfabric's RMA. Nothing is copied here,
//! except where a fabric has too little immediate data (`channel/framed.rs`). The two devices agree on what libfabric does
//! not guarantee on all fabrics, by immediate data and control messages (`wire/control.rs`):
//!
//! - **Credit.** A message is sent only when the peer has a receive for it. So no message waits inside the fabric, where it
//!   would block all others. A send completes when the peer reports that it consumed the message.
//! - **Shared receives.** A channel draws receives of a shared queue when its peer announces messages.
//! - **Room.** A message longer than the peer's smallest receive is announced first. So only a message that is too long fails.
//! - **Keys.** A peer resolves an application's 32-bit key at its first use; deregistration revokes it. So a forbidden access
//!   fails with its proper status before it reaches the fabric, whose own check remains.
//! - **Liveness.** A silent peer is pinged; the connection breaks if it does not answer.
//!
//! # Progress
//! Threads that poll queues make progress; the fabric's descriptor wakes blocked waiters. While no thread polls, the fabric
//! also wakes the event thread. While threads poll, the event thread looks every millisecond instead, so it is not woken
//! for each message. That is the whole cost: about 1000 short wake-ups a second per device, only while applications poll.
//! A thread of the device polls fabrics without wait descriptors (`core/poll_thread.rs`).
//!
//! # Layers
//! Each folder uses only those above it in this list. No two files use each other.
//!
//! | layer | content |
//! |---|---|
//! | `address`, `params`, `status`, `wire` | addresses, configuration, error table, formats; no call of libfabric |
//! | `fabric` | libfabric's objects of a device: what it offers, domain, completion queues |
//! | `memory` | registrations, keys, windows |
//! | `discovery` | finding peers by TCP on fabrics without IP addresses |
//! | `endpoint` | posting; datagram endpoints, their address vector and outgoing frames |
//! | `core` | what all objects of a device share; wake-ups, events, run list |
//! | `channel` | one end of a connection: data path, credit, control messages, teardown |
//! | `datagram` | connections over a datagram endpoint |
//! | `progress` | completions to channels |
//! | `connected` | connections of connected endpoints |
//! | `device` | the parts together; the event thread |
//! | `abi` | the traits of `dat_plugin` |
//!
//! A lower layer reaches a higher one by a trait that the higher one implements: `core::Task` and `memory::KeyUser`.
//!
//! `docs/libfabric.md` describes all parameters, the handshake, and what was tried.

mod abi;
mod address;
mod channel;
mod connected;
mod core;
mod datagram;
mod device;
mod discovery;
mod endpoint;
mod fabric;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod params;
mod probe;
mod progress;
mod status;
#[cfg(test)]
mod testing;
mod wire;

use std::sync::Arc;

use dat_plugin::{Caps, Config, Failure, Probe, Provider, ProviderInfo};

pub use abi::device::FabricDevice;

/// The libfabric provider.
#[derive(Clone, Copy, Debug)]
pub struct Libfabric;

impl Provider for Libfabric {
    type Device = FabricDevice;

    /// The most that devices can do; atomic operations only on fabrics that have them.
    const CAPS: Option<Caps> = Some(abi::device::CAPS);

    const INFO: ProviderInfo = ProviderInfo {
        name: "libfabric",
        version: env!("CARGO_PKG_VERSION"),
        description: "any fabric of libfabric: tcp, verbs, efa, shm and others",
    };

    fn open(config: &Config) -> Result<Arc<FabricDevice>, Failure> {
        FabricDevice::open(config).map(Arc::new)
    }

    fn probe(config: &Config) -> Vec<Probe> {
        probe::candidates(config)
    }
}

dat_plugin::export_provider!(Libfabric);
