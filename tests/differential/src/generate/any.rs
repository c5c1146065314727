//! Any step at all, whether it makes sense or not.

use super::arguments::{data, mask, point, post, shape, target, time};
use super::flavour::Flavour;
use super::random::Random;
use crate::program::{Step, Target};

pub(super) fn any(r: &mut Random, flavour: &Flavour) -> Step {
    let place = r.place();
    let side = r.below(2) as u8;
    match r.below(106) {
        0..12 => Step::Create { place, shape: shape(r), shared: flavour.queues && r.one_in(2) },
        12..16 => Step::Free { place },
        16..30 => Step::Connect {
            place,
            to: if r.one_in(2) { Target::Peer } else { target(r) },
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
        44 => Step::HandOff { side, which: r.below(4) as u8, to: target(r) },
        45 => Step::Adopt { side, which: r.below(4) as u8, place: side * 2 + place % 2 },
        46 => Step::Reject { side, which: r.below(4) as u8, data: data(r) },
        47..49 => Step::AcceptStale { side, place },
        49..51 => Step::RejectStale { side },
        51..59 => Step::Disconnect { place, graceful: r.one_in(2) },
        59..64 => Step::Reset { place },
        64..76 => Step::Modify { place, mask: mask(r), shape: shape(r) },
        76..84 => Step::Query { place },
        84 => Step::StopListening { side, point: point(r) },
        85..88 => Step::Listen { side, point: point(r) },
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
        _ => post(r, place, flavour),
    }
}
