//! Consumer notification objects: one place to wait for several event dispatchers (spec: events).
//!
//! A notification on a dispatcher triggers its object. The IA's thread sleeps on the queues of dispatchers that have an
//! object, and so finds what only the provider knows. A waiter looks for it too before it sleeps.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Instant;

use dat_types::{Error, ObjectId, Result, ReturnType, Subtype, Timeout};
use parking_lot::{Mutex, MutexGuard};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object::{Kind, Life, object};
use crate::base::agent::Agent;
use crate::base::error;

/// A consumer notification object.
#[derive(Clone)]
pub struct Cno(pub(crate) Arc<CnoInner>);

pub(crate) struct CnoInner {
    /// Ends under the lock of the state.
    life: Life,
    /// Made for its descriptor.
    for_fd: bool,
    /// Readable while a trigger is pending, or when waiters have to leave.
    fd: OwnedFd,
    state: Mutex<State>,
}

const KIND: Kind = Kind { handle: Subtype::HandleCno, name: "notification object" };

/// A dispatcher as notification objects know it.
pub(crate) trait Dispatcher: Send + Sync {
    /// Takes what the provider has, so that notifications trigger.
    fn look(&self);
}

#[derive(Default)]
struct State {
    /// The dispatcher of the trigger that was not consumed yet.
    pending: Option<ObjectId>,
    agent: Option<Agent>,
    evds: Vec<(ObjectId, Weak<dyn Dispatcher>)>,
    waiters: u32,
    /// Counts the times all waiters were sent away.
    sent_away: u32,
}

/// What `dat_cno_query` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CnoParam {
    /// The IA.
    pub ia: ObjectId,
    /// What is triggered besides waiters.
    pub proxy: CnoProxy,
}

/// What a notification object triggers besides waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CnoProxy {
    /// Nothing.
    None,
    /// The agent with this tag.
    Agent(u64),
    /// The descriptor.
    Fd,
}

impl Ia {
    /// `dat_cno_create`.
    pub fn cno_create(&self, agent: Option<Agent>) -> Result<Cno> {
        self.make_cno("dat_cno_create", agent, false)
    }

    /// `dat_cno_fd_create`: an object whose trigger makes [`Cno::fd`] readable.
    pub fn cno_fd_create(&self) -> Result<Cno> {
        self.make_cno("dat_cno_fd_create", None, true)
    }

    fn make_cno(&self, call: &'static str, agent: Option<Agent>, for_fd: bool) -> Result<Cno> {
        self.device(call)?;
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|source| {
            error::resources(call, Subtype::ResourceDevice, "no descriptor for the notification object")
                .with_source(source)
        })?;
        let cno = Cno(Arc::new(CnoInner {
            life: Life::new(KIND, &self.inner),
            for_fd,
            fd,
            state: Mutex::new(State { agent, ..State::default() }),
        }));
        self.inner.objects.lock().of::<Cno>().insert(cno.id(), cno.clone());
        Ok(cno)
    }
}

impl Cno {
    /// `dat_cno_query`.
    pub fn query(&self) -> Result<CnoParam> {
        let state = self.state("dat_cno_query")?;
        let proxy = match &state.agent {
            _ if self.0.for_fd => CnoProxy::Fd,
            Some(agent) => CnoProxy::Agent(agent.tag),
            None => CnoProxy::None,
        };
        Ok(CnoParam { ia: self.0.life.ia, proxy })
    }

    /// `dat_cno_modify_agent`: what is called at the next trigger, in place of what was.
    pub fn modify_agent(&self, agent: Option<Agent>) -> Result<()> {
        const CALL: &str = "dat_cno_modify_agent";
        let mut state = self.state(CALL)?;
        if self.0.for_fd {
            return Err(self.for_its_fd(CALL));
        }
        let old = std::mem::replace(&mut state.agent, agent);
        drop(state);
        // What it owns may have a say when it goes.
        drop(old);
        Ok(())
    }

