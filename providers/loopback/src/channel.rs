//! One end of a connection.

use std::sync::Arc;

use dat_kit::Fifo;
use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ChannelAttr, ConnectParam, Event, EventKind, Failure, Opcode,
    PostFlag, RecvRequest, Segment, SockAddr, Status,
};

use crate::adapter::Adapter;
use crate::limits::{MAX_MESSAGE, MAX_POSTS, MAX_PRIVATE_DATA, MAX_SEGMENTS, well_formed};
use crate::network::{Endpoint, Network, Origin, Phase, Recv, Request, State, Work};
use crate::params::{NO_PEER, Params, SILENT_CONNECT};
use crate::queue::LoopQueue;

/// One end of a connection.
#[derive(Debug)]
pub struct LoopChannel {
    network: Arc<Network>,
    params: Arc<Params>,
    index: usize,
}

impl LoopChannel {
    pub(crate) fn new(
        adapter: &Adapter,
        attr: &ChannelAttr,
        send: Option<&Arc<LoopQueue>>,
        recv: Option<&Arc<LoopQueue>>,
        srq: Option<usize>,
    ) -> Result<LoopChannel, Failure> {
        let params = &adapter.params;
        let refuse =
            |status, why: &str| Err(Failure::new(status, format!("{}: new channel: {why}", params.ia_name)));
        if attr.max_requests.max(attr.max_recvs) > MAX_POSTS
            || attr.max_request_segments.max(attr.max_recv_segments) > MAX_SEGMENTS
            || attr.max_message > MAX_MESSAGE
        {
            return refuse(Status::INVALID, "its attributes exceed those of the device");
        }
        let requests = Fifo::new(attr.max_requests as usize, attr.max_request_segments as usize);
        let recvs = Fifo::new(attr.max_recvs as usize, attr.max_recv_segments as usize);
        let (Some(requests), Some(recvs)) = (requests, recvs) else {
            return refuse(Status::NO_RESOURCE, "not enough memory for its posts");
        };
        let mut state = adapter.network.lock();
        let Some(own) = state.devices.get_mut(adapter.index) else {
            return refuse(Status::INVALID, "the device is closed");
        };
        if own.open_channels >= params.max_channels {
            return refuse(Status::NO_RESOURCE, "the device has max_channels of them; close one first");
        }
        own.open_channels += 1;
        let index = state.channels.insert(Endpoint {
            device: adapter.index,
            attr: *attr,
            phase: Phase::Idle,
            local_port: 0,
            send_queue: send.cloned(),
            recv_queue: recv.cloned(),
            requests,
            recvs,
            srq,
            unsignalled: None,
            waiting_since: None,
        });
        drop(state);
        Ok(LoopChannel { network: adapter.network.clone(), params: params.clone(), index })
    }

    fn failure(&self, call: &str, status: Status, why: &str) -> Failure {
        Failure::new(status, format!("{}: {call}: {why}", self.params.ia_name))
    }

    /// The channel's own end, if it may begin a connection.
    fn idle_end<'a>(&self, state: &'a mut State, call: &str) -> Result<&'a mut Endpoint, Failure> {
        state.channels.get_mut(self.index).filter(|end| end.phase == Phase::Idle).ok_or_else(|| {
            self.failure(call, Status::INVALID, "the channel was used before; open another one")
        })
    }

    fn check_data(&self, call: &str, data: &[u8]) -> Result<(), Failure> {
        if data.len() <= MAX_PRIVATE_DATA {
            return Ok(());
        }
        let why = format!("{} bytes of private data; the most is {MAX_PRIVATE_DATA}", data.len());
        Err(self.failure(call, Status::INVALID, &why))
    }
}

