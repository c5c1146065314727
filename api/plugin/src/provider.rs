//! What a provider author implements.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::Arc;

use crate::abi::{
    Access, AtomicRequest, BindRequest, Block, Caps, ChannelAttr, Completion, DeviceAttr, Event, Keys,
    RecvRequest, RejectReason, Request, SockAddr, SrqAttr, Status,
};

/// Why a control call failed: a status for the engine, a sentence for people.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What the engine decides by.
    pub status: Status,
    /// What was wrong, where, and what to do.
    pub message: String,
}

impl Failure {
    /// A failure.
    pub fn new(status: Status, message: impl Into<String>) -> Failure {
        Failure { status, message: message.into() }
    }

    /// An operating system error met while doing `what`.
    pub fn os(what: &str, error: &std::io::Error) -> Failure {
        use std::io::ErrorKind;
        let status = match (error.raw_os_error(), error.kind()) {
            (Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS), _) => Status::NO_RESOURCE,
            (_, ErrorKind::OutOfMemory | ErrorKind::StorageFull) => Status::NO_RESOURCE,
            (_, ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => Status::NO_RESOURCE,
            (_, ErrorKind::PermissionDenied) => Status::PERMISSION,
            (_, ErrorKind::AddrInUse) => Status::IN_USE,
            _ => Status::IO,
        };
        Failure::new(status, format!("{what}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.message, self.status)
    }
}

impl std::error::Error for Failure {}

/// Who a provider is.
#[derive(Clone, Copy, Debug)]
pub struct ProviderInfo {
    /// Short name, as in `shm`.
    pub name: &'static str,
    /// Version of the plugin, as in `0.1.0`.
    pub version: &'static str,
    /// One line for people.
    pub description: &'static str,
}

/// What an interface adapter is configured with.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The IA name it is opened under.
    pub ia_name: String,
    /// The `params` of `plugins.toml`, values as text.
    pub params: BTreeMap<String, String>,
}

impl Config {
    /// The value of `key` parsed, or `default` when absent. A value that does not parse is a failure.
    pub fn get<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        let Some(text) = self.params.get(key) else { return Ok(default) };
        text.parse().map_err(|_| {
            let wanted = match std::any::type_name::<T>() {
                "bool" => "neither true nor false",
                "f32" | "f64" => "no number",
                name if name.starts_with('u') => "no whole number, or too large or small",
                name if name.starts_with('i') => "no whole number, or too large or small",
                _ => "not of the kind it takes",
            };
            let message = format!("{}: parameter {key} = {text:?} is {wanted}", self.ia_name);
            Failure::new(Status::BAD_CONFIG, message)
        })
    }

    /// Fails on a parameter that is not one of `known`.
    pub fn check_known(&self, known: &[&str]) -> Result<(), Failure> {
        match self.params.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let known = match known {
                    [] => "there are none".to_string(),
                    known => format!("known are: {}", known.join(", ")),
                };
                let message = format!("{}: unknown parameter {key:?}; {known}", self.ia_name);
                Err(Failure::new(Status::BAD_CONFIG, message))
            }
        }
    }
}

/// One device or way a provider could use with a configuration, and whether it can.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What it is, as in `memfd` or `mlx5_0 port 1`.
    pub candidate: String,
    /// Whether it works here.
    pub usable: bool,
    /// Why, or why not.
    pub reason: String,
}

/// A provider: the way to its devices. Stateless.
pub trait Provider: Send + Sync + 'static {
    /// An open interface adapter.
    type Device: Device;

    /// Who this is.
    const INFO: ProviderInfo;

    /// The capabilities that devices of this provider can have; one device may have fewer. They stand in the plugin's file,
    /// where they are read without running it. `None`: unknown.
    const CAPS: Option<Caps> = None;

    /// Opens an interface adapter.
    fn open(config: &Config) -> Result<Arc<Self::Device>, Failure>;

    /// Says what it would use with this configuration and why not the rest, without opening anything for good.
    fn probe(config: &Config) -> Vec<Probe>;
}

