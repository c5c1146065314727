//! Connections over a datagram endpoint. All connections of a device share one endpoint; messages carry the receiving
//! channel in their tag, and frames ([`crate::frames`]) make and end connections. Where the fabric's ports are TCP's a
//! listener has an endpoint of its own at the port's address, only to be found there; elsewhere peers ask for the device's
//! address ([`crate::finder`]), and say in their request which port they mean. What is said goes by [`crate::outbox`], what
//! is heard comes by [`crate::incoming`].

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{ConnectParam, Failure, Status};
use libfabric_sys::consts::FI_ADDR_UNSPEC;
use libfabric_sys::inline::fi_getname;
use libfabric_sys::types::{fi_addr_t, fid_ep};
use parking_lot::Mutex;

use crate::address::Raw;
use crate::channel::{Chan, Phase, State};
use crate::device::Dev;
use crate::endpoint::Link;
use crate::fabric::Fabric;
use crate::finder::Finder;
use crate::frames::{Body, Frame};
use crate::meeting;
use crate::memory::Regions;
use crate::outbox::{Outbox, Waiting};
use crate::port::Port;
use crate::segments;
use crate::wire::{Bell, Hello, Kind, PAYLOAD};

/// Tag of messages to a channel: its number and a part of its secret, so that late messages of an earlier channel of the
/// number find no receive.
fn tag_of(chan: u32, secret: u64) -> u64 {
    1 << 62 | u64::from(chan) << 32 | u64::from(secret as u32)
}

/// Receives for frames, of the device's endpoint and of each port's.
const FRAMES_IN: u32 = 128;
const PORT_FRAMES_IN: u32 = 32;

/// How long a request may take to be heard of, and how often it is asked then whether its peer is still there.
const HEARD: Duration = Duration::from_secs(3);
pub const ASK_AGAIN: Duration = Duration::from_millis(300);

/// How long a device that closes waits until its last frames are out.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The datagram side of a device.
pub struct Datagrams {
    pub main: Arc<Port>,
    /// The device's address as peers' tables take it.
    pub name: Raw,
    pub out: Mutex<Outbox>,
    pub ports: Mutex<HashMap<u32, Arc<Port>>>,
    next_port: std::sync::atomic::AtomicU32,
    pub peers: Mutex<HashMap<Vec<u8>, fi_addr_t>>,
    pub places: Mutex<HashMap<fi_addr_t, SocketAddr>>,
    pub requests: Mutex<HashMap<u64, Asked>>,
    pub next_request: AtomicU64,
    /// Handshake frames libfabric has not taken yet.
    pub waiting: Mutex<VecDeque<Waiting>>,
    /// Requests that were sent and not answered yet.
    pub unanswered: Mutex<Vec<Unanswered>>,
    /// The device's own address.
    pub ip: Option<IpAddr>,
    /// How peers find each other; `None` where the fabric's ports are TCP's, so that its addresses are all they need, and
    /// a knock tells whether anybody is there.
    pub finder: Option<Finder>,
    /// Endpoints of this process that this one's fabric has mapped.
    pub kept: Mutex<Vec<Arc<Port>>>,
}

/// A request that was sent: whether anybody is there still is asked from time to time.
pub struct Unanswered {
    pub chan: u32,
    pub dest: fi_addr_t,
    pub next: Instant,
}

/// A request the engine knows of.
pub struct Asked {
    pub hello: Hello,
    pub from: fi_addr_t,
    pub port: u64,
}

/// A channel number nobody has.
pub const NOBODYS: u32 = u32::MAX;

