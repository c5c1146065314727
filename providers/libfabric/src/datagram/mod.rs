//! Connections over a datagram endpoint.
//!
//! All connections of a device share one endpoint. A message's tag names the receiving channel; frames
//! ([`crate::wire::datagram`]) make and end connections. Where the fabric's ports are TCP ports, a listener has an endpoint
//! of its own at the port's address. Elsewhere peers look the device's address up ([`crate::discovery`]) and put the port
//! into their request. [`crate::endpoint::outbox`] sends frames, [`incoming`] handles those that arrive.

pub mod incoming;
pub mod names;
pub mod rate_limit;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_kit::Qualifier;
use dat_plugin::{ConnectParam, Failure, Status};
use libfabric_sys::consts::FI_ADDR_UNSPEC;
use libfabric_sys::types::fi_addr_t;
use parking_lot::Mutex;

use crate::address::Raw;
use crate::channel::table::ChannelTable;
use crate::channel::{ChannelInner, Phase, State};
use crate::core::Core;
use crate::datagram::rate_limit::RateLimit;
use crate::discovery::Discovery;
use crate::endpoint::address_vector::{AddressVector, PeerAddress, register_local};
use crate::endpoint::link::Link;
use crate::endpoint::name::raw_name;
use crate::endpoint::outbox::Outbox;
use crate::endpoint::port::Port;
use crate::endpoint::shm_names;
use crate::fabric::Fabric;
use crate::memory::Regions;
use crate::wire::control::{Control, PAYLOAD};
use crate::wire::datagram::{Body, Frame};
use crate::wire::hello::{Hello, Kind};

/// The tag of messages to a channel: its number and a part of its secret. So late messages to an earlier channel with the
/// same number find no receive.
fn tag_of(chan: u32, secret: u64) -> u64 {
    1 << 62 | u64::from(chan) << 32 | u64::from(secret as u32)
}

/// Receives for frames of the main endpoint, and of each listener's endpoint.
const FRAMES_IN: u32 = 128;
const PORT_FRAMES_IN: u32 = 32;

/// How long a request may take until its peer confirms it; then how often the peer is probed.
const CONFIRM_TIME: Duration = Duration::from_secs(3);
pub const PROBE_INTERVAL: Duration = Duration::from_millis(300);

/// How long a closing device waits until its last frames are sent.
const CLOSE_TIME: Duration = Duration::from_millis(100);

/// The datagram connections of a device.
pub struct Datagrams {
    core: Arc<Core>,
    channels: Arc<ChannelTable>,
    pub main: Arc<Port>,
    /// The main endpoint's address, in the fabric's format.
    pub address: Raw,
    pub outbox: Arc<Outbox>,
    pub ports: Mutex<HashMap<u32, Arc<Port>>>,
    next_port: AtomicU32,
    pub peers: AddressVector,
    /// Limits refusals to addresses that anybody could have named.
    pub refusals: Mutex<RateLimit>,
    /// Limits requests of addresses that no connection has confirmed.
    pub newcomers: Mutex<RateLimit>,
    /// Requests that the engine has not answered yet.
    pub requests: Mutex<HashMap<u64, PendingRequest>>,
    pub next_request: AtomicU64,
    /// Requests of this device that have no answer yet.
    pub unanswered: Mutex<Vec<Unanswered>>,
    /// How peers find each other; `None` where the fabric's ports are TCP ports. There its addresses are enough, and a
    /// connection to a port shows whether a process listens.
    pub discovery: Option<Discovery>,
}

/// The parts of [`Datagrams`] that do not depend on channels.
pub struct DatagramEndpoint {
    main: Arc<Port>,
    address: Raw,
    pub outbox: Arc<Outbox>,
    discovery: Option<Discovery>,
}

impl DatagramEndpoint {
    pub fn open(fabric: &Arc<Fabric>, regions: &Regions) -> Result<DatagramEndpoint, Failure> {
        let info = match fabric.maps_peers().then(|| shm_names::name(regions.random())).flatten() {
            Some(name) => fabric.info.at(&name)?,
            None => fabric.info.copy_of(fabric.info.first())?,
        };
        let main = Port::open(fabric, regions, info, (0, 0, FRAMES_IN))?;
        let name = raw_name(main.ep);
        fabric.check("fi_getname", name.err().unwrap_or(0))?;
        let address = name
            .ok()
            .flatten()
            .ok_or_else(|| Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"))?;
        let discovery = match fabric.is_over_tcp() {
            true => None,
            false => Some(Discovery::open(fabric, &address, regions.random())?),
        };
        if fabric.maps_peers() {
            register_local(&address, &main);
        }
        let activity = match &discovery {
            Some(discovery) => discovery.activity.clone(),
            None => Arc::new(AtomicBool::new(true)),
        };
        let outbox = Arc::new(Outbox::new(fabric, regions, main.clone(), activity)?);
        Ok(DatagramEndpoint { main, address, outbox, discovery })
    }
}

/// A request that was sent. Its peer is probed from time to time.
pub struct Unanswered {
    pub chan: u32,
    pub dest: Arc<PeerAddress>,
    pub next: Instant,
}

/// A request that the engine has not answered yet.
pub struct PendingRequest {
    pub hello: Hello,
    pub from: Arc<PeerAddress>,
    pub port: u64,
}

/// The number of no channel.
pub const NO_CHANNEL: u32 = u32::MAX;

impl Datagrams {
    pub fn new(endpoint: DatagramEndpoint, core: &Arc<Core>, channels: &Arc<ChannelTable>) -> Arc<Datagrams> {
        let DatagramEndpoint { main, address, outbox, discovery } = endpoint;
        Arc::new(Datagrams {
            core: core.clone(),
            channels: channels.clone(),
            main,
            address,
            outbox,
            ports: Mutex::default(),
            next_port: AtomicU32::new(1),
            peers: AddressVector::new(&core.fabric, MAX_PEERS),
            refusals: Mutex::new(RateLimit::new(MAX_REFUSALS)),
            newcomers: Mutex::new(RateLimit::new(MAX_NEWCOMERS)),
            requests: Mutex::default(),
            next_request: AtomicU64::new(0),
            unanswered: Mutex::default(),
            discovery,
        })
    }

