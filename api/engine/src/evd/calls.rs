//! What else can be done to a dispatcher.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_types::{
    AsyncReason, Error, EvdFlags, EvdState, Event, EventData, IaCounter, ObjectId, Result, ReturnType,
    Subtype,
};

use super::core::{Core, QueueState, Queued};
use super::inner::{Evd, EvdInner, EvdParam};
use crate::adapter::inner::AsyncSink;
use crate::base::deferred::DeferredList;
use crate::base::{deferred, error};

impl Evd {
    /// `dat_evd_post_se`: appends a software event with the Consumer's own value. `DAT_QUEUE_FULL` when it is full.
    pub fn post_se(&self, value: u64) -> Result<()> {
        const CALL: &str = "dat_evd_post_se";
        self.check(CALL, self.0.ia, Subtype::Handle1)?;
        if !self.0.flags.contains(EvdFlags::SOFTWARE) {
            let message = format!("event dispatcher {} was not created for software events", self.0.id);
            return Err(error::parameter(CALL, Subtype::Arg1, message));
        }
        match self.0.push(EventData::Software(value)) {
            true => Ok(()),
            false => Err(Error::bare(ReturnType::QueueFull, Subtype::None)),
        }
    }

    /// `dat_evd_query`.
    pub fn query(&self) -> Result<EvdParam> {
        self.check("dat_evd_query", self.0.ia, Subtype::Handle1)?;
        let core = self.0.core.lock();
        let mut state = core.config();
        state |= if core.enabled { EvdState::ENABLED } else { EvdState::DISABLED };
        state |= if core.waitable { EvdState::WAITABLE } else { EvdState::UNWAITABLE };
        Ok(EvdParam {
            ia: self.0.ia,
            qlen: core.qlen as u32,
            state,
            flags: self.0.flags,
            cno: core.cno.clone(),
        })
    }

    /// `dat_evd_resize`: room for at least `min_qlen` events; none is lost.
    pub fn resize(&self, min_qlen: i32) -> Result<()> {
        const CALL: &str = "dat_evd_resize";
        self.check(CALL, self.0.ia, Subtype::Handle1)?;
        let max = self.0.owner.upgrade().map_or(0, |ia| ia.max_qlen());
        if min_qlen <= 0 || min_qlen as u32 > max {
            let message = format!("a queue of {min_qlen} events; 1 to {max} are possible");
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        let mut deferred = DeferredList::new();
        let mut core = self.0.core.lock();
        if core.state == QueueState::Waited {
            let message = format!("a thread waits on event dispatcher {}", self.0.id);
            return Err(error::state(CALL, Subtype::EvdWaiter, message));
        }
        self.0.drain(&mut core, &mut deferred);
        let result = core.resize(min_qlen as usize).map_err(|queued| {
            error::state(CALL, Subtype::EvdInUse, format!("{queued} events are queued; dequeue some first"))
        });
        drop(core);
        deferred::run(deferred);
        result
    }

    /// `dat_evd_enable` and `dat_evd_disable`: whether notifications trigger a CNO.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        self.check(if enabled { "dat_evd_enable" } else { "dat_evd_disable" }, self.0.ia, Subtype::Handle1)?;
        let mut deferred = DeferredList::new();
        let mut core = self.0.core.lock();
        if core.cno.is_some() && core.enabled != enabled {
            // What is there already came before.
            self.0.drain(&mut core, &mut deferred);
        }
        core.enabled = enabled;
        drop(core);
        deferred::run(deferred);
        Ok(())
    }

    /// `dat_evd_set_unwaitable` (`false`) and `dat_evd_clear_unwaitable` (`true`). A waiter returns
    /// `DAT_INVALID_STATE` at once when it becomes unwaitable.
    pub fn set_waitable(&self, waitable: bool) -> Result<()> {
        let call = if waitable { "dat_evd_clear_unwaitable" } else { "dat_evd_set_unwaitable" };
        self.check(call, self.0.ia, Subtype::Handle1)?;
        self.0.core.lock().waitable = waitable;
        self.0.sleeper.signal();
        Ok(())
    }

