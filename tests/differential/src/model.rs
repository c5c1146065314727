//! The reference model: what each call must return and which events must follow, from the contract's tables. It knows
//! nothing of channels, queues or threads.

use std::collections::VecDeque;

use dat_types::ConnectionKind::{
    AcceptCompletionError, Broken, Disconnected, Established, NonPeerRejected, PeerRejected, TimedOut,
};
use dat_types::ReturnType::{
    ConnQualInUse, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS, ModelNotSupported as MNS,
};
use dat_types::{ConnectionKind, DtoOperation, DtoStatus, EpState};

use crate::expect::{Answer, Expected, Faults, Stream, What};
use crate::program::{Attrs, EVDS, Evd, FOREIGN, PLACES, Shape, Step, TOO_LONG, Target, Time, side_of};
use crate::transfer::{Memory, Recv, Request};

/// What differs between providers and matters here.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of private data.
    pub private_data: usize,
}

impl Limits {
    /// What programs are written for.
    pub const COMMON: Limits = Limits { private_data: 256 };
}

/// Both adapters.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) limits: Limits,
    pub(crate) eps: Vec<Endpoint>,
    pub(crate) places: [Option<usize>; PLACES],
    pub(crate) sides: [Side; 2],
    /// Which step is being made; it is the cookie of what it posts.
    pub(crate) step: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) listening: bool,
    /// How often it has listened: what an endpoint asked once may be another service point now.
    generation: u32,
    pub(crate) reserved: Option<Reserved>,
    /// Undecided requests, in the order of their arrival.
    pub(crate) asked: Vec<Asked>,
    /// How many were decided.
    pub(crate) decided: usize,
    pub(crate) memory: Memory,
}

/// The last reserved service point of a side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    /// Each has a qualifier of its own.
    number: u32,
    ep: usize,
    /// `false`: its request has come, or it was freed.
    pub(crate) listening: bool,
    freed: bool,
}

/// Whom an endpoint asked when it connected.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Public {
        side: usize,
        generation: u32,
    },
    /// `None`: there has not been one.
    Reserved {
        side: usize,
        number: Option<u32>,
    },
    Nobody,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) from: usize,
    /// The endpoint it holds, of a reserved service point.
    pub(crate) held: Option<usize>,
    /// The attempt it belongs to; an endpoint that has gone on asks no more.
    pub(crate) attempt: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) side: usize,
    pub(crate) alive: bool,
    pub(crate) state: EpState,
    pub(crate) shape: Shape,
    pub(crate) attempt: u32,
    pub(crate) peer: Option<usize>,
    /// Whom it asked; none: it was asked.
    goal: Option<Goal>,
    pub(crate) recvs: VecDeque<Recv>,
    pub(crate) requests: VecDeque<Request>,
    /// A request succeeded that nobody is told of; until everything is settled it may not have done so yet.
    pub(crate) silent: bool,
    /// What must come, by stream.
    pub(crate) expected: [VecDeque<Expected>; 3],
}

const NEVER: u64 = 0x1 | 0x2 | 0x8 | 0x10 | 0x20 | 0x40 | 0x800;
const DEFINED: u64 = 0x7FFF_FFFF;
const ZONE: u64 = 0x80;
const UNSIGNALLED: u32 = 0x04;
const THRESHOLD: u32 = 0x10;
const SOLICITED: u32 = 0x02;

impl Model {
    /// Two adapters that listen, without endpoints.
    pub fn new(limits: Limits) -> Model {
        let side = |side| Side {
            listening: true,
            generation: 0,
            reserved: None,
            asked: Vec::new(),
            decided: 0,
            memory: Memory::new(side),
        };
        Model { limits, eps: Vec::new(), places: [None; PLACES], sides: [side(0), side(1)], step: 0 }
    }

    /// Makes a step.
    pub(crate) fn apply(&mut self, index: usize, step: &Step) -> Answer {
        self.step = index;
        let answer = self.perform(step);
        if answer == Answer::Success {
            self.transfer_all();
        }
        answer
    }

