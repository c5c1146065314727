//! The interface adapter: what all its objects share, and the event thread's work.

mod calls;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_kit::EventFd;
use dat_plugin::{Access, Caps, ChannelAttr, Config, Event, Failure, Segment, SockAddr, Status};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::address::is_own_address;
use crate::board::{BOARDS, Boards};
use crate::channel::{Chan, End, LEAVE};
use crate::listener::{Incoming, Listening, Verdict};
use crate::memory::{KeyTable, random};
use crate::params::Params;
use crate::peer::{Peer, Peers};
use crate::timer::Timers;
use crate::wait::{self, Owner};

/// An open interface adapter.
pub struct ShmDevice(Arc<Dev>);

pub(crate) struct Dev {
    pub(crate) owner: Owner,
    pub(crate) params: Params,
    pub(crate) id: u128,
    pub(crate) barriers: bool,
    pub(crate) keys: KeyTable,
    /// Staging areas there are.
    pub(crate) areas: AtomicU32,
    pub(crate) boards: Boards,
    pub(crate) timer: Timers,
    epoll: OwnedFd,
    bell: EventFd,
    sources: Mutex<HashMap<u64, Source>>,
    events: Mutex<Events>,
    finish: Mutex<Vec<Arc<Chan>>>,
    pub(crate) peers: Peers,
    /// Descriptors that tell of the death of peers.
    watches: Mutex<HashMap<u64, Weak<Peer>>>,
    next_token: AtomicU64,
    next_port: AtomicU64,
    channels: AtomicU32,
    /// How many there can be, when that was last looked at.
    room: AtomicU32,
    queues: AtomicU32,
    srqs: AtomicU32,
    nonce: Box<u64>,
    /// A descriptor to give up when there are no more: see [`Dev::refuse_one`].
    spare: Mutex<Option<EventFd>>,
}

/// Events for the engine.
#[derive(Default)]
struct Events {
    waiting: VecDeque<(Option<Arc<Chan>>, Event)>,
    /// Somebody is in [`Dev::poll_events`], and will look here once more.
    polling: bool,
}

/// What a descriptor in the epoll set stands for.
pub(crate) enum Source {
    Listener(Arc<Listening>),
    Incoming(Box<Incoming>),
    Channel(Arc<Chan>),
}

const BELL: u64 = 0;
const TIMER: u64 = 1;
const FIRST_TOKEN: u64 = 16;

const MAX_REQUESTS: u32 = 4096;
const MAX_SEGMENTS: u32 = 16;
const MAX_READS: u32 = 64;
const MAX_SRQS: u32 = 4096;
const MAX_QUEUES: u32 = BOARDS as u32;
const MAX_MESSAGE: u64 = 1 << 31;
/// Connections of which nothing is known yet.
const MAX_STRANGERS: usize = 4096;

impl ShmDevice {
    pub(crate) fn open(config: &Config) -> Result<ShmDevice, Failure> {
        let params = Params::parse(config)?;
        if !is_own_address(params.address) {
            let message = format!(
                "{}: address {} is none of this host's; leave it out or use one that `ip address` shows",
                config.ia_name, params.address
            );
            return Err(Failure::new(Status::BAD_CONFIG, message));
        }
        let os = |what| move |error: io::Error| Failure::os(what, &error);
        let id = u128::from_ne_bytes(random::<16>()?);
        let dev = Dev {
            owner: Owner::new().map_err(os("a page that children do not inherit"))?,
            params,
            id,
            barriers: wait::join_barriers(),
            areas: AtomicU32::new(0),
            keys: KeyTable::new().map_err(os("a table of keys"))?,
            boards: Boards::new().map_err(os("memory for queues"))?,
            timer: Timers::new().map_err(os("timerfd"))?,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|e| Failure::os("epoll", &e.into()))?,
            bell: EventFd::new().map_err(os("eventfd"))?,
            sources: Mutex::default(),
            events: Mutex::default(),
            finish: Mutex::default(),
            peers: Peers::default(),
            watches: Mutex::default(),
            room: AtomicU32::new(0),
            next_token: AtomicU64::new(FIRST_TOKEN),
            next_port: AtomicU64::new(1024 + u64::from(u32::from_ne_bytes(random::<4>()?) & 0x3FFF_FFFF)),
            channels: AtomicU32::new(0),
            queues: AtomicU32::new(0),
            srqs: AtomicU32::new(0),
            nonce: Box::new(u64::from_ne_bytes(random::<8>()?)),
            spare: Mutex::new(Some(EventFd::new().map_err(os("eventfd"))?)),
        };
        dev.epoll_add(dev.bell.as_fd(), BELL).map_err(os("epoll"))?;
        dev.epoll_add(dev.timer.fd.as_fd(), TIMER).map_err(os("epoll"))?;
        Ok(ShmDevice(Arc::new(dev)))
    }
}

