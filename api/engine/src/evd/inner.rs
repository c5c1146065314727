//! Dispatchers: making them, and what is checked in every call.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::{ForkGuard, Queue};
use dat_types::{Error, EvdFlags, EvdState, IaCounter, ObjectId, Result, Subtype};

use super::core::{Core, QueueState};
use super::sleeper::Sleeper;
use crate::adapter::inner::{Ia, IaInner, Rules};
use crate::base::context::{Context, object_calls};
use crate::base::counters::EvdBase;
use crate::base::error;
use crate::base::lock::Lock;
use crate::cno::Cno;

/// An event dispatcher: a queue of events of one or several kinds.
#[derive(Clone)]
pub struct Evd(pub(crate) Arc<EvdInner>);

pub(crate) struct EvdInner {
    pub(crate) id: ObjectId,
    pub(crate) ia: ObjectId,
    pub(crate) owner: Weak<IaInner>,
    pub(crate) flags: EvdFlags,
    pub(crate) core: Lock<Core>,
    pub(super) sleeper: Sleeper,
    /// Holders of a reference that is no stream: the IA's own async dispatcher counts itself here.
    pub(super) pinned: AtomicU32,
    pub(super) spin: std::time::Duration,
    pub(super) rules: Rules,
    pub(super) fork: ForkGuard,
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
    /// Enabled or disabled, waitable or not, and the notification its sources configured.
    pub state: EvdState,
    /// The kinds of events it takes.
    pub flags: EvdFlags,
    /// What its notifications trigger.
    pub cno: Option<Cno>,
}

impl Ia {
    /// The dispatcher of asynchronous errors.
    pub fn async_evd(&self) -> Evd {
        let sink = self.inner.async_sink().into_any().downcast::<EvdInner>();
        Evd(sink.expect("the only kind of sink there is"))
    }

    /// `dat_ia_query`: the dispatcher of asynchronous errors; `None` when it is out of scope, because the adapter was
    /// opened with [`crate::AsyncEvd::Exists`].
    pub fn query_async_evd(&self) -> Result<Option<Evd>> {
        self.device("dat_ia_query")?;
        Ok(self.inner.async_in_scope().then(|| self.async_evd()))
    }

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
        if self.inner.objects.lock().of::<Evd>().len() >= device.attr().max_queues as usize {
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
        self.inner.objects.lock().of::<Evd>().insert(evd.0.id, evd.clone());
        self.inner.count(IaCounter::EvdCreate);
        Ok(evd)
    }
}

impl Evd {
    pub(crate) fn new(ia: &Arc<IaInner>, qlen: u32, flags: EvdFlags, queue: Option<Arc<Queue>>) -> Evd {
        Evd(Arc::new(EvdInner {
            id: crate::base::id::next_id(),
            ia: ia.id,
            owner: Arc::downgrade(ia),
            flags,
            core: Lock::new(Core::new(qlen as usize, queue)),
            sleeper: Sleeper::default(),
            pinned: AtomicU32::new(0),
            spin: ia.spin,
            rules: ia.rules,
            fork: ForkGuard::new(),
            context: Context::default(),
            counted: EvdBase::default(),
        }))
    }

    /// Its id; events carry it.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    pub(crate) fn pin(&self) {
        self.0.pinned.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unpin(&self) {
        self.0.pinned.fetch_sub(1, Ordering::AcqRel);
    }

    /// Fails unless alive and of `ia`; `handle` is the subtype that names which handle it was.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId, handle: Subtype) -> Result<()> {
        self.alive(call, handle)?;
        if self.0.ia != ia {
            return Err(error::foreign(call, handle, "event dispatcher", self.0.id));
        }
        Ok(())
    }

    /// Whether its IA is open and has the name of `ia`.
    pub(crate) fn is_of_same_name(&self, ia: &IaInner) -> bool {
        self.0.owner.upgrade().is_some_and(|owner| owner.name() == ia.name() && owner.device("").is_ok())
    }

    /// Fails when it was freed.
    pub(crate) fn alive(&self, call: &'static str, handle: Subtype) -> Result<()> {
        if self.0.fork.forked() {
            return Err(error::forked(call));
        }
        if self.0.core.lock().state == QueueState::Freed {
            return Err(error::freed(call, handle, "event dispatcher", self.0.id));
        }
        Ok(())
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        self.alive(call, Subtype::Handle1)?;
        Ok(&self.0.context)
    }

    #[cold]
    pub(super) fn refused(&self, call: &'static str, core: &Core) -> Error {
        match core.state {
            QueueState::Freed => error::freed(call, Subtype::Handle1, "event dispatcher", self.0.id),
            QueueState::Overflowed => {
                let message = format!("event dispatcher {} overflowed and is dead", self.0.id);
                error::state(call, Subtype::EvdAsync, message)
            }
            QueueState::Waited | QueueState::Open => {
                let message = format!("another thread waits on event dispatcher {}", self.0.id);
                error::state(call, Subtype::EvdWaiter, message)
            }
        }
    }
}

object_calls!(Evd, Evd);

impl EvdInner {
    /// Whether an IA has its asynchronous errors come here.
    pub(super) fn is_pinned(&self) -> bool {
        self.pinned.load(Ordering::Acquire) > 0
    }
}

impl EvdInner {
    /// The provider's queue, if completions come here. Its lock must not be held.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.core.lock().queue()
    }

    /// Wakes threads that sleep on it.
    pub(crate) fn signal(&self) {
        self.sleeper.signal();
    }

    /// An async dispatcher that lost an event is dead.
    pub(crate) fn overflowed(&self) {
        let mut core = self.core.lock();
        if core.state != QueueState::Freed {
            core.state = QueueState::Overflowed;
        }
        drop(core);
        self.sleeper.signal();
    }
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evd({}, {:?})", self.0.id, self.0.flags)
    }
}