    fn link(&self, dest: fi_addr_t, chan: &ChannelInner) -> Link {
        let tag_in = tag_of(chan.id, chan.secret);
        Link { ep: self.main.ep, dest, datagrams: true, framed: false, tag_out: 0, tag_in }
    }

    /// Asks a silent peer for a sign of life. If its process has ended, the connection ends when that is known.
    pub fn check_peer(&self, chan: u32, dest: &Arc<PeerAddress>, (to, secret): (u32, u64)) {
        if let (Some(discovery), Some(tcp)) = (&self.discovery, dest.tcp()) {
            discovery.probe(chan, tcp);
        }
        if self.outbox.has_frame_of(chan) {
            return self.core.wake.now();
        }
        let body = Body::Control { control: Control::Ping, payload: [0; PAYLOAD] };
        self.outbox.queue(dest, &Frame { to, secret, arg: 0, body }, chan, dest.tcp());
        self.core.wake.now();
    }

    pub fn connect(
        &self,
        chan: &ChannelInner,
        st: &mut State,
        to: SocketAddr,
        param: &ConnectParam<'_>,
    ) -> Result<(), Failure> {
        let dest = match self.discovery {
            Some(_) => None,
            None => Some(self.peers.get(&Raw::from(to), Some(to))?),
        };
        st.link = Some(self.link(dest.as_ref().map_or(FI_ADDR_UNSPEC, |dest| dest.number), chan));
        st.peer_address.clone_from(&dest);
        st.local_port = port_of_chan(chan.id);
        chan.start_recvs(st);
        let quotient = Qualifier::new(param.port).quotient;
        let hello = Hello { quotient, ..chan.hello(st, Kind::Request, param.qos) };
        st.phase = Phase::Connecting;
        let Some(dest) = dest else {
            if let Some(discovery) = &self.discovery {
                discovery.look_up(chan.id, to, hello, param.data);
            }
            self.core.wake.now();
            return Ok(());
        };
        let body = Body::Hello { name: self.name(), hello, data: param.data };
        self.outbox.queue(&dest, &Frame { to: 0, secret: 0, arg: 0, body }, chan.id, Some(to));
        // The port is probed until the peer confirms the request with its own address. It may close the port once it saw
        // the request, so the confirmation gets plenty of time. Only a process that ends in between is noticed late.
        self.unanswered.lock().push(Unanswered { chan: chan.id, dest, next: Instant::now() + CONFIRM_TIME });
        self.core.wake.now();
        Ok(())
    }

    pub fn accept(
        &self,
        chan: &ChannelInner,
        st: &mut State,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let Some(asked) = self.requests.lock().remove(&request) else {
            let message =
                format!("{}: accept: there is no unanswered request {request}", self.core.params.ia_name);
            return Err(Failure::new(Status::INVALID, message));
        };
        st.link = Some(self.link(asked.from.number, chan));
        st.peer_address = Some(asked.from.clone());
        st.local_port = asked.port;
        self.set_peer(chan, st, &asked.hello);
        chan.start_recvs(st);
        let hello = chan.hello(st, Kind::Accept, 0);
        st.phase = Phase::Accepting;
        self.answer(&asked, hello, data, chan.id);
        self.core.wake.now();
        Ok(())
    }

    pub fn reject(&self, request: u64, kind: Kind, data: &[u8]) -> Status {
        match self.requests.lock().remove(&request) {
            None => Status::INVALID,
            Some(asked) => {
                self.answer(&asked, refusal(kind), data, 0);
                self.core.wake.now();
                Status::OK
            }
        }
    }

    pub fn answer(&self, request: &PendingRequest, hello: Hello, data: &[u8], chan: u32) {
        let body = Body::Hello { name: self.name(), hello, data };
        let frame = Frame { to: request.hello.chan, secret: request.hello.page, arg: 0, body };
        self.outbox.queue(&request.from, &frame, chan, None);
    }