impl Dev {
    // For all objects.

    pub(crate) fn check_fork(&self) -> Result<(), Failure> {
        if self.owner.here() {
            return Ok(());
        }
        let message =
            "this process is a child made by fork from the one that opened the adapter; open it anew";
        Err(Failure::new(Status::FORKED, message))
    }

    pub(crate) fn new_token(&self) -> u64 {
        self.next_token.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn epoll_add(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)?;
        Ok(())
    }

    pub(crate) fn add_source(&self, token: u64, source: Source, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.sources().insert(token, source);
        self.epoll_add(fd, token).inspect_err(|_| {
            let source = self.sources().remove(&token);
            drop(source);
        })
    }

    /// Puts a channel in the place of the request it accepted.
    pub(crate) fn take_over(
        &self,
        token: u64,
        source: Source,
        fd: BorrowedFd<'_>,
        registered: bool,
    ) -> io::Result<()> {
        if !registered {
            return self.add_source(token, source, fd);
        }
        // What came in between the descriptor still tells.
        self.sources().insert(token, source);
        Ok(())
    }

    /// Somebody connected. Mostly the request is there already.
    pub(crate) fn arrived(&self, mut incoming: Incoming) {
        let token = self.new_token();
        match incoming.ready(self, token) {
            Verdict::Keep => {
                let deadline = incoming.deadline();
                match self.add_incoming(token, incoming) {
                    Ok(()) => self.timer.handshake(deadline),
                    Err(error) => tracing::warn!(%error, "a connection is refused"),
                }
            }
            Verdict::Tell(event) => {
                self.sources().insert(token, Source::Incoming(Box::new(incoming)));
                self.push_event(None, *event);
            }
            Verdict::Gone | Verdict::Drop => {}
        }
    }

    fn add_incoming(&self, token: u64, mut incoming: Incoming) -> io::Result<()> {
        let mut sources = self.sources();
        let strangers = sources.values().filter(|s| matches!(s, Source::Incoming(i) if !i.told())).count();
        if strangers >= MAX_STRANGERS {
            return Err(io::Error::other("too many connections that say nothing"));
        }
        self.epoll_add(incoming.socket.as_fd(), token)?;
        incoming.registered = true;
        sources.insert(token, Source::Incoming(Box::new(incoming)));
        Ok(())
    }

    /// Takes a descriptor out of the epoll set.
    pub(crate) fn forget(&self, token: u64, fd: BorrowedFd<'_>) {
        let source = self.sources().remove(&token);
        // A child made by fork shares the epoll set with its parent, and must leave it alone.
        if self.owner.here() {
            let _ = epoll::delete(&self.epoll, fd);
        }
        // Dropped without the lock: it may be the last reference to a channel or peer.
        drop(source);
    }

    /// Hands a channel's event to the engine.
    pub(crate) fn event(&self, chan: &Chan, event: Event) {
        self.push_event(chan.arc(), event);
    }

    pub(crate) fn push_event(&self, chan: Option<Arc<Chan>>, event: Event) {
        let polling = {
            let mut events = self.events();
            events.waiting.push_back((chan, event));
            events.polling
        };
        if !polling {
            self.bell.signal();
        }
    }

    /// A channel met a fault on the data path.
    pub(crate) fn to_finish(&self, chan: Arc<Chan>) {
        self.finish.lock().unwrap_or_else(PoisonError::into_inner).push(chan);
        self.bell.signal();
    }

