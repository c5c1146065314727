//! Connections of connected endpoints: libfabric's event queue, and the handshake in its connection data.

use std::collections::HashMap;
use std::mem::size_of;
use std::net::{SocketAddr, UdpSocket};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{ConnectParam, Event, EventKind, Failure, RejectReason, SockAddr, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;
use parking_lot::Mutex;

use crate::address::{Raw, at_port};
use crate::channel::{Chan, Phase, State};
use crate::cq::Share;
use crate::device::Dev;
use crate::endpoint::Link;
use crate::flow::Lull;
use crate::info::{Info, raw_of};
use crate::retired::{Retired, Socket};
use crate::status;
use crate::wire::{Hello, Kind};

/// What the event thread and control calls share about connections.
#[derive(Default)]
pub struct Connector {
    /// Held while events are read and handled, and while endpoints are closed: an event never meets an endpoint that is
    /// gone.
    reading: Mutex<()>,
    /// Channels by the address of their endpoint.
    endpoints: Mutex<HashMap<usize, Arc<Chan>>>,
    /// Endpoints that are shut down and wait to be closed.
    dead: Mutex<Vec<Dead>>,
    /// Passive endpoints nobody reaches any more, which wait to be closed.
    retired: Mutex<Retired>,
    /// Passive endpoints by address: user, port.
    listeners: Mutex<HashMap<usize, (u64, u64)>>,
    requests: Mutex<HashMap<u64, Asked>>,
    next_request: AtomicU64,
}

struct Dead(*mut fid_ep);

// SAFETY: closed once, by whoever takes it out of the list.
unsafe impl Send for Dead {}

/// A request the engine knows of.
struct Asked {
    info: Info,
    hello: Hello,
    port: u64,
}

/// Room for an event with the most data.
#[repr(C, align(8))]
struct Entry([u8; size_of::<fi_eq_cm_entry>() + 512]);

impl Dev {
    /// Begins to connect.
    pub fn connect(
        self: &Arc<Dev>,
        chan: &Arc<Chan>,
        st: &mut State,
        param: &ConnectParam<'_>,
    ) -> Result<(), Failure> {
        if param.addr.to_std().is_none() {
            let why = "the address is neither IPv4 nor IPv6";
            return Err(Failure::new(
                Status::BAD_ADDRESS,
                format!("{}: connect: {why}", self.params.ia_name),
            ));
        }
        let Some(to) = at_port(param.addr, param.port) else {
            // A number that no port can have: nobody listens there.
            st.phase = Phase::Connecting;
            chan.end(st, EventKind::REFUSED, &[], None);
            return Ok(());
        };
        if self.fabric.ip().is_some_and(|own| own.is_ipv4() != to.is_ipv4()) {
            let message = format!("{}: connect: {to} is of another address family", self.params.ia_name);
            return Err(Failure::new(Status::BAD_ADDRESS, message));
        }
        if let Some(datagrams) = &self.datagrams {
            return datagrams.connect(self, chan, st, to, param);
        }
        let raw = Raw::from(to);
        if self.fabric.limits.framed {
            self.look_for_route(to)?;
        }
        let link = match self.fabric.limits.framed {
            false => self.open_endpoint(&self.fabric.info, chan, st)?,
            // Those that connect by RDMA CM look for a way when the endpoint is made.
            true => self.open_endpoint(&self.fabric.info.towards(&raw)?, chan, st).map_err(no_way)?,
        };
        st.link = Some(link);
        chan.start_recvs(st);
        let mut hello = Vec::with_capacity(512);
        self.write_hello(&chan.hello(st, Kind::Request, param.qos), param.data, &mut hello);
        st.phase = Phase::Connecting;
        // SAFETY: an open endpoint, an address of the fabric's format, connection data of this length.
        let result =
            unsafe { fi_connect(link.ep, raw.bytes().as_ptr().cast(), hello.as_ptr().cast(), hello.len()) };
        if result != 0 {
            let mut failure =
                status::failure(self.fabric.library, &format!("connect to {to}"), result.into());
            // What the system says of an address no way leads to from this device's own.
            if result == -libc::EINVAL {
                failure.status = Status::UNREACHABLE;
            }
            chan.stop(st);
            return Err(failure);
        }
        st.local_port = port_of(link.ep);
        self.hurry();
        Ok(())
    }

    /// Begins to accept.
    pub fn accept(
        self: &Arc<Dev>,
        chan: &Arc<Chan>,
        st: &mut State,
        request: u64,
        data: &[u8],
    ) -> Result<(), Failure> {
        if let Some(datagrams) = &self.datagrams {
            return datagrams.accept(self, chan, st, request, data);
        }
        let asked = self.connector.requests.lock().remove(&request);
        let Some(asked) = asked else {
            let message =
                format!("{}: accept: there is no unanswered request {request}", self.params.ia_name);
            return Err(Failure::new(Status::INVALID, message));
        };
        let link = match self.open_endpoint(&asked.info, chan, st) {
            Ok(link) => link,
            // RDMA CM's side of the request belonged to the endpoint and is gone with it. Mostly the peer is gone.
            Err(failure) if self.fabric.limits.framed => {
                tracing::debug!(%failure, "a request cannot be accepted");
                st.phase = Phase::Accepting;
                chan.end(st, EventKind::ACCEPT_FAILED, &[], None);
                return Ok(());
            }
            Err(failure) => {
                // The request can still be answered otherwise.
                self.connector.requests.lock().insert(request, asked);
                return Err(failure);
            }
        };
        st.link = Some(link);
        st.local_port = asked.port;
        chan.greet(st, &asked.hello);
        chan.start_recvs(st);
        let mut hello = Vec::with_capacity(512);
        self.write_hello(&chan.hello(st, Kind::Accept, 0), data, &mut hello);
        st.phase = Phase::Accepting;
        // SAFETY: an open endpoint made from the request, connection data of this length.
        let result = unsafe { fi_accept(link.ep, hello.as_ptr().cast(), hello.len()) };
        if result != 0 {
            tracing::debug!(result, "fi_accept");
            chan.end(st, EventKind::ACCEPT_FAILED, &[], None);
        }
        self.hurry();
        Ok(())
    }

    /// Refuses a request.
    pub fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let kind = match reason {
            RejectReason::CONSUMER => Kind::Reject,
            RejectReason::PROVIDER => Kind::Refuse,
            _ => return Status::INVALID,
        };
        if let Some(datagrams) = &self.datagrams {
            return datagrams.reject(self, request, kind, data);
        }
        match self.connector.requests.lock().remove(&request) {
            None => Status::INVALID,
            Some(asked) => {
                self.turn_away(&asked.info, kind, data);
                Status::OK
            }
        }
    }

    fn turn_away(&self, info: &Info, kind: Kind, data: &[u8]) {
        let hello = Hello { kind, chan: 0, qos: 0, posted: 0, room: 0, page: 0, key: 0, shared: false };
        let mut bytes = Vec::with_capacity(512);
        self.write_hello(&hello, data, &mut bytes);
        // The listener may be closed; a refusal is sent through any passive endpoint.
        if let Err(failure) = self.with_passive(|pep| {
            // SAFETY: a request's handle, used up by this call; connection data of this length.
            unsafe { fi_reject(pep, info.first().handle, bytes.as_ptr().cast(), bytes.len()) }
        }) {
            tracing::warn!(%failure, "a request is not refused in order");
        }
    }

    /// Calls `f` with a passive endpoint that listens to nothing.
    fn with_passive(&self, f: impl FnOnce(*mut fid_pep) -> i32) -> Result<(), Failure> {
        let mut pep = ptr::null_mut();
        // SAFETY: open objects.
        unsafe {
            let result = fi_passive_ep(self.fabric.fabric, self.fabric.info.head, &mut pep, ptr::null_mut());
            self.fabric.check("fi_passive_ep", result)?;
            // Some lock the event queue for a refusal.
            let result = match fi_bind(pep.cast(), self.fabric.eq.cast(), 0) {
                0 => f(pep),
                error => error,
            };
            fi_close(pep.cast());
            self.fabric.check("fi_reject", result)
        }
    }

    /// Fails if no way leads to an address from this device's own, as the system's routes have it: RDMA CM takes any host
    /// for a neighbour, and waits for it for a minute.
    fn look_for_route(&self, to: SocketAddr) -> Result<(), Failure> {
        let Some(own) = self.fabric.ip() else { return Ok(()) };
        let way = UdpSocket::bind((own, 0)).and_then(|socket| socket.connect(to));
        way.map_err(|error| {
            let message = format!("{}: connect to {to}: no way leads there: {error}", self.params.ia_name);
            Failure::new(Status::UNREACHABLE, message)
        })
    }

    fn write_hello(&self, hello: &Hello, data: &[u8], out: &mut Vec<u8>) {
        match self.fabric.limits.framed {
            false => hello.encode(data, out),
            true => hello.encode_short(data, out),
        }
    }

    fn read_hello<'a>(&self, bytes: &'a [u8]) -> Option<(Hello, &'a [u8])> {
        match self.fabric.limits.framed {
            false => Hello::decode(bytes),
            true => Hello::decode_short(bytes),
        }
    }

    fn open_endpoint(&self, info: &Info, chan: &Arc<Chan>, st: &mut State) -> Result<Link, Failure> {
        let fabric = &self.fabric;
        let framed = fabric.limits.framed;
        // In frames every completion counts, and those nobody asked for say that they are nobody's.
        let selective = if framed { 0 } else { FI_SELECTIVE_COMPLETION };
        let share = Share::take(fabric);
        let queue = share.cq().cq;
        let mut ep = ptr::null_mut();
        // SAFETY: open objects; an endpoint that was not finished is closed before anything uses it.
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
        // A channel has one endpoint in its life.
        let _ = chan.share.set(share);
        let link = Link { ep, dest: FI_ADDR_UNSPEC, datagrams: false, framed, tag_out: 0, tag_in: 0 };
        if framed && let Err(failure) = chan.post_frames(st, link) {
            self.bury(link);
            return Err(failure);
        }
        self.connector.endpoints.lock().insert(ep as usize, chan.clone());
        Ok(link)
    }

    /// An endpoint is not used any more. It is shut down now, so that it touches no memory, and closed soon.
    pub fn bury(&self, link: Link) {
        self.connector.endpoints.lock().remove(&(link.ep as usize));
        // SAFETY: an open endpoint. One that was never connected answers with an error, which is as good.
        unsafe { fi_shutdown(link.ep, 0) };
        self.connector.dead.lock().push(Dead(link.ep));
        self.hurry();
    }

    /// Takes all events there are; how many.
    pub fn take_connection_events(self: &Arc<Dev>) -> usize {
        if let Some(datagrams) = &self.datagrams {
            return datagrams.look_after(self);
        }
        let _reading = self.connector.reading.lock();
        self.take_events_while_reading()
    }

    /// The same unless another thread is at it.
    pub fn take_connection_events_if_free(self: &Arc<Dev>) {
        if let Some(datagrams) = &self.datagrams {
            datagrams.look_after(self);
        } else if let Some(_reading) = self.connector.reading.try_lock()
            && self.take_events_while_reading() > 0
        {
            // There may be another socket to sleep on.
            self.hurry();
        }
    }

    fn take_events_while_reading(self: &Arc<Dev>) -> usize {
        let mut taken = 0;
        while taken < 256 && self.take_one_event() {
            taken += 1;
        }
        self.close_dead();
        if taken == 0 {
            self.connector.retired.lock().close_old(self);
        }
        taken
    }

    fn close_dead(&self) {
        let dead = std::mem::take(&mut *self.connector.dead.lock());
        for Dead(ep) in dead {
            // SAFETY: shut down, not in any table, and no event of it is being handled.
            let result = unsafe { fi_close(ep.cast()) };
            if result != 0 {
                tracing::warn!(result, "closing an endpoint");
            }
        }
    }

    fn take_one_event(self: &Arc<Dev>) -> bool {
        let mut entry = Entry([0; size_of::<Entry>()]);
        let mut event = 0;
        // SAFETY: room of the length that is said.
        let len =
            unsafe { fi_eq_read(self.fabric.eq, &mut event, entry.0.as_mut_ptr().cast(), entry.0.len(), 0) };
        if len as i32 == -FI_EAVAIL {
            return self.take_error_event();
        }
        if len < size_of::<fi_eq_cm_entry>() as isize {
            if len < 0 && len as i32 != -libc::EAGAIN {
                tracing::error!(error = len, "fi_eq_read");
            }
            return false;
        }
        // SAFETY: libfabric filled an entry of this kind.
        let head = unsafe { &*entry.0.as_ptr().cast::<fi_eq_cm_entry>() };
        let data = &entry.0[size_of::<fi_eq_cm_entry>()..len as usize];
        match event {
            FI_CONNREQ => self.on_request(head, data),
            FI_CONNECTED => self.on_connected(head.fid, data),
            FI_SHUTDOWN => self.on_shutdown(head.fid),
            other => tracing::debug!(event = other, "an event nobody asked for"),
        }
        true
    }

    fn take_error_event(self: &Arc<Dev>) -> bool {
        let mut data = [0u8; 512];
        let mut entry = fi_eq_err_entry {
            fid: ptr::null_mut(),
            context: ptr::null_mut(),
            data: 0,
            err: 0,
            prov_errno: 0,
            err_data: data.as_mut_ptr().cast(),
            err_data_size: data.len(),
        };
        // SAFETY: room for an entry, and a buffer of the length that is said.
        let len = unsafe { fi_eq_readerr(self.fabric.eq, &mut entry, 0) };
        if len <= 0 {
            return false;
        }
        let said = entry.err_data_size.min(data.len());
        let data = if entry.err_data == data.as_mut_ptr().cast() { &data[..said] } else { &[][..] };
        let Some(chan) = self.endpoint_of(entry.fid) else { return true };
        let mut st = chan.lock();
        let refusal = self.read_hello(data);
        tracing::debug!(error = entry.err, refusal = refusal.is_some(), "a connection is not made, or lost");
        match (st.phase, refusal) {
            (Phase::Connecting, Some((Hello { kind: Kind::Reject, .. }, data))) => {
                chan.end(&mut st, EventKind::REJECTED, data, None);
            }
            (Phase::Connecting, Some(_)) => chan.end(&mut st, EventKind::REFUSED, &[], None),
            (Phase::Connecting, None) => {
                chan.end(&mut st, status::of_connect(entry.err), &[], None);
            }
            _ => {
                drop(st);
                self.on_shutdown(entry.fid);
            }
        }
        true
    }

    fn endpoint_of(&self, fid: *mut fid) -> Option<Arc<Chan>> {
        self.connector.endpoints.lock().get(&(fid as usize)).cloned()
    }

    fn on_request(self: &Arc<Dev>, head: &fi_eq_cm_entry, data: &[u8]) {
        if head.info.is_null() {
            return;
        }
        // The event's info is the reader's to free.
        let mut info = Info { library: self.fabric.library, head: head.info };
        if self.fabric.limits.framed {
            info.fit_to_frames();
        }
        let listener = self.connector.listeners.lock().get(&(head.fid as usize)).copied();
        let hello = self.read_hello(data).filter(|(hello, _)| hello.kind == Kind::Request);
        let (Some((user, port)), Some((hello, data))) = (listener, hello) else {
            tracing::warn!("a connection request that is none of ours is refused");
            return self.turn_away(&info, Kind::Refuse, &[]);
        };
        let request = self.connector.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        let entry = info.first();
        let peer = raw_of(entry.dest_addr, entry.dest_addrlen).and_then(|raw| raw.socket());
        let mut event = Event::new(EventKind::REQUEST, user).with_data(data);
        event.request = request;
        event.port = port;
        event.qos = hello.qos;
        event.peer = peer.map_or(SockAddr::UNSPECIFIED, |peer| SockAddr::from(peer.ip()));
        event.peer_port = peer.map_or(0, |peer| peer.port().into());
        self.connector.requests.lock().insert(request, Asked { info, hello, port });
        self.event(None, event);
    }

    fn on_connected(self: &Arc<Dev>, fid: *mut fid, data: &[u8]) {
        let Some(chan) = self.endpoint_of(fid) else { return };
        let mut st = chan.lock();
        // The accepting side is connected when the peer says that it knows.
        if st.phase != Phase::Connecting {
            return;
        }
        match self.read_hello(data) {
            Some((hello, data)) if hello.kind == Kind::Accept => {
                chan.greet(&mut st, &hello);
                st.owed.up = true;
                chan.say_first_books(&mut st);
                chan.came_up(&mut st, data);
                chan.pump(&mut st, Lull::Long);
            }
            _ => {
                tracing::warn!("a peer that speaks something else accepted");
                chan.end(&mut st, EventKind::REFUSED, &[], None);
            }
        }
    }

    /// The peer's end is gone; what it said before counts.
    fn on_shutdown(self: &Arc<Dev>, fid: *mut fid) {
        self.progress_for_certain();
        let Some(chan) = self.endpoint_of(fid) else { return };
        let mut st = chan.lock();
        let kind = if st.phase == Phase::Connecting { EventKind::REFUSED } else { EventKind::BROKEN };
        chan.end(&mut st, kind, &[], None);
    }
}