    /// Takes over the peer's handshake.
    pub fn set_peer(&self, chan: &ChannelInner, st: &mut State, hello: &Hello) {
        chan.set_peer(st, hello);
        if let Some(link) = &mut st.link {
            link.tag_out = tag_of(hello.chan, hello.page);
        }
    }

    /// Listens on a qualifier, or on any port if it is 0. Returns the endpoint there if it has one, and the qualifier.
    pub fn listen(
        &self,
        ip: IpAddr,
        qualifier: Qualifier,
        user: u64,
    ) -> Result<(Option<Arc<Port>>, u64), Failure> {
        if let Some(discovery) = &self.discovery {
            let port = discovery.listen(qualifier.port, (user, qualifier.quotient))?;
            return Ok((None, qualifier.at(port)));
        }
        let at = SocketAddr::new(ip, qualifier.port);
        let info = self.core.fabric.info.at(&Raw::from(at))?;
        let id = self.next_port.fetch_add(1, Ordering::Relaxed);
        let port = Port::open(&self.core.fabric, &self.core.regions, info, (id, user, PORT_FRAMES_IN))?;
        let number = port.port.load(Ordering::Relaxed);
        let number = u16::try_from(number).map_or(number, |number| qualifier.at(number));
        // Before the first request is read: only ports in the table are looked at.
        port.port.store(number, Ordering::Relaxed);
        if let Some(fd) = port.wait() {
            self.core.wake.add_port(fd);
        }
        self.ports.lock().insert(id, port.clone());
        self.core.wake.now();
        Ok((Some(port), number))
    }

    /// Closes a port. Requests that arrived are read first: they would be lost with the endpoint, and their senders would
    /// not notice if another process listens there soon.
    pub fn close_port(&self, port: Option<&Arc<Port>>, number: u64) {
        if let Some(discovery) = &self.discovery {
            return discovery.close(Qualifier::new(number).port);
        }
        let Some(port) = port else { return };
        self.take_frames(port);
        self.ports.lock().remove(&port.id);
        port.close();
    }

    /// Whether no frame waits for libfabric, and no request for an answer.
    pub fn is_idle(&self) -> bool {
        self.outbox.is_idle()
            && self.unanswered.lock().is_empty()
            && self.discovery.as_ref().is_none_or(Discovery::is_idle)
    }

    /// Whether a thread may sleep on the descriptors of all ports.
    pub fn may_sleep(&self) -> bool {
        let ports: Vec<Arc<Port>> = self.ports.lock().values().cloned().collect();
        ports.iter().all(|port| {
            let own = port.own.lock();
            own.as_ref().is_none_or(|own| own.cq.is_null() || self.core.fabric.may_wait(own.cq.cast()))
        })
    }

    /// Answers open requests and closes the endpoints. `progress` takes completions.
    pub fn shut_down(&self, progress: impl Fn()) {
        progress();
        let requests: Vec<PendingRequest> =
            self.requests.lock().drain().map(|(_, request)| request).collect();
        for request in requests {
            self.answer(&request, refusal(Kind::Refuse), &[], 0);
        }
        // Closing an endpoint drops what libfabric has not sent, so the last frames get a bounded time.
        let deadline = Instant::now() + CLOSE_TIME;
        while !self.outbox.is_sent() && Instant::now() < deadline {
            self.service();
            progress();
            std::thread::yield_now();
        }
        let ports: Vec<Arc<Port>> = self.ports.lock().drain().map(|(_, port)| port).collect();
        ports.iter().for_each(|port| port.close());
        // Before the channels whose operations it still has are dropped. An endpoint whose memory another endpoint of
        // this process maps stays open as long as that one uses it.
        if !self.core.fabric.maps_peers() {
            self.main.close();
        }
    }

    /// Takes frames that arrived at ports and sends what waits. Returns how much was done. The event thread calls it.
    pub fn service(&self) -> usize {
        let mut done = 0;
        let ports: Vec<Arc<Port>> = self.ports.lock().values().cloned().collect();
        for port in ports.iter().chain([&self.main]) {
            if port.id != 0 {
                done += self.take_frames(port);
            }
            if port.post_again() {
                self.core.wake.soon();
            }
        }
        if let Some(discovery) = &self.discovery {
            done += self.service_discovery(discovery);
        }
        self.probe_unanswered();
        done + self.send_waiting()
    }
}

/// Local ports of connections that share an endpoint are numbers above those of TCP.
pub fn port_of_chan(chan: u32) -> u64 {
    (1 << 16) + u64::from(chan)
}

/// Most entries of the address vector.
const MAX_PEERS: usize = 1 << 16;

/// Refusals in a second to addresses that anybody could have named. An honest peer that gets none times out.
pub const MAX_REFUSALS: u32 = 64;

/// Requests in a second of addresses that are not in the address vector. A peer has one address for all connections.
pub const MAX_NEWCOMERS: u32 = 1024;

pub fn refusal(kind: Kind) -> Hello {
    Hello { kind, chan: 0, qos: 0, posted: 0, room: 0, page: 0, key: 0, shared: false, quotient: 0 }
}
