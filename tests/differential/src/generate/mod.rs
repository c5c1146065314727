//! Programs from seeds. Mostly right calls, so that programs get somewhere, and one in some that is wrong.

mod any;
mod arguments;
mod flavour;
mod random;

use dat_types::EpState;

use crate::expect::{Answer, Completion, What};
use crate::model::{Limits, Model};
use crate::program::{Atomic, PLACES, Point, Program, REGION, Range, Segment, Step, Target, Time};
use any::any;
use arguments::{
    atomic_flags, bind, data, iov, mask, operand, post, queue_create, reach, shape, shared_iov, sink, target,
    window, window_create, word,
};
use flavour::Flavour;
pub use random::Random;

/// The program of a seed. A model goes along, so that most steps make sense where they stand.
pub fn generate(seed: u64) -> Program {
    let mut r = Random::new(seed);
    let flavour = Flavour::of(&mut r);
    let mut writer = Writer { r, flavour, model: Model::new(Limits::COMMON), steps: Vec::new() };
    if writer.flavour.windows {
        for (side, window) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let step = window_create(&mut writer.r, side, window);
            writer.add(step);
        }
    }
    if writer.flavour.queues {
        for side in 0..2 {
            let step = queue_create(&mut writer.r, side);
            writer.add(step);
        }
    }
    for place in 0..PLACES as u8 {
        let step = writer.create(place);
        writer.add(step);
    }
    let flavour = &writer.flavour;
    for (point, has) in [(Point::Second, flavour.handoff), (Point::Maker, flavour.maker)] {
        if has {
            (0..2).for_each(|side| drop(writer.add(Step::Listen { side, point })));
        }
    }
    let length = 16 + writer.r.below(48) as usize;
    while writer.steps.len() < length {
        match writer.r.below(10) {
            0..4 => writer.sensible(),
            4..9 => writer.traffic(),
            _ => {
                let step = any(&mut writer.r, &writer.flavour);
                writer.add(step);
            }
        }
    }
    Program(writer.steps)
}

struct Writer {
    r: Random,
    flavour: Flavour,
    model: Model,
    steps: Vec<Step>,
}

impl Writer {
    fn add(&mut self, step: Step) -> Answer {
        let answer = self.model.apply(self.steps.len(), &step);
        // No receiver takes them here.
        let events = self.model.eps.iter_mut().flat_map(|ep| ep.expected.iter_mut().flat_map(std::mem::take));
        for event in events.collect::<Vec<_>>() {
            if let What::Dto(Completion { shared: Some(shared), .. }) = event.what {
                let first = self.model.queues[shared.queue].recvs.first().map(|recv| recv.cookie);
                self.model.seen(&shared, first.unwrap_or_default());
            }
        }
        self.model.sides.iter_mut().for_each(|side| side.notices.clear());
        self.steps.push(step);
        answer
    }

    fn create(&mut self, place: u8) -> Step {
        let shared = self.flavour.queues && self.r.one_in(2);
        Step::Create { place, shape: shape(&mut self.r), shared }
    }

    /// Mostly a receive for a shared queue, as messages to come need one.
    fn supply(&mut self, side: u8) -> Step {
        let queue = self.model.sides[usize::from(side)].queue.map(|queue| &self.model.queues[queue]);
        match queue.filter(|queue| queue.alive).map(|queue| (queue.length(), queue.zone)) {
            Some((length, zone)) if !self.r.one_in(3) => {
                Step::QueueRecv { side, iov: shared_iov(&mut self.r, length, zone) }
            }
            _ => self.queue(side),
        }
    }

