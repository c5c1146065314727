//! One end of a connection.
//!
//! [`ChannelInner`] is its data. The other files are its operations: posting ([`post`]), requests and receives on their
//! way ([`requests`], [`receives`]), control messages ([`control`]), credit ([`credit`]), the end ([`teardown`]), and the
//! form of messages on fabrics with little immediate data ([`framed`]). They use this file; it uses none of them.

pub mod completion_queue;
pub mod control;
pub mod control_page;
pub mod credit;
pub mod framed;
pub mod frames;
pub mod ordering;
pub mod pending;
pub mod post;
pub mod receives;
pub mod requests;
pub mod ring;
pub mod shared_pool;
pub mod shared_receives;
pub mod table;
pub mod teardown;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use dat_plugin::{ChannelAttr, Completion, Event, EventKind, Failure, Status};
use dat_sync::{Guard, Lock};
use parking_lot::Mutex;

use crate::channel::completion_queue::QueueInner;
use crate::channel::control_page::ControlPage;
use crate::channel::frames::{Frames, FramingState};
use crate::channel::pending::PendingControl;
use crate::channel::ring::{Recv, Request, Ring};
use crate::channel::shared_pool::{SHARE, SharedPool};
use crate::core::Core;
use crate::endpoint::address_vector::PeerAddress;
use crate::endpoint::context::Role;
use crate::endpoint::link::{Link, Remote};
use crate::fabric::cq_share::CqShare;
use crate::wire::control::{CreditState, Resolved};
use crate::wire::hello::{Hello, Kind};

/// A channel. It lives until the engine closed it and libfabric has handed back every operation.
pub struct ChannelInner {
    pub core: Arc<Core>,
    /// Its number, which peers use in control messages and frames.
    pub id: u32,
    pub attr: ChannelAttr,
    pub send: Option<Arc<QueueInner>>,
    pub recv: Option<Arc<QueueInner>>,
    /// The shared receive queue that its receives come from.
    pub srq: Option<Arc<SharedPool>>,
    /// Random; proves a peer to this channel, and tells it from an earlier channel with the same number.
    pub secret: u64,
    pub page: ControlPage,
    /// Present on fabrics where everything but RDMA travels in frames.
    pub frames: Option<Frames>,
    /// The engine closed it: its events are dropped.
    pub closed: Arc<AtomicBool>,
    /// The peer sent something since the last check.
    pub heard: AtomicBool,
    /// It is on the device's run list.
    pub listed: AtomicBool,
    /// It waits for a receive of its shared queue.
    pub waits_for_receive: AtomicBool,
    pub state: Lock<State>,
    /// Keys that ended while another thread held the lock; they become pending control messages.
    pub ended_keys: Mutex<Vec<u32>>,
    /// Local keys whose memory stays registered, because a transfer did not end before the channel was closed.
    pub held_keys: Mutex<Vec<u32>>,
    /// With connected endpoints: the queue of its completions.
    pub cq: OnceLock<CqShare>,
    pub this: Weak<ChannelInner>,
}

/// Where a channel is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Idle,
    /// The request is sent.
    Connecting,
    /// The answer is sent; the peer has not confirmed the connection yet.
    Accepting,
    Connected,
    /// Disconnected by the engine. libfabric still has requests; they may finish until this time.
    Leaving(Instant),
    /// libfabric touches no memory of the application any more, or only until [`ChannelInner::is_settled`].
    Stopped,
}

/// What the lock of a channel guards.
pub struct State {
    pub phase: Phase,
    pub link: Option<Link>,
    pub local_port: u64,
    /// The peer's number for this connection, its secret, and the address of its control page.
    pub peer: u32,
    pub peer_secret: u64,
    pub peer_page: Remote,
    /// With datagrams: keeps the peer's entry in the address vector.
    pub peer_address: Option<Arc<PeerAddress>>,
    pub requests: Ring<Request>,
    pub recvs: Ring<Recv>,
    pub framing: FramingState,
    /// Operations libfabric has: all of them, and requests only.
    pub inflight: u32,
    pub requests_inflight: u32,
    /// Reads and atomic operations under way.
    pub reads: u32,
    /// Writes under way.
    pub writes: u32,
    /// Messages sent, receives the peer posted, and messages the peer consumed, counted from the beginning.
    pub sent: u32,
    pub credit: u32,
    pub consumed_by_peer: u32,
    /// The code of the peer's smallest receive.
    pub room: u32,
    /// The message that is clear to send although it may exceed the peer's smallest receive.
    pub cts: Option<u32>,
    /// Waits for the peer's answer about room.
    pub asking: bool,
    /// The peer's receives come from a shared queue; they are requested up to this message.
    pub peer_shares: bool,
    pub requested: u32,
    /// With a shared queue here: the message up to which the peer requested receives.
    pub peer_requested: u32,
    /// The peer's keys, as the peer resolved them.
    pub keys: HashMap<u32, Resolved>,
    /// The key that the peer was asked about.
    pub resolving: Option<u32>,
    /// Receives libfabric has or had, messages consumed, and the code of the smallest receive.
    pub credit_state: CreditState,
    /// What the peer knows of `credit_state`.
    pub advertised: CreditState,
    /// When a poll first noticed that the peer knows less.
    pub unadvertised_since: Option<Instant>,
    /// The message whose room the peer asked about: its number and length.
    pub asked: Option<(u32, u64)>,
    pub pending: PendingControl,
    /// The smallest receive was used: the next smallest may be larger.
    pub smallest_used: bool,
    /// Keys of this side that the peer resolved.
    pub resolved_keys: Vec<u32>,
    /// The last success that was not reported, if no later completion covers it.
    pub unsignalled: Option<Completion>,
    /// Liveness checks since the peer last sent something.
    pub missed_checks: u32,
}

