//! Programs from seeds. Mostly right calls, so that programs get somewhere, and one in some that is wrong.

use std::collections::VecDeque;

use dat_types::EpState;

use crate::expect::Answer;
use crate::model::{Limits, Model};
use crate::program::{
    Attrs, FOREIGN, Far, PLACES, Program, REGION, Segment, Shape, Step, TOO_LONG, Target, Time, UNKNOWN,
};

/// Random numbers that can be had again (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Everything follows from `seed`.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    fn place(&mut self) -> u8 {
        self.below(PLACES as u64) as u8
    }
}

/// The program of a seed. A model goes along, so that most steps make sense where they stand.
pub fn generate(seed: u64) -> Program {
    let mut writer = Writer { r: Random::new(seed), model: Model::new(Limits::COMMON), steps: Vec::new() };
    for place in 0..PLACES as u8 {
        let step = Step::Create { place, shape: shape(&mut writer.r) };
        writer.add(step);
    }
    let length = 16 + writer.r.below(48) as usize;
    while writer.steps.len() < length {
        match writer.r.below(10) {
            0..4 => writer.sensible(),
            4..9 => writer.traffic(),
            _ => {
                let step = any(&mut writer.r);
                writer.add(step);
            }
        }
    }
    Program(writer.steps)
}

struct Writer {
    r: Random,
    model: Model,
    steps: Vec<Step>,
}

impl Writer {
    fn add(&mut self, step: Step) -> Answer {
        let answer = self.model.apply(self.steps.len(), &step);
        // Nobody takes them here.
        self.model.eps.iter_mut().for_each(|ep| ep.expected.iter_mut().for_each(VecDeque::clear));
        self.steps.push(step);
        answer
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
            None => Step::Create { place, shape: shape(&mut self.r) },
            Some(EpState::Unconnected) => {
                let side = place / 2;
                let asked = !self.model.sides[usize::from(side)].asked.is_empty();
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
                    _ if asked => {
                        let which = self.r.below(4) as u8;
                        Step::Accept { side, which, place: Some(place), data }
                    }
                    _ => Step::Connect { place, to: Target::Peer, data, time, flags: 0, qos: 0 },
                }
            }
            Some(EpState::ActiveConnectionPending) => {
                let side = 1 - place / 2;
                let which = self.r.below(4) as u8;
                match self.r.below(12) {
                    0 => Step::Reject { side, which, data },
                    1 => Step::Disconnect { place, graceful: self.r.one_in(2) },
                    _ => {
                        let free = (2 * side..2 * side + 2)
                            .find(|place| self.state(*place) == Some(EpState::Unconnected));
                        Step::Accept { side, which, place: Some(free.unwrap_or(2 * side)), data }
                    }
                }
            }
            Some(EpState::PassiveConnectionPending) => {
                let side = place / 2;
                let asked = &self.model.sides[usize::from(side)].asked;
                let which = asked.iter().position(|asked| asked.held.is_some()).unwrap_or_default() as u8;
                match self.r.below(6) {
                    0 => Step::Reject { side, which, data },
                    1 => post(&mut self.r, place),
                    2 => Step::Modify { place, mask: mask(&mut self.r), shape: shape(&mut self.r) },
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
                0 => post(&mut self.r, place),
                _ => Step::Reset { place },
            },
            Some(_) => post(&mut self.r, place),
        };
        self.add(step);
    }

    /// Posts on an endpoint, and receives at its peer.
    fn traffic(&mut self) {
        let place = self.r.place();
        let usual = Some(EpState::Connected);
        let place = (0..PLACES as u8)
            .map(|turn| (place + turn) % PLACES as u8)
            .find(|place| self.state(*place) == usual)
            .unwrap_or(place);
        let peer = self.model.places[usize::from(place)].and_then(|ep| self.model.eps[ep].peer);
        let at_peer = (0..PLACES as u8).find(|place| self.model.places[usize::from(*place)] == peer);
        if let Some(place) = at_peer.filter(|_| peer.is_some()) {
            for _ in 0..self.r.below(4) {
                let step = Step::Recv { place, iov: iov(&mut self.r, 2), flags: 0 };
                self.add(step);
            }
        }
        for _ in 0..1 + self.r.below(4) {
            let step = post(&mut self.r, place);
            self.add(step);
        }
    }
}

