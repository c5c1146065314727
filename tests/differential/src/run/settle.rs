//! Waits until everything that must come has come, and looks that nothing else did.

use std::time::{Duration, Instant};

use dat_types::{AsyncReason, ConnectionKind, DtoOperation, EpState, Event, EventData, ObjectId};

use super::{Run, Seen};
use crate::expect::{Completion, Expected, Stream, What};
use crate::model::{Endpoint, private_data};
use crate::world::SHORT;

impl Run<'_> {
    /// Waits for everything the model expects, and looks that nothing else is there.
    pub(super) fn settle(&mut self) -> Seen {
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

    /// A time limit is over when its event comes, and not before.
    fn not_early(&mut self, index: usize, data: &EventData) -> Seen {
        let begun = self.attempts.get(&index);
        match (data, begun) {
            (EventData::Connection { kind: ConnectionKind::TimedOut, .. }, Some(begun)) => {
                let took = begun.elapsed();
                let late = took >= SHORT;
                late.then_some(())
                    .ok_or(format!("endpoint {index} timed out after {took:?}, before {SHORT:?}"))
            }
            _ => Ok(()),
        }
    }

    /// What the model still waits for.
    fn missing(&self) -> Option<String> {
        if !self.model.is_settled() {
            let next = self.model.eps.iter().enumerate().find_map(|(index, ep)| {
                ep.expected.iter().find_map(|stream| stream.front()).map(|next| (index, next))
            });
            let low = || "the low watermark of a shared receive queue".to_owned();
            return Some(next.map_or_else(low, |(index, next)| format!("at endpoint {index}: {next}")));
        }
        for (side, half) in self.world.sides.iter().enumerate() {
            let (arrived, request) = (half.requests.len(), self.model.sides[side].requests.len());
            if arrived < request {
                return Some(format!("{} connection requests at side {side}", request - arrived));
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

    pub(super) fn event(&mut self, side: usize, evd: u8, event: &Event) -> Seen {
        match &event.data {
            EventData::Dto(dto) => {
                let stream = if dto.operation.is_receive() { Stream::Recv } else { Stream::Request };
                self.matches(dto.ep, stream, evd, event)
            }
            EventData::RmrBind { rmr, cookie, .. } => self.bound(*rmr, *cookie, evd, event),
            EventData::Connection { ep, .. } => self.matches(*ep, Stream::Connection, evd, event),
            EventData::ConnectionRequest { conn_qual, cr, service_point } => {
                let number = self.world.sides[side].requests.len();
                let Some(request) = self.model.sides[side].requests.get(number).copied() else {
                    return Err(format!("a connection request at side {side} that nobody made"));
                };
                let (cr, param) = self.world.arrived(side, *cr).map_err(|error| error.to_string())?;
                // A new one has been made for it, which is the last of the model's until the next step.
                if let Some(made) = &param.local_ep
                    && request.held == Some(self.world.eps.len())
                {
                    self.world.eps.push(made.clone());
                }
                let half = &mut self.world.sides[side];
                let (point, port) = half.listens(request.at);
                half.requests.push(cr);
                if (*service_point, *conn_qual, param.conn_qual) != (point, port, port) {
                    return Err(format!("a request for {request:?} at {service_point:?} on {conn_qual}"));
                }
                if param.private_data[..] != private_data(request.data)[..] {
                    return Err(format!("a request for {request:?} with {:?}", param.private_data));
                }
                let held = request.held.and_then(|held| self.world.eps.get(held)).map(dat_engine::Ep::id);
                match param.local_ep.map(|ep| ep.id()) == held && held.is_some() == request.held.is_some() {
                    true => Ok(()),
                    false => Err(format!("a request for {request:?} that does not hold {held:?}")),
                }
            }
            EventData::Async { object, reason: AsyncReason::SrqLowWatermark } => {
                let Some(queue) = self.model.sides[side].notices.pop_front() else {
                    return Err(format!("a low watermark too many at side {side}: {:?}", event.data));
                };
                self.trace.notices.push(format!("queue {queue}"));
                match self.world.queues[queue].id() == *object {
                    true => Ok(()),
                    false => Err(format!("{:?} instead of one of queue {queue}", event.data)),
                }
            }
            other => Err(format!("an event that should not be there, at side {side}: {other:?}")),
        }
    }

    pub(super) fn matches(&mut self, id: ObjectId, stream: Stream, evd: u8, event: &Event) -> Seen {
        match self.world.eps.iter().position(|ep| ep.id() == id) {
            Some(index) => self.matches_at(index, stream, evd, event),
            None => Err(format!("an event of an endpoint nobody made: {:?}", event.data)),
        }
    }

    /// The event of a bind names the window. Its endpoint is where this bind completes next.
    fn bound(&mut self, rmr: ObjectId, cookie: u64, evd: u8, event: &Event) -> Seen {
        let next = |what: &What| matches!(what, What::Dto(next) if next.cookie == cookie && next.operation == DtoOperation::BindMw);
        let requests = |ep: &Endpoint| ep.expected[Stream::Request as usize].front().cloned();
        let index = self.model.eps.iter().position(|ep| requests(ep).is_some_and(|event| next(&event.what)));
        match index {
            Some(index) if self.world.binds.get(&cookie) == Some(&rmr) => {
                self.matches_at(index, Stream::Request, evd, event)
            }
            _ => Err(format!("the end of a bind that is not to end now, or another's: {:?}", event.data)),
        }
    }

    fn matches_at(&mut self, index: usize, stream: Stream, evd: u8, event: &Event) -> Seen {
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
        if let (What::Dto(Completion { shared: Some(shared), .. }), EventData::Dto(dto)) =
            (&next.what, &event.data)
            && !self.model.seen(shared, dto.cookie)
        {
            return Err(format!("at endpoint {index}: {dto:?} is of no receive of queue {}", shared.queue));
        }
        let ep = &self.model.eps[index];
        // On one dispatcher the end of a connection comes after what it flushed.
        let over = stream == Stream::Connection && ep.state == EpState::Disconnected;
        if over && let Some(late) = ep.expected[..2].iter().flatten().find(|late| late.evd == evd) {
            return Err(format!("at endpoint {index}: {:?} came before {late}", event.data));
        }
        self.trace.events[index][stream as usize].push(next.to_string());
        self.not_early(index, &event.data)
    }
}

fn fits(next: &Expected, data: &EventData) -> bool {
    match (&next.what, data) {
        (What::Dto(want), EventData::Dto(dto)) if want.operation != DtoOperation::BindMw => {
            let as_wanted = if dto.status.is_success() {
                dto.operation == want.operation
                    && dto.length == want.length
                    && dto.immediate() == want.immediate
            } else {
                // Which kind of message a receive failed with is nothing it must say.
                dto.operation == want.operation || (dto.operation.is_receive() && want.operation.is_receive())
            };
            (want.shared.is_some() || dto.cookie == want.cookie)
                && want.statuses.contains(&dto.status)
                && as_wanted
        }
        (What::Dto(want), EventData::RmrBind { cookie, status, .. }) => {
            want.operation == DtoOperation::BindMw && want.cookie == *cookie && want.statuses.contains(status)
        }
        (
            What::Connection { kinds, data, reason: why },
            EventData::Connection { kind, private_data, reason, .. },
        ) => kinds.contains(kind) && private_data[..] == data[..] && reason == why,
        _ => false,
    }
}
