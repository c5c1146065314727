//! What the devices of a network share, and how connections begin and end.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dat_kit::KeyTable;
use dat_plugin::{Completion, CompletionStatus, Event, EventKind};

use super::endpoint::{Endpoint, Phase};
use super::shared_recvs::SharedRecvs;
use super::slab::Slab;
use crate::wake::Wake;

/// A network: devices that see each other.
#[derive(Debug)]
pub struct Network {
    pub name: String,
    state: Mutex<State>,
}

/// Everything of a network but its completion queues. Devices and channels go by index.
#[derive(Debug, Default)]
pub struct State {
    pub devices: Slab<DeviceState>,
    pub channels: Slab<Endpoint>,
    pub srqs: Slab<SharedRecvs>,
    pub listeners: BTreeMap<u64, Listening>,
    /// Requests that were not answered yet, by the number the acceptor sees.
    pub requests: BTreeMap<u64, Request>,
    pub next_request: u64,
    pub next_port: u64,
}

/// A device as the network sees it.
#[derive(Debug)]
pub struct DeviceState {
    pub address: IpAddr,
    pub keys: KeyTable,
    /// Events not handed out yet.
    pub events: VecDeque<(Origin, Event)>,
    pub wake: Wake,
    /// Whether the wake's timer runs.
    pub timer_runs: bool,
    pub open_channels: u32,
}

/// The source of an event, so that it can be withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Channel(usize),
    Request,
    Srq,
}

/// An open listener.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    pub device: usize,
    pub user: u64,
}

/// A connection request.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The requesting channel; `None` once it gave up.
    pub from: Option<usize>,
    /// The device that the request is for.
    pub at: usize,
    pub port: u64,
}

/// The first port for listeners that ask for any.
const FIRST_FREE_PORT: u64 = 1024;

impl Network {
    /// The network of this name, made if there is none.
    pub fn named(name: &str) -> Arc<Network> {
        static NETWORKS: Mutex<BTreeMap<String, Weak<Network>>> = Mutex::new(BTreeMap::new());
        let mut networks = NETWORKS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(network) = networks.get(name).and_then(Weak::upgrade) {
            return network;
        }
        networks.retain(|_, network| network.strong_count() > 0);
        let network = Arc::new(Network { name: name.to_owned(), state: Mutex::default() });
        networks.insert(name.to_owned(), Arc::downgrade(&network));
        network
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether connecting to this address leads into the network.
    pub fn has_address(&self, address: IpAddr) -> bool {
        address.is_loopback() || self.devices.iter().any(|(_, device)| device.address == address)
    }

    pub fn send_event(&mut self, device: usize, origin: Origin, event: Event) {
        if let Some(device) = self.devices.get_mut(device) {
            device.events.push_back((origin, event));
            device.wake.signal();
        }
    }

    pub fn send_channel_event(&mut self, channel: usize, kind: EventKind, data: &[u8]) {
        if let Some(end) = self.channels.get(channel) {
            let event = Event::new(kind, end.attr.user).with_data(data);
            self.send_event(end.device, Origin::Channel(channel), event);
        }
    }

    /// Ends an attempt to connect, if its channel still waits for it.
    pub fn fail_connect(&mut self, channel: Option<usize>, kind: EventKind, data: &[u8]) {
        if let Some(end) = channel.and_then(|channel| self.channels.get_mut(channel)) {
            end.stop();
            self.send_channel_event(channel.unwrap_or_default(), kind, data);
        }
    }

    /// Stops a channel at its own side's wish: the peer gets an event, the channel itself gets none any more.
    pub fn leave(&mut self, channel: usize) {
        let Some(end) = self.channels.get_mut(channel) else { return };
        let device = end.device;
        match end.stop() {
            Phase::Connected { peer } => {
                if let Some(peer_end) = self.channels.get_mut(peer) {
                    peer_end.stop();
                    self.send_channel_event(peer, EventKind::DISCONNECTED, &[]);
                }
            }
            Phase::Connecting { request } => {
                if let Some(request) = self.requests.get_mut(&request) {
                    request.from = None;
                }
            }
            Phase::Idle | Phase::Unanswered | Phase::Stopped => {}
        }
        if let Some(device) = self.devices.get_mut(device) {
            device.events.retain(|(origin, _)| *origin != Origin::Channel(channel));
        }
    }

    /// A request of `channel` failed: it completes with `status`, the receive it would have used at the peer with
    /// `peer_status`, and the connection breaks.
    pub fn break_connection(
        &mut self,
        channel: usize,
        status: CompletionStatus,
        peer_status: Option<CompletionStatus>,
    ) {
        let Some(end) = self.channels.get_mut(channel) else { return };
        let Phase::Connected { peer } = end.phase else { return };
        if let Some((work, _)) = end.requests.front() {
            let token = work.token;
            end.complete_request(Completion { token, status, ..Completion::default() });
        }
        end.stop();
        if let Some(peer_end) = self.channels.get_mut(peer) {
            let shared = peer_end.srq.and_then(|srq| self.srqs.get_mut(srq));
            let recv = match &shared {
                Some(shared) => shared.front(),
                None => peer_end.recvs.front(),
            };
            if let Some((status, (recv, _))) = peer_status.zip(recv) {
                let token = recv.token;
                peer_end.complete_recv(Completion { token, status, ..Completion::default() });
                if let Some(shared) = shared {
                    shared.pop();
                }
            }
            let srq = peer_end.srq.filter(|_| peer_status.is_some());
            peer_end.stop();
            if let Some(srq) = srq {
                self.check_limit(srq);
            }
        }
        self.send_channel_event(channel, EventKind::BROKEN, &[]);
        self.send_channel_event(peer, EventKind::BROKEN, &[]);
    }

    /// A port without a listener, another one each time.
    pub fn free_port(&mut self) -> u64 {
        loop {
            let port = self.next_port.max(FIRST_FREE_PORT);
            self.next_port = port.wrapping_add(1);
            if !self.listeners.contains_key(&port) {
                return port;
            }
        }
    }

    /// Refuses the requests that arrived at `port` and were not handed to the engine.
    pub fn refuse_unseen(&mut self, device: usize, port: u64) {
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

    /// Reports, once, that fewer receives are left than the low watermark.
    pub fn check_limit(&mut self, srq: usize) {
        let Some(shared) = self.srqs.get_mut(srq) else { return };
        if shared.recvs.len() >= shared.limit as usize {
            return;
        }
        shared.limit = 0;
        let (device, event) = (shared.device, Event::new(EventKind::SRQ_LIMIT, shared.attr.user));
        self.send_event(device, Origin::Srq, event);
    }
}
