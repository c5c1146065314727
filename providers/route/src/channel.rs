//! One end of a connection: attempts through the children in order, then a channel of one child.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_plugin::host::BelowChannel;
use dat_plugin::{
    AtomicRequest, Channel, ChannelAttr, ConnectParam, Device as _, Event, EventKind, Failure, PostFlag,
    RecvRequest, Request, Segment, SockAddr, Status,
};

use crate::far::{Far, Posted, post_recv};
use crate::header::Header;
use crate::queue::RouteQueue;
use crate::shared::{Connection, Shared};

/// A channel of a route.
pub struct RouteChannel {
    shared: Arc<Shared>,
    attr: ChannelAttr,
    /// Of requests, and of receives.
    queues: [Option<Arc<RouteQueue>>; 2],
    /// Set once, when the connection is made.
    live: OnceLock<Live>,
    state: Mutex<State>,
}

/// A connection.
struct Live {
    child: usize,
    below: Arc<BelowChannel>,
    /// Present where the child has other keys than the application.
    far: Option<Arc<Far>>,
}

#[derive(Default)]
struct State {
    phase: Phase,
    /// Receives posted before the connection is made. Each attempt gets them.
    held: Vec<HeldRecv>,
    /// The children that a connect passed over, and why.
    passed: Vec<String>,
    /// The port of the connecting side.
    port: Option<u32>,
    /// One of them said that nobody listens, or that the peer refused.
    refused: bool,
}

#[derive(Default)]
enum Phase {
    #[default]
    Idle,
    Connecting(Attempt, Target),
    /// With what the peer said of itself in its request.
    Accepting(Attempt, Header),
    Live,
    /// Before a connection was made. The attempt ends when the channel is closed.
    Stopped(Option<Attempt>),
}

struct Attempt {
    child: usize,
    below: Arc<BelowChannel>,
}

/// What a connect asked for.
struct Target {
    addr: SockAddr,
    port: u64,
    qos: u32,
    data: Vec<u8>,
}

struct HeldRecv {
    token: u64,
    flags: PostFlag,
    segments: Vec<Segment>,
}

