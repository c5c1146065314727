//! Arguments: mostly right ones, and one in some that is wrong.

use super::flavour::Flavour;
use super::random::Random;
use crate::program::{
    Attrs, FOREIGN, Far, Point, REGION, Range, Segment, Shape, Step, TOO_LONG, Target, Time, UNKNOWN, WINDOW,
    WINDOWS,
};

pub(super) fn point(r: &mut Random) -> Point {
    r.pick(&[Point::First, Point::Second, Point::Maker])
}

pub(super) fn target(r: &mut Random) -> Target {
    use Target::{Maker, Nobody, Own, Peer, Reserved, Second};
    r.pick(&[Peer, Own, Second, Maker, Reserved, Nobody])
}

pub(super) fn time(r: &mut Random) -> Time {
    if r.one_in(20) { r.pick(&[Time::Zero, Time::Short]) } else { Time::Infinite }
}

pub(super) fn data(r: &mut Random) -> u16 {
    if r.one_in(40) { TOO_LONG } else { r.pick(&[0, 0, 1, 7, 32, 48]) }
}

pub(super) fn shape(r: &mut Random) -> Shape {
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
        // Many, and successful ones may be suppressed.
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

pub(super) fn mask(r: &mut Random) -> u64 {
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

pub(super) fn post(r: &mut Random, place: u8, flavour: &Flavour) -> Step {
    match if flavour.windows {
        r.below(14)
    } else if flavour.immediate {
        r.below(12)
    } else {
        r.below(10)
    } {
        0..4 => Step::Recv { place, iov: iov(r, 2), flags: post_flags(r, &[0x04]) },
        4..8 => {
            let flags = post_flags(r, &[0x01, 0x01, 0x02, 0x04, 0x08]);
            Step::Send { place, iov: iov(r, 0), flags, immediate: immediate(r, flavour) }
        }
        8 | 10 | 12 => {
            let immediate = immediate(r, flavour);
            let useful: &[u32] =
                if immediate.is_some() { &[0x01, 0x02, 0x04, 0x08] } else { &[0x01, 0x04, 0x08, 0x08] };
            let flags = post_flags(r, useful);
            let far = far(r, 3 * REGION / 4);
            Step::Write { place, iov: iov(r, 0), far: through(r, far, flavour), flags, immediate }
        }
        _ => {
            let flags = post_flags(r, &[0x01, 0x04, 0x08, 0x08]);
            let words = flavour.atomics && r.one_in(3);
            let far = if words { word(r) } else { far(r, 0) };
            let far = through(r, far, flavour);
            Step::Read { place, iov: iov(r, 3), far, flags }
        }
    }
}

fn immediate(r: &mut Random, flavour: &Flavour) -> Option<u32> {
    let other = r.number() as u32;
    (flavour.immediate && r.one_in(2)).then(|| r.pick(&[0, 1, 0x1234_5678, u32::MAX, other]))
}

/// Where words are that atomic operations change.
const WORDS: u32 = 5 * REGION / 8;

pub(super) fn word(r: &mut Random) -> Far {
    let offset = WORDS + 8 * r.below(3) as u32;
    match r.below(40) {
        0 => Far { region: UNKNOWN, offset, len: 8 },
        1 => Far { region: 1 + r.below(4) as u8, offset, len: 8 },
        2 => Far { region: 0, offset: offset + 4, len: 8 },
        3 => Far { region: 0, offset: REGION, len: 8 },
        4 => Far { region: 0, offset, len: 7 },
        5 => Far { region: 0, offset, len: 64 },
        _ => Far { region: 0, offset, len: 8 },
    }
}

/// Where the word goes that was there before.
pub(super) fn sink(r: &mut Random) -> Segment {
    match segment(r, 3) {
        Segment { len: 33, offset, region } => Segment { len: 7, offset, region },
        Segment { offset: 77_777, .. } => Segment { region: 0, offset: 0, len: 0 },
        segment => Segment { len: 8, ..segment },
    }
}

pub(super) fn operand(r: &mut Random) -> u64 {
    let other = r.number();
    r.pick(&[0, 1, 7, 1 << 32, u64::MAX, other, other])
}

pub(super) fn atomic_flags(r: &mut Random) -> u32 {
    post_flags(r, &[0x01, 0x04, 0x08])
}

pub(super) fn queue_create(r: &mut Random, side: u8) -> Step {
    let (mut zone, mut recvs, mut segments, mut mark) = (0, 2 + r.below(5) as u32, 1 + r.below(3) as u32, 0);
    match r.below(24) {
        0 => zone = FOREIGN,
        1 => recvs = r.pick(&[0, u32::MAX]),
        2 => segments = r.pick(&[0, u32::MAX]),
        3 => mark = 1,
        4..7 => zone = 1,
        _ => {}
    }
    Step::QueueCreate { side, zone, recvs, segments, mark }
}

/// Receives of a queue are all equally long, most of them.
pub(super) fn shared_iov(r: &mut Random, length: Option<u64>, zone: u8) -> Vec<Segment> {
    let any = r.pick(&[0, 64, 150, 150, 300]);
    let mut rest = length.map_or(any, |length| length as u32);
    if r.one_in(24) {
        rest += 8;
    }
    let mut out = Vec::new();
    while rest > 0 {
        let len = if r.one_in(2) { rest.min(150) } else { rest.min(50) };
        let region = if r.one_in(30) { r.below(5) as u8 } else { zone };
        out.push(Segment { len, region, ..segment(r, 2) });
        rest -= len;
    }
    out
}

pub(super) fn window_create(r: &mut Random, side: u8, window: u8) -> Step {
    let zone = if r.one_in(24) { FOREIGN } else { u8::from(r.one_in(12)) };
    Step::WindowCreate { side, window, zone }
}

/// Something done to a window of the side of a place; mostly it is bound.
pub(super) fn window(r: &mut Random, place: u8) -> Step {
    let (side, window) = (place / 2, r.below(WINDOWS as u64) as u8);
    match r.below(24) {
        0 => window_create(r, side, window),
        1 => Step::WindowFree { side, window },
        2 => Step::FreeRegion { side, region: u8::from(r.one_in(4)) },
        _ => bind(r, place),
    }
}

pub(super) fn bind(r: &mut Random, place: u8) -> Step {
    let sources = Range { region: 0, offset: 0, len: REGION / 8, rights: 0x02 };
    let sinks = Range { region: 0, offset: 3 * REGION / 4, len: REGION / 8, rights: 0x20 };
    let all = Range { region: 0, offset: 0, len: REGION, rights: 0x22 };
    let mut range = r.pick(&[sources, sinks, all, all, all, all]);
    match r.below(40) {
        0 => range.rights = r.pick(&[0x11, 0x01, 0x100]),
        1 | 2 => range.rights = r.pick(&[0, 0x33]),
        3 => range.region = r.below(5) as u8,
        4 => range.offset += r.pick(&[8, REGION]),
        5..8 => range.len = r.pick(&[64, 200]),
        8..12 => range.len = 0,
        12 => range.region = 1,
        _ => {}
    }
    let flags = post_flags(r, &[0x01, 0x04, 0x08]);
    Step::Bind { place, window: r.below(WINDOWS as u64) as u8, range, flags }
}

/// A write or read through one window.
pub(super) fn reach(r: &mut Random, place: u8, window: u8) -> Step {
    let stale = if r.one_in(6) { WINDOWS as u8 } else { 0 };
    let at = |far: Far| Far { region: WINDOW + window + stale, ..far };
    match r.one_in(2) {
        true => {
            let far = at(far(r, 3 * REGION / 4));
            let iov = vec![Segment { region: 0, offset: 4 * r.below(64) as u32, len: 8 }];
            Step::Write { place, iov, far, flags: 0, immediate: None }
        }
        false => {
            let far = at(far(r, 0));
            let iov = vec![Segment { region: 0, offset: 3 * REGION / 8, len: 300 }];
            Step::Read { place, iov, far, flags: 0 }
        }
    }
}

/// Through a window, where there are any.
fn through(r: &mut Random, far: Far, flavour: &Flavour) -> Far {
    let window = WINDOW + r.below(WINDOWS as u64) as u8;
    match r.below(12) {
        _ if !flavour.windows => far,
        0..8 => Far { region: window, ..far },
        8 => Far { region: window + WINDOWS as u8, ..far },
        _ => far,
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
pub(super) fn iov(r: &mut Random, part: u32) -> Vec<Segment> {
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
