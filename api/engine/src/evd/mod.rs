//! Event dispatchers.

mod core;
mod notify;
mod streams;
mod wait;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::{ForkGuard, Queue};
use dat_types::{
    DtoCompletion, Error, EvdFlags, EvdState, Event, EventData, IaCounter, ObjectId, Result, ReturnType,
    Subtype,
};

use self::core::Next;
pub(crate) use self::core::{Core, Feeder, Gate, Queued};
pub(crate) use notify::ONE_SHOT;
pub(crate) use streams::StreamKind;
pub use wait::WaitError;

use crate::cno::Cno;
use crate::context::{Context, object_calls};
use crate::counters::EvdBase;
use crate::error;
use crate::ia::{Ia, IaInner};
use crate::lock::{Guard, Lock};
use crate::sequel::{self, Sequels};
use wait::Sleeper;

/// An event dispatcher: a queue of events of one or several kinds.
#[derive(Clone)]
pub struct Evd(pub(crate) Arc<EvdInner>);

pub(crate) struct EvdInner {
    pub(crate) id: ObjectId,
    pub(crate) ia: ObjectId,
    pub(crate) owner: Weak<IaInner>,
    pub(crate) flags: EvdFlags,
    pub(crate) core: Lock<Core>,
    sleeper: Sleeper,
    /// Holders of a reference that is no stream: the IA's own async dispatcher counts itself here.
    pinned: AtomicU32,
    spin: std::time::Duration,
    fork: ForkGuard,
    context: Context,
    pub(crate) counted: EvdBase,
}

/// What `dat_evd_query` tells.
#[derive(Clone, Debug)]
pub struct EvdParam {
    /// The IA.
    pub ia: ObjectId,
    /// True capacity in events, at least what was asked for.
    pub qlen: u32,
    /// Enabled or disabled, waitable or not, and the notification its feeders configured.
    pub state: EvdState,
    /// The kinds of events it takes.
    pub flags: EvdFlags,
    /// What its notifications trigger.
    pub cno: Option<Cno>,
}

impl Ia {
    /// `dat_evd_create`: enabled, waitable, empty, for at least `min_qlen` events.
    pub fn evd_create(&self, min_qlen: i32, flags: EvdFlags) -> Result<Evd> {
        const CALL: &str = "dat_evd_create";
        let device = self.device(CALL)?;
        if min_qlen <= 0 {
            let message = format!("a queue of {min_qlen} events; at least 1 is needed");
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        if flags.is_empty() || !EvdFlags::all().contains(flags) {
            let message = format!("flags {:#x} are none or have undefined bits", flags.bits());
            return Err(error::parameter(CALL, Subtype::Arg4, message));
        }
        let max = device.attr().max_queue_depth;
        if min_qlen as u32 > max {
            let message = format!("a queue of {min_qlen} events; the IA has at most {max}");
            return Err(error::resources(CALL, Subtype::ResourceTevd, message));
        }
        if self.inner.objects.lock().evds.len() >= device.attr().max_queues as usize {
            let message = format!("the IA has at most {} event dispatchers", device.attr().max_queues);
            return Err(error::resources(CALL, Subtype::ResourceTevd, message));
        }
        let queue = match flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND) {
            true => Some(Arc::new(
                device.open_queue(min_qlen as u32).map_err(|failure| error::provider(CALL, failure))?,
            )),
            false => None,
        };
        let evd = Evd::new(&self.inner, min_qlen as u32, flags, queue);
        self.inner.objects.lock().evds.insert(evd.0.id, evd.clone());
        self.inner.count(IaCounter::EvdCreate);
        Ok(evd)
    }
}

impl Evd {
    pub(crate) fn new(ia: &Arc<IaInner>, qlen: u32, flags: EvdFlags, queue: Option<Arc<Queue>>) -> Evd {
        Evd(Arc::new(EvdInner {
            id: crate::next_id(),
            ia: ia.id,
            owner: Arc::downgrade(ia),
            flags,
            core: Lock::new(Core::new(qlen as usize, queue)),
            sleeper: Sleeper::default(),
            pinned: AtomicU32::new(0),
            spin: ia.spin,
            fork: ForkGuard::new(),
            context: Context::default(),
            counted: EvdBase::default(),
        }))
    }

    /// Its id; events carry it.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// `dat_evd_dequeue`: the oldest event, or `DAT_QUEUE_EMPTY` without a sentence. Never blocks, allocates nothing.
    #[inline]
    pub fn dequeue(&self) -> Result<Event> {
        match self.poll() {
            Ok(Some(event)) => Ok(event),
            Ok(None) => Err(EMPTY),
            Err(error) => Err(error),
        }
    }

