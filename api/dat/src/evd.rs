//! Event dispatchers and events.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use dat_engine::AsyncEvd;
use dat_types::{
    AsyncReason, BreakReason, ConnectionKind, DtoCompletion, DtoStatus, EvdCounter, EvdFlags, EventData,
    ObjectId, Result, ReturnType, Timeout,
};

use parking_lot::Mutex;

use crate::cno::{self, Notifier};
use crate::{Ia, IaBuilder, Request};

/// An event dispatcher: a queue of events. Cheap to clone; freed with the last clone and the last thing that feeds it.
#[derive(Clone, Debug)]
pub struct Evd(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: dat_engine::Evd,
    ia: Ia,
    owned: bool,
    /// What it refers to, which goes after it.
    cno: Mutex<Option<Arc<cno::Inner>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned {
            // Fails only when the adapter was closed under it.
            let _ = self.engine.free();
        }
    }
}

/// What happened.
// The tag is a word of its own: in the place of a `ConnectionKind` it would put the fields of a completion off their
// alignment, and each move of an event would read across the stores before it.
#[derive(Debug)]
#[non_exhaustive]
#[repr(u64)]
pub enum Event {
    /// A posted operation is done; a buffer that was posted comes back with [`crate::Ep::reclaim`].
    Completion(DtoCompletion),
    /// A peer asks to connect. Dropping the request rejects it.
    Request(Request),
    /// A connection changed.
    Connection {
        /// How.
        kind: ConnectionKind,
        /// The endpoint, see [`crate::Ep::id`].
        ep: ObjectId,
        /// The peer's private data: with `Established` on the connecting side, and with `PeerRejected`.
        private_data: Box<[u8]>,
        /// Why it broke: with `Broken`, and with no other kind.
        reason: Option<BreakReason>,
    },
    /// A posted binding of a window is done.
    Bind {
        /// The window, see [`crate::Window::id`].
        window: ObjectId,
        /// The cookie given at the post.
        cookie: u64,
        /// How it ended.
        status: DtoStatus,
    },
    /// An asynchronous error or notice.
    Async {
        /// The affected object.
        object: ObjectId,
        /// What about it.
        reason: AsyncReason,
    },
    /// A software event, with the poster's own value.
    Software(u64),
}

impl Ia {
    /// A dispatcher of `qlen` events of every kind but asynchronous ones (`dat_evd_create`).
    pub fn evd(&self, qlen: u32) -> Result<Evd> {
        self.evd_of(qlen, EvdFlags::DEFAULT.difference(EvdFlags::ASYNC) | EvdFlags::SOFTWARE)
    }

    /// A dispatcher of `qlen` events of these kinds.
    pub fn evd_of(&self, qlen: u32, kinds: EvdFlags) -> Result<Evd> {
        let qlen = i32::try_from(qlen).unwrap_or(i32::MAX);
        Ok(Evd::new(self, self.engine.evd_create(qlen, kinds)?))
    }

    /// The dispatcher of asynchronous errors.
    pub fn async_evd(&self) -> Evd {
        Evd::borrowed(self, self.engine.async_evd())
    }
}

impl IaBuilder {
    /// Takes asynchronous errors on this dispatcher, of another open of the same adapter, in place of one of its own
    /// (spec: adapter).
    pub fn share_async(self, evd: &Evd) -> IaBuilder {
        self.async_evd(AsyncEvd::Shared(evd.inner().clone()))
    }
}

impl Evd {
    fn new(ia: &Ia, engine: dat_engine::Evd) -> Evd {
        Evd(Arc::new(Inner { engine, ia: ia.clone(), owned: true, cno: Mutex::default() }))
    }