    /// `dat_cno_wait`: blocks until it is triggered, and gives the dispatcher that did: a hint, all should be looked at.
    /// `None` when the adapter was closed or all dispatchers were freed meanwhile, `DAT_QUEUE_EMPTY` when the time is
    /// up.
    pub fn wait(&self, timeout: Timeout) -> Result<Option<ObjectId>> {
        const CALL: &str = "dat_cno_wait";
        let start = Instant::now();
        let (sent_away, ia) = {
            let mut state = self.state(CALL)?;
            if self.0.for_fd {
                return Err(self.for_its_fd(CALL));
            }
            state.waiters += 1;
            (state.sent_away, self.0.life.owner.upgrade())
        };
        let _waiter = Waiter(&self.0);
        let deadline = timeout.duration().and_then(|duration| start.checked_add(duration));
        // `None`: for longer than the clock goes.
        let spin_until = start.checked_add(ia.as_ref().map_or(std::time::Duration::ZERO, |ia| ia.spin));
        loop {
            self.0.look(ia.as_ref());
            {
                let mut state = self.0.state.lock();
                if !self.0.life.is_alive() || state.sent_away != sent_away {
                    return Ok(None);
                }
                if let Some(evd) = self.0.consume(&mut state) {
                    return Ok(Some(evd));
                }
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(TIME_UP);
            }
            if spin_until.is_none_or(|until| now < until) {
                std::thread::yield_now();
            } else {
                self.0.sleep(deadline.map(|deadline| deadline - now))?;
            }
        }
    }

    /// `dat_cno_trigger`: consumes the pending trigger of an object made for its descriptor, which is then not readable
    /// any more, and gives the dispatcher. `DAT_QUEUE_EMPTY` when there is none.
    pub fn trigger(&self) -> Result<ObjectId> {
        const CALL: &str = "dat_cno_trigger";
        drop(self.state(CALL)?);
        if !self.0.for_fd {
            let message =
                format!("notification object {} was not made for a descriptor; wait on it", self.0.life.id);
            return Err(error::state(CALL, Subtype::None, message));
        }
        self.0.look(self.0.life.owner.upgrade().as_ref());
        let mut state = self.state(CALL)?;
        self.0.consume(&mut state).ok_or(EMPTY)
    }

    /// The descriptor of an object made for it: readable while a trigger is pending. Never read it. It is closed with
    /// the last handle of the object.
    pub fn fd(&self) -> Result<BorrowedFd<'_>> {
        const CALL: &str = "dat_cno_fd_create";
        drop(self.state(CALL)?);
        match self.0.for_fd {
            true => Ok(self.0.fd.as_fd()),
            false => Err(error::state(CALL, Subtype::None, "it was not made for a descriptor")),
        }
    }

    /// `dat_cno_free`. `DAT_INVALID_STATE` while a dispatcher refers to it or a thread waits on it.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_cno_free";
        let mut state = self.state(CALL)?;
        if !state.evds.is_empty() || state.waiters > 0 {
            let message = format!(
                "{} event dispatchers refer to notification object {} and {} threads wait on it",
                state.evds.len(),
                self.0.life.id,
                state.waiters
            );
            return Err(error::state(CALL, Subtype::CnoInUse, message));
        }
        self.0.life.end();
        let agent = state.agent.take();
        drop(state);
        drop(agent);
        if let Some(ia) = self.0.life.owner.upgrade() {
            ia.objects.lock().of::<Cno>().remove(&self.0.life.id);
        }
        Ok(())
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        self.0.life.check_of(call, ia)
    }

    /// The IA is closing: everybody is sent away.
    pub(crate) fn kill(&self) {
        let mut state = self.0.state.lock();
        self.0.life.end();
        state.evds.clear();
        self.0.send_away(state);
    }

    fn state(&self, call: &'static str) -> Result<MutexGuard<'_, State>> {
        // Before the lock: a thread of the parent may have held it when the process forked.
        self.0.life.check_fork(call)?;
        let state = self.0.state.lock();
        self.0.life.check(call)?;
        Ok(state)
    }

    fn for_its_fd(&self, call: &'static str) -> Error {
        let message =
            format!("notification object {} was made for its descriptor; poll that instead", self.0.life.id);
        error::state(call, Subtype::None, message)
    }
}