impl Channel for LoopChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        self.params.inject("connect")?;
        self.check_data("connect", param.data)?;
        let Some(address) = param.addr.to_std() else {
            let why = "the address is neither IPv4 nor IPv6";
            return Err(self.failure("connect", Status::BAD_ADDRESS, why));
        };
        let mut state = self.network.lock();
        if !state.has_address(address.ip()) {
            let why = format!("no device of network {:?} has address {}", self.network.name, address.ip());
            return Err(self.failure("connect", Status::UNREACHABLE, &why));
        }
        self.idle_end(&mut state, "connect")?;
        let port = state.free_port();
        let end = self.idle_end(&mut state, "connect")?;
        end.local_port = port;
        end.phase = Phase::Unanswered;
        let device = end.device;
        if self.params.fails(SILENT_CONNECT) {
            return Ok(());
        }
        if self.params.fails(NO_PEER) {
            state.fail_connect(Some(self.index), EventKind::UNREACHABLE, &[]);
            return Ok(());
        }
        let Some(listening) = state.listeners.get(&param.port).copied() else {
            state.fail_connect(Some(self.index), EventKind::REFUSED, &[]);
            return Ok(());
        };
        state.next_request += 1;
        let request = state.next_request;
        self.set_phase(&mut state, Phase::Connecting { request });
        state
            .requests
            .insert(request, Request { from: Some(self.index), at: listening.device, port: param.port });
        let peer = state.devices.get(device).map_or(SockAddr::UNSPECIFIED, |own| own.address.into());
        let event = Event {
            qos: param.qos,
            request,
            port: param.port,
            peer_port: port,
            peer,
            ..Event::new(EventKind::REQUEST, listening.user).with_data(param.data)
        };
        state.send_event(listening.device, Origin::Request, event);
        Ok(())
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        self.params.inject("accept")?;
        self.check_data("accept", data)?;
        let mut state = self.network.lock();
        let device = self.idle_end(&mut state, "accept")?.device;
        let Some(asked) = state.requests.get(&request).copied().filter(|asked| asked.at == device) else {
            let why = format!("there is no unanswered request {request}");
            return Err(self.failure("accept", Status::INVALID, &why));
        };
        state.requests.remove(&request);
        self.idle_end(&mut state, "accept")?.local_port = asked.port;
        match asked.from.and_then(|from| state.channels.pair(self.index, from).map(|ends| (from, ends))) {
            None => state.fail_connect(Some(self.index), EventKind::ACCEPT_FAILED, &[]),
            Some((from, (own, peer))) => {
                own.phase = Phase::Connected { peer: from };
                peer.phase = Phase::Connected { peer: self.index };
                state.send_channel_event(from, EventKind::ESTABLISHED, data);
                state.send_channel_event(self.index, EventKind::ESTABLISHED, &[]);
            }
        }
        Ok(())
    }

    fn disconnect(&self) -> Status {
        self.network.lock().leave(self.index);
        Status::OK
    }

    fn post(&self, request: &dat_plugin::Request) -> Status {
        let length = match request.opcode {
            Opcode::READ if u64::from(request.remote_len) <= request.total => request.remote_len.into(),
            Opcode::SEND | Opcode::SEND_IMM | Opcode::SEND_INVALIDATE => request.total,
            Opcode::WRITE | Opcode::WRITE_IMM => request.total,
            _ => return Status::INVALID,
        };
        let work = Work {
            token: request.token,
            opcode: request.opcode,
            flags: request.flags,
            length,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            imm: request.imm,
            ..Work::default()
        };
        self.enqueue(&mut self.network.lock(), work, request.segments(), request.total)
    }

    fn settle(&self) {
        if let Some(end) = self.network.lock().channels.get_mut(self.index) {
            end.settle();
        }
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        if !matches!(request.opcode, Opcode::FETCH_ADD | Opcode::CMP_SWAP) {
            return Status::INVALID;
        }
        let work = Work {
            token: request.token,
            opcode: request.opcode,
            flags: request.flags,
            length: 8,
            remote_addr: request.remote_addr,
            rkey: request.rkey,
            operands: [request.operand, request.swap],
            ..Work::default()
        };
        self.enqueue(&mut self.network.lock(), work, &[request.sink], 8)
    }

    /// Binds the window at once, so that its key is good for the next posts. The completion keeps its turn.
    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let mut state = self.network.lock();
        let device = match state.channels.get(self.index) {
            Some(end) if end.requests.is_full() => return Err(Status::NO_RESOURCE),
            Some(Endpoint { phase: Phase::Connected { .. }, device, .. }) => *device,
            _ => return Err(Status::NOT_CONNECTED),
        };
        let keys = &mut state.devices.get_mut(device).ok_or(Status::NOT_CONNECTED)?.keys;
        let range = request.range().map(|range| (range, request.access));
        let window = u32::try_from(request.window).map_err(|_| Status::INVALID)?;
        let bound = keys.bind(window, range);
        let work = Work {
            token: request.token,
            opcode: Opcode::BIND,
            flags: request.flags,
            failed: bound.is_err(),
            ..Work::default()
        };
        match self.enqueue(&mut state, work, &[], 0) {
            Status::OK => Ok(bound.unwrap_or(0)),
            status => Err(status),
        }
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        let mut state = self.network.lock();
        let Some(end) = state.channels.get_mut(self.index) else { return Status::NOT_CONNECTED };
        if end.phase == Phase::Stopped {
            return Status::NOT_CONNECTED;
        }
        let (segments, room) = (request.segments(), request.total);
        let possible = end.recv_queue.is_some() && end.srq.is_none();
        if !possible || !well_formed(segments, end.attr.max_recv_segments, room) {
            return Status::INVALID;
        }
        let poisoned = request.flags.contains(PostFlag::POISON);
        if !end.recvs.push(Recv { token: request.token, room, poisoned }, segments) {
            return Status::NO_RESOURCE;
        }
        if let Phase::Connected { peer } = end.phase {
            state.progress(peer);
        }
        Status::OK
    }

    fn local_port(&self) -> u64 {
        self.network.lock().channels.get(self.index).map_or(0, |end| end.local_port)
    }

    fn describe(&self) -> String {
        let state = self.network.lock();
        let port = |index: usize| state.channels.get(index).map_or(0, |end| end.local_port);
        let phase = match state.channels.get(self.index).map(|end| end.phase) {
            Some(Phase::Idle) => "not connected yet".into(),
            Some(Phase::Connecting { .. } | Phase::Unanswered) => "connecting".into(),
            Some(Phase::Connected { peer }) => format!("connected to port {}", port(peer)),
            Some(Phase::Stopped) | None => "stopped".into(),
        };
        let name = &self.network.name;
        format!("in-process, network {name:?}, port {}, {phase}; one copy per message", port(self.index))
    }

    fn close(&self) {
        let mut state = self.network.lock();
        state.leave(self.index);
        let end = state.channels.remove(self.index);
        if let Some(device) = end.and_then(|end| state.devices.get_mut(end.device)) {
            device.open_channels -= 1;
        }
    }
}

impl LoopChannel {
    fn enqueue(&self, state: &mut State, work: Work, segments: &[Segment], total: u64) -> Status {
        let Some(end) = state.channels.get_mut(self.index) else { return Status::NOT_CONNECTED };
        if !matches!(end.phase, Phase::Connected { .. }) {
            return Status::NOT_CONNECTED;
        }
        let limit = end.attr.max_request_segments;
        if end.send_queue.is_none() || !well_formed(segments, limit, total) {
            return Status::INVALID;
        }
        if !end.requests.push(work, segments) {
            return Status::NO_RESOURCE;
        }
        // A request behind another waits for that one, which waits for a receive.
        if end.requests.len() == 1 {
            state.progress(self.index);
        }
        Status::OK
    }

    fn set_phase(&self, state: &mut State, phase: Phase) {
        if let Some(end) = state.channels.get_mut(self.index) {
            end.phase = phase;
        }
    }
}
