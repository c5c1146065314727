//! Runs a program on a provider next to the model, and stops at the first difference.

mod same;
mod settle;
mod trace;

use std::collections::BTreeMap;
use std::time::Instant;

pub use trace::{Disagreement, Trace};

use crate::expect::{Answer, Stream};
use crate::model::Model;
use crate::program::{PLACES, Program, Step, side_of};
use crate::pulse::Pulse;
use crate::subject::{Patience, Subject};
use crate::world::{Places, World};

/// Runs `program` on one provider next to the model, on the caller's thread. `pulse` beats as long as calls return.
pub(crate) fn run(
    program: &Program,
    subject: &Subject,
    patience: Patience,
    pulse: &Pulse,
) -> Result<Trace, Disagreement> {
    let wrong = |step, what| Disagreement { label: subject.label.clone(), step, what };
    let world = World::open(subject).map_err(|what| wrong(0, format!("does not open: {what}")))?;
    let model = Model::new(world.limits());
    let mut run = Run {
        model,
        world,
        trace: Trace::default(),
        burst: None,
        attempts: BTreeMap::new(),
        patience,
        pulse,
    };
    for (index, step) in program.0.iter().enumerate() {
        pulse.at(index);
        run.step(index, step).map_err(|what| wrong(index, format!("{step:?}: {what}")))?;
    }
    let steps = program.0.len();
    pulse.at(steps);
    run.finish().map_err(|what| wrong(steps, what))
}

struct Run<'a> {
    model: Model,
    world: World,
    trace: Trace,
    /// Posts made on an endpoint since everything was settled.
    burst: Option<(usize, usize)>,
    /// When each endpoint last began to connect.
    attempts: BTreeMap<usize, Instant>,
    patience: Patience,
    pulse: &'a Pulse,
}

type Seen<T = ()> = Result<T, String>;

