//! Connections of connected endpoints: the calls that begin, accept and refuse them. [`events`] handles libfabric's
//! connection events.

pub mod deferred_close;
pub mod events;

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use dat_kit::Qualifier;
use dat_plugin::{ConnectParam, EventKind, Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;
use parking_lot::Mutex;

use crate::address::Raw;
use crate::channel::table::ChannelTable;
use crate::channel::{ChannelInner, Phase, State};
use crate::connected::deferred_close::{DeferredClose, ListenSocket};
use crate::core::Core;
use crate::endpoint::link::Link;
use crate::endpoint::name::port_of;
use crate::fabric::cq_share::CqShare;
use crate::fabric::info::Info;
use crate::progress::Progress;
use crate::status;
use crate::wire::hello::{Hello, Kind};

/// The connections of a device with connected endpoints.
pub struct Connector {
    core: Arc<Core>,
    channels: Arc<ChannelTable>,
    progress: Arc<Progress>,
    /// Held while events are read and handled, and while endpoints are closed. So an event never meets a closed endpoint.
    reading: Mutex<()>,
    /// Passive endpoints of closed listeners, which wait to be closed.
    deferred: Mutex<DeferredClose>,
    /// Passive endpoints by address: user, qualifier.
    listeners: Mutex<HashMap<usize, (u64, u64)>>,
    requests: Mutex<HashMap<u64, PendingRequest>>,
    next_request: AtomicU64,
}

/// A request that the engine has not answered yet.
struct PendingRequest {
    info: Info,
    hello: Hello,
    port: u64,
}

impl Connector {
    pub fn new(core: &Arc<Core>, channels: &Arc<ChannelTable>, progress: &Arc<Progress>) -> Connector {
        Connector {
            core: core.clone(),
            channels: channels.clone(),
            progress: progress.clone(),
            reading: Mutex::default(),
            deferred: Mutex::default(),
            listeners: Mutex::default(),
            requests: Mutex::default(),
            next_request: AtomicU64::new(0),
        }
    }
}

impl Connector {
    /// Begins to connect to `to`.
    pub fn connect(
        &self,
        chan: &ChannelInner,
        st: &mut State,
        to: SocketAddr,
        param: &ConnectParam<'_>,
    ) -> Result<(), Failure> {
        let raw = Raw::from(to);
        if self.core.fabric.limits.framed {
            self.check_route(to)?;
        }
        let link = match self.core.fabric.limits.framed {
            false => self.open_endpoint(&self.core.fabric.info, chan, st)?,
            // RDMA CM looks for a route when the endpoint is made.
            true => {
                self.open_endpoint(&self.core.fabric.info.towards(&raw)?, chan, st).map_err(unreachable)?
            }
        };
        st.link = Some(link);
        chan.start_recvs(st);
        let mut hello = Vec::with_capacity(512);
        let quotient = Qualifier::new(param.port).quotient;
        let request = Hello { quotient, ..chan.hello(st, Kind::Request, param.qos) };
        self.write_hello(&request, param.data, &mut hello);
        st.phase = Phase::Connecting;
        // SAFETY: the channel's lock keeps the endpoint open; the address has the fabric's format, the data this length.
        let result =
            unsafe { fi_connect(link.ep, raw.bytes().as_ptr().cast(), hello.as_ptr().cast(), hello.len()) };
        if result != 0 {
            let mut failure =
                status::failure(self.core.fabric.library, &format!("connect to {to}"), result.into());
            // The kernel's error for an address without a route from this device's address.
            if result == -libc::EINVAL {
                failure.status = Status::UNREACHABLE;
            }
            chan.stop(st);
            return Err(failure);
        }
        st.local_port = port_of(link.ep);
        self.core.wake.now();
        Ok(())
    }

    /// Begins to accept.
    pub fn accept(
        &self,
        chan: &ChannelInner,
        st: &mut State,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        let asked = self.requests.lock().remove(&request);
        let Some(asked) = asked else {
            let message =
                format!("{}: accept: there is no unanswered request {request}", self.core.params.ia_name);
            return Err(Failure::new(Status::INVALID, message));
        };
        let link = match self.open_endpoint(&asked.info, chan, st) {
            Ok(link) => link,
            // RDMA CM's part of the request went with the endpoint. Usually the peer is gone.
            Err(failure) if self.core.fabric.limits.framed => {
                tracing::debug!(%failure, "a request cannot be accepted");
                st.phase = Phase::Accepting;
                chan.end(st, EventKind::ACCEPT_FAILED, &[], None);
                return Ok(());
            }
            Err(failure) => {
                // The request can still be answered.
                self.requests.lock().insert(request, asked);
                return Err(failure);
            }
        };
        st.link = Some(link);
        st.local_port = asked.port;
        chan.set_peer(st, &asked.hello);
        chan.start_recvs(st);
        let mut hello = Vec::with_capacity(512);
        self.write_hello(&chan.hello(st, Kind::Accept, 0), data, &mut hello);
        st.phase = Phase::Accepting;
        // SAFETY: the endpoint was just made from the request, and the data has this length.
        let result = unsafe { fi_accept(link.ep, hello.as_ptr().cast(), hello.len()) };
        if result != 0 {
            tracing::debug!(result, "fi_accept");
            chan.end(st, EventKind::ACCEPT_FAILED, &[], None);
        }
        self.core.wake.now();
        Ok(())
    }

    /// Refuses a request.
    pub fn reject(&self, request: u64, kind: Kind, data: &[u8]) -> Status {
        match self.requests.lock().remove(&request) {
            None => Status::INVALID,
            Some(asked) => {
                self.refuse(&asked.info, kind, data);
                Status::OK
            }
        }
    }

    pub fn refuse(&self, info: &Info, kind: Kind, data: &[u8]) {
        let hello =
            Hello { kind, chan: 0, qos: 0, posted: 0, room: 0, page: 0, key: 0, shared: false, quotient: 0 };
        let mut bytes = Vec::with_capacity(512);
        self.write_hello(&hello, data, &mut bytes);
        // The listener may be closed, so a new passive endpoint sends the refusal.
        if let Err(failure) = self.with_passive_endpoint(|pep| {
            // SAFETY: the handle is of a request that is answered only here; the data has this length.
            unsafe { fi_reject(pep, info.first().handle, bytes.as_ptr().cast(), bytes.len()) }
        }) {
            tracing::warn!(%failure, "cannot refuse a connection request");
        }
    }

    /// Calls `f` with a passive endpoint that does not listen.
    fn with_passive_endpoint(&self, f: impl FnOnce(*mut fid_pep) -> i32) -> Result<(), Failure> {
        let mut pep = ptr::null_mut();
        // SAFETY: the core keeps fabric and event queue open; the passive endpoint is closed after its last use.
        unsafe {
            let result =
                fi_passive_ep(self.core.fabric.fabric, self.core.fabric.info.head, &mut pep, ptr::null_mut());
            self.core.fabric.check("fi_passive_ep", result)?;
            // Some fabrics lock the event queue for a refusal.
            let result = match fi_bind(pep.cast(), self.core.fabric.eq.cast(), 0) {
                0 => f(pep),
                error => error,
            };
            fi_close(pep.cast());
            self.core.fabric.check("fi_reject", result)
        }
    }

    /// Fails if the kernel has no route from this device's address. RDMA CM would treat any host as a neighbour and wait a
    /// minute for it.
    fn check_route(&self, to: SocketAddr) -> Result<(), Failure> {
        let Some(own) = self.core.fabric.ip() else { return Ok(()) };
        let route = UdpSocket::bind((own, 0)).and_then(|socket| socket.connect(to));
        route.map_err(|error| {
            let message = format!("{}: connect to {to}: no route: {error}", self.core.params.ia_name);
            Failure::new(Status::UNREACHABLE, message)
        })
    }

    fn write_hello(&self, hello: &Hello, data: &[u8], out: &mut Vec<u8>) {
        match self.core.fabric.limits.framed {
            false => hello.encode(data, out),
            true => hello.encode_short(data, out),
        }
    }

    pub fn read_hello<'a>(&self, bytes: &'a [u8]) -> Option<(Hello, &'a [u8])> {
        match self.core.fabric.limits.framed {
            false => Hello::decode(bytes),
            true => Hello::decode_short(bytes),
        }
    }

    fn open_endpoint(&self, info: &Info, chan: &ChannelInner, st: &mut State) -> Result<Link, Failure> {
        let fabric = &self.core.fabric;
        let framed = fabric.limits.framed;
        // With frames every completion counts; those without a context are ignored.
        let selective = if framed { 0 } else { FI_SELECTIVE_COMPLETION };
        let share = CqShare::take(fabric);
        let queue = share.cq().cq;
        let mut ep = ptr::null_mut();
        // SAFETY: the core keeps domain and queues open. An endpoint that is not finished is closed before any use.
        unsafe {
            fabric.check("fi_endpoint", fi_endpoint(fabric.domain, info.head, &mut ep, ptr::null_mut()))?;
            let rest = [
                fi_bind(ep.cast(), fabric.eq.cast(), 0),
                fi_bind(ep.cast(), queue.cast(), FI_TRANSMIT | FI_RECV | selective),
            ];
            let enabled = match rest.iter().find(|result| **result != 0) {
                Some(error) => *error,
                None => fi_enable(ep),
            };
            if let Err(failure) = fabric.check("a new endpoint", enabled) {
                fi_close(ep.cast());
                return Err(failure);
            }
        }
        // A channel has one endpoint in its life, so this is the first value.
        let _ = chan.cq.set(share);
        let link = Link { ep, dest: FI_ADDR_UNSPEC, datagrams: false, framed, tag_out: 0, tag_in: 0 };
        if framed && let Err(failure) = chan.post_frames(st, link) {
            self.core.endpoints.shut_down(link.ep);
            self.core.wake.now();
            return Err(failure);
        }
        self.core.endpoints.insert(ep, chan.id);
        Ok(link)
    }
}

