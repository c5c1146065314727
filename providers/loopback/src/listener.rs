//! Where peers knock.

use std::sync::Arc;

use dat_plugin::{EventKind, Failure, Listener, Status};

use crate::network::{Network, Origin, State};

/// The first port that is given out unasked.
const FIRST_FREE_PORT: u64 = 1024;

/// A port being listened on.
#[derive(Debug)]
pub struct LoopListener {
    network: Arc<Network>,
    port: u64,
}

/// What the network knows of a listener.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knock {
    pub device: usize,
    pub user: u64,
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
        state.listeners.insert(port, Knock { device, user });
        drop(state);
        Ok(LoopListener { network: network.clone(), port })
    }
}

impl State {
    /// A port nobody listens on, another one each time.
    pub(crate) fn free_port(&mut self) -> u64 {
        loop {
            let port = self.next_port.max(FIRST_FREE_PORT);
            self.next_port = port.wrapping_add(1);
            if !self.listeners.contains_key(&port) {
                return port;
            }
        }
    }

    /// Refuses the requests that arrived at `port` and were not handed out.
    fn turn_away(&mut self, device: usize, port: u64) {
        let Some(device) = self.devices.get_mut(device) else { return };
        let mut unseen = Vec::new();
        device.events.retain(|(origin, event)| match origin {
            Origin::Request if event.port == port => {
                unseen.push(event.request);
                false
            }
            _ => true,
        });
        for id in unseen {
            if let Some(request) = self.requests.remove(&id) {
                self.fail_connect(request.from, EventKind::REFUSED, &[]);
            }
        }
    }
}

impl Listener for LoopListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        let mut state = self.network.lock();
        if let Some(knock) = state.listeners.remove(&self.port) {
            state.turn_away(knock.device, self.port);
        }
    }
}
