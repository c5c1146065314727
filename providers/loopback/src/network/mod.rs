//! The network: its devices, channels and requests under one lock, and the transfer of bytes between them.

mod endpoint;
mod shared_recvs;
mod slab;
mod state;
mod transfer;

pub(crate) use endpoint::{Endpoint, Phase, Recv, Work};
pub(crate) use shared_recvs::SharedRecvs;
pub(crate) use state::{DeviceState, Listening, Network, Origin, Request, State};
