//! Ports: abstract Unix sockets, so that nothing is left on disk, and who knocks at them.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{Event, EventKind, Failure, Listener, Status};
use rustix::net::{SocketFlags, accept_with, bind, listen};

use crate::control::device::{Dev, Source};
use crate::control::handshake::{self, Hello, Packet, Parts, Received};
use crate::control::peer::Peer;
use crate::control::trust::Credentials;
use crate::data::sizes;
use crate::data::slab::{Place, Slab};
use crate::foreign::ForeignFd;
use crate::memory::keys::random;

/// A port being listened on.
pub struct ShmListener {
    dev: Arc<Dev>,
    listening: Arc<Listening>,
    token: u64,
    closed: AtomicBool,
}

pub(crate) struct Listening {
    pub(crate) socket: OwnedFd,
    port: u64,
    user: u64,
}

/// A socket that connected.
pub(crate) struct Incoming {
    pub(crate) socket: ForeignFd,
    pub(crate) from: Credentials,
    user: u64,
    port: u64,
    deadline: Instant,
    /// The request, once it came; handed out as an event then.
    pub(crate) asked: Option<Asked>,
    told: bool,
    /// It was asked to say everything.
    whole: bool,
    /// Its socket is in the epoll set.
    pub(crate) registered: bool,
}

/// A checked request.
pub(crate) struct Asked {
    pub(crate) ring: usize,
    pub(crate) place: Place,
    pub(crate) hello: Hello,
    pub(crate) holds: u128,
    pub(crate) parts: Parts,
    /// What did not come with it because it is here.
    pub(crate) peer: Option<Arc<Peer>>,
    _slab: Option<Arc<Slab>>,
}

/// Connections a listener's socket keeps until the event thread takes them.
const BACKLOG: i32 = 1024;

/// Ports given out when any will do.
const FREE_PORTS: std::ops::Range<u64> = 49152..65536;

impl ShmListener {
    pub(crate) fn new(dev: &Arc<Dev>, port: u64, user: u64) -> Result<ShmListener, Failure> {
        let (socket, port) = if port != 0 { (bound(dev, port)?, port) } else { any(dev)? };
        listen(&socket, BACKLOG).map_err(|error| Failure::os("listen", &error.into()))?;
        let listening = Arc::new(Listening { socket, port, user });
        let token = dev.new_token();
        dev.add_source(token, Source::Listener(listening.clone()), listening.socket.as_fd())
            .map_err(|error| Failure::os("epoll", &error))?;
        Ok(ShmListener { dev: dev.clone(), listening, token, closed: AtomicBool::new(false) })
    }
}

impl Listener for ShmListener {
    fn port(&self) -> u64 {
        self.listening.port
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) && self.dev.owner.here() {
            // Frees the port at once, whoever else has the descriptor.
            let _ = rustix::net::shutdown(&self.listening.socket, rustix::net::Shutdown::Both);
            self.dev.forget(self.token, self.listening.socket.as_fd());
        }
    }
}

impl Listening {
    /// Accepts one connection at a time: the socket stays readable while there are more, and to ask for one that is not
    /// there costs more than being called again.
    pub(crate) fn ready(&self, dev: &Arc<Dev>) {
        let accept = || accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        loop {
            let socket = match accept() {
                // Even a refused one may hold descriptors that take long to close.
                Ok(socket) => ForeignFd::from(socket),
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INVAL) => return,
                Err(error @ (rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)) => {
                    tracing::warn!(%error, port = self.port, "a connection is refused");
                    return dev.refuse_one(|| accept().map(ForeignFd::from));
                }
                Err(error) => {
                    tracing::warn!(%error, port = self.port, "accept");
                    return dev.pause_listeners();
                }
            };
            let Some(from) = Credentials::of(&socket) else { continue };
            if !dev.params.users.allow(from.uid) {
                tracing::warn!(
                    port = self.port,
                    uid = from.uid,
                    "a connection of another user is refused; see allow_users"
                );
                let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
                continue;
            }
            let deadline = Instant::now() + Duration::from_millis(dev.params.handshake_timeout_ms);
            let incoming = Incoming {
                socket,
                from,
                user: self.user,
                port: self.port,
                deadline,
                asked: None,
                told: false,
                whole: false,
                registered: false,
            };
            return dev.arrived(incoming);
        }
    }
}

/// What is to be done about an incoming connection after it was looked at.
pub(crate) enum Verdict {
    Keep,
    /// Keep it for accept and reject, but there is nothing more to be read.
    Gone,
    Drop,
    Tell(Box<Event>),
}

