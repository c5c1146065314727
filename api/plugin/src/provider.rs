//! What a provider author implements.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::wire::{
    Access, Block, ChannelAttr, Completion, DeviceAttr, Event, Keys, RecvRequest, RejectReason, Request,
    SockAddr, Status,
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
        let status = match error.kind() {
            std::io::ErrorKind::PermissionDenied => Status::PERMISSION,
            std::io::ErrorKind::AddrInUse => Status::IN_USE,
            std::io::ErrorKind::OutOfMemory => Status::NO_RESOURCE,
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
    /// The value of `key` parsed, or `default` when absent. A value that does not parse is a failure that says so.
    pub fn get<T: std::str::FromStr>(&self, key: &str, default: T) -> Result<T, Failure> {
        let Some(text) = self.params.get(key) else { return Ok(default) };
        text.parse().map_err(|_| {
            let wanted = std::any::type_name::<T>();
            let message = format!("{}: parameter {key} = {text:?} is no {wanted}", self.ia_name);
            Failure::new(Status::BAD_CONFIG, message)
        })
    }

    /// Fails on a parameter that is not one of `known`.
    pub fn check_known(&self, known: &[&str]) -> Result<(), Failure> {
        match self.params.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                let known = known.join(", ");
                let message = format!("{}: unknown parameter {key:?}; known are: {known}", self.ia_name);
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

    /// Opens an interface adapter.
    fn open(config: &Config) -> Result<Arc<Self::Device>, Failure>;

    /// Says what it would use with this configuration and why not the rest, without opening anything for good.
    fn probe(config: &Config) -> Vec<Probe>;
}

/// An open interface adapter.
pub trait Device: Send + Sync + 'static {
    /// One end of a connection.
    type Channel: Channel;
    /// Where completions are taken from.
    type Queue: Queue;
    /// Where peers knock.
    type Listener: Listener;

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

    /// Listens on `port`, or with 0 on a free one of at least 1024. Requests arrive as events with `user`.
    fn listen(&self, port: u64, user: u64) -> Result<Arc<Self::Listener>, Failure>;

    /// Registers `len` bytes at `addr` for `access` in protection domain `domain`.
    ///
    /// The memory stays valid until [`Device::deregister`] returned and no post that names it is outstanding.
    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure>;

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

    /// Refuses a connection request.
    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status;

    /// Hands out events and does all progress that must not wait for the application. Never blocks.
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

    /// Ends the connection or the attempt at once; the peer is told. [`Status::OK`]: stopped, and no event follows.
    /// [`Status::PENDING`]: an event of kind [`crate::EventKind::DISCONNECTED`] follows when stopped.
    fn disconnect(&self) -> Status;

    /// Posts a request. [`Status::NOT_CONNECTED`]: not accepted, the channel has stopped.
    fn post(&self, request: &Request) -> Status;

    /// Posts a receive, before or while connected.
    fn post_recv(&self, request: &RecvRequest) -> Status;

    /// The local port, defined once connect or accept was called.
    fn local_port(&self) -> u64;

    /// One line for people: the path taken and why.
    fn describe(&self) -> String;

    /// The channel is closed: stopped if it was not, silent from now on.
    fn close(&self);
}

/// Where completions are taken from.
pub trait Queue: Send + Sync + 'static {
    /// Takes completions, oldest first for each channel and direction.
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

/// Where peers knock.
pub trait Listener: Send + Sync + 'static {
    /// The port it listens on.
    fn port(&self) -> u64;

    /// Stops listening. Requests already handed out live on.
    fn close(&self);
}