impl Connector {
    pub fn add_listener(&self, pep: *mut fid_pep, user: u64, port: u64) {
        self.listeners.lock().insert(pep as usize, (user, port));
    }

    /// Closes a listener: its port is free when this returns. Requests that were not handed out are refused, and so are
    /// those on their way.
    pub fn close_listener(&self, pep: *mut fid_pep, socket: Option<ListenSocket>) {
        let _reading = self.reading.lock();
        self.listeners.lock().remove(&(pep as usize));
        if self.deferred.lock().is_full() {
            self.take_events_locked();
        }
        self.deferred.lock().add(&self.core.fabric, pep, socket);
    }

    /// Refuses unanswered requests and closes all endpoints.
    pub fn shut_down(&self) {
        // libfabric's tcp provider forgets connections whose request it has not read, and leaves their sockets open.
        // Reading events refuses them and closes endpoints; the second pass reads those whose other end was one of these.
        let deadline = Instant::now() + Duration::from_millis(100);
        while self.take_events() > 0 && Instant::now() < deadline {}
        self.take_events();
        let requests: Vec<PendingRequest> =
            self.requests.lock().drain().map(|(_, request)| request).collect();
        for request in requests {
            self.refuse(&request.info, Kind::Refuse, &[]);
        }
        let _reading = self.reading.lock();
        for chan in self.core.endpoints.drain().into_iter().filter_map(|id| self.channels.get(id)) {
            let mut st = chan.lock();
            chan.stop(&mut st);
            chan.shut_down_endpoint(&mut st);
        }
        self.core.endpoints.close_dead();
        self.deferred.lock().close_all(&self.core.fabric);
    }
}

/// The failure of an endpoint that could not be made because there is no route.
fn unreachable(mut failure: Failure) -> Failure {
    if failure.status != Status::NO_RESOURCE {
        failure.status = Status::UNREACHABLE;
    }
    failure
}

/// `FI_TRANSMIT` is another name of this.
const FI_TRANSMIT: u64 = FI_SEND;
