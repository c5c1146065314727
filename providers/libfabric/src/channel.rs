//! One end of a connection: its life from the first call to the last. What goes over it is in [`crate::flow`] and
//! [`crate::bells`]; how connections come about is in [`crate::connect`] and [`crate::datagrams`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ChannelAttr, Completion, ConnectParam, Event, EventKind, Failure,
    RecvRequest, Request, Status,
};
use dat_sync::{Guard, Lock};
use parking_lot::Mutex;

use crate::bells::Owed;
use crate::cq::Share;
use crate::device::Dev;
use crate::endpoint::{Link, MAX_SEGMENTS, Remote};
use crate::framed::{Frames, Framing};
use crate::memory::Mr;
use crate::queue::Que;
use crate::srq::{SHARE, Shared};
use crate::wire::{Bell, Books, Farewell, Hello, Kind, MAX_WINDOW, PAGE, PAYLOAD, Resolved, room_code};
use crate::work::{Recv, RecvStage, Ring, Role};

/// A channel as the engine holds it.
pub struct FabricChannel(pub(crate) Arc<Chan>);

/// A channel. Lives until the engine closed it and libfabric has handed back every operation.
pub struct Chan {
    pub dev: Arc<Dev>,
    /// Its number, which peers use in doorbells and frames.
    pub id: u32,
    pub attr: ChannelAttr,
    pub send: Option<Arc<Que>>,
    pub recv: Option<Arc<Que>>,
    /// Where its receives come from, if not from posts to it.
    pub srq: Option<Arc<Shared>>,
    /// What tells this channel from an earlier one of its number, and its peer from a stranger.
    pub secret: u64,
    pub page: Page,
    /// Where everything goes in frames: those.
    pub frames: Option<Frames>,
    /// The engine has closed it: no event of it is handed out.
    pub silent: AtomicBool,
    /// The peer has said something since this was last looked at.
    pub heard: AtomicBool,
    /// It is on the device's list of channels to look after.
    pub listed: AtomicBool,
    /// It waits for a receive of its shared queue.
    pub in_line: AtomicBool,
    pub state: Lock<State>,
    /// Keys that ended while somebody else had the lock; they are moved to what is owed.
    pub revokes: Mutex<Vec<u32>>,
    /// With connected endpoints: where its completions come.
    pub share: OnceLock<Share>,
    this: Weak<Chan>,
}

/// Where a channel is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Idle,
    /// Asked, and waits for the answer.
    Connecting,
    /// Accepted, and waits for the peer to say that it is connected.
    Accepting,
    Up,
    /// Disconnected by the engine; libfabric still has requests under way, until then at the latest.
    Leaving(Instant),
    /// It touches no memory of the application any more.
    Stopped,
}

/// What the lock of a channel guards.
pub struct State {
    pub phase: Phase,
    pub link: Option<Link>,
    pub local_port: u64,
    /// The peer's number for this connection, its secret, and where its control page is.
    pub peer: u32,
    pub peer_secret: u64,
    pub peer_page: Remote,
    pub requests: Ring<crate::work::Request>,
    pub recvs: Ring<Recv>,
    pub framing: Framing,
    /// Operations libfabric has: all, and requests alone.
    pub inflight: u32,
    pub requests_out: u32,
    /// Reads and atomic operations under way.
    pub reads: u32,
    /// Writes under way.
    pub writes: u32,
    /// Messages sent; receives the peer has posted, and messages it has consumed, all counted from the beginning.
    pub sent: u32,
    pub credit: u32,
    pub taken: u32,
    /// Room there is in each receive of the peer, as a code.
    pub room: u32,
    /// The number of the message the peer said has room.
    pub go: Option<u32>,
    pub asking: bool,
    /// The peer's receives come out of a shared queue; they were asked for up to this message.
    pub peer_shares: bool,
    pub begged: u32,
    /// With a shared queue: the message up to which the peer wants receives.
    pub wanted: u32,
    /// Keys of the peer's, as it explained them.
    pub keys: HashMap<u32, Resolved>,
    pub resolving: Option<u32>,
    /// Receives libfabric has or had, messages consumed, and the smallest room, as a code.
    pub books: Books,
    /// What the peer knows of it, and since when, as far as that was looked at, there is more to know.
    pub told: Books,
    pub news_since: Option<Instant>,
    /// A message the peer asked about: its number and length.
    pub asked: Option<(u32, u64)>,
    pub owed: Owed,
    /// The smallest receive was used: the next may be larger.
    pub smallest_gone: bool,
    /// Keys the peer was told of.
    pub explained: Vec<u32>,
    /// The last success nobody was told of, if nothing later told of it.
    pub silent: Option<Completion>,
    /// Looks since the peer was last heard of.
    pub silence: u32,
}

