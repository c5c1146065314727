//! What is behind a dispatcher's lock: queued events, and the way from a provider's completions to events.

use std::collections::VecDeque;
use std::sync::Arc;

use dat_plugin::host::Queue;
use dat_plugin::{Completion, CompletionFlag, CompletionStatus};
use dat_types::{CompletionFlags, DtoCompletion, DtoOperation, DtoStatus, Event, EventData, ObjectId};

use super::EvdInner;
use super::streams::Streams;
use crate::cno::Cno;
use crate::counters::EvdCounts;
use crate::ep::{EpInner, Work, WorkRing};
use crate::sequel::{Sequel, Sequels};
use crate::srq::{Srq, Unreaped};
use crate::status_map;

/// How many completions one call into the provider takes at most.
const BATCH: usize = 16;

/// How many completions are converted together and not one by one.
const RUN: usize = 3;

/// How many completions of closed channels one call passes over. A provider that has more is not going to end: the
/// caller is told that there is none, so that it comes to look at its own time.
const MOST_STRAYS: u64 = 1 << 18;

/// Who may take events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Anybody.
    Open,
    /// The thread inside a wait only (contract section 1.4).
    Waited,
    /// Nobody: an async dispatcher that lost an event (contract section 6.3).
    Overflowed,
    /// Nobody: freed.
    Freed,
}

pub(crate) struct Core {
    /// The provider's, if completions come here; given back with the dispatcher, whatever handles of it are left.
    queue: Option<Arc<Queue>>,
    pub(crate) gate: Gate,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    /// A waiter was thrown out by the end of the IA.
    pub(crate) aborted: bool,
    /// Somebody sleeps, or an application armed the descriptor.
    pub(crate) armed: bool,
    pub(crate) counts: EvdCounts,
    /// What notifications trigger.
    pub(crate) cno: Option<Cno>,
    /// The provider's queue could not be armed on behalf of the notification object.
    pub(crate) unattended: bool,
    pub(crate) qlen: usize,
    pub(crate) events: VecDeque<Queued>,
    /// Completions of endpoints whose connection event has not been queued yet: it goes first.
    parked: Vec<(ObjectId, Queued)>,
    /// How many of `events` are notifications (contract section 6.5).
    pub(crate) notifications: usize,
    pub(crate) streams: Streams,
    /// Directions of endpoints whose channel reports to this dispatcher's queue; completions name them by index.
    pub(crate) feeders: Vec<FeederSlot>,
    /// Indices of `feeders` that are free.
    vacant: Vec<u32>,
    /// Most completions the feeders can have outstanding.
    demand: usize,
    /// What the last call into the provider gave; `batch[taken..filled]` is still as the provider made it, and for all
    /// that counts or looks at events it has not been taken yet.
    batch: [Completion; BATCH],
    taken: usize,
    filled: usize,
    /// Completions so far that belonged to no open channel.
    strays: u64,
    told_flood: bool,
}

/// What [`EvdInner::next_plain`] found.
pub(super) enum Next {
    Completion(DtoCompletion),
    /// Neither queued nor with the provider.
    Nothing,
    /// What it is, [`EvdInner::next_event`] tells; it may be nothing.
    Other,
}

pub(crate) struct Queued {
    pub(crate) event: Event,
    pub(crate) notify: bool,
    /// Of a receive out of a shared queue.
    pub(crate) _held: Option<Unreaped>,
}

#[derive(Default)]
pub(crate) struct FeederSlot {
    generation: u32,
    feeder: Option<Feeder>,
}

/// One direction of a connected endpoint.
pub(crate) struct Feeder {
    pub(crate) ep: Arc<EpInner>,
    pub(crate) ring: Arc<WorkRing>,
    /// Receives come out of this and not out of the ring.
    pub(crate) srq: Option<Srq>,
    /// The connection attempt it belongs to.
    pub(crate) attempt: u64,
    pub(crate) limit: u32,
}

impl Core {
    pub(crate) fn new(qlen: usize, queue: Option<Arc<Queue>>) -> Core {
        Core {
            queue,
            gate: Gate::Open,
            enabled: true,
            waitable: true,
            aborted: false,
            armed: false,
            counts: EvdCounts::default(),
            cno: None,
            unattended: false,
            qlen,
            events: VecDeque::with_capacity(qlen.min(4096)),
            parked: Vec::new(),
            notifications: 0,
            streams: Streams::default(),
            feeders: Vec::new(),
            vacant: Vec::new(),
            demand: 0,
            batch: [Completion::default(); BATCH],
            taken: 0,
            filled: 0,
            strays: 0,
            told_flood: false,
        }
    }

