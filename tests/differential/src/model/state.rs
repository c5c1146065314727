//! What the model remembers: adapters, endpoints, queues, windows and what is posted.

use std::collections::VecDeque;

use dat_types::{DtoOperation, EpState};

use super::memory::Memory;
use crate::expect::Expected;
use crate::program::{Atomic, Far, PLACES, POINTS, Point, Range, Segment, Shape, WINDOWS};

/// What differs between providers and matters here.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most bytes of private data.
    pub private_data: usize,
    /// Whether it says that it has immediate values.
    pub immediate: bool,
    /// Whether it says that it has atomic operations.
    pub atomics: bool,
    /// Whether it says that it has shared receive queues.
    pub queues: bool,
    /// Whether it says that these and their endpoints may be of different zones.
    pub queue_zones: bool,
    /// Whether the latter, and windows, are left out all the same, for Soft-RoCE's sake.
    pub soft_roce: bool,
    /// Whether it says that it has memory windows.
    pub windows: bool,
}

impl Limits {
    /// What programs are written for.
    pub const COMMON: Limits = Limits {
        private_data: 256,
        immediate: true,
        atomics: true,
        queues: true,
        queue_zones: true,
        soft_roce: false,
        windows: true,
    };
}

/// Both adapters.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) limits: Limits,
    pub(crate) eps: Vec<Endpoint>,
    pub(crate) places: [Option<usize>; PLACES],
    pub(crate) sides: [AdapterModel; 2],
    pub(crate) queues: Vec<Queue>,
    /// Which step is being made; it is the cookie of what it posts.
    pub(crate) step: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct AdapterModel {
    /// Which public service points do.
    pub(crate) listening: [bool; POINTS],
    /// How often each has listened: the target of an endpoint may be another service point now.
    pub(super) generation: [u32; POINTS],
    pub(crate) reserved: Option<Reserved>,
    /// Undecided requests, in the order of their arrival.
    pub(crate) requests: Vec<PendingRequest>,
    /// How many were decided.
    pub(crate) decided: usize,
    pub(crate) memory: Memory,
    /// The shared receive queue made last.
    pub(crate) queue: Option<usize>,
    pub(crate) windows: [Window; WINDOWS],
    /// Queues whose low watermark event must come, in this order.
    pub(crate) notices: VecDeque<usize>,
}

/// The last reserved service point of a side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    /// Each has a qualifier of its own.
    pub(super) number: u32,
    pub(super) ep: usize,
    /// `false`: its request has come, or it was freed.
    pub(crate) listening: bool,
    pub(super) freed: bool,
}

/// The target of a connect.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    Public {
        side: usize,
        point: Point,
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
pub(crate) struct PendingRequest {
    pub(crate) from: usize,
    /// The endpoint it holds, of a reserved service point.
    pub(crate) held: Option<usize>,
    /// The attempt it belongs to; an endpoint that has gone on asks no more.
    pub(crate) attempt: u32,
    /// Where it arrived.
    pub(crate) at: Goal,
    /// How many bytes of private data came with it.
    pub(crate) data: u16,
}

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) side: usize,
    pub(crate) alive: bool,
    pub(crate) state: EpState,
    pub(crate) shape: Shape,
    /// Where its receives come from, if not from posts of its own.
    pub(crate) queue: Option<usize>,
    /// Its attributes are the provider's choice until they are modified.
    pub(crate) open: bool,
    pub(crate) attempt: u32,
    pub(crate) peer: Option<usize>,
    /// Whom it request; none: it was request.
    pub(super) goal: Option<Goal>,
    pub(crate) recvs: VecDeque<Recv>,
    pub(crate) requests: VecDeque<Request>,
    /// A suppressed request succeeds. It may be in progress until all streams are settled.
    pub(crate) silent: bool,
    /// What must come, by stream.
    pub(crate) expected: [VecDeque<Expected>; 3],
}

/// What a shared receive queue is like.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    pub(crate) side: usize,
    pub(crate) alive: bool,
    pub(crate) zone: u8,
    /// Most receives, as the provider says.
    pub(crate) limit: u32,
    pub(crate) segments: u32,
    pub(crate) mark: u32,
    pub(super) armed: bool,
    /// Posted, and not yet seen to complete.
    pub(crate) recvs: Vec<Recv>,
    /// How many of them were taken. Which ones, the provider decides: all are equally long.
    pub(crate) taken: usize,
}

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct Recv {
    pub(crate) cookie: u64,
    pub(crate) iov: Vec<Segment>,
}

/// A request that is not finished.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    pub(crate) operation: DtoOperation,
    pub(crate) iov: Vec<Segment>,
    pub(crate) far: Far,
    pub(crate) immediate: Option<u32>,
    pub(crate) atomic: Option<Atomic>,
    pub(crate) bind: Option<Bind>,
    pub(crate) suppressed: bool,
}

impl Request {
    /// One whose cookie is its step.
    pub(super) fn new(
        step: usize,
        operation: DtoOperation,
        iov: Vec<Segment>,
        far: Far,
        flags: u32,
    ) -> Request {
        let suppressed = flags & SUPPRESS != 0;
        Request {
            cookie: step as u64,
            operation,
            iov,
            far,
            immediate: None,
            atomic: None,
            bind: None,
            suppressed,
        }
    }
}

/// A window of an adapter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(super) made: bool,
    pub(crate) alive: bool,
    pub(super) zone: u8,
    pub(crate) bound: Option<Range>,
    /// A bind of it is under way.
    pub(super) posted: bool,
    /// A bind of it was flushed: it may be bound as before, or not.
    pub(crate) doubt: bool,
}

impl Window {
    pub(crate) fn is_certain(&self) -> bool {
        self.alive && !self.posted && !self.doubt
    }
}

/// What a request binds: side, window and range; none is the end of what was bound.
pub(crate) type Bind = (usize, usize, Option<Range>);

/// Whether an operation writes the peer's memory.
pub(super) fn writes(operation: DtoOperation) -> bool {
    matches!(operation, DtoOperation::RdmaWrite | DtoOperation::RdmaWriteImmed)
}

pub(super) fn is_atomic(operation: DtoOperation) -> bool {
    matches!(operation, DtoOperation::FetchAdd | DtoOperation::CmpSwap)
}

pub(super) const SUPPRESS: u32 = 0x01;
pub(super) const SOLICITED: u32 = 0x02;
pub(super) const UNSIGNALLED: u32 = 0x04;
const FENCE: u32 = 0x08;

/// The flags of requests on an endpoint with these completion flags.
pub(super) fn request_flags(mode: u32) -> u32 {
    SUPPRESS | FENCE | if mode == UNSIGNALLED { UNSIGNALLED } else { 0 }
}

/// The bytes of private data of a length.
pub(crate) fn private_data(len: u16) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}