    /// The same with an empty queue as `None`, for loops that find it so most of the time.
    #[inline(always)]
    pub fn poll(&self) -> Result<Option<Event>> {
        self.poll_as(|done| Ok(Some(Event { evd: self.0.id, data: EventData::Dto(done) })), Ok)
    }

    /// The same for layers that have an event of their own, which is made here out of a completion or what else there
    /// is: an event handed up by value would be copied at each step.
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
        if core.gate != Gate::Open {
            return Err(self.refused("dat_evd_dequeue", &core));
        }
        core.counts.dequeues += 1;
        match self.0.next_plain(&mut core) {
            Next::Completion(done) => {
                core.counts.dequeues_found += 1;
                drop(core);
                completion(done)
            }
            Next::Nothing => {
                drop(core);
                other(None)
            }
            Next::Other => other(self.poll_any(core)),
        }
    }

    /// An event of any kind.
    #[inline(never)]
    fn poll_any(&self, mut core: Guard<'_, Core>) -> Option<Event> {
        let mut sequels = Sequels::new();
        let event = self.0.next_event(&mut core, &mut sequels);
        core.counts.dequeues_found += u64::from(event.is_some());
        drop(core);
        match sequels.is_empty() {
            true => event,
            false => self.after(event, sequels),
        }
    }

    /// Completions in one go, oldest first: as many as there are and `out` has room for without growing, up to the first
    /// event of another kind. Gives how many.
    #[inline]
    pub fn poll_completions(&self, out: &mut Vec<DtoCompletion>) -> Result<usize> {
        if self.0.fork.forked() {
            return Err(error::forked("dat_evd_dequeue"));
        }
        let mut core = self.0.core.lock();
        if core.gate != Gate::Open {
            return Err(self.refused("dat_evd_dequeue", &core));
        }
        core.counts.dequeues += 1;
        let before = out.len();
        if before < out.capacity() {
            match self.0.next_plain(&mut core) {
                Next::Nothing => return Ok(0),
                Next::Completion(done) => {
                    out.push(done);
                    if !core.has_raw() {
                        core.counts.dequeues_found += 1;
                        return Ok(1);
                    }
                }
                Next::Other => {}
            }
        }
        Ok(self.poll_rest(core, out, before))
    }

    /// Of a dispatcher that has more than a plain completion.
    #[inline(never)]
    fn poll_rest(&self, mut core: Guard<'_, Core>, out: &mut Vec<DtoCompletion>, before: usize) -> usize {
        let mut sequels = Sequels::new();
        self.0.next_completions(&mut core, out, before, &mut sequels);
        let count = out.len() - before;
        core.counts.dequeues_found += u64::from(count > 0);
        drop(core);
        sequel::perform(sequels);
        count
    }

    /// What came of it may have queued events in turn.
    #[cold]
    fn after(&self, event: Option<Event>, sequels: Sequels) -> Option<Event> {
        sequel::perform(sequels);
        event.or_else(|| self.0.core.lock().pop())
    }

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
        let mut sequels = Sequels::new();
        let mut core = self.0.core.lock();
        if core.gate == Gate::Waited {
            let message = format!("a thread waits on event dispatcher {}", self.0.id);
            return Err(error::state(CALL, Subtype::EvdWaiter, message));
        }
        self.0.harvest(&mut core, &mut sequels);
        let result = core.resize(min_qlen as usize).map_err(|queued| {
            error::state(CALL, Subtype::EvdInUse, format!("{queued} events are queued; dequeue some first"))
        });
        drop(core);
        sequel::perform(sequels);
        result
    }

    /// `dat_evd_enable` and `dat_evd_disable`: whether notifications trigger a CNO.
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        self.check(if enabled { "dat_evd_enable" } else { "dat_evd_disable" }, self.0.ia, Subtype::Handle1)?;
        let mut sequels = Sequels::new();
        let mut core = self.0.core.lock();
        if core.cno.is_some() && core.enabled != enabled {
            // What is there already came before.
            self.0.harvest(&mut core, &mut sequels);
        }
        core.enabled = enabled;
        drop(core);
        sequel::perform(sequels);
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
            if core.gate == Gate::Freed {
                return Err(self.refused(CALL, &core));
            }
            if core.gate == Gate::Waited {
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
            core.gate = Gate::Freed;
            core.unattended = false;
            if let Some(cno) = core.cno.take() {
                cno.0.detach(self.0.id, true);
            }
            core.take_queue()
        };
        drop(queue);
        if let Some(ia) = self.0.owner.upgrade() {
            ia.objects.lock().evds.remove(&self.0.id);
            ia.count(IaCounter::EvdFree);
        }
        Ok(())
    }

    /// A descriptor for epoll, readable when [`Evd::arm`] said `true` and an event came since. It stays open as long
    /// as the dispatcher lives; do not read from it.
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
        let mut sequels = Sequels::new();
        let mut core = self.0.core.lock();
        let armed = self.0.arm_core(&mut core, &mut sequels, 1);
        drop(core);
        sequel::perform(sequels);
        Ok(armed)
    }

    pub(crate) fn pin(&self) {
        self.0.pinned.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        self.0.pinned.fetch_sub(1, Ordering::AcqRel);
    }

    /// Ends it whatever feeds it; a waiter returns `DAT_ABORT`. The provider's queue goes now and not with the last handle:
    /// it would keep the device open, and what the device has to say on its way down would stay unsaid.
    pub(crate) fn kill(&self) {
        let mut core = self.0.core.lock();
        core.aborted = core.gate == Gate::Waited;
        core.gate = Gate::Freed;
        core.events.clear();
        core.feeders.clear();
        core.streams.clear();
        let cno = core.cno.take();
        core.unattended = false;
        let queue = core.take_queue();
        drop(core);
        drop(queue);
        if let Some(cno) = cno {
            cno.0.detach(self.0.id, false);
        }
        self.0.sleeper.signal();
    }

    /// Fails unless alive and of `ia`; `handle` is the subtype that names which handle it was.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId, handle: Subtype) -> Result<()> {
        self.alive(call, handle)?;
        if self.0.ia != ia {
            return Err(error::foreign(call, handle, "event dispatcher", self.0.id));
        }
        Ok(())
    }

    /// Fails when it was freed.
    pub(crate) fn alive(&self, call: &'static str, handle: Subtype) -> Result<()> {
        if self.0.fork.forked() {
            return Err(error::forked(call));
        }
        if self.0.core.lock().gate == Gate::Freed {
            return Err(error::freed(call, handle, "event dispatcher", self.0.id));
        }
        Ok(())
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        self.alive(call, Subtype::Handle1)?;
        Ok(&self.0.context)
    }

    #[cold]
    fn refused(&self, call: &'static str, core: &Core) -> Error {
        match core.gate {
            Gate::Freed => error::freed(call, Subtype::Handle1, "event dispatcher", self.0.id),
            Gate::Overflowed => {
                let message = format!("event dispatcher {} overflowed and is dead", self.0.id);
                error::state(call, Subtype::EvdAsync, message)
            }
            Gate::Waited | Gate::Open => {
                let message = format!("another thread waits on event dispatcher {}", self.0.id);
                error::state(call, Subtype::EvdWaiter, message)
            }
        }
    }
}