    /// The provider's queue, if completions come here and the dispatcher was not freed.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.queue.clone()
    }

    /// Takes the provider's queue from a dispatcher that ends: to be dropped, which closes it, without this one's lock.
    pub(super) fn take_queue(&mut self) -> Option<Arc<Queue>> {
        (self.taken, self.filled) = (0, 0);
        self.queue.take()
    }

    /// Arms the provider's queue for nobody in particular; the next to sleep arms it anew.
    pub(crate) fn arm_queue(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.arm())
    }

    pub(super) fn disarm_queue(&self) {
        if let Some(queue) = &self.queue {
            queue.disarm();
        }
    }

    /// Whether so many strays came since there were `before` that it must be the provider.
    fn is_flooded(&mut self, before: u64) -> bool {
        let flooded = self.strays - before > MOST_STRAYS;
        if flooded && !std::mem::replace(&mut self.told_flood, true) {
            tracing::error!("the provider completes work of channels that do not exist, without end");
        }
        flooded
    }

    /// Has the oldest completion ready for [`Core::next_raw`], of those kept or from the provider. `false`: none.
    #[inline]
    fn refill(&mut self) -> bool {
        if self.taken == self.filled {
            let Some(queue) = &self.queue else { return false };
            self.taken = 0;
            self.filled = queue.poll(&mut self.batch);
            self.counts.polls += 1;
            self.counts.polls_found += self.filled as u64;
        }
        self.filled > 0
    }

    #[inline]
    fn next_raw(&mut self) -> Option<Completion> {
        let completion = *self.batch[..self.filled].get(self.taken)?;
        self.taken += 1;
        Some(completion)
    }

    /// Whether completions were taken from the provider and are not events yet.
    pub(crate) fn has_raw(&self) -> bool {
        self.taken < self.filled
    }

    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.qlen
    }

    pub(crate) fn push(&mut self, queued: Queued) -> bool {
        if self.is_full() {
            return false;
        }
        self.notifications += queued.notify as usize;
        self.events.push_back(queued);
        true
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let queued = self.events.pop_front()?;
        self.notifications -= queued.notify as usize;
        Some(queued.event)
    }

    /// The connection of `ep` is up or over, and its event is queued: its completions may follow.
    pub(crate) fn unpark(&mut self, ep: ObjectId) {
        if self.parked.is_empty() {
            return;
        }
        let (ready, rest) = std::mem::take(&mut self.parked).into_iter().partition(|(owner, _)| *owner == ep);
        self.parked = rest;
        for (_, queued) in ready {
            self.notifications += queued.notify as usize;
            self.events.push_back(queued);
        }
    }

    /// `Err`: more events are queued than asked for.
    pub(crate) fn resize(&mut self, qlen: usize) -> Result<(), usize> {
        if self.events.len() > qlen {
            return Err(self.events.len());
        }
        self.qlen = qlen;
        Ok(())
    }

    /// Whether its feeders can complete more than fits: then completions are taken eagerly, so that an overflow is
    /// noticed when it happens.
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.demand > self.qlen
    }

    /// Whether a graceful disconnect waits for completions from here.
    pub(crate) fn has_draining(&self) -> bool {
        self.feeders.iter().filter_map(|slot| slot.feeder.as_ref()).any(|feeder| feeder.ring.is_draining())
    }

    /// The endpoints it waits for.
    pub(crate) fn draining(&self) -> Vec<Arc<EpInner>> {
        let feeders = self.feeders.iter().filter_map(|slot| slot.feeder.as_ref());
        feeders.filter(|feeder| feeder.ring.is_draining()).map(|feeder| feeder.ep.clone()).collect()
    }

    /// Events that can be queued while there is still room for all work the feeders may have outstanding.
    fn spare(&self) -> usize {
        self.qlen.saturating_sub(self.demand + self.events.len() + self.parked.len())
    }

    /// Takes a feeder in; the number is what completions name it by.
    pub(crate) fn attach(&mut self, feeder: Feeder) -> u64 {
        self.demand += feeder.limit as usize;
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                self.feeders.push(FeederSlot::default());
                self.feeders.len() - 1
            }
        };
        let slot = &mut self.feeders[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.feeder = Some(feeder);
        (slot.generation as u64) << 32 | index as u64
    }

    pub(crate) fn detach(&mut self, number: u64) {
        if let Some(slot) = self.feeders.get_mut(number as u32 as usize)
            && slot.generation == (number >> 32) as u32
            && let Some(feeder) = slot.feeder.take()
        {
            self.demand -= feeder.limit as usize;
            self.vacant.push(number as u32);
        }
    }
}