    fn perform(&mut self, step: &Step) -> Answer {
        match step {
            Step::Create { place, shape } => self.create(*place, shape),
            Step::Accept { side, which, place, data } => self.accept(*side, *which, *place, *data),
            Step::Reject { side, which, data } => self.reject(*side, *which, *data),
            Step::AcceptStale { side, .. } | Step::RejectStale { side } => {
                match self.sides[usize::from(*side)].decided {
                    0 => Answer::LeftOut,
                    _ => Answer::Refused(vec![IH]),
                }
            }
            Step::StopListening { side } => self.listening(*side, false),
            Step::Listen { side } => self.listening(*side, true),
            Step::FreeZone { side, zone } => self.free_zone(*side, *zone),
            Step::FreeEvd { side, evd } => self.free_evd(*side, *evd),
            Step::Unreserve { side } => self.unreserve(usize::from(*side)),
            Step::Free { place }
            | Step::Connect { place, .. }
            | Step::DupConnect { place, .. }
            | Step::Reserve { place, .. }
            | Step::Disconnect { place, .. }
            | Step::Reset { place }
            | Step::Recv { place, .. }
            | Step::Send { place, .. }
            | Step::Write { place, .. }
            | Step::Read { place, .. }
            | Step::Modify { place, .. }
            | Step::Query { place } => {
                let empty = |place: u8| self.places[usize::from(place)].is_none();
                if matches!(step, Step::DupConnect { dup, .. } if empty(*dup)) {
                    return Answer::LeftOut;
                }
                let Some(ep) = self.places[usize::from(*place)] else { return Answer::LeftOut };
                if !self.eps[ep].alive {
                    return Answer::Refused(vec![IH]);
                }
                self.on_endpoint(ep, step)
            }
        }
    }

    fn on_endpoint(&mut self, ep: usize, step: &Step) -> Answer {
        match step {
            Step::Free { .. } => self.free(ep),
            Step::Connect { to, data, time, flags, qos, .. } => {
                self.connect(ep, *to, *data, *time, *flags, *qos)
            }
            Step::DupConnect { dup, data, time, qos, .. } => {
                self.dup_connect(ep, usize::from(*dup), *data, *time, *qos)
            }
            Step::Reserve { taken, .. } => self.reserve(ep, *taken),
            Step::Disconnect { graceful, .. } => self.disconnect(ep, *graceful),
            Step::Reset { .. } => match self.eps[ep].state {
                EpState::Unconnected => Answer::Success,
                EpState::Disconnected => {
                    self.eps[ep].state = EpState::Unconnected;
                    Answer::Success
                }
                _ => Answer::Refused(vec![IS]),
            },
            Step::Modify { mask, shape, .. } => self.modify(ep, *mask, shape),
            Step::Query { .. } => Answer::Success,
            post => self.post(ep, post),
        }
    }

    // Endpoints and their parameters.

    fn create(&mut self, place: u8, shape: &Shape) -> Answer {
        let side = side_of(place);
        let mut faults = Faults::default();
        faults.when(shape.zone == Some(FOREIGN), 0, IH);
        wrong_evds(shape, |fault| faults.when(fault, 0, IH));
        self.inconsistent(side, None, shape, |fault| faults.when(fault, 1, IP));
        // Which of an unsupported model and another bad attribute is named first is open.
        faults.when(shape.attrs.service != 0, 1, MNS);
        let answer = faults.answer();
        if answer == Answer::Success {
            self.eps.push(Endpoint {
                side,
                alive: true,
                state: EpState::Unconnected,
                shape: shape.clone(),
                attempt: 0,
                peer: None,
                goal: None,
                recvs: VecDeque::new(),
                requests: VecDeque::new(),
                silent: false,
                expected: Default::default(),
            });
            self.places[usize::from(place)] = Some(self.eps.len() - 1);
        }
        answer
    }

    /// Contract section 5.3.
    fn inconsistent(&self, side: usize, own: Option<usize>, shape: &Shape, mut found: impl FnMut(bool)) {
        let a = &shape.attrs;
        found(a.qos != 0);
        let most = [a.recvs, a.requests, a.recv_iov, a.request_iov, a.reads_in, a.reads_out];
        found(most.contains(&u32::MAX) || a.message == u64::MAX || a.rdma == u64::MAX);
        match shape.recv {
            None => found(a.recvs > 0),
            Some(_) => found(a.recvs == 0 || a.recv_iov == 0),
        }
        match shape.request {
            None => found(a.requests > 0 || a.request_iov > 0),
            Some(_) => found(a.requests == 0),
        }
        found(![0, UNSIGNALLED, SOLICITED, THRESHOLD].contains(&a.recv_flags));
        found(![0, UNSIGNALLED, THRESHOLD].contains(&a.request_flags));
        (0..EVDS.len() as u8).for_each(|evd| found(self.clash(side, own, shape, evd)));
    }