object!(Cno);

impl CnoInner {
    /// A notification arrived on `evd`. May be called under a dispatcher's lock.
    pub(crate) fn raise(&self, evd: ObjectId) {
        let mut state = self.state.lock();
        if !self.life.is_alive() {
            return;
        }
        if state.pending.is_none() {
            state.pending = Some(evd);
            self.signal();
        }
        let agent = state.agent.take();
        drop(state);
        if let Some(agent) = agent
            && let Some(ia) = self.life.owner.upgrade()
        {
            ia.progress.call_later(agent, Some(evd));
        }
    }

    pub(crate) fn attach(&self, evd: ObjectId, dispatcher: Weak<dyn Dispatcher>) {
        self.state.lock().evds.push((evd, dispatcher));
    }

    /// `freed`: the dispatcher is gone; with the last one all who wait are sent away.
    pub(crate) fn detach(&self, evd: ObjectId, freed: bool) {
        let mut state = self.state.lock();
        state.evds.retain(|(known, _)| *known != evd);
        if freed && state.evds.is_empty() && self.life.is_alive() {
            self.send_away(state);
        }
    }

    /// Waiters return with nothing, the agent is called with nothing.
    fn send_away(&self, mut state: MutexGuard<'_, State>) {
        state.sent_away = state.sent_away.wrapping_add(1);
        // A descriptor that can never be triggered again tells so by being readable.
        if state.waiters > 0 || !self.life.is_alive() {
            self.signal();
        }
        let agent = state.agent.take();
        drop(state);
        if let Some(agent) = agent
            && let Some(ia) = self.life.owner.upgrade()
        {
            ia.progress.call_later(agent, None);
        }
    }

    /// Finds completions and events that only the provider knows of.
    fn look(&self, ia: Option<&Arc<IaInner>>) {
        if let Some(ia) = ia {
            crate::adapter::driver::help(ia);
        }
        let evds: Vec<_> = {
            let state = self.state.lock();
            if state.pending.is_some() {
                return;
            }
            state.evds.iter().filter_map(|(_, evd)| evd.upgrade()).collect()
        };
        for evd in evds {
            evd.look();
        }
    }

    fn consume(&self, state: &mut State) -> Option<ObjectId> {
        let evd = state.pending.take()?;
        self.drain();
        Some(evd)
    }

    fn sleep(&self, left: Option<std::time::Duration>) -> Result<()> {
        let left =
            left.map(|left| Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ });
        match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], left.as_ref()) {
            Ok(_) => Ok(()),
            Err(Errno::INTR) => Err(INTERRUPTED),
            Err(errno) => {
                let message = "waiting on the notification object's descriptor failed";
                let error = Error::new("dat_cno_wait", ReturnType::InternalError, Subtype::None, message);
                Err(error.with_source(std::io::Error::from(errno)))
            }
        }
    }

    fn signal(&self) {
        // Only fails when the counter is full, and then it is readable already.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    fn drain(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// A thread inside a wait.
struct Waiter<'a>(&'a CnoInner);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.waiters -= 1;
        if state.waiters == 0 && state.pending.is_none() && self.0.life.is_alive() {
            // The last one sent away takes the signal along.
            self.0.drain();
        }
    }
}

const INTERRUPTED: Error = Error::fixed(
    "dat_cno_wait",
    ReturnType::InterruptedCall,
    Subtype::None,
    "a signal came; nothing was taken, wait again",
);
const TIME_UP: Error = Error::fixed(
    "dat_cno_wait",
    ReturnType::QueueEmpty,
    Subtype::None,
    "no dispatcher had a notification in the time given",
);
const EMPTY: Error = Error::fixed(
    "dat_cno_trigger",
    ReturnType::QueueEmpty,
    Subtype::None,
    "no dispatcher has a notification",
);
