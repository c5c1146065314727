//! The ibverbs provider: RDMA devices (InfiniBand, RoCE) by way of libibverbs and librdmacm.
//!
//! # How it works
//! A channel is a reliable connected queue pair. Posting and polling are calls into the device's user-space driver,
//! without system calls. Connections are set up by RDMA CM with nothing but private data on the wire, so that any other
//! RDMA CM program can be at the other end. The queue pair exists from the moment the channel is opened and takes
//! receives at once; the identifier of RDMA CM only supplies the attributes of each step (`rdma_init_qp_attr`).
//!
//! # Stopping
//! Hardware gives work back in its own time. `disconnect` brings the queue pair to its error state and never waits: while
//! the device holds work it answers PENDING, and the event follows. The event thread looks at such channels at growing
//! intervals. A device that holds work for half a second is made to let go by a reset of the queue pair.
//!
//! # Who checks what
//! The engine checked local segments; the device checks what peers do, by protection domain, key, range and right. There
//! is one protection domain of the device for each of the engine's.
//!
//! # Modules
//! `abi` implements the plugin interface over `control` (connections, the event thread) and `data` (posting, completions).
//! Below them `memory` has registrations and windows, and `sys` owns the libraries' objects.
//! `find` and `probe` choose the device; `status` translates outcomes. Imports point down only.

mod abi;
mod control;
mod data;
mod find;
mod memory;
mod params;
mod private_data;
mod probe;
mod status;
mod sys;

use std::sync::Arc;

use dat_plugin::{Config, Failure, Probe, Provider, ProviderInfo};

pub use abi::device::IbDevice;

/// The provider.
#[derive(Clone, Copy, Debug)]
pub struct Ibverbs;

impl Provider for Ibverbs {
    type Device = IbDevice;

    const INFO: ProviderInfo = ProviderInfo {
        name: "ibverbs",
        version: env!("CARGO_PKG_VERSION"),
        description: "RDMA devices: InfiniBand and RoCE",
    };

    fn open(config: &Config) -> Result<Arc<IbDevice>, Failure> {
        IbDevice::open(config).map(Arc::new)
    }

    fn probe(config: &Config) -> Vec<Probe> {
        probe::candidates(config)
    }
}

dat_plugin::export_provider!(Ibverbs);
