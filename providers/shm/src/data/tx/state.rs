//! The state of the requesting half.

use super::queue::Queue;
use crate::data::completion::Window;
use crate::data::protocol::Plan;
use crate::data::ring::{Consumer, Producer};
use crate::data::segment::RingMemory;
use crate::memory::mapped::MappingCache;

pub(crate) struct Tx {
    /// The longest message of the hot arm; 0 while nothing may be started.
    pub(super) short: u32,
    /// A request failed at this end: none after it is started.
    pub(super) halted: bool,
    pub(super) rings: Option<Rings>,
    pub(super) window: Window,
    /// Requests that wait, or whose answer does.
    pub(super) queue: Queue,
    /// How far the oldest request that is not wholly started is.
    pub(super) step: Step,
    pub(super) reads_max: u32,
    /// Memory of the peer's that was written to or read last.
    pub(super) near: MappingCache,
}

/// The progress of a request that takes several steps.
#[derive(Clone, Copy, Default)]
pub(super) struct Step {
    /// Decided on when it becomes the oldest.
    pub(super) plan: Option<Plan>,
    pub(super) stage: Stage,
    /// Bytes that are in the ring.
    pub(super) part: u64,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Fresh,
    /// What goes ahead of its bytes is in the ring.
    Noted,
    /// Its first frame with bytes is in the ring.
    Headed,
    /// Its bytes are written.
    Written,
}

pub(super) struct Rings {
    pub(super) out: Producer,
    pub(super) memory: RingMemory,
    pub(super) answers: Consumer,
    pub(super) answer_memory: RingMemory,
    /// The longest payload.
    pub(super) chunk: usize,
}