impl Connector {
    pub fn add_listener(&self, pep: *mut fid_pep, user: u64, port: u64) {
        self.listeners.lock().insert(pep as usize, (user, port));
    }

    /// Nobody knocks at a passive endpoint any more: its port is free when this returns. Requests that arrived and were not
    /// handed out, and those that are on their way, are refused.
    pub fn close_listener(&self, dev: &Arc<Dev>, pep: *mut fid_pep, socket: Option<Socket>) {
        let _reading = self.reading.lock();
        self.listeners.lock().remove(&(pep as usize));
        if self.retired.lock().is_full() {
            dev.take_events_while_reading();
        }
        self.retired.lock().add(dev, pep, socket);
    }

    /// Refuses what was not answered, closes what is left.
    pub fn shut_down(&self, dev: &Arc<Dev>) {
        if dev.datagrams.is_none() {
            // libfabric's tcp provider forgets connections whose request it has not read: their sockets would stay open.
            // Reading refuses them, and closes endpoints; then those whose other end was one of these are read.
            let late = Instant::now() + Duration::from_millis(100);
            while dev.take_connection_events() > 0 && Instant::now() < late {}
            dev.take_connection_events();
        }
        let asked: Vec<Asked> = self.requests.lock().drain().map(|(_, asked)| asked).collect();
        for asked in asked {
            dev.turn_away(&asked.info, Kind::Refuse, &[]);
        }
        let _reading = self.reading.lock();
        let rest: Vec<Arc<Chan>> = self.endpoints.lock().drain().map(|(_, chan)| chan).collect();
        for chan in rest {
            let mut st = chan.lock();
            chan.stop(&mut st);
            chan.let_go(&mut st);
        }
        dev.close_dead();
        self.retired.lock().close_all(dev);
    }
}

/// An endpoint could not be made because no way leads there.
fn no_way(mut failure: Failure) -> Failure {
    if failure.status != Status::NO_RESOURCE {
        failure.status = Status::UNREACHABLE;
    }
    failure
}

/// `FI_TRANSMIT` is another name of this.
const FI_TRANSMIT: u64 = FI_SEND;

/// The local port of an endpoint or passive endpoint.
pub fn port_of(ep: *mut fid_ep) -> u64 {
    address_of(ep).map_or(0, |address| address.port().into())
}

/// The local address of an endpoint or passive endpoint, on fabrics whose addresses are the internet's.
pub fn address_of(ep: *mut fid_ep) -> Option<SocketAddr> {
    let mut room = [0u8; crate::address::ROOM];
    let mut len = room.len();
    // SAFETY: an open endpoint, a buffer of the length that is said.
    let result = unsafe { fi_getname(ep, room.as_mut_ptr().cast(), &mut len) };
    let name = (result == 0).then(|| Raw::new(&room[..len.min(room.len())])).flatten();
    name.and_then(|raw| raw.socket())
}
