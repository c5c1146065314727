//! The reference model: what each call must return and which events must follow, from the tables of the specification.
//! It knows nothing of channels, queues or threads.

mod atomic;
mod connect;
mod ending;
mod endpoint;
pub(crate) mod memory;
mod post;
mod queue;
mod state;
mod transfer;
mod window;

use std::collections::VecDeque;

use dat_types::EpState;
use dat_types::ReturnType::{InvalidHandle as IH, InvalidState as IS};

use crate::expect::Answer;
use crate::program::{PLACES, POINTS, Step, side_of};
use memory::Memory;
use state::AdapterModel;
pub(crate) use state::{Endpoint, Goal, private_data};
pub use state::{Limits, Model};

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