/// How long closing a channel waits for the fabric to hand back what it has.
const LAST_TRANSFERS: Duration = Duration::from_millis(100);

/// Memory a peer writes what doorbells say to, and nobody else's.
pub struct Page {
    words: Box<[AtomicU64; PAGE / 8]>,
    mr: Option<Mr>,
}

impl Page {
    /// A page; with connected endpoints one the peer can write to.
    pub fn new(make: impl FnOnce(u64, u64) -> Result<Option<Mr>, Failure>) -> Result<Page, Failure> {
        let words: Box<[AtomicU64; PAGE / 8]> = Box::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let mr = make(words.as_ptr() as u64, PAGE as u64)?;
        Ok(Page { words, mr })
    }

    /// Address and key for the peer.
    pub fn remote(&self) -> (u64, u64) {
        self.mr.as_ref().map_or((0, 0), |mr| (mr.base, mr.key()))
    }

    /// The payload at `slot`, copied.
    pub fn read(&self, slot: usize) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        let words = self.words[slot / 8..].iter();
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.load(Ordering::Acquire).to_ne_bytes());
        }
        out
    }
}

impl Chan {
    pub fn new(
        dev: &Arc<Dev>,
        id: u32,
        attr: &ChannelAttr,
        [send, recv]: [Option<Arc<Que>>; 2],
        srq: Option<Arc<Shared>>,
        page: Page,
        mut frames: Option<Frames>,
    ) -> Result<Arc<Chan>, Failure> {
        let full = || {
            Failure::new(Status::NO_RESOURCE, format!("{}: new channel: out of memory", dev.params.ia_name))
        };
        // A window's worth of requests and receives, whatever was asked for.
        let requests = Ring::new(attr.max_requests, attr.max_request_segments, Role::Request);
        let recvs = match &srq {
            None => Ring::new(attr.max_recvs, attr.max_recv_segments, Role::Recv),
            Some(srq) => Ring::new(SHARE, srq.max_segments, Role::Recv),
        };
        let state = State {
            phase: Phase::Idle,
            link: None,
            local_port: 0,
            peer: 0,
            peer_secret: 0,
            peer_page: Remote { addr: 0, key: 0 },
            requests: requests.ok_or_else(full)?,
            recvs: recvs.ok_or_else(full)?,
            framing: Framing::default(),
            inflight: 0,
            requests_out: 0,
            reads: 0,
            writes: 0,
            sent: 0,
            credit: 0,
            taken: 0,
            room: u32::MAX,
            go: None,
            asking: false,
            peer_shares: false,
            begged: 0,
            wanted: 0,
            keys: HashMap::new(),
            resolving: None,
            books: Books { posted: 0, consumed: 0, room: u32::MAX },
            told: Books { posted: 0, consumed: 0, room: u32::MAX },
            news_since: None,
            asked: None,
            owed: Owed::default(),
            smallest_gone: false,
            explained: Vec::new(),
            silent: None,
            silence: 0,
        };
        Ok(Arc::new_cyclic(|this| {
            let mut state = state;
            state.requests.owned_by(this.as_ptr());
            state.recvs.owned_by(this.as_ptr());
            if let Some(frames) = &mut frames {
                frames.owned_by(this.as_ptr());
            }
            Chan {
                dev: dev.clone(),
                id,
                attr: *attr,
                send,
                recv,
                srq,
                secret: dev.regions.random(),
                page,
                frames,
                silent: AtomicBool::new(false),
                heard: AtomicBool::new(true),
                listed: AtomicBool::new(false),
                in_line: AtomicBool::new(false),
                state: Lock::new(state),
                revokes: Mutex::default(),
                share: OnceLock::new(),
                this: this.clone(),
            }
        }))
    }

    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    pub fn arc(&self) -> Option<Arc<Chan>> {
        self.this.upgrade()
    }

    /// What the peer is told in the handshake.
    pub fn hello(&self, st: &mut State, kind: Kind, qos: u32) -> Hello {
        // A short handshake does not say what is posted.
        if !self.dev.fabric.limits.framed {
            st.told = st.books;
            st.owed.room = false;
        }
        let (page, key) =
            if st.link.is_some_and(|link| link.datagrams) { (self.secret, 0) } else { self.page.remote() };
        let (Books { posted, room, .. }, shared) = (st.books, self.srq.is_some());
        Hello { kind, chan: self.id, qos, posted, room, page, key, shared }
    }

    /// What the peer said in the handshake.
    pub fn greet(&self, st: &mut State, hello: &Hello) {
        st.peer = hello.chan;
        st.credit = hello.posted;
        st.room = hello.room;
        st.peer_shares = hello.shared;
        st.peer_secret = hello.page;
        st.peer_page = Remote { addr: hello.page, key: hello.key };
    }

    pub fn event(&self, kind: EventKind, data: &[u8]) {
        self.dev.event(self.arc(), self.event_of(kind, data));
    }

