//! Runs a program on a provider next to the model, and stops at the first difference.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use dat_engine::Plugin;
use dat_plugin::Config;
use dat_types::{DtoOperation, EpState, Event, EventData, ObjectId};

use crate::expect::{Answer, Expected, Stream, What};
use crate::model::Model;
use crate::program::{PLACES, Program, Step};
use crate::watch::{Pulse, watched};
use crate::world::{Places, World, attrs_of};

/// How long a run waits before it says that something does not happen.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For an event that must come.
    pub event: Duration,
    /// For a call to return.
    pub call: Duration,
}

impl Patience {
    /// For a verdict: nothing takes that long on a busy machine either.
    pub const FULL: Patience = Patience { event: Duration::from_secs(5), call: Duration::from_secs(10) };
    /// For the many runs that make a failing program short, most of which would wait to the end.
    pub const SHRINKING: Patience =
        Patience { event: Duration::from_millis(1200), call: Duration::from_secs(2) };
}

/// A provider: both adapters of a program are in this process.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name in reports.
    pub label: String,
    /// The plugin.
    pub plugin: Plugin,
    /// How to open it.
    pub config: Config,
}

/// What was observed: the answer of each step, and the events of each endpoint and direction. Choices the contract
/// leaves are not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    answers: Vec<String>,
    events: Vec<[Vec<String>; 3]>,
}

/// A provider does not do what the contract says, or not what another one does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disagreement {
    /// Which provider.
    pub label: String,
    /// At or after which step.
    pub step: usize,
    /// What was seen and what should have been.
    pub what: String,
}

impl Disagreement {
    /// The same for disagreements of the same kind: numbers and what programs differ in are left out.
    pub fn kind(&self) -> String {
        let what = self.what.split_once("}: ").map_or(self.what.as_str(), |(_, what)| what);
        let letters = what.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        format!("{}: {letters}", self.label)
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, step {}: {}", self.label, self.step, self.what)
    }
}