impl EvdInner {
    /// The oldest event if it is a completion there is nothing to say about, straight from the provider.
    #[inline(always)]
    pub(super) fn next_plain(&self, core: &mut Core) -> Next {
        if core.is_overcommitted() || !core.events.is_empty() {
            return Next::Other;
        }
        if !core.refill() {
            return Next::Nothing;
        }
        core.plain_one().map_or(Next::Other, Next::Completion)
    }

    /// The oldest event: queued, or straight from the provider.
    pub(super) fn next_event(&self, core: &mut Core, sequels: &mut Sequels) -> Option<Event> {
        if core.is_overcommitted() {
            self.harvest(core, sequels);
        }
        if !core.events.is_empty() {
            return core.pop();
        }
        let strays = core.strays;
        while core.refill() {
            let mut one = None;
            if core.plain_run(1, |done| one = Some(done), sequels) {
                match one {
                    Some(done) => return Some(Event { evd: self.id, data: EventData::Dto(done) }),
                    None => continue,
                }
            }
            if let Some(completion) = core.next_raw()
                && let Some(queued) = self.convert(core, &completion, sequels)
            {
                if queued.notify {
                    self.notified(core);
                }
                return Some(queued.event);
            }
            if core.is_flooded(strays) {
                break;
            }
        }
        None
    }

    /// As [`EvdInner::next_event`], for as many completions as there are and `out` has room for without growing. If `out`
    /// has more than `before`, these are from the provider, which then is not asked again.
    pub(super) fn next_completions(
        &self,
        core: &mut Core,
        out: &mut Vec<DtoCompletion>,
        before: usize,
        sequels: &mut Sequels,
    ) {
        if core.is_overcommitted() {
            self.harvest(core, sequels);
        }
        let strays = core.strays;
        while out.len() < out.capacity() {
            if let Some(queued) = core.events.front() {
                let EventData::Dto(done) = queued.event.data else { break };
                out.push(done);
                core.pop();
                continue;
            }
            if !core.has_raw() {
                // The provider is asked once, unless all it gave was suppressed.
                if out.len() != before || core.is_flooded(strays) || !core.refill() {
                    break;
                }
            }
            // A run costs more to begin and less to go on.
            if core.filled - core.taken < RUN
                && let Some(done) = core.plain_one()
            {
                out.push(done);
                continue;
            }
            let room = out.capacity() - out.len();
            if core.plain_run(room, |done| out.push(done), sequels) {
                continue;
            }
            let Some(completion) = core.next_raw() else { break };
            match self.convert(core, &completion, sequels) {
                Some(Queued { event: Event { data: EventData::Dto(done), .. }, notify, .. }) => {
                    out.push(done);
                    if notify {
                        self.notified(core);
                    }
                }
                Some(other) => {
                    core.notifications += other.notify as usize;
                    core.events.push_back(other);
                }
                None => {}
            }
        }
    }

    /// Takes all completions there are and queues their events. What does not fit breaks its endpoint.
    pub(crate) fn harvest(&self, core: &mut Core, sequels: &mut Sequels) {
        self.harvest_to(core, sequels, usize::MAX);
    }

    /// Takes completions until `wanted` events are queued, and beyond that as many as leave room for all work the
    /// feeders may have outstanding: work taken here may be followed by more, and one day all of it is flushed.
    pub(crate) fn harvest_to(&self, core: &mut Core, sequels: &mut Sequels, wanted: usize) {
        let before = core.notifications;
        self.take_all(core, sequels, wanted);
        if wanted > 0 && core.events.len() >= wanted && core.notifications == 0 {
            // Enough events but none that notifies: the one that does may be behind them.
            self.take_all(core, sequels, usize::MAX);
        }
        // Whoever sleeps on it sleeps on the provider's descriptor, which says nothing of what was taken just now.
        if core.notifications > before {
            if core.armed {
                self.signal();
            }
            self.notified(core);
        }
    }

