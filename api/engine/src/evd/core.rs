//! What is behind a dispatcher's lock: queued events, and the way from a provider's completions to events.

use std::collections::VecDeque;
use std::sync::Arc;

use dat_plugin::host::Queue;
use dat_plugin::{Completion, CompletionFlag, CompletionStatus};
use dat_types::{CompletionFlags, DtoCompletion, DtoOperation, Event, EventData, ObjectId};

use super::EvdInner;
use super::streams::Stream;
use crate::ep::{EpInner, WorkRing};
use crate::sequel::{Sequel, Sequels};
use crate::status_map;

/// How many completions one call into the provider takes at most.
const BATCH: usize = 16;

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
    pub(crate) gate: Gate,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    /// A waiter was thrown out by the end of the IA.
    pub(crate) aborted: bool,
    /// Somebody sleeps, or an application armed the descriptor.
    pub(crate) armed: bool,
    pub(crate) qlen: usize,
    pub(crate) events: VecDeque<Queued>,
    /// Completions of endpoints whose connection event has not been queued yet: it goes first.
    parked: Vec<(ObjectId, Queued)>,
    /// How many of `events` are notifications (contract section 6.5).
    pub(crate) notifications: usize,
    pub(crate) streams: Vec<Stream>,
    /// Directions of endpoints whose channel reports to this dispatcher's queue; completions name them by index.
    pub(crate) feeders: Vec<FeederSlot>,
    /// Most completions the feeders can have outstanding.
    demand: usize,
    batch: [Completion; BATCH],
}

pub(crate) struct Queued {
    pub(crate) event: Event,
    pub(crate) notify: bool,
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
    /// The connection attempt it belongs to.
    pub(crate) attempt: u64,
    pub(crate) limit: u32,
}

impl Core {
    pub(crate) fn new(qlen: usize) -> Core {
        Core {
            gate: Gate::Open,
            enabled: true,
            waitable: true,
            aborted: false,
            armed: false,
            qlen,
            events: VecDeque::with_capacity(qlen.min(4096)),
            parked: Vec::new(),
            notifications: 0,
            streams: Vec::new(),
            feeders: Vec::new(),
            demand: 0,
            batch: [Completion::default(); BATCH],
        }
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

    /// Events that can be queued while there is still room for all work the feeders may have outstanding.
    fn spare(&self) -> usize {
        self.qlen.saturating_sub(self.demand + self.events.len() + self.parked.len())
    }

    /// Takes a feeder in; the number is what completions name it by.
    pub(crate) fn attach(&mut self, feeder: Feeder) -> u64 {
        self.demand += feeder.limit as usize;
        let index = match self.feeders.iter().position(|slot| slot.feeder.is_none()) {
            Some(index) => index,
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
        }
    }
}

impl EvdInner {
    /// The oldest event: queued, or straight from the provider.
    #[inline]
    pub(super) fn next_event(&self, core: &mut Core, sequels: &mut Sequels) -> Option<Event> {
        if core.events.is_empty() || core.is_overcommitted() {
            let queue = self.queue.as_ref()?;
            if core.is_overcommitted() {
                self.harvest(core, sequels);
                return core.pop();
            }
            // What is beyond the first is queued.
            let take = BATCH.min(core.spare() + 1);
            let n = queue.poll(&mut core.batch[..take]);
            let mut first = None;
            for i in 0..n {
                let completion = core.batch[i];
                if let Some(queued) = self.convert(core, &completion, sequels) {
                    if first.is_none() {
                        first = Some(queued.event);
                    } else {
                        core.push(queued);
                    }
                }
            }
            return first;
        }
        core.pop()
    }

    /// Takes all completions there are and queues their events. What does not fit breaks its endpoint.
    pub(crate) fn harvest(&self, core: &mut Core, sequels: &mut Sequels) {
        self.harvest_to(core, sequels, usize::MAX);
    }

    /// Takes completions until `wanted` events are queued, and beyond that as many as leave room for all work the
    /// feeders may have outstanding: work taken here may be followed by more, and one day all of it is flushed.
    pub(crate) fn harvest_to(&self, core: &mut Core, sequels: &mut Sequels, wanted: usize) {
        let Some(queue) = &self.queue else { return };
        let before = core.notifications;
        self.take_all(queue, core, sequels, wanted);
        if wanted > 0 && core.events.len() >= wanted && core.notifications == 0 {
            // Enough events but none that notifies: the one that does may be behind them.
            self.take_all(queue, core, sequels, usize::MAX);
        }
        // Whoever sleeps on it sleeps on the provider's descriptor, which says nothing of what was taken just now.
        if core.armed && core.notifications > before {
            self.signal();
        }
    }

    fn take_all(&self, queue: &Queue, core: &mut Core, sequels: &mut Sequels, wanted: usize) {
        loop {
            let queued = core.events.len();
            let take = match core.is_overcommitted() {
                true => BATCH,
                false => BATCH.min(core.spare().max(wanted.min(core.qlen).saturating_sub(queued))),
            };
            if take == 0 {
                return;
            }
            let n = queue.poll(&mut core.batch[..take]);
            for i in 0..n {
                let completion = core.batch[i];
                if let Some(queued) = self.convert(core, &completion, sequels)
                    && !core.push(queued)
                    && let Some(feeder) = core.feeder(completion.user)
                {
                    let (ep, attempt) = (feeder.ep.clone(), feeder.attempt);
                    sequels.push(Sequel::Overflow { ep, attempt, evd: self.id });
                }
            }
            if n < take {
                return;
            }
        }
    }

    /// One completion as an event, unless it is suppressed.
    #[inline]
    fn convert(&self, core: &mut Core, completion: &Completion, sequels: &mut Sequels) -> Option<Queued> {
        let Some(feeder) = core.feeder(completion.user) else {
            // Of a channel that was closed: its work was flushed.
            return None;
        };
        let Some(work) = feeder.ring.complete(completion.token as u32) else {
            return fault(feeder, completion, sequels);
        };
        let success = completion.status == CompletionStatus::SUCCESS;
        if feeder.ring.is_draining() && feeder.ring.outstanding() == 0 {
            sequels.push(Sequel::Drained { ep: feeder.ep.clone(), attempt: feeder.attempt });
        }
        let early = !feeder.ep.is_connected_or_over();
        if early {
            sequels.push(Sequel::Early { ep: feeder.ep.clone(), attempt: feeder.attempt });
        }
        if !success {
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
        let data = EventData::Dto(DtoCompletion {
            ep: feeder.ep.id,
            cookie: work.cookie,
            status: status_map::completed(completion.status),
            operation: work.operation,
            length: completion.length as u64,
        });
        let queued = Queued { event: Event { evd: self.id, data }, notify };
        if early {
            let ep = feeder.ep.id;
            core.parked.push((ep, queued));
            return None;
        }
        Some(queued)
    }
}

impl Core {
    #[inline]
    fn feeder(&self, number: u64) -> Option<&Feeder> {
        let slot = self.feeders.get(number as u32 as usize)?;
        if slot.generation != (number >> 32) as u32 {
            return None;
        }
        slot.feeder.as_ref()
    }
}

/// The provider completed what was not posted, or out of order. Nothing it says of this channel can be trusted.
#[cold]
fn fault(feeder: &Feeder, completion: &Completion, sequels: &mut Sequels) -> Option<Queued> {
    let ep: ObjectId = feeder.ep.id;
    tracing::error!(%ep, token = completion.token, "the provider completed work out of order; breaking the connection");
    sequels.push(Sequel::Broken { ep: feeder.ep.clone(), attempt: feeder.attempt });
    None
}