    /// The object of a peer's device, which sent its table of keys and its boards, or is the one it was taken for.
    pub(crate) fn peer(
        self: &Arc<Dev>,
        pid: u32,
        device: u128,
        sent: Option<[OwnedFd; 2]>,
        known: Option<Arc<Peer>>,
    ) -> Result<Arc<Peer>, String> {
        match (known.filter(|known| known.pid == pid && known.device == device), sent) {
            (Some(known), _) => Ok(known),
            (None, None) => Err("it sends nothing of its device, which is not known here".into()),
            (None, Some(fds)) => self.peers.get(pid, device, || {
                let token = self.new_token();
                let peer = Arc::new(Peer::new(self, pid, device, fds, token)?);
                self.watches().insert(token, Arc::downgrade(&peer));
                Ok(peer)
            }),
        }
    }

    /// A peer's death is not waited for any more.
    pub(crate) fn unwatch(&self, token: u64, fd: BorrowedFd<'_>) {
        self.watches().remove(&token);
        if self.owner.here() {
            let _ = epoll::delete(&self.epoll, fd);
        }
    }

    /// Takes a connection request the engine knows of.
    pub(crate) fn take_request(&self, request: u64) -> Option<Incoming> {
        let mut sources = self.sources();
        match sources.remove(&request) {
            Some(Source::Incoming(incoming)) if incoming.told() => Some(*incoming),
            Some(other) => {
                sources.insert(request, other);
                None
            }
            None => None,
        }
    }

    pub(crate) fn socket(&self) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
    }

    pub(crate) fn port_name(&self, port: u64) -> Result<SocketAddrUnix, Failure> {
        let name = format!("dat-shm/{}/{port}", self.params.domain);
        SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(|error| Failure::os(&name, &error.into()))
    }

    /// Whether a peer can be at this address at all.
    pub(crate) fn check_reachable(&self, addr: SockAddr) -> Result<(), Failure> {
        let bad = |why: &str| Err(Failure::new(Status::BAD_ADDRESS, format!("{addr:?}: {why}")));
        let Some(ip) = addr.to_std().map(|addr| addr.ip().to_canonical()) else {
            return bad("an IPv4 or IPv6 address is needed");
        };
        if ip.is_multicast() || ip.is_unspecified() || ip == IpAddr::from([255, 255, 255, 255]) {
            return bad("the address of one host is needed");
        }
        if ip == self.params.address || is_own_address(ip) {
            return Ok(());
        }
        let message = format!("{ip} is another host; shared memory reaches this one's own addresses only");
        Err(Failure::new(Status::UNREACHABLE, message))
    }

    /// There is no descriptor left to take a connection with, and as long as it is not taken the listener stays
    /// readable: one is given up, so that the peer is refused and hears of it.
    pub(crate) fn refuse_one(&self, accept: impl FnOnce() -> rustix::io::Result<OwnedFd>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        *spare = None;
        drop(accept());
        *spare = EventFd::new().ok();
    }

    pub(crate) fn nonce(&self) -> u64 {
        *self.nonce
    }

    pub(crate) fn nonce_addr(&self) -> u64 {
        &raw const *self.nonce as u64
    }

    pub(crate) fn reads_in(&self, attr: &ChannelAttr) -> u32 {
        attr.max_reads_in.clamp(1, MAX_READS)
    }

    pub(crate) fn channel_closed(&self) {
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn srq_closed(&self) {
        self.srqs.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn queue_closed(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<u64, Weak<Peer>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<u64, Source>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The event thread.

    fn poll_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
        if !self.owner.here() {
            return 0;
        }
        let mut n = self.take_events(out);
        if n == out.len() {
            return n;
        }
        self.events().polling = true;
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&now)).is_err() {
            ready.clear();
        }
        for event in &ready {
            let flags = event.flags;
            let hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            self.dispatch(event.data.u64(), hung_up);
        }
        let finish = std::mem::take(&mut *self.finish.lock().unwrap_or_else(PoisonError::into_inner));
        for chan in finish {
            // What the peer said before counts: an orderly end stays one.
            chan.take_packets(true, false);
            chan.finish(End::Fault);
        }
        n += self.take_events(&mut out[n..]);
        let left = {
            let mut events = self.events();
            events.polling = false;
            !events.waiting.is_empty()
        };
        if left {
            self.bell.signal();
        }
        n
    }

    fn take_events(&self, out: &mut [Event]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let next = self.events().waiting.pop_front();
            let Some((chan, event)) = next else { break };
            if chan.is_none_or(|chan| !chan.silent.load(Ordering::Acquire)) {
                out[n] = event;
                n += 1;
            }
        }
        n
    }

    fn dispatch(self: &Arc<Dev>, token: u64, hung_up: bool) {
        match token {
            BELL => return self.bell.drain(),
            TIMER => {
                let patience = Duration::from_millis(self.params.rnr_timeout_ms);
                return self.timer.expired(patience, |now| self.drop_late(now), || self.peers.sweep());
            }
            _ => {}
        }
        enum Found {
            Listener(Arc<Listening>),
            Channel(Arc<Chan>),
            Peer,
            Incoming,
        }
        let found = match self.sources().get(&token) {
            None => Found::Peer,
            Some(Source::Listener(listening)) => Found::Listener(listening.clone()),
            Some(Source::Channel(chan)) => Found::Channel(chan.clone()),
            Some(Source::Incoming(_)) => Found::Incoming,
        };
        match found {
            Found::Listener(listening) => listening.ready(self),
            Found::Channel(chan) => chan.socket_ready(hung_up),
            Found::Incoming => self.incoming(token),
            Found::Peer => {
                let peer = self.watches().get(&token).and_then(Weak::upgrade);
                if let Some(peer) = peer {
                    self.died(&peer);
                }
            }
        }
    }

    /// A peer's process is dead.
    fn died(&self, peer: &Arc<Peer>) {
        peer.died(self);
        self.peers.forget(peer);
        let theirs: Vec<Arc<Chan>> = self
            .sources()
            .values()
            .filter_map(|source| match source {
                Source::Channel(chan) if chan.peer().is_some_and(|its| its.pid == peer.pid) => {
                    Some(chan.clone())
                }
                _ => None,
            })
            .collect();
        for chan in theirs {
            chan.socket_ready(true);
        }
    }

    fn incoming(&self, token: u64) {
        let mut sources = self.sources();
        let Some(Source::Incoming(incoming)) = sources.get_mut(&token) else { return };
        match incoming.ready(self, token) {
            Verdict::Keep => {}
            Verdict::Gone => {
                incoming.registered = false;
                let _ = epoll::delete(&self.epoll, &incoming.socket);
            }
            Verdict::Drop => {
                sources.remove(&token);
            }
            Verdict::Tell(event) => self.push_event(None, *event),
        }
    }

    /// Drops connections that said nothing for too long, and gives the next deadline.
    fn drop_late(&self, now: Instant) -> Option<Instant> {
        let mut sources = self.sources();
        sources.retain(|_, source| match source {
            Source::Incoming(incoming) => incoming.told() || incoming.deadline() > now,
            _ => true,
        });
        let waiting = sources.values().filter_map(|source| match source {
            Source::Incoming(incoming) if !incoming.told() => Some(incoming.deadline()),
            _ => None,
        });
        waiting.min()
    }
}