impl Incoming {
    /// Something arrived.
    pub(crate) fn ready(&mut self, dev: &Dev, token: u64) -> Verdict {
        match handshake::receive(&self.socket) {
            Received::Empty => Verdict::Keep,
            Received::Packet(Packet::Request { with, ring, place, port, qos, hello, holds, data }, fds)
                if !self.told =>
            {
                let ring = ring as usize;
                let sound = port == self.port && sizes::is_sound(ring);
                let Some(parts) = Parts::new(with, fds).filter(|parts| sound && is_sound(parts)) else {
                    tracing::warn!(port, "a malformed connection request is dropped");
                    return Verdict::Drop;
                };
                let mut event = Event::new(EventKind::REQUEST, self.user).with_data(&data);
                event.request = token;
                event.port = port;
                event.qos = qos;
                event.peer = hello.addr.0;
                event.peer_port = hello.port;
                let Some(asked) = complete(dev, self.from, ring, place, hello, holds, parts) else {
                    return self.again();
                };
                self.asked = Some(asked);
                self.told = true;
                Verdict::Tell(Box::new(event))
            }
            Received::Closed | Received::Packet(Packet::Disconnect | Packet::Error, _) if self.told => {
                self.asked = None;
                Verdict::Gone
            }
            Received::Closed => Verdict::Drop,
            Received::Garbage(what) => {
                tracing::warn!(port = self.port, "a connection request with {what} is dropped");
                self.misbehaved()
            }
            Received::Packet(..) => {
                tracing::warn!(port = self.port, "a connection that speaks out of turn is dropped");
                self.misbehaved()
            }
        }
    }

    /// Something was left out that is not here.
    fn again(&mut self) -> Verdict {
        if std::mem::replace(&mut self.whole, true) {
            return Verdict::Drop;
        }
        match handshake::send(&self.socket, &Packet::Again, &[]) {
            Ok(()) => Verdict::Keep,
            Err(_) => Verdict::Drop,
        }
    }

    /// It sent something invalid.
    fn misbehaved(&mut self) -> Verdict {
        if !self.told {
            return Verdict::Drop;
        }
        // The engine knows of the request, so it stays, as one whose peer has gone.
        self.asked = None;
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        Verdict::Gone
    }

    /// Whether the engine knows of it.
    pub(crate) fn told(&self) -> bool {
        self.told
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// A device that is not known comes with its bitmaps and memory for the connection.
fn is_sound(parts: &Parts) -> bool {
    match parts.bitmaps {
        Some(_) => parts.memory.is_some(),
        None => parts.keys.is_none(),
    }
}

/// The request, completed with its omitted parts; `None` when that is not here any more.
fn complete(
    dev: &Dev,
    from: Credentials,
    ring: usize,
    place: Place,
    hello: Hello,
    holds: u128,
    parts: Parts,
) -> Option<Asked> {
    let (mut peer, mut _slab) = (None, None);
    if parts.bitmaps.is_none() {
        let known = dev.peers.known(from, hello.device)?;
        if parts.memory.is_none() {
            _slab = Some(known.known_slab(ring, place)?);
        }
        peer = Some(known);
    }
    Some(Asked { ring, place, hello, holds, parts, peer, _slab })
}

fn bound(dev: &Dev, port: u64) -> Result<OwnedFd, Failure> {
    let socket = dev.socket().map_err(|error| Failure::os("socket", &error))?;
    let name = dev.port_name(port)?;
    bind(&socket, &name).map_err(|error| match error {
        rustix::io::Errno::ADDRINUSE => {
            let message = format!("port {port} of domain {:?} has a listener already", dev.params.domain);
            Failure::new(Status::IN_USE, message)
        }
        error => Failure::os(&format!("bind to port {port}"), &io::Error::from(error)),
    })?;
    Ok(socket)
}

fn any(dev: &Dev) -> Result<(OwnedFd, u64), Failure> {
    let count = FREE_PORTS.end - FREE_PORTS.start;
    let start = u64::from_ne_bytes(random::<8>()?) % count;
    for turn in 0..count {
        let port = FREE_PORTS.start + (start + turn) % count;
        match bound(dev, port) {
            Err(failure) if failure.status == Status::IN_USE => {}
            result => return result.map(|socket| (socket, port)),
        }
    }
    Err(Failure::new(Status::NO_RESOURCE, format!("all ports from {} on are taken", FREE_PORTS.start)))
}
