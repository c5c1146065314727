//! What all objects of a device share, channels included: libfabric's objects, registered memory, what wakes the event
//! thread, and the list of channels with work to do. Nothing here knows what a channel is; see [`Task`].

pub mod poll_thread;
pub mod wake;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use dat_plugin::{Access, Event, Failure, Status};
use libfabric_sys::types::fid_ep;
use parking_lot::Mutex;

use crate::core::poll_thread::PollThread;
use crate::core::wake::Wake;
use crate::endpoint::connected::ConnectedEndpoints;
use crate::endpoint::outbox::Outbox;
use crate::fabric::Fabric;
use crate::fabric::cq::Wait;
use crate::fabric::limits::{CQ_SIZE, FRAMES_IN};
use crate::memory::Regions;
use crate::memory::windows::{Bound, Windows};
use crate::params::{Endpoint, Params};
use crate::wire::hello::{HELLO, SHORT_DATA, SHORT_HELLO};
use dat_kit::{ForkGuard, Qualifier};

/// Queues of a device that the fabric may wake by itself; the event thread wakes the others. Linux refuses to let one
/// descriptor wake more than a few others through a chain of epoll descriptors as long as ofi_rxm's (10 through five),
/// and wakes all of them for each message.
pub const WATCHERS: usize = 8;

/// How long credit updates may wait for a message that carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreditDelay {
    /// Work is going on: updates wait unless many have gathered.
    Busy,
    /// A poll found nothing. A message may follow soon, so updates wait for some microseconds.
    Short,
    /// The device is idle, or a thread is about to sleep: updates go now.
    None,
}

/// A channel, as the lower layers know it.
pub trait Task: Send + Sync {
    /// Moves the channel's work forward.
    fn run(&self, delay: CreditDelay);

    /// A shared receive queue has a receive for the channel. With `now`, the channel takes it in this call; otherwise
    /// the channel is put on the run list, because the caller holds the lock of another channel.
    fn receives_available(&self, now: bool);
}

/// What all objects of a device share. Registrations are dropped before the fabric.
pub struct Core {
    pub fork_guard: ForkGuard,
    pub params: Params,
    /// Control messages over datagrams; `None` with connected endpoints.
    pub outbox: Option<Arc<Outbox>>,
    pub endpoints: ConnectedEndpoints,
    pub regions: Regions,
    pub windows: Windows,
    pub fabric: Arc<Fabric>,
    /// Events on their way to the engine, oldest first. Those of a channel are dropped once its flag shows it closed.
    pub events: Mutex<VecDeque<(Option<Arc<AtomicBool>>, Event)>>,
    pub wake: Wake,
    /// Wakes the thread that polls fabrics without wait descriptors.
    pub poll_thread: PollThread,
    /// Channels with work to do.
    run_list: Mutex<VecDeque<Arc<dyn Task>>>,
    /// A listed channel has work for the next poll that finds nothing.
    deferred_work: AtomicBool,
    /// Counts polls of queues, so that the event thread knows whether it is needed.
    pub polls: AtomicU64,
    /// Queues that the fabric wakes by itself.
    watchers: AtomicUsize,
}

impl Core {
    pub fn new(
        params: Params,
        fabric: Arc<Fabric>,
        regions: Regions,
        outbox: Option<Arc<Outbox>>,
    ) -> Result<Arc<Core>, Failure> {
        Ok(Arc::new(Core {
            fork_guard: ForkGuard::new()
                .map_err(|e| Failure::os("a page that children do not inherit", &e))?,
            outbox,
            endpoints: ConnectedEndpoints::default(),
            regions,
            windows: Windows::default(),
            events: Mutex::default(),
            wake: Wake::new(&fabric, params.progress)
                .map_err(|error| Failure::os("descriptors of a device", &error))?,
            poll_thread: PollThread::default(),
            run_list: Mutex::new(VecDeque::with_capacity(64)),
            deferred_work: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            watchers: AtomicUsize::new(0),
            fabric,
            params,
        }))
    }

    pub fn check_fork(&self) -> Result<(), Failure> {
        if self.fork_guard.here() {
            return Ok(());
        }
        let message = "this process is a child made by fork; open the adapter again in the child";
        Err(Failure::new(Status::FORKED, message))
    }

    /// One line for people: fabric, address, library.
    pub fn title(&self) -> String {
        let kind = match self.params.endpoint {
            Endpoint::Msg => "connected endpoints",
            Endpoint::Rdm => "datagram endpoints",
        };
        format!("libfabric {} over {}", kind, self.params.fabric)
    }