    fn event_of(&self, kind: EventKind, data: &[u8]) -> Event {
        Event::new(kind, self.attr.user).with_data(data)
    }

    /// Is connected now.
    pub fn came_up(&self, st: &mut State, data: &[u8]) {
        st.phase = Phase::Up;
        self.heard.store(true, Ordering::Relaxed);
        self.event(EventKind::ESTABLISHED, data);
    }

    /// After a short handshake: what is posted.
    pub fn say_first_books(&self, st: &mut State) {
        if self.dev.fabric.limits.framed {
            st.owed.credit = true;
        }
    }

    /// The connection, or the attempt, is over: everything stops, the engine is told `kind`, the peer `farewell`.
    pub fn end(&self, st: &mut State, kind: EventKind, data: &[u8], farewell: Option<Farewell>) {
        let kind = match st.phase {
            Phase::Stopped | Phase::Idle => return,
            Phase::Leaving(_) => EventKind::DISCONNECTED,
            Phase::Accepting => EventKind::ACCEPT_FAILED,
            Phase::Connecting | Phase::Up => kind,
        };
        if let Some(farewell) = farewell {
            self.say_goodbye(st, farewell);
        }
        self.stop(st);
        if self.settled(st) {
            self.event(kind, data);
        } else {
            // Told once libfabric has handed everything back.
            st.owed.ending = Some(Box::new(self.event_of(kind, data)));
            self.list();
        }
    }

    /// Has libfabric touch no memory of the application any more, or at least begin to.
    pub fn stop(&self, st: &mut State) {
        if st.phase == Phase::Stopped {
            return;
        }
        self.tell_silent(st);
        st.phase = Phase::Stopped;
        let explained = std::mem::take(&mut st.explained);
        self.dev.regions.forget(self.id, &explained);
        if let Some(link) = st.link {
            if link.datagrams {
                for count in 0..st.recvs.len() {
                    let count = st.recvs.head.wrapping_add(count);
                    // One that failed before anything came is still posted.
                    if matches!(st.recvs.slot(count).stage, RecvStage::Posted | RecvStage::Failed)
                        && !st.recvs.slot(count).poisoned
                    {
                        link.cancel(st.recvs.context(count));
                    }
                }
                self.dev.hurry();
            } else if self.says_farewell(st) {
                self.list();
            } else {
                st.link = None;
                self.dev.bury(link);
            }
        }
        self.give_back(st);
    }

    /// Whether, once stopped, libfabric has let go of the application's memory: a connected endpoint has as soon as it
    /// is shut down, a shared one when it handed back the operations.
    pub fn settled(&self, st: &State) -> bool {
        st.link.is_none_or(|link| link.datagrams && st.inflight == 0)
    }

    fn say_goodbye(&self, st: &mut State, farewell: Farewell) {
        if matches!(st.phase, Phase::Up | Phase::Accepting | Phase::Leaving(_)) {
            // What the peer's completions depend on goes first.
            self.say_what_is_owed(st, true);
            if st.link.is_some_and(|link| link.framed) {
                return self.say_farewell(st, farewell);
            }
            let said = self.say(st, Bell::Bye, farewell.code(), &[0; PAYLOAD]);
            if let (Err(_), Some(link), Some(datagrams)) = (said, st.link, &self.dev.datagrams) {
                // The channel is gone by the time the fabric takes it.
                datagrams.say_goodbye_later(&self.dev, link.dest, (st.peer, st.peer_secret), farewell);
            }
        }
    }

    /// Ends it on the engine's wish.
    fn leave(&self, st: &mut State, patience: Duration) -> Status {
        match st.phase {
            Phase::Up => {}
            // Its last event has not been handed out yet, and now need not be.
            Phase::Stopped if st.owed.ending.take().is_some() => return Status::PENDING,
            Phase::Stopped | Phase::Leaving(_) => return Status::OK,
            Phase::Idle | Phase::Connecting | Phase::Accepting => {
                self.say_goodbye(st, Farewell::Disconnect);
                self.stop(st);
                return self.settle(st);
            }
        }
        self.say_goodbye(st, Farewell::Disconnect);
        let datagrams = st.link.is_some_and(|link| link.datagrams);
        if st.requests_out == 0 || datagrams || patience.is_zero() {
            self.stop(st);
            return self.settle(st);
        }
        // What libfabric has begun to send is finished, so that the peer's stream ends in order.
        st.phase = Phase::Leaving(Instant::now() + patience);
        self.list();
        Status::PENDING
    }

    fn settle(&self, st: &State) -> Status {
        if self.settled(st) { Status::OK } else { Status::PENDING }
    }

