//! The ibverbs provider: RDMA devices (InfiniBand, RoCE) by way of libibverbs and librdmacm.
//!
//! # How it works
//! A channel is a reliable connected queue pair. Posting and polling are calls into the device's user-space driver,
//! without system calls. Connections are set up by RDMA CM with nothing but private data on the wire, so that any other
//! RDMA CM program can be at the other end. The queue pair exists from the moment the channel is opened and takes
//! receives at once; the identifier of RDMA CM only supplies the attributes of each step (`rdma_init_qp_attr`).
//!
//! # Stopping
//! Hardware gives work back in its own time. A channel that ends goes to the error state, and its queues are emptied
//! until all of its work has come back; meanwhile `disconnect` has answered PENDING and the event follows. A device
//! that does not give everything back in time is forced to by a reset of the queue pair.
//!
//! # Who checks what
//! The engine checked local segments; the device checks what peers do, by protection domain, key, range and right. There
//! is one protection domain of the device for each of the engine's.
//!
//! # Modules
//! `handles` and `cm` own the libraries' objects and have most of the `unsafe`; `find` chooses the device; `connect` and
//! `events` are the control path; `ring`, `work`, `post` and `queue` the data path; `status` the tables that translate outcomes.

mod channel;
mod cm;
mod connect;
mod device;
mod events;
mod find;
mod handles;
mod listener;
mod memory;
mod params;
mod post;
mod private;
mod probe;
mod queue;
mod ring;
mod srq;
mod status;
mod work;

use std::sync::Arc;

use dat_plugin::{Config, Failure, Probe, Provider, ProviderInfo};

pub use device::IbDevice;

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