impl Datagrams {
    pub fn open(fabric: &Arc<Fabric>, regions: &Regions) -> Result<Datagrams, Failure> {
        let info = match fabric.maps_peers().then(|| segments::name(regions.random())).flatten() {
            Some(name) => fabric.info.at(&name)?,
            None => fabric.info.copy_of(fabric.info.first())?,
        };
        let main = Port::open(fabric, regions, info, (0, 0, FRAMES_IN))?;
        let mut room = [0u8; crate::address::ROOM];
        let mut len = room.len();
        // SAFETY: an open endpoint, a buffer of the length that is said.
        let result = unsafe { fi_getname(main.ep, room.as_mut_ptr().cast(), &mut len) };
        fabric.check("fi_getname", result)?;
        let name = Raw::new(&room[..len.min(room.len())])
            .ok_or_else(|| Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"))?;
        let finder = match fabric.is_over_tcp() {
            true => None,
            false => Some(Finder::open(fabric, &name, regions.random())?),
        };
        if fabric.maps_peers() {
            meeting::introduce(&name, &main);
        }
        let out = Outbox::new(fabric, regions)?;
        Ok(Datagrams {
            main,
            name,
            out: Mutex::new(out),
            ports: Mutex::default(),
            next_port: std::sync::atomic::AtomicU32::new(1),
            peers: Mutex::default(),
            places: Mutex::default(),
            requests: Mutex::default(),
            next_request: AtomicU64::new(0),
            waiting: Mutex::default(),
            unanswered: Mutex::default(),
            ip: fabric.ip(),
            finder,
            kept: Mutex::default(),
        })
    }

    pub fn endpoint(&self) -> *mut fid_ep {
        self.main.ep
    }

    fn link(&self, dest: fi_addr_t, chan: &Chan) -> Link {
        let tag_in = tag_of(chan.id, chan.secret);
        Link { ep: self.main.ep, dest, datagrams: true, framed: false, tag_out: 0, tag_in }
    }

    /// Asks a silent peer for a sign of life. If nobody is there the connection is over as soon as that is known.
    pub fn ask_for_life(&self, dev: &Dev, chan: u32, dest: fi_addr_t, (to, secret): (u32, u64)) {
        if let (Some(finder), Some(door)) = (&self.finder, self.place(dest)) {
            finder.knock(chan, door);
        }
        if self.waiting.lock().iter().any(|waiting| waiting.chan == chan) {
            return dev.hurry();
        }
        let body = Body::Bell { bell: Bell::Ping, payload: [0; PAYLOAD] };
        self.send_soon(dest, &Frame { to, secret, arg: 0, body }, chan, self.place(dest));
        dev.hurry();
    }

    pub fn connect(
        &self,
        dev: &Arc<Dev>,
        chan: &Arc<Chan>,
        st: &mut State,
        to: SocketAddr,
        param: &ConnectParam<'_>,
    ) -> Result<(), Failure> {
        let dest = match self.finder {
            Some(_) => FI_ADDR_UNSPEC,
            None => self.peer(&dev.fabric, &Raw::from(to), Some(to))?,
        };
        st.link = Some(self.link(dest, chan));
        st.local_port = port_of_chan(chan.id);
        chan.start_recvs(st);
        let hello = chan.hello(st, Kind::Request, param.qos);
        st.phase = Phase::Connecting;
        if let Some(finder) = &self.finder {
            finder.ask(chan.id, to, hello, param.data);
            dev.hurry();
            return Ok(());
        }
        let body = Body::Hello { name: self.name(), hello, data: param.data };
        self.send_soon(dest, &Frame { to: 0, secret: 0, arg: 0, body }, chan.id, Some(to));
        // Until the peer says where it is itself. Its port may be closed once the request was seen, so that it heard the
        // request is given plenty of time to arrive: a closed port says nothing of the peer. Only one that ended between
        // the two is found late for that.
        self.unanswered.lock().push(Unanswered { chan: chan.id, dest, next: Instant::now() + HEARD });
        dev.hurry();
        Ok(())
    }

    pub fn accept(
        &self,
        dev: &Arc<Dev>,
        chan: &Arc<Chan>,
        st: &mut State,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let Some(asked) = self.requests.lock().remove(&request) else {
            let message = format!("{}: accept: there is no unanswered request {request}", dev.params.ia_name);
            return Err(Failure::new(Status::INVALID, message));
        };
        st.link = Some(self.link(asked.from, chan));
        st.local_port = asked.port;
        self.meet(chan, st, &asked.hello);
        chan.start_recvs(st);
        let hello = chan.hello(st, Kind::Accept, 0);
        st.phase = Phase::Accepting;
        self.answer(&asked, hello, data, chan.id);
        dev.hurry();
        Ok(())
    }

    pub fn reject(&self, dev: &Dev, request: u64, kind: Kind, data: &[u8]) -> Status {
        match self.requests.lock().remove(&request) {
            None => Status::INVALID,
            Some(asked) => {
                self.answer(&asked, refusal(kind), data, 0);
                dev.hurry();
                Status::OK
            }
        }
    }

    pub fn answer(&self, asked: &Asked, hello: Hello, data: &[u8], chan: u32) {
        let body = Body::Hello { name: self.name(), hello, data };
        let frame = Frame { to: asked.hello.chan, secret: asked.hello.page, arg: 0, body };
        self.send_soon(asked.from, &frame, chan, None);
    }

    /// The peer's handshake is known.
    pub fn meet(&self, chan: &Chan, st: &mut State, hello: &Hello) {
        chan.greet(st, hello);
        if let Some(link) = &mut st.link {
            link.tag_out = tag_of(hello.chan, hello.page);
        }
    }

    /// Listens at a port, or any; which, and the endpoint there, if the fabric has one there.
    pub fn listen(
        &self,
        dev: &Arc<Dev>,
        at: SocketAddr,
        user: u64,
    ) -> Result<(Option<Arc<Port>>, u64), Failure> {
        if let Some(finder) = &self.finder {
            return finder.listen(at.port(), user).map(|port| (None, port.into()));
        }
        let info = dev.fabric.info.at(&Raw::from(at))?;
        let id = self.next_port.fetch_add(1, Ordering::Relaxed);
        let port = Port::open(&dev.fabric, &dev.regions, info, (id, user, PORT_FRAMES_IN))?;
        let number = port.port.load(Ordering::Relaxed);
        if let Some(fd) = port.wait() {
            dev.wake_on_port(fd);
        }
        self.ports.lock().insert(id, port.clone());
        dev.hurry();
        Ok((Some(port), number))
    }

    /// Ends a port. Who asked at it is answered: a request that nobody read would end with the endpoint, and who waits for
    /// an answer is told nothing if another listens there by the time it asks again.
    pub fn close_port(&self, dev: &Dev, port: Option<&Arc<Port>>, number: u64) {
        if let (Some(finder), Ok(number)) = (&self.finder, u16::try_from(number)) {
            return finder.close(number);
        }
        let Some(port) = port else { return };
        self.take_frames(dev, port);
        self.ports.lock().remove(&port.id);
        port.close();
    }

    /// Whether no frame waits for libfabric to take it, and no request for an answer.
    pub fn is_idle(&self) -> bool {
        self.waiting.lock().is_empty()
            && self.unanswered.lock().is_empty()
            && self.finder.as_ref().is_none_or(Finder::is_idle)
    }

    /// Whether a thread may sleep on the descriptors of all ports.
    pub fn may_wait(&self, fabric: &Fabric) -> bool {
        let ports: Vec<Arc<Port>> = self.ports.lock().values().cloned().collect();
        ports.iter().all(|port| {
            let own = port.own.lock();
            own.as_ref().is_none_or(|own| own.cq.is_null() || fabric.may_wait(own.cq.cast()))
        })
    }

    pub fn shut_down(&self, dev: &Dev) {
        dev.progress_for_certain();
        let asked: Vec<Asked> = self.requests.lock().drain().map(|(_, asked)| asked).collect();
        for asked in asked {
            self.answer(&asked, refusal(Kind::Refuse), &[], 0);
        }
        // What was said last still goes, for a bounded time: with the endpoint goes what libfabric has not sent.
        let deadline = Instant::now() + LAST_WORDS;
        let speaks = || !self.waiting.lock().is_empty() || !self.out.lock().is_empty();
        while speaks() && Instant::now() < deadline {
            self.look_after(dev);
            dev.progress_now();
            std::thread::yield_now();
        }
        let ports: Vec<Arc<Port>> = self.ports.lock().drain().map(|(_, port)| port).collect();
        ports.iter().for_each(|port| port.close());
        // Before channels go whose operations it still has. One of a neighbour's memory stays as long as that uses it.
        if !dev.fabric.maps_peers() {
            self.main.close();
        }
    }

    /// Takes frames that came to ports, and tries again what libfabric did not take; called by the event thread. How
    /// much was done.
    pub fn look_after(&self, dev: &Dev) -> usize {
        let mut done = 0;
        let ports: Vec<Arc<Port>> = self.ports.lock().values().cloned().collect();
        for port in ports {
            done += self.take_frames(dev, &port);
        }
        if let Some(finder) = &self.finder {
            done += self.look_after_finding(dev, finder);
        }
        self.ask_the_silent(dev);
        done + self.send_waiting(dev)
    }
}

/// Local ports of connections that share an endpoint are numbers beyond the internet's.
pub fn port_of_chan(chan: u32) -> u64 {
    (1 << 16) + u64::from(chan)
}

/// Peers a device may have met.
pub const MAX_PEERS: usize = 1 << 16;

pub fn refusal(kind: Kind) -> Hello {
    Hello { kind, chan: 0, qos: 0, posted: 0, room: 0, page: 0, key: 0, shared: false }
}
