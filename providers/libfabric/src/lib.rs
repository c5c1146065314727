//! The libfabric provider: any fabric libfabric knows, through connected or datagram endpoints.
//!
//! # How it works
//! A connection is an endpoint of its own (`endpoint = "msg"`), or a peer's address and a tag on the device's only
//! endpoint (`"rdm"`). Messages are libfabric's messages, written and read memory is libfabric's RMA; nothing is copied
//! here, except where a fabric's immediate data is too little (`framed.rs`). What libfabric does not promise on all fabrics is agreed upon between the two devices, in the immediate data of
//! messages and in doorbells (`bells.rs`):
//!
//! - **Credit.** A message is sent when the peer has a receive for it, so none ever waits inside the fabric, where it
//!   would block everything behind it. A send completes when the peer says that it consumed the message.
//! - **Shared receives.** Those of a shared queue are drawn when the peer says that it has messages (`srq.rs`).
//! - **Room.** A message longer than the smallest receive is announced first, so that one that is too long fails alone.
//! - **Keys.** What a 32-bit key stands for on the fabric is asked for at its first use, and taken back when the memory
//!   is deregistered. So a forbidden access fails with its proper status before it reaches the fabric, whose own check
//!   stays behind it.
//! - **Life.** A peer that says nothing is asked; one that does not answer is gone.
//!
//! # Who makes progress
//! Whoever polls a queue; a blocked waiter is woken by the fabric's descriptor. While nobody polls, the event thread is
//! woken by the same descriptor; while somebody does, it looks every millisecond instead of being woken by every
//! message. That tick is the whole cost: about 1000 short wakes a second and device, only while applications poll. A
//! fabric whose queues wake nobody is looked at by a thread of the device's own (`ticker.rs`).
//!
//! `docs/libfabric.md` describes all parameters, the handshake, and what was tried.

mod address;
mod bells;
mod channel;
mod connect;
mod cq;
mod datagrams;
mod desk;
mod device;
mod endpoint;
mod events;
mod fabric;
mod finder;
mod flow;
mod framed;
mod frames;
mod incoming;
mod info;
mod inherited;
mod inquiry;
mod knock;
mod limits;
mod listener;
mod meeting;
mod memory;
mod order;
mod outbox;
mod owner;
mod params;
mod place;
mod port;
mod posting;
mod probe;
mod progress;
mod queue;
mod receives;
mod requests;
mod retired;
mod revoke;
mod seek;
mod segments;
mod srq;
mod status;
mod ticker;
mod windows;
mod wire;
mod work;

use std::sync::Arc;

use dat_plugin::{Caps, Config, Failure, Probe, Provider, ProviderInfo};

pub use device::FabricDevice;

/// The libfabric provider.
#[derive(Clone, Copy, Debug)]
pub struct Libfabric;

impl Provider for Libfabric {
    type Device = FabricDevice;

    /// What devices have at most; atomic operations only on fabrics that have them.
    const CAPS: Option<Caps> = Some(device::CAPS);

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