    /// The engine's part is over.
    fn close(&self) {
        // A child made by fork leaves the parent's endpoints alone.
        if self.silent.swap(true, Ordering::AcqRel) || !self.dev.owner.here() {
            return;
        }
        let mut st = self.lock();
        self.leave(&mut st, Duration::ZERO);
        st.owed.ending = None;
        // The memory of transfers under way is the application's again after this.
        let deadline = Instant::now() + LAST_TRANSFERS;
        while !self.settled(&st) {
            drop(st);
            if self.dev.progress_now() == 0 {
                std::thread::sleep(Duration::from_micros(50));
            }
            st = self.lock();
            if Instant::now() >= deadline {
                if self.says_farewell(&st) {
                    self.let_go(&mut st);
                } else {
                    tracing::error!(channel = self.id, "a transfer of a closed channel does not end");
                }
                break;
            }
        }
        drop(st);
        self.dev.channel_closed(self);
    }

    fn failure(&self, call: &str, status: Status, why: &str) -> Failure {
        Failure::new(status, format!("{}: {call}: {why}", self.dev.params.ia_name))
    }

    fn check_start(&self, call: &str, st: &State, data: &[u8]) -> Result<(), Failure> {
        self.dev.check_fork()?;
        let most = self.dev.max_private_data();
        if data.len() > most {
            let why = format!("{} bytes of private data; the most is {most}", data.len());
            return Err(self.failure(call, Status::INVALID, &why));
        }
        if st.phase != Phase::Idle {
            return Err(self.failure(call, Status::INVALID, "the channel was used before; open another one"));
        }
        Ok(())
    }
}

impl Channel for FabricChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let mut st = self.0.lock();
        self.0.check_start("connect", &st, param.data)?;
        self.0.dev.connect(&self.0, &mut st, param)?;
        drop(st);
        // What can be done at once need not wait for the event thread.
        self.0.dev.take_connection_events_if_free();
        Ok(())
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let mut st = self.0.lock();
        self.0.check_start("accept", &st, data)?;
        self.0.dev.accept(&self.0, &mut st, request, data)?;
        drop(st);
        self.0.dev.take_connection_events_if_free();
        Ok(())
    }

    fn disconnect(&self) -> Status {
        if self.0.dev.check_fork().is_err() {
            return Status::FORKED;
        }
        let mut st = self.0.lock();
        let status = self.0.leave(&mut st, self.0.dev.params.linger);
        if status != Status::PENDING || matches!(st.phase, Phase::Leaving(_)) {
            return status;
        }
        // Receives taken back are handed back at once; only transfers under way take their time.
        for _ in 0..4 {
            drop(st);
            while self.0.dev.progress_now() > 0 {}
            st = self.0.lock();
            if self.0.settled(&st) {
                st.owed.ending = None;
                return Status::OK;
            }
        }
        st.owed.ending = Some(Box::new(self.0.event_of(EventKind::DISCONNECTED, &[])));
        self.0.list();
        Status::PENDING
    }

    fn post(&self, request: &Request) -> Status {
        self.0.post(request)
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.0.post_recv(request)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        self.0.post_atomic(request)
    }

    fn settle(&self) {
        if self.0.dev.owner.here() {
            self.0.dev.progress();
            self.0.tell_silent(&mut self.0.lock());
        }
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        self.0.bind(request)
    }

    fn local_port(&self) -> u64 {
        self.0.lock().local_port
    }

    fn describe(&self) -> String {
        let st = self.0.lock();
        let dev = &self.0.dev;
        let phase = match st.phase {
            Phase::Idle => "not connected yet",
            Phase::Connecting => "connecting",
            Phase::Accepting => "accepting",
            Phase::Up => "connected",
            Phase::Leaving(_) => "disconnecting",
            Phase::Stopped => "stopped",
        };
        format!("{}, channel {} to {}, {phase}", dev.title(), self.0.id, st.peer)
    }

    fn close(&self) {
        self.0.close();
    }
}

/// What a channel may be asked for.
pub fn check_attr(dev: &Dev, attr: &ChannelAttr, shares: bool) -> Result<(), Failure> {
    // Receives of a shared queue are not posted to the channel.
    let (recvs, segments) = if shares { (0, 0) } else { (attr.max_recvs, attr.max_recv_segments) };
    let fits = attr.max_requests.max(recvs) <= MAX_WINDOW
        && attr.max_request_segments.max(segments) as usize <= dev.fabric.limits.iov.min(MAX_SEGMENTS)
        && attr.max_message <= dev.max_message();
    if fits {
        return Ok(());
    }
    let why = "more is asked for than the device's attributes offer";
    Err(Failure::new(Status::INVALID, format!("{}: new channel: {why}", dev.params.ia_name)))
}

/// The code of a receive of `len` bytes that may be poisoned.
pub fn code_of(recv: &Recv) -> u32 {
    room_code(recv.len.into(), !recv.poisoned)
}
