//! Connections over a datagram endpoint. All connections of a device share one endpoint; messages carry the receiving
//! channel in their tag, and frames ([`crate::frames`]) make and end connections. Where the fabric's ports are TCP's a
//! listener has an endpoint of its own at the port's address, only to be found there; elsewhere peers ask for the device's
//! address ([`crate::finder`]), and say in their request which port they mean.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{ConnectParam, Event, EventKind, Failure, SockAddr, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::*;
use parking_lot::Mutex;

use crate::address::Raw;
use crate::channel::{Chan, Phase, State};
use crate::device::Dev;
use crate::endpoint::{Errno, Link};
use crate::fabric::Fabric;
use crate::finder::Finder;
use crate::flow::Lull;
use crate::frames::{Body, FRAME, Frame};
use crate::knock::Knock;
use crate::meeting;
use crate::memory::{Mr, Regions};
use crate::port::{FRAME_TAG, PORT_SHIFT, Port, Slot, registered, slots};
use crate::wire::{Bell, Farewell, Hello, Kind, PAYLOAD};
use crate::work::Role;
use crate::{segments, status};

/// Tag of messages to a channel: its number and a part of its secret, so that late messages of an earlier channel of the
/// number find no receive.
fn tag_of(chan: u32, secret: u64) -> u64 {
    1 << 62 | u64::from(chan) << 32 | u64::from(secret as u32)
}

/// Receives for frames, of the device's endpoint and of each port's.
const FRAMES_IN: u32 = 128;
const PORT_FRAMES_IN: u32 = 32;
const FRAMES_OUT: u32 = 256;

