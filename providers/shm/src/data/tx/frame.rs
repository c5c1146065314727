//! The one writer of frames.

use std::sync::atomic::Ordering;

use dat_plugin::PostFlag;

use super::queue::Work;
use super::state::{Rings, Tx};
use crate::data::completion::Counters;
use crate::data::conn::Conn;
use crate::data::link::Link;
use crate::data::protocol::{Plan, SOLICITED};
use crate::data::ring::{ProtocolError, Slot};
use crate::memory::bytes;
use crate::memory::target::{Atomic, Part, Target};

/// How far ahead of a frame its ring is fetched for writing.
const AHEAD: usize = 256;

/// Outcome of an attempt to start a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It is in the ring or done.
    Gone,
    /// It is in the ring, and its scatter list is needed for the answer.
    Answer,
    /// Something must happen first.
    Later,
    /// The peer broke the protocol.
    Fault,
}

/// What a frame carries.
pub(super) enum Payload {
    Nothing,
    /// The next bytes of the request, up to the frame's length.
    Data,
    /// Where the segments of the request are.
    List(Plan),
    Target(Target),
    Atomic(Atomic),
    Length(u64),
}

impl Tx {
    /// Puts one frame into the ring, if there is room.
    pub(super) fn frame(
        &mut self,
        conn: &Conn,
        link: &Link,
        work: &Work<'_>,
        (kind, flags, extra): (u8, u8, u32),
        len: usize,
        payload: Payload,
    ) -> Start {
        let Some(rings) = self.rings.as_mut() else { return Start::Later };
        let slot = match rings.reserve(link, len) {
            Ok(Some(slot)) => slot,
            Ok(None) => return Start::Later,
            Err(ProtocolError) => return Start::Fault,
        };
        let to = rings.memory.at(slot.payload);
        match payload {
            Payload::Nothing => {}
            Payload::Data => {
                // SAFETY: a reserved slot has room for `len` bytes.
                unsafe { bytes::gather(work.segs, self.step.part as usize, to, len) };
                self.step.part += len as u64;
            }
            Payload::List(plan) => {
                for (index, segment) in work.segs.iter().enumerate() {
                    let (addr, len) = (segment.addr(), u64::from(segment.len()));
                    let (map, offset) = match plan {
                        Plan::Mapped { map, offset } if index == 0 => (map, offset),
                        Plan::Mapped { .. } => conn.keys.home(segment.lkey(), addr, len).unwrap_or((0, 0)),
                        _ => (0, 0),
                    };
                    // SAFETY: a reserved slot has room for `len` bytes, which counts the parts.
                    unsafe { Part { addr, len, map, offset }.store(to.add(index * Part::BYTES)) };
                }
            }
            // SAFETY: a reserved slot has room for `len` bytes, which is a target's size.
            Payload::Target(target) => unsafe { target.store(to) },
            // SAFETY: a reserved slot has room for `len` bytes, which is an atomic operation's size.
            Payload::Atomic(atomic) => unsafe { atomic.store(to) },
            // SAFETY: a reserved slot has room for `len` bytes, which is eight.
            Payload::Length(length) => unsafe { to.cast::<u64>().write_unaligned(length) },
        }
        self.window.begin();
        rings.publish(&conn.counters, slot, kind, flags, extra);
        link.wake_receiver();
        Start::Gone
    }

    pub(super) fn chunk(&self) -> usize {
        self.rings.as_ref().map_or(0, |rings| rings.chunk)
    }
}

impl Rings {
    /// The one place where a frame is published.
    // Part of the hot arm of a send.
    #[inline(always)]
    pub(super) fn publish(&mut self, counters: &Counters, slot: Slot, kind: u8, flags: u8, extra: u32) {
        let arg = u64::from(extra) << 32 | u64::from(counters.completed.load(Ordering::Relaxed));
        self.out.publish(&self.memory, slot, kind, flags, arg);
        // The lines that a stream comes to soon are fetched while it goes on.
        self.memory.prefetch((slot.at + AHEAD) & (4 * self.chunk - 1));
    }

    /// Room for a frame. The peer's position is read only when the known one leaves none.
    #[inline]
    pub(super) fn reserve(&mut self, link: &Link, len: usize) -> Result<Option<Slot>, ProtocolError> {
        let position = || link.segment.peer().consumed.load(Ordering::Acquire);
        self.out.reserve_or_learn(&self.memory, len, position)
    }
}

/// The flag of a frame that asks for a solicited completion.
#[inline]
pub(super) fn solicited(flags: PostFlag) -> u8 {
    if flags.contains(PostFlag::SOLICITED) { SOLICITED } else { 0 }
}