/// An open interface adapter.
pub trait Device: Send + Sync + 'static {
    /// One end of a connection.
    type Channel: Channel;
    /// A completion queue.
    type Queue: Queue;
    /// A port that accepts connection requests.
    type Listener: Listener;
    /// Receives that several channels share; [`NoSrq`] when the provider has none.
    type Srq: Srq;

    /// What the device can do. Constant while it is open.
    fn attr(&self) -> DeviceAttr;

    /// Opens a completion queue for at least `depth` completions.
    fn open_queue(&self, depth: u32) -> Result<Arc<Self::Queue>, Failure>;

    /// Opens a channel, unconnected. A direction without a queue is never posted to.
    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<Self::Queue>>,
        recv: Option<&Arc<Self::Queue>>,
    ) -> Result<Arc<Self::Channel>, Failure>;

    /// As [`Device::open_channel`], with receives out of `srq`; nothing is posted to the channel itself then. Only with
    /// [`crate::Caps::SRQ`].
    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<Self::Queue>>,
        recv: Option<&Arc<Self::Queue>>,
        srq: &Arc<Self::Srq>,
    ) -> Result<Arc<Self::Channel>, Failure> {
        let _ = (attr, send, recv, srq);
        Err(Failure::new(Status::NOT_SUPPORTED, "this provider has no shared receive queues"))
    }

    /// Opens a shared receive queue. Only with [`crate::Caps::SRQ`].
    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<Self::Srq>, Failure> {
        let _ = attr;
        Err(Failure::new(Status::NOT_SUPPORTED, "this provider has no shared receive queues"))
    }

    /// Listens on `port`, or with 0 on a free one of at least 1024. Requests arrive as events with `user`.
    fn listen(&self, port: u64, user: u64) -> Result<Arc<Self::Listener>, Failure>;

    /// Registers `len` bytes at `addr` for `access` in protection domain `domain`.
    ///
    /// The memory stays valid until [`Device::deregister`] returned and no post that names it is outstanding.
    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure>;

    /// Registers `len` bytes at `offset` of a dma-buf, as memory at `addr`: posts name it so. Only with
    /// [`crate::Caps::DMABUF`].
    ///
    /// The descriptor is the caller's and open for the call. The processor may have no access to the memory: bytes of
    /// it are moved by the device alone. Otherwise as [`Device::register`].
    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        addr: u64,
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        let _ = (dmabuf, offset, len, addr, access, domain);
        Err(Failure::new(Status::NOT_SUPPORTED, "this provider does not register memory of other devices"))
    }

    /// Ends a registration. No remote access through it begins or goes on after the call returned.
    fn deregister(&self, keys: Keys) -> Status;

    /// Allocates zeroed memory that peers reach in the fastest way. Only with [`crate::Caps::ALLOC`].
    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        let _ = len;
        Err(Failure::new(Status::NOT_SUPPORTED, "this provider does not allocate memory"))
    }

    /// Frees what [`Device::alloc`] gave; every registration in it has ended.
    fn free(&self, block: Block) -> Status {
        let _ = block;
        Status::NOT_SUPPORTED
    }

    /// Opens a memory window of protection domain `domain`, not bound. Only with [`crate::Caps::WINDOWS`].
    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let _ = domain;
        Err(Failure::new(Status::NOT_SUPPORTED, "this provider has no memory windows"))
    }

    /// Closes a memory window; what it was bound to can no longer be reached through it.
    fn close_window(&self, window: u64) -> Status {
        let _ = window;
        Status::NOT_SUPPORTED
    }

    /// Refuses a connection request.
    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status;

    /// Hands out events and does all progress that must not wait for the application. Never blocks.
    ///
    /// A call that returns fewer events than `out` has room for has looked at everything that happened before it began.
    /// The host relies on this for the order of events of several connections.
    fn poll_events(&self, out: &mut [Event]) -> usize;

    /// Readable when [`Device::poll_events`] has something to do; -1 when it never has.
    fn event_fd(&self) -> RawFd;

    /// One line for people: what this device is made of.
    fn describe(&self) -> String;

    /// The device is closed: all its other objects are closed already.
    fn close(&self);
}

/// What a connect is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct ConnectParam<'a> {
    /// Address of the peer's device.
    pub addr: SockAddr,
    /// Port the peer listens on.
    pub port: u64,
    /// Quality of service, as DAT numbers it.
    pub qos: u32,
    /// Private data.
    pub data: &'a [u8],
}