/// The datagram side of a device.
pub struct Datagrams {
    main: Arc<Port>,
    /// The device's address as peers' tables take it.
    pub name: Raw,
    out: Mutex<Outbox>,
    pub ports: Mutex<HashMap<u32, Arc<Port>>>,
    next_port: std::sync::atomic::AtomicU32,
    pub peers: Mutex<HashMap<Vec<u8>, fi_addr_t>>,
    pub places: Mutex<HashMap<fi_addr_t, SocketAddr>>,
    requests: Mutex<HashMap<u64, Asked>>,
    next_request: AtomicU64,
    /// Handshake frames libfabric has not taken yet.
    waiting: Mutex<VecDeque<Waiting>>,
    /// Requests that were sent and not answered yet.
    pub unanswered: Mutex<Vec<Unanswered>>,
    /// The device's own address.
    ip: Option<IpAddr>,
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

/// A handshake frame libfabric has not taken yet.
struct Waiting {
    dest: fi_addr_t,
    bytes: Vec<u8>,
    /// Channel it is of, or 0.
    chan: u32,
    since: Instant,
    /// A request: where to.
    to: Option<SocketAddr>,
    knock: Option<Knock>,
}

/// Frames on their way out.
struct Outbox {
    slots: Box<[Slot]>,
    free: Vec<u32>,
    /// Channel each frame is of, for when it fails.
    chans: Box<[u32]>,
    mr: Option<Mr>,
}

/// A request the engine knows of.
struct Asked {
    hello: Hello,
    from: fi_addr_t,
    port: u64,
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
        let out = slots(FRAMES_OUT, Role::FrameOut, 0);
        let mr = registered(fabric, regions, &out)?;
        Ok(Datagrams {
            main,
            name,
            out: Mutex::new(Outbox {
                slots: out,
                free: (0..FRAMES_OUT).collect(),
                chans: vec![0; FRAMES_OUT as usize].into_boxed_slice(),
                mr,
            }),
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

    fn answer(&self, asked: &Asked, hello: Hello, data: &[u8], chan: u32) {
        let body = Body::Hello { name: self.name(), hello, data };
        let frame = Frame { to: asked.hello.chan, secret: asked.hello.page, arg: 0, body };
        self.send_soon(asked.from, &frame, chan, None);
    }

    /// The peer's handshake is known.
    fn meet(&self, chan: &Chan, st: &mut State, hello: &Hello) {
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
        let speaks = || !self.waiting.lock().is_empty() || self.out.lock().free.len() < FRAMES_OUT as usize;
        while speaks() && Instant::now() < deadline {
            self.look_after(dev);
            dev.progress_now();
            std::thread::yield_now();
        }
        let ports: Vec<Arc<Port>> = self.ports.lock().drain().map(|(_, port)| port).collect();
        ports.iter().for_each(|port| port.close());
    }

    /// Queues a handshake frame; it goes when libfabric takes it.
    pub fn send_soon(&self, dest: fi_addr_t, frame: &Frame<'_>, chan: u32, to: Option<SocketAddr>) {
        let mut bytes = [0; FRAME];
        if let Some(len) = frame.encode(&mut bytes) {
            let bytes = bytes[..len].to_vec();
            let waiting = Waiting { dest, bytes, chan, since: Instant::now(), to, knock: None };
            self.waiting.lock().push_back(waiting);
        }
    }

    /// Says that a connection is over, once libfabric takes it.
    pub fn say_goodbye_later(
        &self,
        dev: &Dev,
        dest: fi_addr_t,
        (to, secret): (u32, u64),
        farewell: Farewell,
    ) {
        let body = Body::Bell { bell: Bell::Bye, payload: [0; PAYLOAD] };
        self.send_soon(dest, &Frame { to, secret, arg: farewell.code(), body }, 0, None);
        dev.tick();
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
        let count = self.waiting.lock().len();
        for _ in 0..count {
            let Some(mut waiting) = self.waiting.lock().pop_front() else { break };
            let abandoned = waiting.chan != 0 && dev.chan(waiting.chan).is_none();
            let failed = match self.send(waiting.dest, &waiting.bytes, waiting.chan) {
                Ok(()) => {
                    done += 1;
                    continue;
                }
                Err(_) if abandoned || waiting.since.elapsed() > PATIENCE => Some(libc::ETIMEDOUT),
                Err(errno) if errno == -libc::EAGAIN => self.knock(&mut waiting),
                Err(errno) => Some(errno),
            };
            match failed {
                None => self.waiting.lock().push_back(waiting),
                Some(errno) => {
                    tracing::debug!(error = %dev.fabric.library.strerror(errno.abs()), "a frame does not go");
                    self.gave_up(dev, waiting.chan, errno);
                }
            }
        }
        if !self.waiting.lock().is_empty() {
            dev.tick();
        }
        done
    }

    /// Takes the frames that came to a port; how many.
    fn take_frames(&self, dev: &Dev, port: &Port) -> usize {
        let mut taken = 0;
        while let Some((index, result)) = port.take_one() {
            self.on_frame_in(dev, index, result);
            taken += 1;
        }
        taken
    }

    /// libfabric says "again" while it connects, and goes on saying so when nobody is there. Why there will be no
    /// connection, if that is known.
    fn knock(&self, waiting: &mut Waiting) -> Option<Errno> {
        let to = waiting.to?;
        if waiting.knock.is_none() && waiting.since.elapsed() > KNOCK {
            waiting.knock = Some(Knock::begin(self.ip, to));
        }
        waiting.knock.as_mut().and_then(Knock::look)
    }

    /// A frame of this channel could not be delivered.
    pub fn gave_up(&self, dev: &Dev, chan: u32, errno: Errno) {
        let Some(chan) = dev.chan(chan) else { return };
        let mut st = chan.lock();
        let kind = match st.phase {
            Phase::Connecting => status::of_connect(errno),
            _ => EventKind::BROKEN,
        };
        chan.end(&mut st, kind, &[], None);
    }

    /// Sends a frame now, or fails.
    fn send(&self, dest: fi_addr_t, bytes: &[u8], chan: u32) -> Result<(), Errno> {
        let mut out = self.out.lock();
        let Some(index) = out.free.pop() else { return Err(-libc::EAGAIN) };
        let slot = &out.slots[index as usize];
        // SAFETY: a free slot is nobody's but the lock holder's.
        unsafe { (&mut *slot.bytes.get())[..bytes.len()].copy_from_slice(bytes) };
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: bytes.len() };
        let mut desc = [out.mr.as_ref().map_or(ptr::null_mut(), Mr::descriptor)];
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: desc.as_mut_ptr(),
            iov_count: 1,
            addr: dest,
            tag: FRAME_TAG,
            ignore: 0,
            context: slot.context.as_ptr(),
            data: 0,
        };
        if let Some(finder) = &self.finder {
            finder.speaks();
        }
        // SAFETY: the slot is libfabric's until the completion.
        let result = unsafe { fi_tsendmsg(self.main.ep, &msg, FI_COMPLETION) };
        if result != 0 {
            out.free.push(index);
            return Err(result as i32);
        }
        out.chans[index as usize] = chan;
        Ok(())
    }

    pub fn on_frame_out(&self, dev: &Dev, index: u32, error: Option<Errno>) {
        let chan = {
            let mut out = self.out.lock();
            out.free.push(index);
            out.chans.get_mut(index as usize).map_or(0, std::mem::take)
        };
        if let Some(errno) = error {
            self.gave_up(dev, chan, errno);
        }
    }

