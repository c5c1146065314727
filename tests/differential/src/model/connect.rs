//! Connecting, and the life of connection requests (spec: connection).

use dat_types::ConnectionKind::{
    AcceptCompletionError, Established, NonPeerRejected, PeerRejected, TimedOut,
};
use dat_types::EpState;
use dat_types::ReturnType::{
    ConnQualInUse, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS, ModelNotSupported as MNS,
};

use super::state::{Endpoint, Goal, Model, PendingRequest, Reserved, private_data};
use crate::expect::{Answer, Faults};
use crate::program::{PLACES, Point, TOO_LONG, Target, Time, side_of};

impl Endpoint {
    /// Whether an undecided request has it.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self.state, EpState::PassiveConnectionPending | EpState::TentativeConnectionPending)
    }
}

impl Model {
    fn too_long(&self, data: u16) -> bool {
        data == TOO_LONG || usize::from(data) > self.limits.private_data
    }

    fn ready(&self, ep: usize) -> bool {
        self.eps[ep].shape.zone.is_some() && self.eps[ep].shape.conn.is_some()
    }

    pub(super) fn connect(
        &mut self,
        ep: usize,
        to: Target,
        data: u16,
        time: Time,
        flags: u32,
        qos: u32,
    ) -> Answer {
        let mut faults = Faults::default();
        faults.when(time == Time::Zero || self.too_long(data) || qos != 0 || flags > 3, 0, IP);
        faults.when(self.eps[ep].state != EpState::Unconnected || !self.ready(ep), 1, IS);
        faults.when(flags & 2 != 0, 2, MNS);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let own = self.eps[ep].side;
        let goal = self.goal(if to == Target::Own { own } else { 1 - own }, to);
        self.ask(ep, goal, data, time)
    }

    /// What a target is at a side now.
    fn goal(&self, side: usize, to: Target) -> Goal {
        let it = &self.sides[side];
        let public = |point: Point| Goal::Public { side, point, generation: it.generation[point as usize] };
        match to {
            Target::Peer | Target::Own => public(Point::First),
            Target::Second => public(Point::Second),
            Target::Maker => public(Point::Maker),
            Target::Reserved => Goal::Reserved { side, number: it.reserved.map(|point| point.number) },
            Target::Nobody => Goal::Nobody,
        }
    }

    pub(super) fn dup_connect(&mut self, ep: usize, dup: usize, data: u16, time: Time, qos: u32) -> Answer {
        let Some(dup) = self.places[dup % PLACES] else { return Answer::LeftOut };
        let other = &self.eps[dup];
        let mut faults = Faults::default();
        faults.when(!other.alive || other.side != self.eps[ep].side, 0, IH);
        faults.when(time == Time::Zero || self.too_long(data) || qos != 0, 1, IP);
        faults.when(self.eps[ep].state != EpState::Unconnected || !self.ready(ep), 2, IS);
        faults.when(other.state != EpState::Connected || other.goal.is_none(), 2, IS);
        let goal = other.goal;
        match (faults.answer(), goal) {
            (Answer::Success, Some(Goal::Public { side, point, generation }))
                if self.listens(side, point) && self.sides[side].generation[point as usize] != generation =>
            {
                // It may have got the qualifier of the service point before it, or another one.
                Answer::LeftOut
            }
            (Answer::Success, Some(goal)) => self.ask(ep, goal, data, time),
            (answer, _) => answer,
        }
    }

    /// A connect that passed all checks.
    fn ask(&mut self, ep: usize, goal: Goal, data: u16, time: Time) -> Answer {
        self.eps[ep].attempt += 1;
        self.eps[ep].goal = Some(goal);
        let Some((side, held)) = self.arrive(goal) else {
            // Which comes first, the refusal or the end of a short time, is open.
            let kinds = [NonPeerRejected, TimedOut];
            self.down(ep, if time == Time::Short { &kinds } else { &kinds[..1] }, &[]);
            return Answer::Success;
        };
        let attempt = self.eps[ep].attempt;
        self.sides[side].requests.push(PendingRequest { from: ep, held, attempt, at: goal, data });
        self.eps[ep].state = EpState::ActiveConnectionPending;
        if time == Time::Short {
            self.down(ep, &[TimedOut], &[]);
        }
        Answer::Success
    }

    /// A request comes to a service point that listens: at which side, and which endpoint it holds there.
    fn arrive(&mut self, goal: Goal) -> Option<(usize, Option<usize>)> {
        match goal {
            Goal::Public { side, point, .. } if self.listens(side, point) => {
                let made = point == Point::Maker;
                if made {
                    self.eps.push(Endpoint::made(side));
                }
                Some((side, made.then_some(self.eps.len() - 1)))
            }
            Goal::Reserved { side, number } if self.awaits(side, number) => {
                let point = self.sides[side].reserved.as_mut()?;
                point.listening = false;
                let held = point.ep;
                self.eps[held].state = EpState::PassiveConnectionPending;
                Some((side, Some(held)))
            }
            _ => None,
        }
    }

