//! What is behind a dispatcher's lock: queued events, the provider's queue, and the endpoints that complete there.

use std::collections::VecDeque;
use std::sync::Arc;

use dat_plugin::Completion;
use dat_plugin::host::Queue;
use dat_types::{Event, ObjectId};

use super::streams::Streams;
use crate::base::counters::{EvdCounts, Received};
use crate::base::deferred::{Deferred, Endpoint, Incident};
use crate::base::ring::WorkRing;
use crate::cno::Cno;
use crate::srq::{Srq, Unreaped};

/// How many completions one call into the provider takes at most.
pub(super) const BATCH: usize = 16;

/// Who may take events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QueueState {
    /// Every thread.
    Open,
    /// The thread inside a wait only.
    Waited,
    /// No thread: an async dispatcher that lost an event.
    Overflowed,
    /// No thread: freed.
    Freed,
}

pub(crate) struct Core {
    /// The provider's, if completions come here. It is closed with the dispatcher, even if handles are left.
    queue: Option<Arc<Queue>>,
    pub(crate) state: QueueState,
    pub(crate) enabled: bool,
    pub(crate) waitable: bool,
    /// The end of the IA sent a waiter away.
    pub(crate) aborted: bool,
    /// A thread sleeps, or an application armed the descriptor.
    pub(crate) armed: bool,
    pub(crate) counts: EvdCounts,
    /// What notifications trigger.
    pub(crate) cno: Option<Cno>,
    /// The provider's queue could not be armed on behalf of the notification object.
    pub(crate) unarmed: bool,
    pub(crate) qlen: usize,
    /// Events that did not come out of the provider's queue, and completions drained from it.
    pub(crate) events: VecDeque<Queued>,
    /// Completions of endpoints whose connection event has not been queued yet: it goes first.
    pub(super) early: Vec<(ObjectId, Queued)>,
    /// How many of `events` notify.
    pub(crate) notifications: usize,
    pub(crate) streams: Streams,
    /// Directions of endpoints whose channel reports to the provider's queue; completions name them by index.
    pub(super) sources: Vec<SourceSlot>,
    /// Indices of `sources` that are free.
    vacant: Vec<u32>,
    /// Most completions the sources can have outstanding.
    demand: usize,
    /// What the last call into the provider gave. `batch[taken..filled]` has not been taken yet.
    pub(super) batch: [Completion; BATCH],
    pub(super) taken: usize,
    pub(super) filled: usize,
    /// Completions until now that belonged to no open channel.
    pub(super) stale: u64,
    pub(super) reported_flood: bool,
}

pub(crate) struct Queued {
    pub(crate) event: Event,
    pub(crate) notify: bool,
    /// Of a receive out of a shared queue.
    pub(crate) _held: Option<Unreaped>,
}

#[derive(Default)]
pub(super) struct SourceSlot {
    generation: u32,
    source: Option<CompletionSource>,
}

/// One direction of a connected endpoint.
pub(crate) struct CompletionSource {
    pub(crate) id: ObjectId,
    pub(crate) ring: Arc<WorkRing>,
    pub(crate) received: Arc<Received>,
    /// Receives come out of this and not out of the ring.
    pub(crate) srq: Option<Srq>,
    pub(crate) ep: Arc<dyn Endpoint>,
    /// The connection attempt it belongs to.
    pub(crate) attempt: u64,
    /// Most completions outstanding.
    pub(crate) limit: u32,
}

impl CompletionSource {
    #[cold]
    pub(super) fn deferred(&self, incident: Incident) -> Deferred {
        Deferred { ep: self.ep.clone(), attempt: self.attempt, incident }
    }
}

impl Core {
    pub(crate) fn new(qlen: usize, queue: Option<Arc<Queue>>) -> Core {
        Core {
            queue,
            state: QueueState::Open,
            enabled: true,
            waitable: true,
            aborted: false,
            armed: false,
            counts: EvdCounts::default(),
            cno: None,
            unarmed: false,
            qlen,
            events: VecDeque::with_capacity(qlen.min(4096)),
            early: Vec::new(),
            notifications: 0,
            streams: Streams::default(),
            sources: Vec::new(),
            vacant: Vec::new(),
            demand: 0,
            batch: [Completion::default(); BATCH],
            taken: 0,
            filled: 0,
            stale: 0,
            reported_flood: false,
        }
    }