impl RouteChannel {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        attr: &ChannelAttr,
        queues: [Option<&Arc<RouteQueue>>; 2],
    ) -> RouteChannel {
        RouteChannel {
            shared: shared.clone(),
            attr: *attr,
            queues: queues.map(|queue| queue.cloned()),
            live: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// The connection is made. On failure it is ended, and the attempt comes back.
    fn go_live(&self, state: &mut State, attempt: Attempt, peer: Header) -> Result<(), Attempt> {
        let Attempt { child, below } = attempt;
        let mut far = None;
        if child != 0 || peer.table.is_some() {
            let numbers = (self.attr.domain, self.attr.send_user);
            let of = (child, &self.shared.children[child]);
            match Far::new(self.shared.regions.clone(), of, below.clone(), peer.table, numbers) {
                Ok(new) => far = Some(Arc::new(new)),
                Err(failure) => {
                    tracing::error!(child = %of.1.name, %failure, "a connection of a route is ended");
                    below.disconnect();
                    return Err(Attempt { child, below });
                }
            }
        }
        if let (Some(far), Some(queue)) = (&far, &self.queues[0])
            && far.reads()
        {
            queue.add(child, self.attr.send_user, far.clone());
        }
        state.phase = Phase::Live;
        state.held = Vec::new();
        let set = self.live.set(Live { child, below, far });
        debug_assert!(set.is_ok(), "a channel is connected once");
        Ok(())
    }

    /// Connects through the children from `first` on, up to one that does not fail at once.
    fn start(&self, state: &mut State, first: usize, target: Target) -> Result<(), Failure> {
        let mut last = Failure::new(Status::UNREACHABLE, "no child of the route is left");
        for child in first..self.shared.children.len() {
            match self.attempt(state, child, &target) {
                Ok(attempt) => {
                    state.phase = Phase::Connecting(attempt, target);
                    return Ok(());
                }
                Err(failure) => {
                    state.passed.push(format!("{}: {}", self.shared.children[child].name, failure.message));
                    let unreachable =
                        [Status::UNREACHABLE, Status::BAD_ADDRESS, Status::NOT_SUPPORTED, Status::PERMISSION];
                    let goes_on = unreachable.contains(&failure.status);
                    last = failure;
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    fn attempt(&self, state: &State, child: usize, target: &Target) -> Result<Attempt, Failure> {
        let (attempt, own) = self.open(state, child)?;
        let param = ConnectParam {
            addr: target.addr,
            port: target.port,
            qos: target.qos,
            data: &own.with(&target.data),
        };
        attempt.below.connect(&param)?;
        Ok(attempt)
    }

    /// A channel of this child, with the receives posted so far, and what this side says of itself.
    fn open(&self, state: &State, child: usize) -> Result<(Attempt, Header), Failure> {
        let of = &self.shared.children[child];
        let own = self.shared.header(child, self.attr.domain, state.port.unwrap_or_default())?;
        let queue = |queue: &Option<Arc<RouteQueue>>| match queue {
            Some(queue) => queue.below(child).cloned().map(Some),
            None => Ok(None),
        };
        let (send, recv) = (queue(&self.queues[0])?, queue(&self.queues[1])?);
        // Room for a read of the route's own. Near children need none: the keys are theirs.
        let more = u32::from(!of.near);
        let attr = ChannelAttr { max_requests: self.attr.max_requests.saturating_add(more), ..self.attr };
        let below = of.below.open_channel(&attr, send.as_ref(), recv.as_ref())?;
        for recv in &state.held {
            let status = self.post_held(child, &below, recv);
            if status != Status::OK {
                return Err(Failure::new(
                    status,
                    "a receive that was posted before could not be posted again",
                ));
            }
        }
        Ok((Attempt { child, below }, own))
    }

    fn post_held(&self, child: usize, below: &BelowChannel, recv: &HeldRecv) -> Status {
        let posted = self
            .shared
            .regions
            .with_local(child, &recv.segments, |segments| post_recv(below, recv.token, recv.flags, segments));
        posted.unwrap_or_else(|status| status)
    }

    /// A receive of a channel that is not connected yet.
    fn hold(&self, request: &RecvRequest) -> Status {
        let mut state = self.state();
        let recv =
            HeldRecv { token: request.token, flags: request.flags, segments: request.segments().to_vec() };
        let status = match &state.phase {
            Phase::Live => {
                drop(state);
                return self.post_recv(request);
            }
            Phase::Stopped(_) => Status::NOT_CONNECTED,
            Phase::Idle if state.held.len() >= self.attr.max_recvs as usize => Status::NO_RESOURCE,
            Phase::Idle => Status::OK,
            Phase::Connecting(attempt, _) | Phase::Accepting(attempt, _) => {
                self.post_held(attempt.child, &attempt.below, &recv)
            }
        };
        if status == Status::OK {
            state.held.push(recv);
        }
        status
    }

    fn check_data(&self, data: &[u8]) -> Result<(), Failure> {
        if self.shared.carries(data) {
            return Ok(());
        }
        let message = format!("{} bytes of private data are too many for a route", data.len());
        Err(Failure::new(Status::INVALID, message))
    }

    fn posted(&self, live: &Live, posted: Posted) -> Status {
        match posted {
            Posted::Done(status) => status,
            Posted::Held(asked) => {
                if asked && let Some(queue) = &self.queues[0] {
                    queue.asked(live.child);
                }
                Status::OK
            }
        }
    }

    /// The channel of the child that is in use, if one is.
    fn with_below<T>(&self, f: impl FnOnce(usize, &BelowChannel) -> T) -> Option<T> {
        if let Some(live) = self.live.get() {
            return Some(f(live.child, &live.below));
        }
        match &self.state().phase {
            Phase::Connecting(attempt, _) | Phase::Accepting(attempt, _) | Phase::Stopped(Some(attempt)) => {
                Some(f(attempt.child, &attempt.below))
            }
            _ => None,
        }
    }

    // A panic of a child stops at its boundary, so the state is sound at all times.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection for RouteChannel {
    fn event(&self, child: usize, mut event: Event) -> Option<Event> {
        let mut state = self.state();
        match std::mem::take(&mut state.phase) {
            Phase::Connecting(attempt, target) if attempt.child == child => match event.kind {
                EventKind::ESTABLISHED => {
                    let made = match Header::read(event.data()) {
                        Some((peer, data)) => {
                            let data = data.to_vec();
                            self.go_live(&mut state, attempt, peer).map(|()| data).map_err(Some)
                        }
                        None => {
                            attempt.below.disconnect();
                            Err(Some(attempt))
                        }
                    };
                    match made {
                        Ok(data) => Some(event_with(event, &data)),
                        Err(attempt) => {
                            state.phase = Phase::Stopped(attempt);
                            event.kind = EventKind::REFUSED;
                            Some(event_with(event, &[]))
                        }
                    }
                }
                EventKind::REFUSED | EventKind::UNREACHABLE => {
                    state.refused |= event.kind == EventKind::REFUSED;
                    let why = if event.kind == EventKind::REFUSED { "refused" } else { "not reachable" };
                    state.passed.push(format!("{}: {why}", self.shared.children[child].name));
                    // The attempt is closed before the next one begins.
                    drop(attempt);
                    if self.start(&mut state, child + 1, target).is_ok() {
                        return None;
                    }
                    state.phase = Phase::Stopped(None);
                    event.kind = if state.refused { EventKind::REFUSED } else { EventKind::UNREACHABLE };
                    Some(event_with(event, &[]))
                }
                _ => {
                    state.phase = Phase::Stopped(Some(attempt));
                    let data = Header::read(event.data()).map_or(Vec::new(), |(_, data)| data.to_vec());
                    Some(event_with(event, &data))
                }
            },
            Phase::Accepting(attempt, peer) if attempt.child == child => {
                if event.kind != EventKind::ESTABLISHED {
                    state.phase = Phase::Stopped(Some(attempt));
                } else if let Err(attempt) = self.go_live(&mut state, attempt, peer) {
                    state.phase = Phase::Stopped(Some(attempt));
                    event.kind = EventKind::ACCEPT_FAILED;
                }
                Some(event)
            }
            phase => {
                let ours = match &phase {
                    Phase::Live => self.live.get().is_some_and(|live| live.child == child),
                    Phase::Stopped(attempt) => attempt.as_ref().is_some_and(|attempt| attempt.child == child),
                    _ => false,
                };
                state.phase = phase;
                if let Some(far) = self.live.get().and_then(|live| live.far.as_ref()) {
                    far.stop();
                }
                ours.then_some(event)
            }
        }
    }
}

/// The event with other private data.
fn event_with(event: Event, data: &[u8]) -> Event {
    Event { data: [0; dat_plugin::MAX_PRIVATE_DATA], data_len: 0, ..event }.with_data(data)
}

impl Channel for RouteChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Idle) {
            return Err(Failure::new(Status::INVALID, "a channel is used for one connection"));
        }
        let ConnectParam { addr, port, qos, data } = *param;
        self.check_data(data)?;
        state.port = Some(self.shared.new_port());
        self.start(&mut state, 0, Target { addr, port, qos, data: data.to_vec() })
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let mut state = self.state();
        if !matches!(state.phase, Phase::Idle) {
            return Err(Failure::new(Status::INVALID, "a channel is used for one connection"));
        }
        self.check_data(data)?;
        let asked = self.shared.take_request(request)?;
        let accepted = self.open(&state, asked.child).and_then(|(attempt, own)| {
            attempt.below.accept(asked.request, &own.with(data)).map(|()| attempt)
        });
        match accepted {
            Ok(attempt) => {
                state.phase = Phase::Accepting(attempt, asked.peer);
                Ok(())
            }
            Err(failure) => {
                self.shared.put_back(request, asked);
                Err(failure)
            }
        }
    }

    fn disconnect(&self) -> Status {
        if let Some(live) = self.live.get() {
            let status = live.below.disconnect();
            if let Some(far) = &live.far {
                far.stop();
            }
            return status;
        }
        let mut state = self.state();
        match std::mem::take(&mut state.phase) {
            Phase::Connecting(attempt, _) | Phase::Accepting(attempt, _) => {
                let status = attempt.below.disconnect();
                state.phase = Phase::Stopped(Some(attempt));
                status
            }
            Phase::Live => {
                state.phase = Phase::Live;
                drop(state);
                self.disconnect()
            }
            Phase::Stopped(attempt) => {
                let status = attempt.as_ref().map_or(Status::OK, |attempt| attempt.below.disconnect());
                state.phase = Phase::Stopped(attempt);
                status
            }
            Phase::Idle => {
                state.phase = Phase::Stopped(None);
                Status::OK
            }
        }
    }

    fn post(&self, request: &Request) -> Status {
        let Some(live) = self.live.get() else { return Status::NOT_CONNECTED };
        match &live.far {
            None => live.below.post(request),
            Some(far) => self.posted(live, far.post(request)),
        }
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        match self.live.get() {
            None => self.hold(request),
            Some(Live { far: None, below, .. }) => below.post_recv(request),
            Some(Live { far: Some(far), .. }) => far.post_recv(request),
        }
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        let Some(live) = self.live.get() else { return Status::NOT_CONNECTED };
        match &live.far {
            None => live.below.post_atomic(request),
            Some(far) => self.posted(live, far.post_atomic(request)),
        }
    }

    fn settle(&self) {
        if let Some(live) = self.live.get() {
            live.below.settle();
        }
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        match self.live.get() {
            Some(Live { far: None, below, .. }) => below.post_list(requests),
            _ => first_refused(requests, |request| self.post(request)),
        }
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        match self.live.get() {
            Some(Live { far: None, below, .. }) => below.post_recv_list(requests),
            _ => first_refused(requests, |request| self.post_recv(request)),
        }
    }

    fn local_port(&self) -> u64 {
        let port = self.state().port;
        port.map(u64::from).or_else(|| self.with_below(|_, below| below.local_port())).unwrap_or(0)
    }

    fn describe(&self) -> String {
        let passed = match self.state().passed.join("; ") {
            passed if passed.is_empty() => passed,
            passed => format!(" ({passed})"),
        };
        let path = self.with_below(|child, below| {
            format!("by {}: {}", self.shared.children[child].label(), below.describe())
        });
        format!("{}{passed}", path.as_deref().unwrap_or("not connected"))
    }

    fn close(&self) {
        self.shared.forget(self.attr.user);
        if let (Some(live), Some(queue)) = (self.live.get(), &self.queues[0]) {
            queue.remove(live.child, self.attr.send_user);
        }
    }
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
