//! Connecting: who asks whom, and what becomes of requests (contract section 4).

use dat_types::ConnectionKind::{
    AcceptCompletionError, Established, NonPeerRejected, PeerRejected, TimedOut,
};
use dat_types::EpState;
use dat_types::ReturnType::{
    ConnQualInUse, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS, ModelNotSupported as MNS,
};

use super::{Asked, Goal, Model, Reserved, private_data};
use crate::expect::{Answer, Faults};
use crate::program::{PLACES, TOO_LONG, Target, Time};

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

    pub(super) fn reserve(&mut self, ep: usize, taken: bool) -> Answer {
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
        let count = self.sides[usize::from(side)].asked.len();
        (count > 0).then(|| usize::from(which) % count)
    }

    fn still_asks(&self, asked: Asked) -> bool {
        let ep = &self.eps[asked.from];
        ep.alive && ep.attempt == asked.attempt && ep.state == EpState::ActiveConnectionPending
    }

    pub(super) fn accept(&mut self, side: u8, which: u8, place: Option<u8>, data: u16) -> Answer {
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

    pub(super) fn reject(&mut self, side: u8, which: u8, data: u16) -> Answer {
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

    pub(super) fn listening(&mut self, side: u8, on: bool) -> Answer {
        let listening = &mut self.sides[usize::from(side)].listening;
        if *listening == on {
            return Answer::LeftOut;
        }
        *listening = on;
        self.sides[usize::from(side)].generation += 1;
        Answer::Success
    }
}