    pub fn on_frame_in(&self, dev: &Dev, index: u32, result: Result<usize, Errno>) {
        let id = index >> PORT_SHIFT;
        let port = if id == 0 { Some(self.main.clone()) } else { self.ports.lock().get(&id).cloned() };
        let Some(port) = port else { return };
        let index = index & ((1 << PORT_SHIFT) - 1);
        let Some(slot) = port.frames.get(index as usize) else { return };
        match result {
            Ok(len) => {
                // SAFETY: libfabric has handed the slot back, and only this thread takes completions.
                let bytes = unsafe { *slot.bytes.get() };
                self.on_frame(dev, &port, &bytes[..len.min(FRAME)]);
            }
            // Its endpoint is being closed.
            Err(errno) if errno == libc::ECANCELED => return,
            Err(_) => {}
        }
        let open = port.own.lock();
        if open.is_some()
            && let Err(errno) = port.post(index)
        {
            tracing::error!(errno, "a receive for frames is lost");
        }
    }

    /// Somebody said something; nothing of it is believed unless it fits.
    pub fn on_frame(&self, dev: &Dev, port: &Port, bytes: &[u8]) {
        let Some(frame) = Frame::decode(bytes) else {
            tracing::warn!("a datagram that is no frame is dropped");
            return;
        };
        if let Body::Hello { name, hello, data } = frame.body
            && hello.kind == Kind::Request
        {
            return self.on_request(dev, port, &frame, (name, hello, data));
        }
        let Some(chan) = dev.chan(frame.to).filter(|chan| chan.secret == frame.secret) else {
            return self.answer_for_the_dead(dev, &frame);
        };
        chan.heard.store(true, Ordering::Relaxed);
        let mut st = chan.lock();
        match frame.body {
            Body::Bell { bell, payload } => chan.on_bell(&mut st, bell, frame.arg, &payload),
            Body::Hello { name, hello, data } => self.on_answer(dev, &chan, &mut st, (name, hello, data)),
        }
    }

    fn on_request(
        &self,
        dev: &Dev,
        port: &Port,
        frame: &Frame<'_>,
        (name, hello, data): (&[u8], Hello, &[u8]),
    ) {
        if self.finder.as_ref().is_some_and(|finder| frame.secret != finder.token) {
            tracing::warn!("a request that was meant for another device is dropped");
            return;
        }
        let (number, place) = match self.named(&dev.fabric, name) {
            Ok(named) => named,
            Err(failure) => {
                tracing::warn!(%failure, "a request from nowhere is dropped");
                return;
            }
        };
        let listens = self.port_for(port, frame);
        let asked = Asked { hello, from: number, port: listens.map_or(0, |(_, port)| port) };
        let Some((user, _)) = listens.filter(|_| self.requests.lock().len() < MAX_REQUESTS) else {
            return self.answer(&asked, refusal(Kind::Refuse), &[], 0);
        };
        let request = self.next_request.fetch_add(1, Ordering::Relaxed) + 1;
        let mut event = Event::new(EventKind::REQUEST, user).with_data(data);
        event.request = request;
        event.port = asked.port;
        event.qos = hello.qos;
        event.peer = place.map_or(SockAddr::UNSPECIFIED, |place| SockAddr::from(place.ip()));
        event.peer_port = port_of_chan(hello.chan);
        self.answer(&asked, refusal(Kind::Heard), &[], 0);
        self.requests.lock().insert(request, asked);
        dev.event(None, event);
    }

    fn on_answer(&self, dev: &Dev, chan: &Chan, st: &mut State, (name, hello, data): (&[u8], Hello, &[u8])) {
        if st.phase != Phase::Connecting {
            if hello.kind == Kind::Accept {
                self.turn_down(dev, name, &hello);
            }
            return;
        }
        match hello.kind {
            Kind::Accept => {
                let number = self.named(&dev.fabric, name).ok();
                let (Some((number, _)), Some(link)) = (number, &mut st.link) else {
                    return chan.end(st, EventKind::REFUSED, &[], None);
                };
                link.dest = number;
                self.meet(chan, st, &hello);
                st.owed.up = true;
                chan.came_up(st, data);
                chan.pump(st, Lull::Long);
            }
            Kind::Heard => {
                // The port may be closed before the answer comes; the device itself is there as long as the peer.
                if let Ok((dest, _)) = self.named(&dev.fabric, name) {
                    let next = Instant::now() + ASK_AGAIN;
                    let mut unanswered = self.unanswered.lock();
                    unanswered.retain(|asked| asked.chan != chan.id);
                    unanswered.push(Unanswered { chan: chan.id, dest, next });
                    dev.tick();
                }
            }
            Kind::Reject => chan.end(st, EventKind::REJECTED, data, None),
            Kind::Refuse | Kind::Request => chan.end(st, EventKind::REFUSED, &[], None),
        }
    }