    /// Rules K-7 to K-9 on one dispatcher.
    fn clash(&self, side: usize, own: Option<usize>, shape: &Shape, evd: u8) -> bool {
        let others = self
            .eps
            .iter()
            .enumerate()
            .filter(|(index, ep)| ep.alive && ep.side == side && Some(*index) != own);
        let shapes = others.map(|(_, ep)| &ep.shape).chain([shape]);
        let (mut modes, mut requests, mut connections) = (Vec::new(), false, false);
        let mut fed_by_shape = false;
        for each in shapes {
            let normal = |flags: u32| if flags == 0 { THRESHOLD } else { flags };
            if each.recv == Some(evd) {
                modes.push(normal(each.attrs.recv_flags));
            }
            if each.request == Some(evd) {
                modes.push(normal(each.attrs.request_flags));
                requests = true;
            }
            connections |= each.conn == Some(evd);
            fed_by_shape |=
                std::ptr::eq(each, shape) && [shape.recv, shape.request, shape.conn].contains(&Some(evd));
        }
        let Some(first) = modes.first().copied() else { return false };
        fed_by_shape
            && (modes.iter().any(|mode| *mode != first)
                || (connections && first != THRESHOLD)
                || (requests && first == SOLICITED))
    }

    fn modify(&mut self, ep: usize, mask: u64, new: &Shape) -> Answer {
        let state = self.eps[ep].state;
        let mut faults = Faults::default();
        faults.when(mask & !DEFINED != 0 || mask & NEVER != 0, 0, IP);
        let fixed = match state {
            EpState::Unconnected => 0,
            EpState::Reserved | EpState::PassiveConnectionPending => ZONE,
            _ => DEFINED,
        };
        faults.when(mask & fixed & !NEVER != 0, 1, IS);
        let merged = merge(&self.eps[ep].shape, new, mask);
        faults.when(mask & ZONE != 0 && new.zone == Some(FOREIGN), 2, IP);
        wrong_evds(&merged, |fault| faults.when(fault, 2, IP));
        faults.when(merged.attrs.service != 0, 2, IP);
        self.inconsistent(self.eps[ep].side, Some(ep), &merged, |fault| faults.when(fault, 2, IP));
        let posted = self.eps[ep].recvs.len() as u32;
        let old = &self.eps[ep].shape.attrs;
        faults.when(posted > 0 && old.recv_flags != merged.attrs.recv_flags, 2, IS);
        faults.when(merged.attrs.recvs < posted, 2, IP);
        let longest = self.eps[ep].recvs.iter().map(|recv| recv.iov.len()).max().unwrap_or(0);
        faults.when((merged.attrs.recv_iov as usize) < longest, 2, IP);
        let answer = faults.answer();
        if answer == Answer::Success {
            self.eps[ep].shape = merged;
        }
        answer
    }

    fn free(&mut self, ep: usize) -> Answer {
        if matches!(self.eps[ep].state, EpState::Reserved | EpState::PassiveConnectionPending) {
            return Answer::Refused(vec![IS]);
        }
        self.hang_up_at_peer(ep, &[Disconnected, Broken]);
        let it = &mut self.eps[ep];
        it.alive = false;
        it.attempt += 1;
        it.recvs.clear();
        it.requests.clear();
        Answer::Success
    }

    pub(crate) fn free_at_end(&mut self, ep: usize) {
        self.free(ep);
        self.transfer_all();
    }

    fn free_zone(&self, side: u8, zone: u8) -> Answer {
        // Every zone has regions.
        let _ = (side, zone);
        Answer::Refused(vec![IS])
    }

    fn free_evd(&self, side: u8, evd: u8) -> Answer {
        let feeds = |ep: &Endpoint| {
            ep.alive
                && ep.side == usize::from(side)
                && [ep.shape.recv, ep.shape.request, ep.shape.conn].contains(&Some(evd))
        };
        let it = &self.sides[usize::from(side)];
        let listening = it.listening || it.reserved.is_some_and(|point| point.listening);
        let listening = listening && EVDS[usize::from(evd)] == Evd::Requests;
        match listening || self.eps.iter().any(feeds) {
            true => Answer::Refused(vec![IS]),
            false => Answer::LeftOut,
        }
    }

    // Connections.

    fn too_long(&self, data: u16) -> bool {
        data == TOO_LONG || usize::from(data) > self.limits.private_data
    }