    /// The provider's queue, if completions come here and the dispatcher was not freed.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.queue.clone()
    }

    /// Takes the provider's queue from a dispatcher that ends. The caller drops it, which closes it, without the lock.
    pub(super) fn take_queue(&mut self) -> Option<Arc<Queue>> {
        (self.taken, self.filled) = (0, 0);
        self.queue.take()
    }

    /// Arms the provider's queue.
    pub(crate) fn arm_queue(&self) -> bool {
        self.queue.as_ref().is_none_or(|queue| queue.arm())
    }

    pub(super) fn disarm_queue(&self) {
        if let Some(queue) = &self.queue {
            queue.disarm();
        }
    }

    /// Asks the provider for completions; there are none left of the last batch. `false`: it has none.
    #[inline]
    pub(super) fn refill(&mut self) -> bool {
        let Some(queue) = &self.queue else { return false };
        self.taken = 0;
        self.filled = queue.poll(&mut self.batch);
        self.counts.polls += 1;
        self.counts.polls_found += self.filled as u64;
        self.filled > 0
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
        self.append(queued);
        true
    }

    /// Appends an event there is always room for: it is taken at once, or was counted before.
    pub(super) fn append(&mut self, queued: Queued) {
        self.notifications += queued.notify as usize;
        self.events.push_back(queued);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Event> {
        let queued = self.events.pop_front()?;
        self.notifications -= queued.notify as usize;
        Some(queued.event)
    }

    /// The connection of `ep` is up or over, and its event is queued: its completions may follow.
    pub(crate) fn release_early(&mut self, ep: ObjectId) {
        if self.early.is_empty() {
            return;
        }
        let (ready, rest) = std::mem::take(&mut self.early).into_iter().partition(|(owner, _)| *owner == ep);
        self.early = rest;
        for (_, queued) in ready {
            self.append(queued);
        }
    }

    /// `Err`: how many events are queued, more than `qlen`.
    pub(crate) fn resize(&mut self, qlen: usize) -> Result<(), usize> {
        if self.events.len() > qlen {
            return Err(self.events.len());
        }
        self.qlen = qlen;
        Ok(())
    }

    /// Whether its sources can complete more than fits. Completions are then taken eagerly, so that an overflow is
    /// noticed when it happens.
    #[inline]
    pub(crate) fn is_overcommitted(&self) -> bool {
        self.demand > self.qlen
    }

    /// Whether a graceful disconnect waits for completions from here.
    pub(crate) fn has_draining(&self) -> bool {
        self.draining().next().is_some()
    }

    /// The directions a graceful disconnect waits for.
    pub(crate) fn draining(&self) -> impl Iterator<Item = &CompletionSource> {
        let sources = self.sources.iter().filter_map(|slot| slot.source.as_ref());
        sources.filter(|source| source.ring.is_draining())
    }

    /// Whether the IA's thread has a reason to look at it.
    pub(crate) fn is_watched(&self) -> bool {
        self.is_overcommitted() || self.has_draining()
    }

    /// Events that can be queued while there is still room for all work the sources may have outstanding.
    pub(super) fn headroom(&self) -> usize {
        self.qlen.saturating_sub(self.demand + self.events.len() + self.early.len())
    }

    /// Takes a source in; the number is what completions name it by.
    pub(crate) fn attach(&mut self, source: CompletionSource) -> u64 {
        self.demand += source.limit as usize;
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                self.sources.push(SourceSlot::default());
                self.sources.len() - 1
            }
        };
        let slot = &mut self.sources[index];
        slot.generation = slot.generation.wrapping_add(1);
        slot.source = Some(source);
        (slot.generation as u64) << 32 | index as u64
    }

    pub(crate) fn detach(&mut self, number: u64) {
        if let Some(slot) = self.sources.get_mut(number as u32 as usize)
            && slot.generation == (number >> 32) as u32
            && let Some(source) = slot.source.take()
        {
            self.demand -= source.limit as usize;
            self.vacant.push(number as u32);
        }
    }

    pub(super) fn detach_all(&mut self) {
        self.sources.clear();
        self.streams.clear();
    }

    #[inline]
    pub(super) fn source(&self, number: u64) -> Option<&CompletionSource> {
        source_of(&self.sources, number)
    }
}

/// The source of this number, unless it is gone.
#[inline]
pub(super) fn source_of(sources: &[SourceSlot], number: u64) -> Option<&CompletionSource> {
    let slot = sources.get(number as u32 as usize)?;
    if slot.generation != (number >> 32) as u32 {
        return None;
    }
    slot.source.as_ref()
}