    fn take_all(&self, core: &mut Core, sequels: &mut Sequels, wanted: usize) {
        let strays = core.strays;
        loop {
            let queued = core.events.len();
            let take = match core.is_overcommitted() {
                true => BATCH,
                false => BATCH.min(core.spare().max(wanted.min(core.qlen).saturating_sub(queued))),
            };
            // Until there is none: fewer than fit does not say that there are no more.
            if take == 0 || core.is_flooded(strays) || !core.refill() {
                return;
            }
            for _ in 0..take {
                let Some(completion) = core.next_raw() else { break };
                if let Some(queued) = self.convert(core, &completion, sequels)
                    && !core.push(queued)
                    && let Some(feeder) = core.feeder(completion.user)
                {
                    let (ep, attempt) = (feeder.ep.clone(), feeder.attempt);
                    sequels.push(Sequel::Overflow { ep, attempt, evd: self.id });
                }
            }
        }
    }

    /// One completion as an event, unless it is suppressed.
    fn convert(&self, core: &mut Core, completion: &Completion, sequels: &mut Sequels) -> Option<Queued> {
        let Some(feeder) = core.feeder(completion.user) else {
            // Of a channel that was closed: its work was flushed.
            core.strays += 1;
            return None;
        };
        let mut held = None;
        let work = match &feeder.srq {
            None => feeder.ring.complete(completion.token as u32),
            Some(srq) => srq.0.complete(completion.token).map(|(cookie, unreaped)| {
                held = Some(unreaped);
                Work { cookie, operation: DtoOperation::Receive, flags: CompletionFlags::empty() }
            }),
        };
        let Some(mut work) = work else { return core.distrust(completion, sequels) };
        let success = completion.status == CompletionStatus::SUCCESS;
        if feeder.ring.is_draining() && feeder.ring.outstanding() == 0 {
            sequels.push(Sequel::Drained { ep: feeder.ep.clone(), attempt: feeder.attempt });
        }
        let early = !feeder.ep.is_connected_or_over();
        if early {
            sequels.push(Sequel::Early { ep: feeder.ep.clone(), attempt: feeder.attempt });
        }
        if !success {
            feeder.ring.set_failed(true);
            sequels.push(Sequel::Broken { ep: feeder.ep.clone(), attempt: feeder.attempt });
        } else if work.flags.contains(CompletionFlags::SUPPRESS) {
            return None;
        }
        let receive = work.operation == DtoOperation::Receive;
        let notify = !success
            || match feeder.ring.mode {
                CompletionFlags::UNSIGNALLED => !work.flags.contains(CompletionFlags::UNSIGNALLED),
                CompletionFlags::SOLICITED_WAIT if receive => {
                    completion.flags.contains(CompletionFlag::SOLICITED)
                }
                _ => true,
            };
        if receive && completion.flags.0 & BEYOND.0 != 0 && success {
            work.operation = received(completion);
            if work.operation == DtoOperation::ReceiveWithInvalidate {
                sequels.push(Sequel::WindowEnded { ep: feeder.ep.clone(), context: completion.imm });
            }
        }
        if receive && success {
            feeder.ep.counts.received.add(work.operation, completion.length.into());
        }
        let status = if success { DtoStatus::Success } else { status_map::completed(completion.status) };
        let data = feeder.ring.event(feeder.ep.id, work, status, completion.length.into(), completion.imm);
        let queued = Queued { event: Event { evd: self.id, data }, notify, _held: held };
        if early {
            let ep = feeder.ep.id;
            core.parked.push((ep, queued));
            return None;
        }
        Some(queued)
    }
}

impl Feeder {
    /// Whether its successes are nothing but that, unless a disconnect waits for them.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.srq.is_none() && self.ep.is_connected_or_over()
    }
}

/// Whether it is a success of what was posted and of nothing more.
#[inline(always)]
fn is_plain(completion: &Completion) -> bool {
    completion.status == CompletionStatus::SUCCESS && completion.flags.0 & BEYOND.0 == 0
}