    /// Something done to the shared receive queue of a side.
    fn queue(&mut self, side: u8) -> Step {
        let queue = self.model.sides[usize::from(side)].queue.map(|queue| &self.model.queues[queue]);
        let Some(queue) = queue.filter(|queue| queue.alive) else { return queue_create(&mut self.r, side) };
        let (held, available, limit) = (queue.recvs.len() as u32, queue.available() as u32, queue.limit);
        let (length, zone, mark) = (queue.length(), queue.zone, queue.mark);
        let r = &mut self.r;
        match r.below(24) {
            0..3 => Step::QueueQuery { side },
            3..7 => {
                let near = (available + r.below(5) as u32).saturating_sub(1);
                let mark = if r.one_in(8) { r.pick(&[0, limit, limit + 1, u32::MAX]) } else { near };
                Step::QueueMark { side, mark }
            }
            7 | 8 => {
                let from = if r.one_in(2) { held } else { mark };
                let near = (from + r.below(4) as u32).saturating_sub(1);
                Step::QueueResize { side, recvs: if r.one_in(8) { r.pick(&[0, u32::MAX]) } else { near } }
            }
            9 => Step::QueueFree { side },
            10 => queue_create(r, side),
            _ => Step::QueueRecv { side, iov: shared_iov(r, length, zone) },
        }
    }

    fn post(&mut self, place: u8) -> Step {
        if self.flavour.windows && self.r.one_in(5) {
            return window(&mut self.r, place);
        }
        if self.flavour.queues && self.r.one_in(6) {
            return self.queue(place / 2);
        }
        match self.flavour.atomics && self.r.one_in(4) {
            true => self.atomic(place),
            false => post(&mut self.r, place, &self.flavour),
        }
    }

    /// On one of a few words, and every other swap finds what it expects.
    fn atomic(&mut self, place: u8) -> Step {
        let far = word(&mut self.r);
        let there = self.model.places[usize::from(place)]
            .and_then(|ep| self.model.eps[ep].peer)
            .map(|peer| self.model.eps[peer].side);
        let (operand, swap) = (operand(&mut self.r), operand(&mut self.r));
        let known = match there.filter(|_| far.region == 0 && far.offset < REGION - 8) {
            Some(there) => {
                let at = Segment { region: 0, offset: far.offset, len: 8 };
                self.model.sides[there].memory.word(at)
            }
            None => None,
        };
        let atomic = match self.r.below(3) {
            0 => Atomic::Add(operand),
            1 => Atomic::Swap { expected: operand, swap },
            _ => Atomic::Swap { expected: known.unwrap_or(operand), swap },
        };
        let (local, flags) = (sink(&mut self.r), atomic_flags(&mut self.r));
        Step::Atomic { place, local, far, atomic, flags }
    }

    fn state(&self, place: u8) -> Option<EpState> {
        let ep = &self.model.eps[self.model.places[usize::from(place)]?];
        ep.alive.then_some(ep.state)
    }

