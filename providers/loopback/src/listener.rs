//! Listeners: ports that accept connection requests.

use std::sync::Arc;

use dat_plugin::{Failure, Listener, Status};

use crate::network::{Listening, Network};

/// A port being listened on.
#[derive(Debug)]
pub struct LoopListener {
    network: Arc<Network>,
    port: u64,
}

impl LoopListener {
    pub(crate) fn new(
        network: &Arc<Network>,
        device: usize,
        port: u64,
        user: u64,
    ) -> Result<LoopListener, Failure> {
        let mut state = network.lock();
        let port = if port == 0 { state.free_port() } else { port };
        if state.listeners.contains_key(&port) {
            let message =
                format!("port {port} of network {:?} already has a listener; choose another", network.name);
            return Err(Failure::new(Status::IN_USE, message));
        }
        state.listeners.insert(port, Listening { device, user });
        drop(state);
        Ok(LoopListener { network: network.clone(), port })
    }
}

impl Listener for LoopListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        let mut state = self.network.lock();
        if let Some(listening) = state.listeners.remove(&self.port) {
            state.refuse_unseen(listening.device, self.port);
        }
    }
}
