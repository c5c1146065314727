//! One place to wait for several dispatchers.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dat_engine::Agent;
use dat_types::{Error, ObjectId, Result, ReturnType, Timeout};

use crate::Ia;

/// A notification object: triggered by every notification on the dispatchers that refer to it ([`crate::Evd::notify`]).
/// Cheap to clone; freed with the last clone and the last dispatcher that refers to it.
///
/// It remembers one trigger. What it tells is a hint: look at all its dispatchers, until they are empty, and only then
/// wait again.
#[derive(Clone, Debug)]
pub struct Cno(Arc<Inner>);

/// A notification object for an event loop: its descriptor ([`AsFd`]) is readable while a trigger is pending. As
/// [`Cno`] otherwise.
#[derive(Clone, Debug)]
pub struct CnoFd(Arc<Inner>);

/// What the handles share; nothing outside can name it.
#[derive(Debug)]
pub struct Inner {
    engine: dat_engine::Cno,
    _ia: Ia,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed under it: dispatchers that refer to it keep it alive.
        let _ = self.engine.free();
    }
}

/// Either kind of notification object.
pub trait Notifier: sealed::Sealed {}

impl Notifier for Cno {}
impl Notifier for CnoFd {}

pub(crate) mod sealed {
    use std::sync::Arc;

    pub trait Sealed {
        fn inner(&self) -> &Arc<super::Inner>;
    }

    impl Sealed for super::Cno {
        fn inner(&self) -> &Arc<super::Inner> {
            &self.0
        }
    }

    impl Sealed for super::CnoFd {
        fn inner(&self) -> &Arc<super::Inner> {
            &self.0
        }
    }
}

impl Inner {
    pub(crate) fn engine(&self) -> &dat_engine::Cno {
        &self.engine
    }
}

impl Ia {
    /// A notification object.
    pub fn cno(&self) -> Result<Cno> {
        Cno::new(self)
    }

    /// A notification object with a descriptor.
    pub fn cno_fd(&self) -> Result<CnoFd> {
        CnoFd::new(self)
    }
}

impl Cno {
    fn new(ia: &Ia) -> Result<Cno> {
        Ok(Cno(Arc::new(Inner { engine: ia.engine.cno_create(None)?, _ia: ia.clone() })))
    }

    /// Blocks until it is triggered, and gives the dispatcher that did. `None` when the time is up, or when the adapter
    /// was closed or the last dispatcher freed meanwhile. A signal gives `DAT_INTERRUPTED_CALL`.
    pub fn wait(&self, timeout: Duration) -> Result<Option<ObjectId>> {
        or_none(self.0.engine.wait(Timeout::from(timeout)))
    }

    /// Has `call` called with the dispatcher at the next trigger, once, on a thread of the adapter; it must not block.
    /// Its argument is `None` when the adapter was closed or the last dispatcher freed. Replaces the call set before.
    pub fn on_trigger(&self, call: impl FnOnce(Option<ObjectId>) + Send + 'static) -> Result<()> {
        self.0.engine.modify_agent(Some(Agent::new(0, call)))
    }

    /// Calls nothing at the next trigger.
    pub fn off(&self) -> Result<()> {
        self.0.engine.modify_agent(None)
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Cno {
        &self.0.engine
    }
}

impl CnoFd {
    pub(crate) fn new(ia: &Ia) -> Result<CnoFd> {
        Ok(CnoFd(Arc::new(Inner { engine: ia.engine.cno_fd_create()?, _ia: ia.clone() })))
    }

    /// Consumes the pending trigger, so that the descriptor is not readable any more, and gives the dispatcher; `None`
    /// when there is none (`dat_cno_trigger`).
    pub fn take(&self) -> Result<Option<ObjectId>> {
        or_none(self.0.engine.trigger().map(Some))
    }

    /// The descriptor: never read it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.0.engine.fd()
    }

    /// The layer below.
    pub fn engine(&self) -> &dat_engine::Cno {
        &self.0.engine
    }
}

impl AsFd for CnoFd {
    /// # Panics
    /// When the adapter was closed; [`CnoFd::fd`] tells instead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().expect("the descriptor of a notification object of an open adapter")
    }
}

fn or_none(result: Result<Option<ObjectId>>) -> Result<Option<ObjectId>> {
    let empty = |error: &Error| error.kind() == ReturnType::QueueEmpty;
    match result {
        Err(error) if empty(&error) => Ok(None),
        other => other,
    }
}
