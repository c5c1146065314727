//! The reference model: what each call must return and which events must follow, from the tables of the specification.
//! It knows nothing of channels, queues or threads.

mod atomic;
mod connect;
mod ending;
mod endpoint;
pub(crate) mod memory;
mod post;
pub(crate) mod queue;
mod transfer;
pub(crate) mod window;

use std::collections::VecDeque;

use dat_types::EpState;
use dat_types::ReturnType::{InvalidHandle as IH, InvalidState as IS};

use crate::expect::{Answer, Expected};
use crate::program::{PLACES, POINTS, Point, Shape, Step, WINDOWS, side_of};
use memory::Memory;
use queue::Queue;
use transfer::{Recv, Request};
use window::Window;

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
    generation: [u32; POINTS],
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
    number: u32,
    ep: usize,
    /// `false`: its request has come, or it was freed.
    pub(crate) listening: bool,
    freed: bool,
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
    goal: Option<Goal>,
    pub(crate) recvs: VecDeque<Recv>,
    pub(crate) requests: VecDeque<Request>,
    /// A suppressed request succeeds. It may be in progress until all streams are settled.
    pub(crate) silent: bool,
    /// What must come, by stream.
    pub(crate) expected: [VecDeque<Expected>; 3],
}

impl Model {
    /// Two adapters that listen, without endpoints.
    pub fn new(limits: Limits) -> Model {
        let side = |side| AdapterModel {
            listening: [true, false, false],
            generation: [0; POINTS],
            reserved: None,
            requests: Vec::new(),
            decided: 0,
            memory: Memory::new(side),
            queue: None,
            windows: Default::default(),
            notices: VecDeque::new(),
        };
        Model {
            limits,
            eps: Vec::new(),
            places: [None; PLACES],
            sides: [side(0), side(1)],
            queues: Vec::new(),
            step: 0,
        }
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
            Step::Create { place, shape, shared } => self.create(*place, shape, *shared),
            Step::WindowCreate { .. } | Step::WindowFree { .. } | Step::FreeRegion { .. } => {
                self.on_window(step)
            }
            Step::QueueCreate { .. }
            | Step::QueueFree { .. }
            | Step::QueueRecv { .. }
            | Step::QueueMark { .. }
            | Step::QueueResize { .. }
            | Step::QueueQuery { .. } => self.on_queue(step),
            Step::Accept { side, which, place, data } => self.accept(*side, *which, *place, *data),
            Step::Reject { side, which, data } => self.reject(*side, *which, *data),
            Step::AcceptStale { side, .. } | Step::RejectStale { side } => {
                match self.sides[usize::from(*side)].decided {
                    0 => Answer::LeftOut,
                    _ => Answer::Refused(vec![IH]),
                }
            }
            Step::Adopt { side, which, place } => self.adopt(*side, *which, *place),
            Step::HandOff { side, which, to } => self.hand_off(*side, *which, *to),
            Step::StopListening { side, point } => self.listening(*side, *point, false),
            Step::Listen { side, point } => self.listening(*side, *point, true),
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
            | Step::Atomic { place, .. }
            | Step::Bind { place, .. }
            | Step::Modify { place, .. }
            | Step::Query { place } => {
                let empty = |place: u8| self.places[usize::from(place)].is_none();
                if matches!(step, Step::DupConnect { dup, .. } if empty(*dup)) {
                    return Answer::LeftOut;
                }
                if matches!(step, Step::Bind { window, .. } if !self.is_made(side_of(*place), *window)) {
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
            // Its limits are not known.
            Step::Recv { .. }
            | Step::Send { .. }
            | Step::Write { .. }
            | Step::Read { .. }
            | Step::Atomic { .. }
            | Step::Bind { .. }
                if self.eps[ep].open =>
            {
                Answer::LeftOut
            }
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
            Step::Bind { window, range, flags, .. } => self.bind(ep, *window, *range, *flags),
            Step::Atomic { local, far, atomic, flags, .. } => self.atomic(ep, *local, *far, *atomic, *flags),
            post => self.post(ep, post),
        }
    }

    /// Steps at the end that free reserved service points, whose endpoints cannot be freed before.
    pub(crate) fn leftover(&self) -> Option<Step> {
        (0..2u8).find_map(|number| {
            let side = &self.sides[usize::from(number)];
            let held = side.requests.iter().position(|request| request.held.is_some());
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
            && self.sides.iter().all(|side| side.notices.is_empty())
    }
}

/// The bytes of private data of a length.
pub(crate) fn private_data(len: u16) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + len) as u8).collect()
}