    fn borrowed(ia: &Ia, engine: dat_engine::Evd) -> Evd {
        Evd(Arc::new(Inner { engine, ia: ia.clone(), owned: false, cno: Mutex::default() }))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// The oldest event, or `None`. Never blocks; no system call, no allocation.
    #[inline]
    pub fn poll(&self) -> Result<Option<Event>> {
        self.0.engine.poll_as(
            |done| Ok(Some(Event::Completion(done))),
            |event| match event {
                Some(event) => self.event(event.data),
                None => Ok(None),
            },
        )
    }

    /// Takes completions in one go, oldest first, until there are none or `out` is full; it does not grow. Gives
    /// how many. It stops before an event of another kind, which [`Evd::poll`] gives. Never blocks; no system call, no
    /// allocation.
    #[inline]
    pub fn poll_completions(&self, out: &mut Vec<DtoCompletion>) -> Result<usize> {
        self.0.engine.poll_completions(out)
    }

    /// The oldest event; blocks at most for `timeout`, and then gives `None`. A signal gives `DAT_INTERRUPTED_CALL`,
    /// the end of the adapter `DAT_ABORT`. One thread may wait at a time.
    pub fn wait(&self, timeout: Duration) -> Result<Option<Event>> {
        self.wait_for(1, Timeout::from(timeout))
    }

    /// The oldest event, however long it takes.
    pub fn wait_forever(&self) -> Result<Event> {
        loop {
            if let Some(event) = self.wait_for(1, Timeout::INFINITE)? {
                return Ok(event);
            }
        }
    }

    /// The oldest event once `threshold` are queued (`dat_evd_wait`); `None` when the time is up.
    pub fn wait_for(&self, threshold: u32, timeout: Timeout) -> Result<Option<Event>> {
        let threshold = i32::try_from(threshold).unwrap_or(i32::MAX);
        match self.0.engine.wait(timeout, threshold) {
            Ok((event, _)) => self.event(event.data),
            Err(wait) if wait.error.kind() == ReturnType::TimeoutExpired => Ok(None),
            Err(wait) => Err(wait.error),
        }
    }

    /// Has notifications trigger `cno` from now on ([`crate::Cno`], [`crate::CnoFd`]).
    pub fn notify(&self, cno: &impl Notifier) -> Result<()> {
        let inner = cno.inner();
        let mut current = self.0.cno.lock();
        self.0.engine.modify_cno(Some(inner.engine()))?;
        *current = Some(inner.clone());
        Ok(())
    }

    /// Has notifications trigger nothing.
    pub fn notify_nobody(&self) -> Result<()> {
        let mut current = self.0.cno.lock();
        self.0.engine.modify_cno(None)?;
        *current = None;
        Ok(())
    }

    /// Whether notifications trigger the notification object; they do by default (`dat_evd_enable`).
    pub fn set_enabled(&self, enabled: bool) -> Result<()> {
        self.0.engine.set_enabled(enabled)
    }

    /// Whether threads may wait. A waiter returns `DAT_INVALID_STATE` at once when they may not.
    pub fn set_waitable(&self, waitable: bool) -> Result<()> {
        self.0.engine.set_waitable(waitable)
    }

    /// Makes room for `qlen` events; none is lost (`dat_evd_resize`).
    pub fn resize(&self, qlen: u32) -> Result<()> {
        self.0.engine.resize(i32::try_from(qlen).unwrap_or(i32::MAX))
    }

    /// What happened on it since it was made or the counters were last reset.
    pub fn counters(&self, reset: bool) -> Result<Vec<(EvdCounter, u64)>> {
        let counts = self.0.engine.counters(reset)?;
        Ok(EvdCounter::ALL.iter().copied().zip(counts).collect())
    }

    /// Appends a software event.
    pub fn post(&self, value: u64) -> Result<()> {
        self.0.engine.post_se(value)
    }

    /// Arms the descriptor ([`AsFd`]): it becomes readable with the next event. `false`: there are events now, take
    /// them first.
    pub fn arm(&self) -> Result<bool> {
        self.0.engine.arm()
    }

    /// A descriptor for epoll; arm it before each sleep, never read it.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        self.0.engine.fd()
    }

    pub(crate) fn inner(&self) -> &dat_engine::Evd {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Evd {
        &self.0.engine
    }

    /// Cold, so that [`Evd::poll`] stays small enough to be inlined.
    #[cold]
    fn event(&self, data: EventData) -> Result<Option<Event>> {
        Ok(Some(match data {
            EventData::Dto(completion) => Event::Completion(completion),
            EventData::RmrBind { rmr, cookie, status } => Event::Bind { window: rmr, cookie, status },
            EventData::Connection { kind, ep, private_data, reason } => {
                Event::Connection { kind, ep, private_data, reason }
            }
            EventData::ConnectionRequest { cr, .. } => Event::Request(Request::new(&self.0.ia, cr)?),
            EventData::Async { object, reason } => Event::Async { object, reason },
            EventData::Software(value) => Event::Software(value),
            // Nothing of this API makes any other kind.
            _ => return Ok(None),
        }))
    }
}

/// A dispatcher as something to poll: see [`Evd::arm`].
impl AsFd for Evd {
    /// # Panics
    /// When the process has no descriptor left; [`Evd::fd`] tells instead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd().expect("a descriptor for the event dispatcher")
    }
}
