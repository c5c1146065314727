//! Taking events without waiting.

use dat_types::{DtoCompletion, Error, Event, EventData, Result, ReturnType, Subtype};

use super::completions::Next;
use super::core::{Core, QueueState};
use super::inner::{Evd, EvdInner};
use crate::base::deferred::DeferredList;
use crate::base::lock::Guard;
use crate::base::{deferred, error};

impl Evd {
    /// `dat_evd_dequeue`: the oldest event, or `DAT_QUEUE_EMPTY` without a sentence. Never blocks, allocates nothing.
    #[inline]
    pub fn dequeue(&self) -> Result<Event> {
        self.poll_as(|done| Ok(self.completed(done)), |event| event.ok_or(EMPTY))
    }

    /// The same with an empty queue as `None`, for loops that find it so most of the time.
    #[inline]
    pub fn poll(&self) -> Result<Option<Event>> {
        self.poll_as(|done| Ok(Some(self.completed(done))), Ok)
    }

    #[inline]
    fn completed(&self, done: DtoCompletion) -> Event {
        Event { evd: self.0.id, data: EventData::Dto(done) }
    }

    /// The same for layers that have an event of their own, made here from a completion or from an event of
    /// another kind: an event that is returned by value would be copied at each step.
    #[inline(always)]
    pub fn poll_as<T>(
        &self,
        completion: impl FnOnce(DtoCompletion) -> Result<T>,
        other: impl FnOnce(Option<Event>) -> Result<T>,
    ) -> Result<T> {
        if self.0.fork.forked() {
            return Err(error::forked("dat_evd_dequeue"));
        }
        let mut core = self.0.core.lock();
        if core.state != QueueState::Open {
            return Err(self.refused("dat_evd_dequeue", &core));
        }
        core.counts.dequeues += 1;
        let mut first = None;
        if EvdInner::is_direct(&core) {
            match core.next() {
                Next::Completion(done) => {
                    core.counts.dequeues_found += 1;
                    drop(core);
                    return completion(done);
                }
                Next::Empty => {
                    drop(core);
                    return other(None);
                }
                Next::Other(work) => first = Some(Next::Other(work)),
            }
        }
        other(self.poll_on(core, first))
    }

    /// Goes on with a poll that found anything but a plain completion.
    #[cold]
    fn poll_on(&self, mut core: Guard<'_, Core>, next: Option<Next>) -> Option<Event> {
        let mut deferred = DeferredList::new();
        let event = self.0.next_event(&mut core, next, &mut deferred);
        core.counts.dequeues_found += u64::from(event.is_some());
        drop(core);
        if deferred.is_empty() {
            return event;
        }
        deferred::run(deferred);
        // That may have queued events.
        event.or_else(|| self.0.core.lock().pop())
    }

    /// Takes completions in one go, oldest first, up to the first event of another kind, until `out` is full;
    /// it does not grow. Gives how many.
    pub fn poll_completions(&self, out: &mut Vec<DtoCompletion>) -> Result<usize> {
        if self.0.fork.forked() {
            return Err(error::forked("dat_evd_dequeue"));
        }
        let mut core = self.0.core.lock();
        if core.state != QueueState::Open {
            return Err(self.refused("dat_evd_dequeue", &core));
        }
        core.counts.dequeues += 1;
        let before = out.len();
        let mut deferred = DeferredList::new();
        self.0.next_completions(&mut core, out, &mut deferred);
        let count = out.len() - before;
        core.counts.dequeues_found += u64::from(count > 0);
        drop(core);
        if !deferred.is_empty() {
            deferred::run(deferred);
        }
        Ok(count)
    }
}

const EMPTY: Error = Error::bare(ReturnType::QueueEmpty, Subtype::None);