/// What every device can do.
pub(crate) const CAPS: Caps = Caps(
    Caps::ALLOC.0
        | Caps::RECEIVER_WAITS.0
        | Caps::WRITE_ORDERED.0
        | Caps::INTER_PROCESS.0
        | Caps::ATOMICS.0
        | Caps::IMMEDIATE.0
        | Caps::SRQ.0
        | Caps::WINDOWS.0
        | Caps::SEND_INVALIDATE.0
        | Caps::CHANNEL_FLAGS.0,
);

impl Dev {
    /// Binds a window; what it was bound to is out of reach then.
    pub(crate) fn bind(&self, window: u64, range: Option<(Segment, Access)>) -> Option<u32> {
        let bound = self.keys.bind(window, range);
        self.wait_for_peers();
        bound
    }

    /// Ends a window for a peer that has its key.
    pub(crate) fn end_window(&self, rkey: u32, domain: u32) -> bool {
        let ended = self.keys.end_window(rkey, domain);
        if ended {
            self.wait_for_peers();
        }
        ended
    }

    /// After a key became invalid: until no peer is in an access that began before.
    fn wait_for_peers(&self) {
        wait::barrier(self.barriers);
        let channels: Vec<Arc<Chan>> = self
            .sources()
            .values()
            .filter_map(|source| match source {
                Source::Channel(chan) => Some(chan.clone()),
                _ => None,
            })
            .collect();
        let deadline = Instant::now() + LEAVE;
        for chan in channels {
            if !chan.peer_left(deadline) {
                chan.fault("the peer does not end its access to memory whose registration ended");
            }
        }
    }
}