impl ChannelInner {
    pub fn new(
        core: &Arc<Core>,
        id: u32,
        attr: &ChannelAttr,
        [send, recv]: [Option<Arc<QueueInner>>; 2],
        srq: Option<Arc<SharedPool>>,
        page: ControlPage,
        mut frames: Option<Frames>,
    ) -> Result<Arc<ChannelInner>, Failure> {
        let full = || {
            let message = format!("{}: new channel: out of memory", core.params.ia_name);
            Failure::new(Status::NO_RESOURCE, message)
        };
        let requests = Ring::new(attr.max_requests, attr.max_request_segments, Role::Request);
        let recvs = match &srq {
            None => Ring::new(attr.max_recvs, attr.max_recv_segments, Role::Recv),
            Some(srq) => Ring::new(SHARE, srq.max_segments, Role::Recv),
        };
        let nothing = CreditState { posted: 0, consumed: 0, room: u32::MAX };
        let mut state = State {
            phase: Phase::Idle,
            link: None,
            local_port: 0,
            peer: 0,
            peer_secret: 0,
            peer_page: Remote { addr: 0, key: 0 },
            peer_address: None,
            requests: requests.ok_or_else(full)?,
            recvs: recvs.ok_or_else(full)?,
            framing: FramingState::default(),
            inflight: 0,
            requests_inflight: 0,
            reads: 0,
            writes: 0,
            sent: 0,
            credit: 0,
            consumed_by_peer: 0,
            room: u32::MAX,
            cts: None,
            asking: false,
            peer_shares: false,
            requested: 0,
            peer_requested: 0,
            keys: HashMap::new(),
            resolving: None,
            credit_state: nothing,
            advertised: nothing,
            unadvertised_since: None,
            asked: None,
            pending: PendingControl::default(),
            smallest_used: false,
            resolved_keys: Vec::new(),
            unsignalled: None,
            missed_checks: 0,
        };
        Ok(Arc::new_cyclic(|this: &Weak<ChannelInner>| {
            // Completions find the channel through the contexts in its rings and frames.
            state.requests.set_owner(this.as_ptr().cast());
            state.recvs.set_owner(this.as_ptr().cast());
            if let Some(frames) = &mut frames {
                frames.set_owner(this.as_ptr().cast());
            }
            ChannelInner {
                core: core.clone(),
                id,
                attr: *attr,
                send,
                recv,
                srq,
                secret: core.regions.random(),
                page,
                frames,
                closed: Arc::new(AtomicBool::new(false)),
                heard: AtomicBool::new(true),
                listed: AtomicBool::new(false),
                waits_for_receive: AtomicBool::new(false),
                state: Lock::new(state),
                ended_keys: Mutex::default(),
                held_keys: Mutex::default(),
                cq: OnceLock::new(),
                this: this.clone(),
            }
        }))
    }

    pub fn lock(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// Puts it on the device's run list.
    pub fn schedule(&self) {
        if !self.listed.swap(true, Ordering::AcqRel)
            && let Some(this) = self.this.upgrade()
        {
            self.core.schedule(this);
        }
    }

    /// The handshake that the peer is sent.
    pub fn hello(&self, st: &mut State, kind: Kind, qos: u32) -> Hello {
        // A short handshake carries no credit.
        if !self.core.fabric.limits.framed {
            st.advertised = st.credit_state;
            st.pending.room = false;
        }
        let (page, key) =
            if st.link.is_some_and(|link| link.datagrams) { (self.secret, 0) } else { self.page.remote() };
        let (CreditState { posted, room, .. }, shared) = (st.credit_state, self.srq.is_some());
        Hello { kind, chan: self.id, qos, posted, room, page, key, shared, quotient: 0 }
    }

    /// Takes over what the peer's handshake contains.
    pub fn set_peer(&self, st: &mut State, hello: &Hello) {
        st.peer = hello.chan;
        st.credit = hello.posted;
        st.room = hello.room;
        st.peer_shares = hello.shared;
        st.peer_secret = hello.page;
        st.peer_page = Remote { addr: hello.page, key: hello.key };
    }

    /// The connection is established.
    pub fn establish(&self, st: &mut State, data: &[u8]) {
        st.phase = Phase::Connected;
        self.heard.store(true, Ordering::Relaxed);
        self.event(EventKind::ESTABLISHED, data);
    }

    pub fn event(&self, kind: EventKind, data: &[u8]) {
        self.send_event(self.event_of(kind, data));
    }

    pub fn send_event(&self, event: Event) {
        self.core.event(Some(self.closed.clone()), event);
    }

    pub fn event_of(&self, kind: EventKind, data: &[u8]) -> Event {
        Event::new(kind, self.attr.user).with_data(data)
    }

    /// Adds a completion to a queue, with the queue's user value.
    pub fn complete(&self, queue: &Option<Arc<QueueInner>>, user: u64, completion: &Completion) {
        if let Some(queue) = queue {
            queue.push(Completion { user, ..*completion });
        }
    }
}