impl Run<'_> {
    fn step(&mut self, index: usize, step: &Step) -> Seen {
        let places = self.places(index, step);
        if !self.may_hurry(step, &places) {
            self.settle()?;
        }
        // What was waiting at the peer is under way after a receive; a later post must not end it.
        let lets_go = matches!(step, Step::Recv { .. }) && places.ep.is_some_and(|ep| self.is_waited_for(ep));
        let answer = self.model.apply(index, step);
        if answer == Answer::LeftOut {
            self.trace.answers.push(format!("{} left out", step.name()));
            return Ok(());
        }
        if let (Step::Connect { .. } | Step::DupConnect { .. }, Some(ep)) = (step, places.ep) {
            self.attempts.insert(ep, Instant::now());
        }
        let result = self.world.perform(step, &places);
        if let Some(wrong) = self.world.wrong.take() {
            return Err(wrong);
        }
        let code = result.as_ref().err().map(dat_types::Error::kind);
        let seen = match &result {
            Ok(()) => "SUCCESS".to_owned(),
            Err(error) => error.to_string(),
        };
        match (&answer, code) {
            (Answer::Success, None) => {}
            (Answer::Refused(codes), Some(code)) if codes.contains(&code) => {}
            (Answer::Success, _) => return Err(format!("gave {seen} instead of SUCCESS")),
            (Answer::Refused(codes), _) => return Err(format!("gave {seen} instead of one of {codes:?}")),
            (Answer::Lacks(feature, want), Some(code)) if *want == code => {
                *self.trace.refused.entry(feature).or_insert(0) += 1;
            }
            (Answer::Lacks(feature, code), _) => {
                return Err(format!("gave {seen} instead of {code:?}, though its attributes lack {feature}"));
            }
            (Answer::LeftOut, _) => {}
        }
        let answer = code.map_or("Success".to_owned(), |code| format!("{code:?}"));
        self.trace.answers.push(format!("{} {answer}", step.name()));
        if let Err(error) = &result {
            self.trace.texts.push(format!("{}: {}", step.name(), trace::text_of(error)));
        }
        if let (Step::Query { .. }, Some(ep), None) = (step, places.ep, code) {
            self.same_parameters(ep)?;
        }
        if let (Step::QueueQuery { .. }, Some(queue), None) = (step, places.queue, code) {
            self.same_queue(queue)?;
        }
        if let (Step::Bind { .. }, Some(ep), None) = (step, places.ep, code) {
            self.settle()?;
            self.same_windows(self.model.eps[ep].side)?;
        }
        match step.post_on() {
            Some(_)
                if !lets_go
                    && self
                        .model
                        .eps
                        .iter()
                        .all(|ep| ep.expected[Stream::Connection as usize].is_empty()) =>
            {
                let before = self.burst.map_or(0, |(_, posts)| posts);
                self.burst = places.ep.map(|ep| (ep, before + 1));
                Ok(())
            }
            _ => self.settle(),
        }
    }

    /// Whether the step may follow while what the last posts cause is still under way.
    fn may_hurry(&self, step: &Step, places: &Places) -> bool {
        let Some((ep, posts)) = self.burst else { return true };
        let it = &self.model.eps[ep];
        let (held, most) = match step {
            Step::Recv { .. } => (it.recvs.len(), it.shape.attrs.recvs),
            _ => (it.requests.len(), it.shape.attrs.requests),
        };
        // A receive may meet a message that breaks the connection while requests are under way.
        let risky = it.silent || (self.is_waited_for(ep) && matches!(step, Step::Recv { .. }));
        !risky && step.post_on().is_some() && places.ep == Some(ep) && held + posts < most as usize
    }

    /// Whether the peer of an endpoint has requests that wait for a receive.
    fn is_waited_for(&self, ep: usize) -> bool {
        self.model.eps[ep].peer.is_some_and(|peer| !self.model.eps[peer].requests.is_empty())
    }

    fn places(&self, index: usize, step: &Step) -> Places {
        let place = match step {
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
            | Step::Query { place }
            | Step::Accept { place: Some(place), .. }
            | Step::AcceptStale { place, .. } => Some(usize::from(*place) % PLACES),
            _ => None,
        };
        let ep = place.and_then(|place| self.model.places[place]);
        let dup = match step {
            Step::DupConnect { dup, .. } => self.model.places[usize::from(*dup) % PLACES],
            _ => None,
        };
        let queue = match step {
            Step::Create { place, shared: true, .. } => self.model.sides[side_of(*place)].queue,
            Step::QueueFree { side }
            | Step::QueueRecv { side, .. }
            | Step::QueueMark { side, .. }
            | Step::QueueResize { side, .. }
            | Step::QueueQuery { side } => self.model.sides[usize::from(*side)].queue,
            _ => None,
        };
        let which = match step {
            Step::Accept { side, which, .. }
            | Step::Reject { side, which, .. }
            | Step::HandOff { side, which, .. }
            | Step::Adopt { side, which, .. } => self.model.which(*side, *which),
            _ => None,
        };
        let side = ep.map_or(0, |ep| self.model.eps[ep].side);
        let peer = ep.and_then(|ep| self.model.eps[ep].peer);
        let peer_side = peer.map_or(1 - side, |peer| self.model.eps[peer].side);
        Places { ep, dup, side, peer_side, which, queue, cookie: index as u64 }
    }

    /// Frees the remaining objects and closes gracefully, which proves that no object is left.
    fn finish(mut self) -> Seen<Trace> {
        self.settle()?;
        self.same_memory()?;
        self.same_regions()?;
        self.empty_waits()?;
        while let Some(step) = self.model.leftover() {
            self.step(usize::MAX, &step)?;
        }
        for index in 0..self.model.eps.len() {
            self.pulse.beat();
            if self.model.eps[index].alive {
                self.model.free_at_end(index);
                self.world.eps[index].free().map_err(|error| format!("freeing endpoint {index}: {error}"))?;
                self.settle().map_err(|what| format!("after freeing endpoint {index}: {what}"))?;
            }
        }
        let queues = (0..self.model.queues.len()).filter(|queue| self.model.queues[*queue].alive);
        for queue in queues {
            self.same_queue(queue)?;
            self.world.queues[queue].free().map_err(|error| format!("freeing queue {queue}: {error}"))?;
        }
        let World { sides, eps, queues, .. } = self.world;
        drop((eps, queues));
        for half in sides {
            self.pulse.beat();
            half.close()?;
        }
        Ok(self.trace)
    }
}
