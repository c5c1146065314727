//! The interface adapter: what all its objects share, and the event thread's work.

mod events;
mod memory;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_kit::{EventFd, ForkGuard};
use dat_plugin::{Access, Caps, ChannelAttr, Config, Event, Failure, Segment, SockAddr, Status};
use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::address::is_own_address;
use crate::control::connection::{Chan, End, LEAVE};
use crate::control::handshake::Packet;
use crate::control::listener::{Incoming, Listening, Verdict};
use crate::control::peer::{Peer, Peers};
use crate::control::timer::Timers;
use crate::control::trust::Credentials;
use crate::foreign::ForeignFd;
use crate::memory::keys::{KeyTable, random};
use crate::notify::barrier;
use crate::notify::ready_bitmap::{BITMAPS, ReadyBitmaps};
use crate::params::Params;

/// An open interface adapter.
pub struct ShmDevice(pub(crate) Arc<Dev>);

pub(crate) struct Dev {
    pub(crate) owner: Arc<ForkGuard>,
    pub(crate) params: Params,
    pub(crate) id: u128,
    pub(crate) barriers: bool,
    pub(crate) keys: Arc<KeyTable>,
    pub(crate) bitmaps: Arc<ReadyBitmaps>,
    pub(crate) timer: Timers,
    pub(crate) epoll: OwnedFd,
    bell: EventFd,
    sources: Mutex<HashMap<u64, Source>>,
    events: Mutex<Events>,
    finish: Mutex<Vec<Arc<Chan>>>,
    pub(crate) peers: Peers,
    /// Descriptors that tell of the death of peers.
    watches: Mutex<HashMap<u64, Weak<Peer>>>,
    next_token: AtomicU64,
    pub(crate) next_port: AtomicU64,
    pub(crate) channels: AtomicU32,
    /// How many there can be, when that was last looked at.
    pub(crate) room: AtomicU32,
    pub(crate) queues: AtomicU32,
    pub(crate) srqs: AtomicU32,
    nonce: Box<u64>,
    /// A descriptor to give up when there are no more: see [`Dev::refuse_one`].
    spare: Mutex<Option<EventFd>>,
    /// Connections that are over, whose peer may still be in the middle of a copy to or from this process's memory.
    unsettled: Mutex<Vec<Arc<Chan>>>,
    /// Listeners are out of the epoll set, because no connection can be taken just now.
    paused: AtomicBool,
    /// Requests that the engine has not answered.
    unanswered: AtomicU32,
}

/// Events for the engine.
#[derive(Default)]
pub(crate) struct Events {
    pub(crate) waiting: VecDeque<(Option<Arc<Chan>>, Event)>,
    /// A thread is in [`Dev::poll_events`] and will look here once more.
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

pub(crate) const MAX_REQUESTS: u32 = 4096;
pub(crate) const MAX_SEGMENTS: u32 = 16;
pub(crate) const MAX_READS: u32 = 64;
pub(crate) const MAX_SRQS: u32 = 4096;
pub(crate) const MAX_QUEUES: u32 = BITMAPS as u32;
pub(crate) const MAX_MESSAGE: u64 = 1 << 31;
/// Connections of which nothing is known yet, and requests that the engine has not answered.
const MAX_STRANGERS: usize = 4096;
pub(crate) const MAX_UNANSWERED: u32 = if cfg!(test) { 32 } else { 4096 };
/// The pause before the next accept when no descriptor is free.
const PAUSE: Duration = Duration::from_millis(20);
/// Packets of one connection that are taken before the next one's.
pub(crate) const PACKETS: usize = 64;

/// How often one call asks the kernel for descriptors, 64 at a time. Peers that never rest do not keep the thread.
const MOST_LOOKS: usize = 64;

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
            owner: Arc::new(ForkGuard::new().map_err(os("a page that children do not inherit"))?),
            params,
            id,
            barriers: barrier::join_barriers(),
            keys: Arc::new(KeyTable::new().map_err(os("a table of keys"))?),
            bitmaps: Arc::new(ReadyBitmaps::new().map_err(os("memory for queues"))?),
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
            unsettled: Mutex::default(),
            paused: AtomicBool::new(false),
            unanswered: AtomicU32::new(0),
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

    /// A peer connected. Mostly its request is there already.
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
            Verdict::Tell(event) if self.may_ask() => {
                self.sources().insert(token, Source::Incoming(Box::new(incoming)));
                self.push_event(None, *event);
            }
            Verdict::Tell(_) => {}
            Verdict::Gone | Verdict::Drop => {}
        }
    }

    /// Whether the engine can be asked about another request.
    fn may_ask(&self) -> bool {
        let may = self.unanswered.fetch_add(1, Ordering::Relaxed) < MAX_UNANSWERED;
        if !may {
            self.unanswered.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!("{MAX_UNANSWERED} connection requests wait for an answer; another one is refused");
        }
        may
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

    /// The object of a peer's device, which sent its table of keys and its bitmaps, or is the one it was taken for.
    pub(crate) fn peer(
        self: &Arc<Dev>,
        from: Credentials,
        device: u128,
        sent: (Option<ForeignFd>, Option<ForeignFd>),
        known: Option<Arc<Peer>>,
        socket: &ForeignFd,
    ) -> Result<Arc<Peer>, String> {
        let same = |known: &Arc<Peer>| (known.pid, known.uid, known.device) == (from.pid, from.uid, device);
        match (known.filter(same), sent) {
            (Some(known), _) => Ok(known),
            (None, (None, _)) => Err("it sends nothing of its device, which is not known here".into()),
            (None, (Some(bitmaps), keys)) => self.peers.get(from, device, || {
                let token = self.new_token();
                let peer = Arc::new(Peer::new(self, from, device, (bitmaps, keys), socket, token)?);
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
            Some(Source::Incoming(incoming)) if incoming.told() => {
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
                Some(*incoming)
            }
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
    /// readable. A reserved descriptor is given up, so that the peer is refused and notices. Where that does not help
    /// either, all listeners pause.
    pub(crate) fn refuse_one(&self, accept: impl FnOnce() -> rustix::io::Result<ForeignFd>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        *spare = None;
        let refused = accept();
        if let Ok(socket) = &refused {
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
        }
        drop(refused);
        *spare = EventFd::new().ok();
        if spare.is_none() {
            drop(spare);
            self.pause_listeners();
        }
    }

    /// Takes no connections for a while.
    pub(crate) fn pause_listeners(&self) {
        if !self.paused.swap(true, Ordering::AcqRel) {
            self.watch_listeners(epoll::EventFlags::empty());
        }
        self.timer.handshake(Instant::now() + PAUSE);
    }

    fn watch_listeners(&self, flags: epoll::EventFlags) {
        for (token, source) in &*self.sources() {
            if let Source::Listener(listening) = source {
                let data = epoll::EventData::new_u64(*token);
                let _ = epoll::modify(&self.epoll, &listening.socket, data, flags);
            }
        }
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

    pub(crate) fn events(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<u64, Weak<Peer>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sources(&self) -> MutexGuard<'_, HashMap<u64, Source>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
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