impl Core {
    /// The next completion for the consumer, if it is one of those [`Core::plain_run`] takes and there is nothing else
    /// to do about it. A function of its own because it is what a program that takes them one by one pays for each.
    #[inline(always)]
    fn plain_one(&mut self) -> Option<DtoCompletion> {
        let completion = self.batch.get(self.taken)?;
        let feeder = self.feeder(completion.user)?;
        if self.cno.is_some() || !feeder.is_plain() || !is_plain(completion) || feeder.ring.is_draining() {
            return None;
        }
        let Work { cookie, operation, .. } = feeder.ring.complete_next(completion.token as u32, |work| {
            work.operation != DtoOperation::BindMw && !work.flags.contains(CompletionFlags::SUPPRESS)
        })?;
        let (length, value) = (u64::from(completion.length), completion.imm);
        if operation == DtoOperation::Receive {
            feeder.ep.counts.received.add_plain(1, length);
        }
        let ep = feeder.ep.id;
        self.taken += 1;
        Some(DtoCompletion { ep, cookie, status: DtoStatus::Success, operation, length, value })
    }

    /// Turns completions into what the consumer takes, at most `most`, as [`EvdInner::convert`] does one by one: those of
    /// one direction of one endpoint, up to the first there is anything to say about. `false`: that is the first.
    #[inline(always)]
    fn plain_run(&mut self, most: usize, mut out: impl FnMut(DtoCompletion), sequels: &mut Sequels) -> bool {
        let batch = &self.batch[self.taken..self.filled];
        let Some(user) = batch.first().map(|first| first.user) else { return false };
        let Some(feeder) = self.feeder(user) else { return false };
        if self.cno.is_some() || !feeder.is_plain() {
            return false;
        }
        let (mut taking, ep) = (feeder.ring.taking(), feeder.ep.id);
        let (mut left, mut taken, mut receives, mut bytes) = (most, 0, 0, 0);
        for completion in batch {
            if left == 0 || completion.user != user || !is_plain(completion) {
                break;
            }
            let token = completion.token as u32;
            let Some(Work { cookie, operation, flags }) = taking.peek(token) else { break };
            if operation == DtoOperation::BindMw {
                break;
            }
            taking.take(token);
            taken += 1;
            let length = u64::from(completion.length);
            if operation == DtoOperation::Receive {
                receives += 1;
                bytes += length;
            }
            if !flags.contains(CompletionFlags::SUPPRESS) {
                left -= 1;
                let (status, value) = (DtoStatus::Success, completion.imm);
                out(DtoCompletion { ep, cookie, status, operation, length, value });
            }
        }
        drop(taking);
        if taken == 0 {
            return false;
        }
        if receives > 0 {
            feeder.ep.counts.received.add_plain(receives, bytes);
        }
        if feeder.ring.is_draining() && feeder.ring.outstanding() == 0 {
            sequels.push(Sequel::Drained { ep: feeder.ep.clone(), attempt: feeder.attempt });
        }
        self.taken += taken;
        true
    }

    /// The provider completed what was not posted, or out of order. Nothing it says of this channel can be trusted: what
    /// else it says of this direction is not listened to.
    #[cold]
    fn distrust(&mut self, completion: &Completion, sequels: &mut Sequels) -> Option<Queued> {
        let feeder = self.feeder(completion.user)?;
        let (ep, attempt) = (feeder.ep.clone(), feeder.attempt);
        tracing::error!(
            ep = %ep.id,
            token = completion.token,
            "the provider completed work that was not posted, or out of order; breaking the connection"
        );
        sequels.push(Sequel::Broken { ep, attempt });
        self.detach(completion.user);
        None
    }

    #[inline]
    fn feeder(&self, number: u64) -> Option<&Feeder> {
        let slot = self.feeders.get(number as u32 as usize)?;
        if slot.generation != (number >> 32) as u32 {
            return None;
        }
        slot.feeder.as_ref()
    }
}

/// Marks of a receive that was used by more than a message.
const BEYOND: CompletionFlag =
    CompletionFlag(CompletionFlag::IMMEDIATE.0 | CompletionFlag::INVALIDATED.0 | CompletionFlag::WRITTEN.0);

#[cold]
fn received(completion: &Completion) -> DtoOperation {
    if completion.flags.contains(CompletionFlag::INVALIDATED) {
        DtoOperation::ReceiveWithInvalidate
    } else if completion.flags.contains(CompletionFlag::WRITTEN) {
        DtoOperation::RecvImmed
    } else {
        DtoOperation::RecvMsgImmed
    }
}