    /// What an application would do next with a place.
    fn sensible(&mut self) {
        let place = self.r.place();
        let data = data(&mut self.r);
        let step = match self.state(place) {
            None => self.create(place),
            Some(EpState::Unconnected) => {
                let side = place / 2;
                let pending = !self.model.sides[usize::from(side)].requests.is_empty();
                let time = Time::Infinite;
                let neighbour = place ^ 1;
                let awaited = self.model.sides[usize::from(1 - side)].reserved;
                match self.r.below(10) {
                    0 => Step::Modify { place, mask: mask(&mut self.r), shape: shape(&mut self.r) },
                    1..3 => Step::Recv { place, iov: iov(&mut self.r, 2), flags: 0 },
                    3 => Step::Reserve { place, taken: self.r.one_in(8) },
                    4 if self.state(neighbour) == Some(EpState::Connected) => {
                        Step::DupConnect { place, dup: neighbour, data, time, qos: 0 }
                    }
                    5.. if awaited.is_some_and(|point| point.listening) => {
                        Step::Connect { place, to: Target::Reserved, data, time, flags: 0, qos: 0 }
                    }
                    _ if pending => {
                        let which = self.r.below(4) as u8;
                        Step::Accept { side, which, place: Some(place), data }
                    }
                    _ => {
                        let to = match self.r.below(3) {
                            0 if self.flavour.handoff => Target::Second,
                            1.. if self.flavour.maker => Target::Maker,
                            _ => Target::Peer,
                        };
                        Step::Connect { place, to, data, time, flags: 0, qos: 0 }
                    }
                }
            }
            Some(EpState::ActiveConnectionPending) => self.decision(1 - place / 2, data),
            Some(EpState::PassiveConnectionPending | EpState::TentativeConnectionPending) => {
                let side = place / 2;
                let ep = self.model.places[usize::from(place)];
                let pending = &self.model.sides[usize::from(side)].requests;
                let which = pending.iter().position(|pending| pending.held == ep).unwrap_or_default() as u8;
                let shape = shape(&mut self.r);
                match self.r.below(6) {
                    _ if ep.is_some_and(|ep| self.model.eps[ep].open) => {
                        let rarely = [0x80, 0, 0x780, 0x1000];
                        let mask = if self.r.one_in(8) { self.r.pick(&rarely) } else { 0xFF_F780 };
                        Step::Modify { place, mask, shape }
                    }
                    0 => Step::Reject { side, which, data },
                    3.. if self.flavour.handoff && self.r.one_in(2) => {
                        Step::HandOff { side, which, to: target(&mut self.r) }
                    }
                    1 => self.post(place),
                    2 => Step::Modify { place, mask: mask(&mut self.r), shape },
                    _ => Step::Accept { side, which, place: None, data },
                }
            }
            Some(EpState::Reserved) => match self.r.below(6) {
                0 => Step::Unreserve { side: place / 2 },
                1 => Step::Modify { place, mask: mask(&mut self.r), shape: shape(&mut self.r) },
                2 => Step::Recv { place, iov: iov(&mut self.r, 2), flags: 0 },
                _ => {
                    let free = (0..PLACES as u8).find(|other| {
                        other / 2 != place / 2 && self.state(*other) == Some(EpState::Unconnected)
                    });
                    let place = free.unwrap_or(3 - place);
                    let time = Time::Infinite;
                    Step::Connect { place, to: Target::Reserved, data, time, flags: 0, qos: 0 }
                }
            },
            Some(EpState::Connected) if self.r.one_in(3) => {
                Step::Disconnect { place, graceful: self.r.one_in(2) }
            }
            Some(EpState::DisconnectPending) if self.r.one_in(3) => {
                Step::Disconnect { place, graceful: false }
            }
            Some(EpState::Disconnected) => match self.r.below(4) {
                0 => self.post(place),
                _ => Step::Reset { place },
            },
            Some(_) => self.post(place),
        };
        let connects = matches!(step, Step::Connect { .. });
        self.add(step);
        if connects && self.flavour.handoff && self.r.one_in(2) {
            let side = 1 - place / 2;
            let last = self.model.sides[usize::from(side)].requests.len().saturating_sub(1);
            let to = target(&mut self.r);
            self.add(Step::HandOff { side, which: last as u8, to });
        }
    }

    /// An endpoint the provider made is given what it lacks, and accepted.
    fn adoption(&mut self, side: u8, which: u8, data: u16) -> Step {
        let place = 2 * side + self.r.below(2) as u8;
        self.add(Step::Adopt { side, which, place });
        let shape = shape(&mut self.r);
        let rarely = [0x80, 0, 0x780, 0x1000];
        let mask = if self.r.one_in(8) { self.r.pick(&rarely) } else { 0xFF_F780 };
        self.add(Step::Modify { place, mask, shape });
        match self.r.below(4) {
            0 => self.post(place),
            _ => Step::Accept { side, which, place: None, data },
        }
    }

    /// A window at the peer is bound, reached through, and often bound anew or to nothing, and reached for again.
    fn through_window(&mut self, place: u8, peer: u8) {
        let first = bind(&mut self.r, peer);
        self.add(first.clone());
        let Step::Bind { window, .. } = first else { return };
        for turn in 0..2 {
            let step = reach(&mut self.r, place, window);
            self.add(step);
            if turn == 1 || self.r.one_in(2) {
                return;
            }
            let again = match (bind(&mut self.r, peer), self.r.one_in(2)) {
                (Step::Bind { place, range, .. }, ended) => {
                    let len = if ended { 0 } else { range.len };
                    Step::Bind { place, window, range: Range { len, ..range }, flags: 0 }
                }
                (other, _) => other,
            };
            self.add(again);
        }
    }