fn any(r: &mut Random) -> Step {
    let place = r.place();
    let side = r.below(2) as u8;
    match r.below(106) {
        0..12 => Step::Create { place, shape: shape(r) },
        12..16 => Step::Free { place },
        16..30 => Step::Connect {
            place,
            to: r.pick(&[
                Target::Peer,
                Target::Peer,
                Target::Peer,
                Target::Peer,
                Target::Own,
                Target::Reserved,
                Target::Nobody,
            ]),
            data: data(r),
            time: time(r),
            flags: if r.one_in(12) { r.pick(&[1, 2, 8]) } else { 0 },
            qos: if r.one_in(30) { 3 } else { 0 },
        },
        30..44 => {
            let place = Some(if r.one_in(8) { place } else { side * 2 + place % 2 });
            let place = if r.one_in(20) { None } else { place };
            Step::Accept { side, which: r.below(4) as u8, place, data: data(r) }
        }
        44..47 => Step::Reject { side, which: r.below(4) as u8, data: data(r) },
        47..49 => Step::AcceptStale { side, place },
        49..51 => Step::RejectStale { side },
        51..59 => Step::Disconnect { place, graceful: r.one_in(2) },
        59..64 => Step::Reset { place },
        64..76 => Step::Modify { place, mask: mask(r), shape: shape(r) },
        76..84 => Step::Query { place },
        84 => Step::StopListening { side },
        85..88 => Step::Listen { side },
        88..90 => Step::FreeZone { side, zone: r.below(2) as u8 },
        90..92 => Step::FreeEvd { side, evd: r.below(5) as u8 },
        92..94 => Step::Reserve { place, taken: r.one_in(3) },
        94 => Step::Unreserve { side },
        95..98 => {
            let dup = if r.one_in(4) { r.place() } else { place ^ 1 };
            Step::DupConnect {
                place,
                dup,
                data: data(r),
                time: time(r),
                qos: if r.one_in(30) { 3 } else { 0 },
            }
        }
        _ => post(r, place),
    }
}

fn time(r: &mut Random) -> Time {
    if r.one_in(20) { r.pick(&[Time::Zero, Time::Short]) } else { Time::Infinite }
}

fn data(r: &mut Random) -> u16 {
    if r.one_in(40) { TOO_LONG } else { r.pick(&[0, 0, 1, 7, 32, 48]) }
}

fn shape(r: &mut Random) -> Shape {
    // Modes must agree on a dispatcher, so most shapes use the same few combinations.
    let (recv, request, conn) = match r.below(10) {
        0..4 => (Some(0), Some(1), Some(3)),
        4..6 => (Some(2), Some(2), Some(2)),
        6 => (Some(0), Some(0), Some(3)),
        7 => (Some(1), Some(0), Some(2)),
        _ => (evd(r), evd(r), evd(r)),
    };
    let mut attrs = Attrs {
        service: 0,
        qos: 0,
        message: 4096,
        rdma: 4096,
        recv_flags: 0x10,
        request_flags: 0x10,
        recvs: 1 + r.below(6) as u32,
        // Many, and successes nobody is told of may be kept silent.
        requests: if r.one_in(3) { 32 + r.below(9) as u32 } else { 1 + r.below(6) as u32 },
        recv_iov: 1 + r.below(3) as u32,
        request_iov: 1 + r.below(3) as u32,
        reads_in: 2,
        reads_out: if r.one_in(6) { 0 } else { 2 },
    };
    if recv.is_none() && !r.one_in(8) {
        attrs.recvs = 0;
    }
    if request.is_none() && !r.one_in(8) {
        (attrs.requests, attrs.request_iov) = (0, 0);
    }
    if r.one_in(5) {
        attrs.request_flags = r.pick(&[0, 0x04, 0x04, 0x02, 0x01]);
    }
    if r.one_in(5) {
        attrs.recv_flags = r.pick(&[0, 0x04, 0x02, 0x01, 0x08]);
    }
    if r.one_in(12) {
        match r.below(8) {
            0 => attrs.service = 1,
            1 => attrs.qos = 3,
            2 => attrs.message = u64::MAX,
            3 => attrs.rdma = u64::MAX,
            4 => attrs.recvs = u32::MAX,
            5 => attrs.requests = u32::MAX,
            6 => attrs.recv_iov = u32::MAX,
            _ => attrs.reads_in = u32::MAX,
        }
    }
    if r.one_in(8) {
        attrs.message = 100;
    }
    let zone = match r.below(40) {
        0 => None,
        1 => Some(FOREIGN),
        2..6 => Some(1),
        _ => Some(0),
    };
    Shape { zone, recv, request, conn, attrs }
}

