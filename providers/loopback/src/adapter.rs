//! What the objects of one device share.

use std::sync::Arc;

use crate::network::Network;
use crate::params::Params;

/// A device's place in its network, and its configuration.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    pub(crate) network: Arc<Network>,
    pub(crate) params: Arc<Params>,
    /// Index among the devices of the network.
    pub(crate) index: usize,
}