    /// Steps that answer a request at one adapter.
    fn decision(&mut self, side: u8, data: u16) -> Step {
        let which = self.r.below(4) as u8;
        let meant = self.model.which(side, which);
        let held = meant.and_then(|meant| self.model.sides[usize::from(side)].requests[meant].held);
        let open = held.is_some_and(|held| self.model.eps[held].open);
        match self.r.below(12) {
            0 => Step::Reject { side, which, data },
            1 => {
                Step::Disconnect { place: 2 * (1 - side) + self.r.below(2) as u8, graceful: self.r.one_in(2) }
            }
            2..6 if self.flavour.handoff => Step::HandOff { side, which, to: target(&mut self.r) },
            6.. if open => self.adoption(side, which, data),
            _ if held.is_some() => Step::Accept { side, which, place: None, data },
            _ => {
                let free =
                    (2 * side..2 * side + 2).find(|place| self.state(*place) == Some(EpState::Unconnected));
                Step::Accept { side, which, place: Some(free.unwrap_or(2 * side)), data }
            }
        }
    }

    /// Posts on an endpoint, and receives at its peer.
    fn traffic(&mut self) {
        let place = self.r.place();
        let usual = Some(EpState::Connected);
        let connected = (0..PLACES as u8)
            .map(|turn| (place + turn) % PLACES as u8)
            .find(|place| self.state(*place) == usual);
        if connected.is_none() && !self.r.one_in(4) {
            return self.sensible();
        }
        let place = connected.unwrap_or(place);
        let peer = self.model.places[usize::from(place)].and_then(|ep| self.model.eps[ep].peer);
        let at_peer = (0..PLACES as u8).find(|place| self.model.places[usize::from(*place)] == peer);
        if let Some(place) = at_peer.filter(|_| peer.is_some()) {
            if self.flavour.windows && !self.r.one_in(3) {
                self.through_window(connected.unwrap_or(place), place);
            }
            let shared = peer.is_some_and(|peer| self.model.eps[peer].queue.is_some());
            for _ in 0..self.r.below(4) {
                let step = match shared {
                    true => self.supply(place / 2),
                    false => Step::Recv { place, iov: iov(&mut self.r, 2), flags: 0 },
                };
                self.add(step);
            }
        }
        for _ in 0..1 + self.r.below(4) {
            let step = self.post(place);
            self.add(step);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::WINDOW;

    #[test]
    fn windows_are_reached_through_and_missed() {
        let (mut reached, mut missed) = (0, 0);
        for seed in 1..=1000 {
            let mut model = Model::new(Limits::COMMON);
            for (index, step) in generate(seed).0.iter().enumerate() {
                let answer = model.apply(index, step);
                let (place, far) = match step {
                    Step::Write { place, far, .. } | Step::Read { place, far, .. } => (*place, *far),
                    _ => continue,
                };
                if answer == Answer::Success && far.region >= WINDOW {
                    // What may not be ends the connection.
                    match model.places[usize::from(place)].map(|ep| model.eps[ep].state) {
                        Some(EpState::Connected) => reached += 1,
                        _ => missed += 1,
                    }
                }
            }
        }
        assert!(reached > 10 && missed > 10, "{reached} reached, {missed} missed");
    }

    #[test]
    fn endpoints_the_provider_makes_come_to_send() {
        let mut sent = 0;
        for seed in 1..=300 {
            let mut model = Model::new(Limits::COMMON);
            let mut made = std::collections::BTreeSet::new();
            for (index, step) in generate(seed).0.iter().enumerate() {
                let place = step.post_on().filter(|_| matches!(step, Step::Send { .. }));
                let ep = place.and_then(|place| model.places[usize::from(place)]);
                let ours = ep.is_some_and(|ep| made.contains(&ep));
                let answer = model.apply(index, step);
                sent += u32::from(ours && answer == Answer::Success);
                made.extend((0..model.eps.len()).filter(|ep| model.eps[*ep].open));
            }
        }
        assert!(sent > 10, "{sent} sends");
    }
}