    /// Most connections: with frames, the fabric's completion queue must have room for all of them.
    pub fn max_channels(&self) -> u32 {
        let most = if self.fabric.limits.framed { CQ_SIZE as u32 / FRAMES_IN / 2 } else { u32::MAX };
        self.params.max_channels.min(most)
    }

    pub fn max_message(&self) -> u64 {
        self.fabric.limits.max_message.min(1 << 31)
    }

    /// Most private data of a request whose qualifier has this quotient.
    pub fn max_request_data(&self, quotient: u64) -> usize {
        match self.params.endpoint {
            Endpoint::Msg if self.fabric.limits.framed && quotient != 0 => {
                self.fabric.limits.cm_data.saturating_sub(SHORT_HELLO + Qualifier::QUOTIENT).min(SHORT_DATA)
            }
            _ => self.max_private_data(),
        }
    }

    pub fn max_private_data(&self) -> usize {
        match self.params.endpoint {
            Endpoint::Msg if self.fabric.limits.framed => {
                self.fabric.limits.cm_data.saturating_sub(SHORT_HELLO).min(SHORT_DATA)
            }
            Endpoint::Msg => self.fabric.limits.cm_data.saturating_sub(HELLO),
            Endpoint::Rdm => dat_plugin::MAX_PRIVATE_DATA,
        }
    }

    /// The datagram endpoint, or null with connected endpoints.
    pub fn shared_endpoint(&self) -> *mut fid_ep {
        self.outbox.as_ref().map_or(std::ptr::null_mut(), |outbox| outbox.endpoint())
    }

    /// Queues an event for the engine. It is dropped if `closed` is set by the time it is handed out.
    pub fn event(&self, closed: Option<Arc<AtomicBool>>, event: Event) {
        self.events.lock().push_back((closed, event));
        self.wake.now();
    }

    /// Puts a channel on the run list.
    pub fn schedule(&self, task: Arc<dyn Task>) {
        self.run_list.lock().push_back(task);
        self.wake.soon();
    }

    /// Runs the listed channels: sends their pending control messages, and posts again what libfabric did not take.
    pub fn run_tasks(&self, delay: CreditDelay) {
        self.deferred_work.store(false, Ordering::Relaxed);
        let count = self.run_list.lock().len();
        for _ in 0..count {
            // One at a time: a channel may list itself again.
            let Some(task) = self.run_list.lock().pop_front() else { return };
            task.run(delay);
        }
    }

    pub fn has_tasks(&self) -> bool {
        !self.run_list.lock().is_empty()
    }

    pub fn clear_tasks(&self) {
        self.run_list.lock().clear();
    }

    /// Notes that a listed channel has work that a poll should do only when it finds nothing else.
    pub fn defer_work(&self) {
        self.deferred_work.store(true, Ordering::Relaxed);
    }

    pub fn has_deferred_work(&self) -> bool {
        self.deferred_work.load(Ordering::Relaxed)
    }

    /// Counts a poll; returns the count before it. Concurrent polls may be lost: the count only shows activity.
    pub fn count_poll(&self) -> u64 {
        let before = self.polls.load(Ordering::Relaxed);
        self.polls.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }

    /// A sleeper begins or ceases to rely on being woken by the fabric.
    pub fn count_sleeper(&self, begins: bool) {
        if let Some(Wait::Sockets(sockets)) = self.fabric.near.as_ref().map(|near| &near.wait) {
            sockets.count(begins);
        }
    }

    /// Takes one of the [`WATCHERS`] places. `false`: there is none left.
    pub fn add_watcher(&self) -> bool {
        let one_more = |count| (count < WATCHERS).then_some(count + 1);
        self.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub fn remove_watcher(&self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// From now on the fabric must be polled, even if no application does.
    pub fn start_polling(&self) {
        if !self.fabric.wakes() {
            self.poll_thread.wake();
        }
    }

    pub fn bind_window(
        &self,
        window: u64,
        range: Option<(u64, u64)>,
        access: Access,
    ) -> Result<Bound, Status> {
        self.windows.bind(window, range, |range, domain| {
            self.regions.open_part(&self.fabric, self.shared_endpoint(), range, access, domain)
        })
    }

    /// Undoes a binding whose request was not accepted.
    pub fn unbind_window(&self, window: u64, bound: Bound) {
        self.windows.restore(window, bound);
        if bound.now != 0 {
            drop(self.regions.unpublish(bound.now));
        }
    }
}
