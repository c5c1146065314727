//! A route: one name over several providers.
//!
//! A route is a provider over providers, as a layer is. To the engine it looks like one device. It listens on the same
//! port of each child. A connect takes the first child, in order, that reaches the peer. Everything after that goes
//! through this child alone.
//!
//! # Keys
//! A region has one pair of keys: those of the first child. Posts through the first child pass unchanged. Posts through
//! another child need that child's keys:
//!
//! - A local key is looked up in the table of regions. The region is registered with the child at the first use.
//! - A remote key is looked up in the peer's table of translations, by one RDMA read at the first use. The result is
//!   cached. The place of the table comes with the connection.
//!
//! A table holds the regions of one protection domain that have remote rights. It exists from the first connection
//! through another child, so memory that is only used through the first child is registered only there.
//!
//! # Layers of this crate
//! `device`, `channel`, `queue` and `listener` implement the plugin interface over `shared`. They use `far` (translation of
//! posts), which uses `regions` and `table`. `header` and `child` depend on nothing else here.
#![deny(unsafe_code)]

mod channel;
mod child;
mod device;
mod far;
mod header;
mod listener;
mod queue;
mod regions;
mod shared;
mod table;

use std::sync::Arc;

use dat_plugin::Failure;
use dat_plugin::host::Device;

pub use child::Via;

/// A device over these children, in the order in which a connect tries them. Fails without children, and when the
/// children have too little in common.
pub fn over(name: &str, children: Vec<Via>) -> Result<Device, Failure> {
    Device::of(Arc::new(device::Route::open(name, children)?))
}