object_calls!(Evd, Evd);

impl EvdInner {
    /// Whether an IA has its asynchronous errors come here.
    fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire) > 0
    }

    /// Appends an event that is no completion; wakes a waiter. `false` when it does not fit.
    pub(crate) fn push(&self, data: EventData) -> bool {
        let mut core = self.core.lock();
        if matches!(core.gate, Gate::Freed | Gate::Overflowed) {
            return false;
        }
        let mut sequels = Sequels::new();
        if core.is_full() {
            self.harvest(&mut core, &mut sequels);
        }
        core.counts.connection_events += u64::from(matches!(data, EventData::Connection { .. }));
        let fits = core.push(Queued { event: Event { evd: self.id, data }, notify: true, _held: None });
        if fits {
            self.notified(&core);
        }
        let wake = core.armed;
        drop(core);
        if wake {
            self.sleeper.signal();
        }
        if !sequels.is_empty() {
            // Not performed here: the caller may hold an endpoint's lock. The IA's thread does it.
            if let Some(ia) = self.owner.upgrade() {
                ia.later(sequels);
            }
        }
        fits
    }
}

impl EvdInner {
    /// The provider's queue, if completions come here. Its lock must not be held.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.core.lock().queue()
    }

    /// Wakes whoever sleeps on it.
    pub(crate) fn signal(&self) {
        self.sleeper.signal();
    }

    /// An async dispatcher that lost an event is dead.
    pub(crate) fn overflowed(&self) {
        let mut core = self.core.lock();
        if core.gate != Gate::Freed {
            core.gate = Gate::Overflowed;
        }
        drop(core);
        self.sleeper.signal();
    }
}

const EMPTY: Error = Error::bare(ReturnType::QueueEmpty, Subtype::None);

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evd({}, {:?})", self.0.id, self.0.flags)
    }
}