    fn ready(&self, ep: usize) -> bool {
        self.eps[ep].shape.zone.is_some() && self.eps[ep].shape.conn.is_some()
    }

    fn connect(&mut self, ep: usize, to: Target, data: u16, time: Time, flags: u32, qos: u32) -> Answer {
        let mut faults = Faults::default();
        faults.when(time == Time::Zero || self.too_long(data) || qos != 0 || flags > 3, 0, IP);
        faults.when(self.eps[ep].state != EpState::Unconnected || !self.ready(ep), 1, IS);
        faults.when(flags & 2 != 0, 2, MNS);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let own = self.eps[ep].side;
        let public = |side: usize| Goal::Public { side, generation: self.sides[side].generation };
        let goal = match to {
            Target::Peer => public(1 - own),
            Target::Own => public(own),
            Target::Reserved => {
                let number = self.sides[1 - own].reserved.map(|point| point.number);
                Goal::Reserved { side: 1 - own, number }
            }
            Target::Nobody => Goal::Nobody,
        };
        self.ask(ep, goal, time)
    }

    fn dup_connect(&mut self, ep: usize, dup: usize, data: u16, time: Time, qos: u32) -> Answer {
        let Some(dup) = self.places[dup % PLACES] else { return Answer::LeftOut };
        let other = &self.eps[dup];
        let mut faults = Faults::default();
        faults.when(!other.alive || other.side != self.eps[ep].side, 0, IH);
        faults.when(time == Time::Zero || self.too_long(data) || qos != 0, 1, IP);
        faults.when(self.eps[ep].state != EpState::Unconnected || !self.ready(ep), 2, IS);
        faults.when(other.state != EpState::Connected || other.goal.is_none(), 2, IS);
        let goal = other.goal;
        match (faults.answer(), goal) {
            (Answer::Success, Some(Goal::Public { side, generation }))
                if self.sides[side].listening && self.sides[side].generation != generation =>
            {
                // It may have got the qualifier of the service point before it, or another one.
                Answer::LeftOut
            }
            (Answer::Success, Some(goal)) => self.ask(ep, goal, time),
            (answer, _) => answer,
        }
    }

    /// A connect that passed all checks.
    fn ask(&mut self, ep: usize, goal: Goal, time: Time) -> Answer {
        self.eps[ep].attempt += 1;
        self.eps[ep].goal = Some(goal);
        let (side, held) = match goal {
            Goal::Public { side, .. } if self.sides[side].listening => (side, None),
            Goal::Reserved { side, number } if self.awaits(side, number) => {
                let point = self.sides[side].reserved.as_mut();
                let held = point.map(|point| {
                    point.listening = false;
                    point.ep
                });
                (side, held)
            }
            // Which comes first, the refusal or the end of a short time, is open.
            _ if time == Time::Short => {
                self.down(ep, &[NonPeerRejected, TimedOut], &[]);
                return Answer::Success;
            }
            _ => {
                self.down(ep, &[NonPeerRejected], &[]);
                return Answer::Success;
            }
        };
        if let Some(held) = held {
            self.eps[held].state = EpState::PassiveConnectionPending;
        }
        let attempt = self.eps[ep].attempt;
        self.sides[side].asked.push(Asked { from: ep, held, attempt });
        self.eps[ep].state = EpState::ActiveConnectionPending;
        if time == Time::Short {
            self.down(ep, &[TimedOut], &[]);
        }
        Answer::Success
    }

    fn awaits(&self, side: usize, number: Option<u32>) -> bool {
        self.sides[side].reserved.is_some_and(|point| point.listening && Some(point.number) == number)
    }

    fn reserve(&mut self, ep: usize, taken: bool) -> Answer {
        let side = self.eps[ep].side;
        if self.eps[ep].state != EpState::Unconnected {
            return Answer::Refused(vec![IS]);
        }
        let it = &mut self.sides[side];
        if taken {
            return if it.listening { Answer::Refused(vec![ConnQualInUse]) } else { Answer::LeftOut };
        }
        if it.reserved.is_some_and(|point| point.listening) {
            // One at a time, so that a target has one meaning.
            return Answer::LeftOut;
        }
        let number = it.reserved.map_or(0, |point| point.number + 1);
        it.reserved = Some(Reserved { number, ep, listening: true, freed: false });
        self.eps[ep].state = EpState::Reserved;
        Answer::Success
    }