fn evd(r: &mut Random) -> Option<u8> {
    match r.below(24) {
        0..3 => None,
        3 => Some(FOREIGN),
        4 => Some(4),
        _ => Some(r.below(4) as u8),
    }
}

fn mask(r: &mut Random) -> u64 {
    const COMMON: [u64; 14] = [
        0x80, 0x100, 0x200, 0x400, 0x1000, 0x2000, 0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000,
        0x10_0000, 0x80_0000,
    ];
    let mut mask = r.pick(&COMMON);
    while r.one_in(3) {
        mask |= r.pick(&COMMON);
    }
    match r.below(30) {
        0 => mask | r.pick(&[1, 2, 8, 0x10, 0x20, 0x40, 0x800]),
        1 => mask | 0x1_0000_0000,
        2 => 0,
        3..6 => 0x80 | 0x700 | 0x3D_0000 | 0x2_0000,
        _ => mask,
    }
}

fn post(r: &mut Random, place: u8) -> Step {
    match r.below(10) {
        0..4 => Step::Recv { place, iov: iov(r, 2), flags: post_flags(r, &[0x04]) },
        4..8 => Step::Send { place, iov: iov(r, 0), flags: post_flags(r, &[0x01, 0x01, 0x02, 0x04, 0x08]) },
        8 => {
            let flags = post_flags(r, &[0x01, 0x04, 0x08, 0x08]);
            Step::Write { place, iov: iov(r, 0), far: far(r, 3 * REGION / 4), flags }
        }
        _ => {
            let flags = post_flags(r, &[0x01, 0x04, 0x08, 0x08]);
            Step::Read { place, iov: iov(r, 3), far: far(r, 0), flags }
        }
    }
}

fn post_flags(r: &mut Random, useful: &[u32]) -> u32 {
    match r.below(24) {
        0..6 => r.pick(useful),
        6 => r.pick(&[0x01, 0x02, 0x10, 0x40]),
        _ => 0,
    }
}

/// Segments whose offsets are in a part of their own: 0 sources, 2 receives, 3 sinks of reads. Sources so never change.
fn iov(r: &mut Random, part: u32) -> Vec<Segment> {
    let count = r.pick(&[0, 1, 1, 1, 1, 2, 2, 3, 4]);
    (0..count).map(|_| segment(r, part)).collect()
}

fn segment(r: &mut Random, part: u32) -> Segment {
    // Receives are mostly as large as what arrives.
    let len =
        if part == 2 { r.pick(&[8, 64, 150, 150, 150]) } else { r.pick(&[1, 8, 8, 33, 64, 64, 64, 150]) };
    let from = part * (REGION / 8);
    let offset = from + 4 * r.below(u64::from(REGION / 8 - 150) / 4) as u32;
    match r.below(120) {
        0 => Segment { region: UNKNOWN, offset, len },
        1 => Segment { region: r.below(5) as u8, offset, len },
        2 => Segment { region: 0, offset: REGION - 4, len: 8 },
        3 => Segment { region: 4, offset, len },
        4 => Segment { region: UNKNOWN, offset: 77_777, len: 0 },
        6..10 => Segment { region: 1, offset, len },
        _ => Segment { region: 0, offset, len },
    }
}

fn far(r: &mut Random, from: u32) -> Far {
    let len = r.pick(&[8, 64, 64, 150, 300]);
    let offset = from + 4 * r.below(u64::from(REGION / 8 - 300) / 4) as u32;
    match r.below(16) {
        0 => Far { region: UNKNOWN, offset, len },
        1 => Far { region: 1 + r.below(4) as u8, offset, len },
        2 => Far { region: 0, offset: REGION - 4, len: 300 },
        _ => Far { region: 0, offset, len },
    }
}