    /// A frame for a channel that is no more: who accepts learns that nobody waits any more.
    fn answer_for_the_dead(&self, dev: &Dev, frame: &Frame<'_>) {
        if let Body::Hello { name, hello, .. } = frame.body
            && hello.kind == Kind::Accept
        {
            self.turn_down(dev, name, &hello);
        }
    }

    fn turn_down(&self, dev: &Dev, name: &[u8], hello: &Hello) {
        if let Ok((dest, _)) = self.named(&dev.fabric, name) {
            let body = Body::Bell { bell: Bell::Bye, payload: [0; PAYLOAD] };
            self.send_soon(dest, &Frame { to: hello.chan, secret: hello.page, arg: 1, body }, 0, None);
            dev.tick();
        }
    }
}

/// When to knock at a port libfabric does not get through to, and when to give up on any frame. A listener takes milliseconds to make, and there are programs that say where they listen before they do.
const KNOCK: Duration = Duration::from_millis(60);
const HEARD: Duration = Duration::from_secs(3);
pub const ASK_AGAIN: Duration = Duration::from_millis(300);
const LAST_WORDS: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(60);

/// Local ports of connections that share an endpoint are numbers beyond the internet's.
pub fn port_of_chan(chan: u32) -> u64 {
    (1 << 16) + u64::from(chan)
}

/// Peers a device may have met.
pub const MAX_PEERS: usize = 1 << 16;

/// Requests that may wait for an answer.
const MAX_REQUESTS: usize = 4096;

fn refusal(kind: Kind) -> Hello {
    Hello { kind, chan: 0, qos: 0, posted: 0, room: 0, page: 0, key: 0, shared: false }
}

impl Dev {
    /// Rings a peer's channel by a frame.
    pub fn send_bell(
        &self,
        dest: fi_addr_t,
        to: u32,
        secret: u64,
        bell: Bell,
        arg: u32,
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let Some(datagrams) = &self.datagrams else { return Err(-libc::ENOSYS) };
        let mut bytes = [0; FRAME];
        let frame = Frame { to, secret, arg, body: Body::Bell { bell, payload: *payload } };
        let len = frame.encode(&mut bytes).ok_or(-libc::EINVAL)?;
        datagrams.send(dest, &bytes[..len], 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Params;

    /// A hundred thousand frames that are nearly good reach a device that is open, as if a stranger had sent them: it
    /// stays as it is, and what it keeps of them is bounded.
    #[test]
    fn frames_of_strangers() {
        if libfabric_sys::Library::get().is_err() {
            println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
            assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
            return;
        }
        let pairs = [("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")];
        let params = pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let config = dat_plugin::Config { ia_name: "ofi".into(), params };
        assert_eq!(Params::parse(&config).expect("good").endpoint, crate::params::Endpoint::Rdm);
        let device = crate::FabricDevice::open(&config).expect("a device");
        let dev = device.dev();
        let datagrams = dev.datagrams.as_ref().expect("datagrams");
        let at: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let (port, _) = datagrams.listen(dev, at, 1).expect("a port");
        let port = port.expect("an endpoint");
        let hello = Hello {
            kind: Kind::Request,
            chan: 1,
            qos: 0,
            posted: 1,
            room: 9,
            page: 5,
            key: 0,
            shared: false,
        };
        let body = Body::Hello { name: datagrams.name.bytes(), hello, data: b"data" };
        let mut good = [0; FRAME];
        let len = Frame { to: 0, secret: 0, arg: 0, body }.encode(&mut good).expect("fits");
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..100_000 {
            let mut frame = good;
            for _ in 0..3 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // Not the address: each other one would be a peer to remember, which has a bound of its own.
                let at = state as usize % len;
                if at < crate::frames::HEAD || at >= crate::frames::HEAD + datagrams.name.bytes().len() {
                    frame[at] = (state >> 32) as u8;
                }
            }
            datagrams.on_frame(dev, &port, &frame[..len]);
            datagrams.waiting.lock().clear();
        }
        let asked = datagrams.requests.lock().len();
        assert!(asked > 0 && asked <= MAX_REQUESTS, "{asked} requests are kept");
        assert!(dev.chans.lock().is_empty());
        datagrams.close_port(dev, Some(&port), 0);
    }
}