/// Runs `program` on every subject; the first difference, from the model or between subjects, is the error.
pub fn compare(program: &Program, subjects: &[Subject], patience: Patience) -> Result<Trace, Disagreement> {
    let mut first: Option<(&str, Trace)> = None;
    for subject in subjects {
        let trace = watched(program, subject, patience)?;
        match &first {
            None => first = Some((&subject.label, trace)),
            Some((other, known)) if *known != trace => {
                let what = format!("differs from {other}: {}", known.difference(&trace));
                return Err(Disagreement { label: subject.label.clone(), step: program.0.len(), what });
            }
            Some(_) => {}
        }
    }
    Ok(first.map(|(_, trace)| trace).unwrap_or_default())
}

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
    let mut run = Run { model, world, trace: Trace::default(), burst: None, patience, pulse };
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
            self.trace.answers.push("left out".into());
            return Ok(());
        }
        let result = self.world.perform(step, &places);
        let code = result.as_ref().err().map(dat_types::Error::kind);
        let told = match &result {
            Ok(()) => "SUCCESS".to_owned(),
            Err(error) => error.to_string(),
        };
        match (&answer, code) {
            (Answer::Success, None) => {}
            (Answer::Refused(codes), Some(code)) if codes.contains(&code) => {}
            (Answer::Success, _) => return Err(format!("gave {told} instead of SUCCESS")),
            (Answer::Refused(codes), _) => return Err(format!("gave {told} instead of one of {codes:?}")),
            (Answer::LeftOut, _) => {}
        }
        self.trace.answers.push(format!("{code:?}"));
        if let (Step::Query { .. }, Some(ep), None) = (step, places.ep, code) {
            self.same_parameters(ep)?;
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
        let which = match step {
            Step::Accept { side, which, .. } | Step::Reject { side, which, .. } => {
                self.model.which(*side, *which)
            }
            _ => None,
        };
        let side = ep.map_or(0, |ep| self.model.eps[ep].side);
        let peer = ep.and_then(|ep| self.model.eps[ep].peer);
        let peer_side = peer.map_or(1 - side, |peer| self.model.eps[peer].side);
        Places { ep, dup, side, peer_side, which, cookie: index as u64 }
    }

    /// Waits for everything the model expects, and looks that nothing else is there.
    fn settle(&mut self) -> Seen {
        self.burst = None;
        self.trace.events.resize_with(self.model.eps.len(), Default::default);
        let start = Instant::now();
        let mut looks = 0u32;
        loop {
            while let Some((side, evd, event)) = self.world.event().map_err(|error| error.to_string())? {
                self.event(side, evd, &event)?;
            }
            let missing = self.missing();
            let Some(missing) = missing else {
                self.model.eps.iter_mut().for_each(|ep| ep.silent = false);
                break;
            };
            if start.elapsed() > self.patience.event {
                return Err(format!("did not come in time: {missing}"));
            }
            self.pulse.beat();
            looks += 1;
            match looks {
                0..200 => std::hint::spin_loop(),
                200..2000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        self.same_states()
    }

    /// What the model still waits for.
    fn missing(&self) -> Option<String> {
        if !self.model.is_settled() {
            let next = self.model.eps.iter().enumerate().find_map(|(index, ep)| {
                ep.expected.iter().find_map(|stream| stream.front()).map(|next| (index, next))
            });
            return next.map(|(index, next)| format!("at endpoint {index}: {next}"));
        }
        for (side, half) in self.world.sides.iter().enumerate() {
            let (arrived, asked) = (half.asked.len(), self.model.sides[side].asked.len());
            if arrived < asked {
                return Some(format!("{} connection requests at side {side}", asked - arrived));
            }
        }
        for (index, ep) in self.model.eps.iter().enumerate() {
            if ep.alive && ep.silent {
                let idle = self.world.eps[index].status().is_ok_and(|status| status.request_idle);
                if !idle {
                    return Some(format!("the silent success of a request at endpoint {index}"));
                }
            }
        }
        None
    }

    fn event(&mut self, side: usize, evd: u8, event: &Event) -> Seen {
        match &event.data {
            EventData::Dto(dto) => {
                let stream = match dto.operation {
                    DtoOperation::Receive => Stream::Recv,
                    _ => Stream::Request,
                };
                self.matches(dto.ep, stream, evd, event)
            }
            EventData::Connection { ep, .. } => self.matches(*ep, Stream::Connection, evd, event),
            EventData::ConnectionRequest { cr, .. } => {
                if self.world.sides[side].asked.len() >= self.model.sides[side].asked.len() {
                    return Err(format!("a connection request at side {side} that nobody made"));
                }
                self.world.arrived(side, *cr).map_err(|error| error.to_string())
            }
            other => Err(format!("an event that should not be there, at side {side}: {other:?}")),
        }
    }

    fn matches(&mut self, id: ObjectId, stream: Stream, evd: u8, event: &Event) -> Seen {
        let Some(index) = self.world.eps.iter().position(|ep| ep.id() == id) else {
            return Err(format!("an event of an endpoint nobody made: {:?}", event.data));
        };
        let ep = &mut self.model.eps[index];
        let Some(next) = ep.expected[stream as usize].pop_front() else {
            return Err(format!(
                "an event too many at endpoint {index} on dispatcher {evd}: {:?}",
                event.data
            ));
        };
        if next.evd != evd || !fits(&next, &event.data) {
            return Err(format!(
                "at endpoint {index} on dispatcher {evd}: {:?} instead of {next}",
                event.data
            ));
        }
        // On one dispatcher the end of a connection comes after what it flushed.
        let over = stream == Stream::Connection && ep.state == EpState::Disconnected;
        if over && let Some(late) = ep.expected[..2].iter().flatten().find(|late| late.evd == evd) {
            return Err(format!("at endpoint {index}: {:?} came before {late}", event.data));
        }
        self.trace.events[index][stream as usize].push(next.to_string());
        Ok(())
    }

    fn same_states(&self) -> Seen {
        for (index, ep) in self.model.eps.iter().enumerate().filter(|(_, ep)| ep.alive) {
            let status = self.world.eps[index].status().map_err(|error| error.to_string())?;
            if status.state != ep.state {
                return Err(format!("endpoint {index} is {} instead of {}", status.state, ep.state));
            }
            let idle = (ep.recvs.is_empty(), ep.requests.is_empty());
            if (status.recv_idle, status.request_idle) != idle {
                return Err(format!("endpoint {index} has {status:?} instead of idle flags {idle:?}"));
            }
        }
        Ok(())
    }

    fn same_parameters(&self, index: usize) -> Seen {
        let param = self.world.eps[index].query().map_err(|error| error.to_string())?;
        let it = &self.model.eps[index];
        let half = &self.world.sides[it.side];
        if attrs_of(&param.attr) != it.shape.attrs {
            return Err(format!("attributes {:?} instead of {:?}", attrs_of(&param.attr), it.shape.attrs));
        }
        let evds = [
            ("receive", &param.recv_evd, it.shape.recv),
            ("request", &param.request_evd, it.shape.request),
            ("connect", &param.connect_evd, it.shape.conn),
        ];
        for (what, seen, want) in evds {
            let want = want.map(|evd| half.evds[usize::from(evd)].id());
            let seen = seen.as_ref().map(dat_engine::Evd::id);
            if seen != want {
                return Err(format!("{what} dispatcher {seen:?} instead of {want:?}"));
            }
        }
        let zone = it.shape.zone.map(|zone| half.zones[usize::from(zone)].id());
        match param.pz.as_ref().map(dat_engine::Pz::id) == zone {
            true => Ok(()),
            false => Err(format!("zone {:?} instead of {zone:?}", param.pz)),
        }
    }

    fn same_memory(&self) -> Seen {
        for (side, half) in self.world.sides.iter().enumerate() {
            for (number, region) in half.regions.iter().enumerate() {
                let known = self.model.sides[side].memory.region(number);
                let mut bytes = vec![0; known.len()];
                region.memory().read(0, &mut bytes);
                let differs = |(at, byte): (usize, &u8)| match known[at] {
                    Some(want) if want != *byte => Some((at, *byte, want)),
                    _ => None,
                };
                if let Some((at, byte, want)) = bytes.iter().enumerate().find_map(differs) {
                    return Err(format!(
                        "byte {at} of region {number} at side {side}: {byte} instead of {want}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Frees what is left, one endpoint after the other, and closes gracefully: nothing may be left over.
    fn finish(mut self) -> Seen<Trace> {
        self.settle()?;
        self.same_memory()?;
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
        let World { sides, eps, .. } = self.world;
        drop(eps);
        for half in sides {
            self.pulse.beat();
            half.close()?;
        }
        Ok(self.trace)
    }
}

fn fits(next: &Expected, data: &EventData) -> bool {
    match (&next.what, data) {
        (What::Dto { cookie, statuses, operation, length }, EventData::Dto(dto)) => {
            dto.cookie == *cookie
                && statuses.contains(&dto.status)
                && dto.operation == *operation
                && (!dto.status.is_success() || dto.length == *length)
        }
        (What::Connection { kinds, data }, EventData::Connection { kind, private_data, .. }) => {
            kinds.contains(kind) && private_data[..] == data[..]
        }
        _ => false,
    }
}

impl Trace {
    /// How often each answer and event occurs, without cookies, lengths and places: what programs really do.
    pub fn kinds(&self) -> BTreeMap<String, u64> {
        let mut out = BTreeMap::new();
        let answers = self.answers.iter().cloned();
        let events = self.events.iter().flatten().flatten().map(|event| {
            let letters = |word: &&str| word.starts_with(|c: char| c.is_alphabetic() || c == '[');
            event
                .split_whitespace()
                .take_while(|word| *word != "on")
                .filter(letters)
                .collect::<Vec<_>>()
                .join(" ")
        });
        for kind in answers.chain(events) {
            *out.entry(kind).or_insert(0) += 1;
        }
        out
    }

    /// Where two differ.
    fn difference(&self, other: &Trace) -> String {
        let answers = self.answers.iter().zip(&other.answers).enumerate().find(|(_, (a, b))| a != b);
        if let Some((step, (a, b))) = answers {
            return format!("step {step} gives {b} instead of {a}");
        }
        for (index, (a, b)) in self.events.iter().zip(&other.events).enumerate() {
            if let Some((a, b)) = a.iter().zip(b).find(|(a, b)| a != b) {
                return format!("endpoint {index} gives {b:?} instead of {a:?}");
            }
        }
        "the traces have different lengths".into()
    }
}