/// One end of a connection. Used for one connection only.
pub trait Channel: Send + Sync + 'static {
    /// Starts to connect. The outcome arrives as an event; the engine keeps the time and disconnects when it is up.
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure>;

    /// Accepts a request. The outcome arrives as an event, also when the peer has gone since.
    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure>;

    /// Ends the connection or the attempt at once, also for the peer. Never waits for the device. [`Status::OK`]: stopped, and
    /// no event follows. [`Status::PENDING`]: the device still holds work; an event of kind
    /// [`crate::EventKind::DISCONNECTED`] follows when it has let go of all buffers.
    fn disconnect(&self) -> Status;

    /// Posts a request. [`Status::NOT_CONNECTED`]: not accepted, the channel has stopped.
    fn post(&self, request: &Request) -> Status;

    /// Posts a receive, before or while connected.
    fn post_recv(&self, request: &RecvRequest) -> Status;

    /// Posts an atomic operation. Only with [`crate::Caps::ATOMICS`].
    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        let _ = request;
        Status::NOT_SUPPORTED
    }

    /// Completes unsignalled requests: adds a completion for the last unsignalled success
    /// ([`crate::PostFlag::UNSIGNALLED`]), unless a later completion covers it. The provider also does this before the
    /// channel stops.
    fn settle(&self) {}

    /// Posts the binding of a window and gives its new key, 0 when it is unbound. The key may be sent to the peer with
    /// the next message; the key before it is of no use once the binding completed. Only with [`crate::Caps::WINDOWS`].
    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let _ = request;
        Err(Status::NOT_SUPPORTED)
    }

    /// Posts requests in order, up to the first that is not accepted: how many were, and why no more.
    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        first_refused(requests, |request| self.post(request))
    }

    /// As [`Channel::post_list`], of receives.
    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        first_refused(requests, |request| self.post_recv(request))
    }

    /// The local port, defined once connect or accept was called.
    fn local_port(&self) -> u64;

    /// One line for people: the path taken and why.
    fn describe(&self) -> String;

    /// The channel is closed: stopped if it was not. The device holds no buffer when this returns. No event follows.
    fn close(&self);
}

fn first_refused<T>(requests: &[T], post: impl Fn(&T) -> Status) -> (usize, Status) {
    for (done, request) in requests.iter().enumerate() {
        let status = post(request);
        if status != Status::OK {
            return (done, status);
        }
    }
    (requests.len(), Status::OK)
}

/// Receives that several channels share. One that a channel takes completes in the channel's receive queue, with the
/// token given here and the channel's [`ChannelAttr::recv_user`].
pub trait Srq: Send + Sync + 'static {
    /// Posts a receive.
    fn post_recv(&self, request: &RecvRequest) -> Status;

    /// From now on, once: an event of kind [`crate::EventKind::SRQ_LIMIT`] when fewer than `limit` receives are left,
    /// also when they are few already. 0 takes it back.
    fn arm(&self, limit: u32) -> Status;

    /// Changes the most receives it holds; not below what it holds.
    fn resize(&self, depth: u32) -> Status;

    /// The queue is closed: no channel uses it any more.
    fn close(&self);
}

/// The shared receive queue of a provider that has none.
pub enum NoSrq {}

impl Srq for NoSrq {
    fn post_recv(&self, _request: &RecvRequest) -> Status {
        match *self {}
    }

    fn arm(&self, _limit: u32) -> Status {
        match *self {}
    }

    fn resize(&self, _depth: u32) -> Status {
        match *self {}
    }

    fn close(&self) {
        match *self {}
    }
}

/// Where completions are taken from.
pub trait Queue: Send + Sync + 'static {
    /// Takes completions, oldest first for each channel and direction. Fewer than fit does not say that there are no
    /// more; none does.
    fn poll(&self, out: &mut [Completion]) -> usize;

    /// Makes [`Queue::fd`] readable on the next completion. `false`: there is one already, poll again.
    fn arm(&self) -> bool;

    /// Takes back an arm, and clears the descriptor.
    fn disarm(&self);

    /// Readable after a completion arrived while armed.
    fn fd(&self) -> RawFd;

    /// The queue is closed: no channel uses it any more.
    fn close(&self);
}

/// A port that accepts connection requests.
pub trait Listener: Send + Sync + 'static {
    /// The port it listens on.
    fn port(&self) -> u64;

    /// Stops listening. Requests already handed out live on.
    fn close(&self);
}