    /// Contract decision D-20: after its request has come the handle can still be freed, once.
    fn unreserve(&mut self, side: usize) -> Answer {
        let Some(point) = &mut self.sides[side].reserved else { return Answer::LeftOut };
        if point.freed {
            return Answer::Refused(vec![IH]);
        }
        point.freed = true;
        if std::mem::take(&mut point.listening) {
            let ep = point.ep;
            self.eps[ep].state = EpState::Unconnected;
        }
        Answer::Success
    }

    /// The index of the request a step means.
    pub(crate) fn which(&self, side: u8, which: u8) -> Option<usize> {
        let count = self.sides[usize::from(side)].asked.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    fn still_asks(&self, asked: Asked) -> bool {
        let ep = &self.eps[asked.from];
        ep.alive && ep.attempt == asked.attempt && ep.state == EpState::ActiveConnectionPending
    }

    fn accept(&mut self, side: u8, which: u8, place: Option<u8>, data: u16) -> Answer {
        let Some(which) = self.which(side, which) else { return Answer::LeftOut };
        let side = usize::from(side);
        let held = self.sides[side].asked[which].held;
        let ep = match (place, held) {
            (None, Some(held)) => held,
            (None, None) => return Answer::Refused(vec![IH]),
            (Some(place), _) => match self.places[usize::from(place)] {
                Some(ep) => ep,
                None => return Answer::LeftOut,
            },
        };
        let it = &self.eps[ep];
        let mut faults = Faults::default();
        faults.when(!it.alive || it.side != side || (place.is_some() && held.is_some()), 0, IH);
        // Whether an endpoint that another request holds is a bad handle or one in a bad state decides its rank.
        let passive = it.state == EpState::PassiveConnectionPending;
        faults.when(passive && held.is_none(), 1, IH);
        faults.when(self.too_long(data), 1, IP);
        let right = if held.is_some() { passive } else { it.state == EpState::Unconnected };
        faults.when(!right || !self.ready(ep), 2, IS);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let asked = self.sides[side].asked.remove(which);
        self.sides[side].decided += 1;
        self.eps[ep].attempt += 1;
        self.eps[ep].goal = None;
        if !self.still_asks(asked) {
            self.down(ep, &[AcceptCompletionError], &[]);
            return answer;
        }
        for (one, other, data) in [(ep, asked.from, Vec::new()), (asked.from, ep, private_data(data))] {
            self.eps[one].state = EpState::Connected;
            self.eps[one].peer = Some(other);
            self.tell(one, &[Established], data);
        }
        answer
    }

    fn reject(&mut self, side: u8, which: u8, data: u16) -> Answer {
        let Some(which) = self.which(side, which) else { return Answer::LeftOut };
        if self.too_long(data) {
            return Answer::Refused(vec![IP]);
        }
        let side = &mut self.sides[usize::from(side)];
        let asked = side.asked.remove(which);
        side.decided += 1;
        if let Some(held) = asked.held {
            self.eps[held].state = EpState::Unconnected;
        }
        if self.still_asks(asked) {
            self.down(asked.from, &[PeerRejected], &private_data(data));
        }
        Answer::Success
    }

    fn listening(&mut self, side: u8, on: bool) -> Answer {
        let listening = &mut self.sides[usize::from(side)].listening;
        if *listening == on {
            return Answer::LeftOut;
        }
        *listening = on;
        self.sides[usize::from(side)].generation += 1;
        Answer::Success
    }

    fn disconnect(&mut self, ep: usize, graceful: bool) -> Answer {
        match self.eps[ep].state {
            EpState::Unconnected | EpState::Reserved | EpState::PassiveConnectionPending => {
                return Answer::Refused(vec![IS]);
            }
            EpState::Disconnected => {}
            EpState::DisconnectPending if graceful => {}
            EpState::Connected if graceful && !self.eps[ep].requests.is_empty() => {
                self.eps[ep].state = EpState::DisconnectPending;
            }
            _ => {
                self.hang_up_at_peer(ep, &[Disconnected]);
                self.down(ep, &[Disconnected], &[]);
            }
        }
        Answer::Success
    }

    /// The other end learns that this one has gone.
    pub(crate) fn hang_up_at_peer(&mut self, ep: usize, kinds: &[ConnectionKind]) {
        if let Some(peer) = self.eps[ep].peer.take() {
            self.down(peer, kinds, &[]);
        }
    }

    /// To DISCONNECTED: outstanding work is flushed in post order, then the event.
    pub(crate) fn down(&mut self, ep: usize, kinds: &[ConnectionKind], data: &[u8]) {
        self.eps[ep].state = EpState::Disconnected;
        self.eps[ep].peer = None;
        self.eps[ep].silent = false;
        for request in std::mem::take(&mut self.eps[ep].requests) {
            self.complete(ep, Stream::Request, request.cookie, &[DtoStatus::Flushed], request.operation, 0);
        }
        for recv in std::mem::take(&mut self.eps[ep].recvs) {
            self.complete(ep, Stream::Recv, recv.cookie, &[DtoStatus::Flushed], DtoOperation::Receive, 0);
        }
        self.tell(ep, kinds, data.to_vec());
    }

    fn tell(&mut self, ep: usize, kinds: &[ConnectionKind], data: Vec<u8>) {
        let ep = &mut self.eps[ep];
        let Some(evd) = ep.shape.conn else { return };
        let what = What::Connection { kinds: kinds.to_vec(), data };
        ep.expected[Stream::Connection as usize].push_back(Expected { evd, what });
    }

    pub(crate) fn complete(
        &mut self,
        ep: usize,
        stream: Stream,
        cookie: u64,
        statuses: &[DtoStatus],
        operation: DtoOperation,
        length: u64,
    ) {
        let ep = &mut self.eps[ep];
        let evd = if stream == Stream::Recv { ep.shape.recv } else { ep.shape.request };
        // A direction without a dispatcher has room for nothing.
        let Some(evd) = evd else { return };
        let what = What::Dto { cookie, statuses: statuses.to_vec(), operation, length };
        ep.expected[stream as usize].push_back(Expected { evd, what });
    }

    /// What is left to do at the end with reserved service points, whose endpoints cannot be freed.
    pub(crate) fn leftover(&self) -> Option<Step> {
        (0..2u8).find_map(|number| {
            let side = &self.sides[usize::from(number)];
            let held = side.asked.iter().position(|asked| asked.held.is_some());
            let reserved = side.reserved.is_some_and(|point| point.listening);
            match held {
                Some(which) => Some(Step::Reject { side: number, which: which as u8, data: 0 }),
                None => reserved.then_some(Step::Unreserve { side: number }),
            }
        })
    }

    /// Whether everything that must come came.
    pub(crate) fn is_settled(&self) -> bool {
        self.eps.iter().all(|ep| ep.expected.iter().all(VecDeque::is_empty))
    }
}

/// The bytes of private data of a length.
pub(crate) fn private_data(len: u16) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}