    fn listens(&self, side: usize, point: Point) -> bool {
        self.sides[side].listening[point as usize]
    }

    fn awaits(&self, side: usize, number: Option<u32>) -> bool {
        self.sides[side].reserved.is_some_and(|point| point.listening && Some(point.number) == number)
    }

    pub(super) fn reserve(&mut self, ep: usize, taken: bool) -> Answer {
        let side = self.eps[ep].side;
        if self.eps[ep].state != EpState::Unconnected {
            return Answer::Refused(vec![IS]);
        }
        let it = &mut self.sides[side];
        if taken {
            return if it.listening[0] { Answer::Refused(vec![ConnQualInUse]) } else { Answer::LeftOut };
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
    pub(super) fn unreserve(&mut self, side: usize) -> Answer {
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
        let count = self.sides[usize::from(side)].requests.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    fn still_pending(&self, request: PendingRequest) -> bool {
        let ep = &self.eps[request.from];
        ep.alive && ep.attempt == request.attempt && ep.state == EpState::ActiveConnectionPending
    }

    pub(super) fn accept(&mut self, side: u8, which: u8, place: Option<u8>, data: u16) -> Answer {
        let Some(which) = self.which(side, which) else { return Answer::LeftOut };
        let side = usize::from(side);
        let held = self.sides[side].requests[which].held;
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
        let passive = it.is_held();
        faults.when(passive && held.is_none(), 1, IH);
        faults.when(self.too_long(data), 1, IP);
        let right = if held.is_some() { passive } else { it.state == EpState::Unconnected };
        faults.when(!right || !self.ready(ep), 2, IS);
        let answer = faults.answer();
        if answer != Answer::Success {
            return answer;
        }
        let request = self.sides[side].requests.remove(which);
        self.sides[side].decided += 1;
        self.eps[ep].attempt += 1;
        self.eps[ep].goal = None;
        if !self.still_pending(request) {
            self.down(ep, &[AcceptCompletionError], &[]);
            return answer;
        }
        for (one, other, data) in [(ep, request.from, Vec::new()), (request.from, ep, private_data(data))] {
            self.eps[one].state = EpState::Connected;
            self.eps[one].peer = Some(other);
            self.tell(one, &[Established], data);
        }
        answer
    }

    pub(super) fn reject(&mut self, side: u8, which: u8, data: u16) -> Answer {
        let Some(which) = self.which(side, which) else { return Answer::LeftOut };
        if self.too_long(data) {
            return Answer::Refused(vec![IP]);
        }
        let side = &mut self.sides[usize::from(side)];
        let request = side.requests.remove(which);
        side.decided += 1;
        self.release_endpoint(request);
        if self.still_pending(request) {
            self.down(request.from, &[PeerRejected], &private_data(data));
        }
        Answer::Success
    }

    /// Contract decision D-21: the target is a live service point of the same adapter.
    pub(super) fn hand_off(&mut self, side: u8, which: u8, to: Target) -> Answer {
        let Some(which) = self.which(side, which) else { return Answer::LeftOut };
        let side = usize::from(side);
        let goal = self.goal(side, to);
        let Some((_, held)) = self.arrive(goal) else { return Answer::Refused(vec![IP]) };
        let old = self.sides[side].requests.remove(which);
        self.sides[side].decided += 1;
        self.release_endpoint(old);
        self.sides[side].requests.push(PendingRequest { held, at: goal, ..old });
        Answer::Success
    }

    /// After a reject or handoff the endpoint of a reserved service point is free again; a provider-made endpoint ended.
    fn release_endpoint(&mut self, request: PendingRequest) {
        let Some(held) = request.held else { return };
        let held = &mut self.eps[held];
        if held.state == EpState::TentativeConnectionPending {
            held.alive = false;
            held.recvs.clear();
        } else {
            held.state = EpState::Unconnected;
        }
    }

    pub(super) fn adopt(&mut self, side: u8, which: u8, place: u8) -> Answer {
        let held =
            self.which(side, which).and_then(|which| self.sides[usize::from(side)].requests[which].held);
        let made = held.filter(|held| self.eps[*held].state == EpState::TentativeConnectionPending);
        let Some(made) = made.filter(|_| side_of(place) == usize::from(side)) else { return Answer::LeftOut };
        self.places[usize::from(place)] = Some(made);
        Answer::Success
    }

    pub(super) fn listening(&mut self, side: u8, point: Point, on: bool) -> Answer {
        let it = &mut self.sides[usize::from(side)];
        if it.listening[point as usize] == on {
            return Answer::LeftOut;
        }
        it.listening[point as usize] = on;
        it.generation[point as usize] += 1;
        Answer::Success
    }
}