    /// `dat_evd_free`. `DAT_INVALID_STATE` while anything feeds it or a thread waits on it. Queued events are lost.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_evd_free";
        self.check(CALL, self.0.ia, Subtype::Handle1)?;
        let queue = {
            let mut core = self.0.core.lock();
            // Of two threads that free it, one does.
            if core.state == QueueState::Freed {
                return Err(self.refused(CALL, &core));
            }
            if core.state == QueueState::Waited {
                let message =
                    format!("a thread waits on event dispatcher {}; make it unwaitable first", self.0.id);
                return Err(error::state(CALL, Subtype::EvdWaiter, message));
            }
            let sources = core.streams.len() + self.0.pinned.load(Ordering::Acquire) as usize;
            if sources > 0 {
                let message = format!(
                    "{sources} endpoints, service points or the IA feed event dispatcher {}; free them first",
                    self.0.id
                );
                return Err(error::state(CALL, Subtype::EvdInUse, message));
            }
            core.state = QueueState::Freed;
            core.unarmed = false;
            if let Some(cno) = core.cno.take() {
                cno.0.detach(self.0.id, true);
            }
            core.take_queue()
        };
        drop(queue);
        if let Some(ia) = self.0.owner.upgrade() {
            ia.objects.lock().of::<Evd>().remove(&self.0.id);
            ia.count(IaCounter::EvdFree);
        }
        Ok(())
    }

    /// A descriptor for epoll, readable when [`Evd::arm`] returned `true` and an event came since. It stays open as
    /// long as the dispatcher lives; do not read from it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        const CALL: &str = "dat_cno_fd_create";
        self.check(CALL, self.0.ia, Subtype::Handle1)?;
        self.0.sleeper.poller(|| self.0.queue()).map_err(|source| {
            error::resources(CALL, Subtype::ResourceTevd, "no descriptor for the event dispatcher")
                .with_source(source)
        })
    }

    /// Arms the descriptor. `false`: there are events already, dequeue them first.
    pub fn arm(&self) -> Result<bool> {
        self.fd()?;
        let mut deferred = DeferredList::new();
        let mut core = self.0.core.lock();
        let armed = self.0.arm_core(&mut core, &mut deferred, 1);
        drop(core);
        deferred::run(deferred);
        Ok(armed)
    }

    /// Ends it although endpoints feed it; a waiter returns `DAT_ABORT`. The provider's queue is closed now and not with
    /// the last handle, because it would keep the device open.
    pub(crate) fn kill(&self) {
        let mut core = self.0.core.lock();
        core.aborted = core.state == QueueState::Waited;
        core.state = QueueState::Freed;
        core.events.clear();
        core.detach_all();
        let cno = core.cno.take();
        core.unarmed = false;
        let queue = core.take_queue();
        drop(core);
        drop(queue);
        if let Some(cno) = cno {
            cno.0.detach(self.0.id, false);
        }
        self.0.sleeper.signal();
    }
}

impl EvdInner {
    /// Appends an event that is no completion; wakes a waiter. `false` when it does not fit.
    pub(crate) fn push(&self, data: EventData) -> bool {
        self.push_if(data, Core::push)
    }

    /// Appends the end of a connection whose beginning had a place: beyond the length if the dispatcher is full. So there
    /// are at most as many ends too many as there are endpoints.
    pub(crate) fn push_end(&self, data: EventData) -> bool {
        self.push_if(data, |core, queued| {
            core.append(queued);
            true
        })
    }

    fn push_if(&self, data: EventData, place: impl FnOnce(&mut Core, Queued) -> bool) -> bool {
        let mut core = self.core.lock();
        if matches!(core.state, QueueState::Freed | QueueState::Overflowed) {
            return false;
        }
        let mut deferred = DeferredList::new();
        if core.is_full() {
            self.drain(&mut core, &mut deferred);
        }
        core.counts.connection_events += u64::from(matches!(data, EventData::Connection { .. }));
        let fits =
            place(&mut core, Queued { event: Event { evd: self.id, data }, notify: true, _held: None });
        if fits {
            self.notified(&core);
        }
        let wake = core.armed;
        drop(core);
        if wake {
            self.sleeper.signal();
        }
        if !deferred.is_empty() {
            // Not performed here: the caller may hold an endpoint's lock. The IA's thread does it.
            if let Some(ia) = self.owner.upgrade() {
                ia.later(deferred);
            }
        }
        fits
    }
}

impl AsyncSink for EvdInner {
    fn raise(&self, object: ObjectId, reason: AsyncReason) {
        if !self.push(EventData::Async { object, reason }) {
            self.overflowed();
        }
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}