fn wrong_evds(shape: &Shape, mut found: impl FnMut(bool)) {
    for evd in [shape.recv, shape.request].into_iter().flatten() {
        found(evd == FOREIGN || !matches!(EVDS[usize::from(evd)], Evd::Dto | Evd::Both));
    }
    if let Some(evd) = shape.conn {
        found(evd == FOREIGN || !matches!(EVDS[usize::from(evd)], Evd::Connection | Evd::Both));
    }
}

/// The old shape with what the mask names.
fn merge(old: &Shape, new: &Shape, mask: u64) -> Shape {
    let bit = |bit: u64| mask & bit != 0;
    let (a, b) = (&old.attrs, &new.attrs);
    macro_rules! pick {
        ($bit:literal, $field:ident) => {
            if bit($bit) { b.$field } else { a.$field }
        };
    }
    Shape {
        zone: if bit(ZONE) { new.zone } else { old.zone },
        recv: if bit(0x100) { new.recv } else { old.recv },
        request: if bit(0x200) { new.request } else { old.request },
        conn: if bit(0x400) { new.conn } else { old.conn },
        attrs: Attrs {
            service: pick!(0x1000, service),
            message: pick!(0x2000, message),
            rdma: pick!(0x4000, rdma),
            qos: pick!(0x8000, qos),
            recv_flags: pick!(0x1_0000, recv_flags),
            request_flags: pick!(0x2_0000, request_flags),
            recvs: pick!(0x4_0000, recvs),
            requests: pick!(0x8_0000, requests),
            recv_iov: pick!(0x10_0000, recv_iov),
            request_iov: pick!(0x20_0000, request_iov),
            reads_in: pick!(0x40_0000, reads_in),
            reads_out: pick!(0x80_0000, reads_out),
        },
    }
}
