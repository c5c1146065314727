//! An open interface adapter: what all its objects share.

mod calls;
mod channels;
mod thread;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use dat_plugin::{Caps, Config, Failure, Status};
use dat_sync::Lock;
use libfabric_sys::Library;
use parking_lot::Mutex;

use crate::channel::Chan;
use crate::connect::Connector;
use crate::cq::Wait;
use crate::datagrams::Datagrams;
use crate::events::Events;
use crate::fabric::{CQ_SIZE, Fabric};
use crate::framed::FRAMES_IN;
use crate::memory::Regions;
use crate::owner::Owner;
use crate::params::{Endpoint, Params, Progress};
use crate::progress::Reader;
use crate::queue::WATCHERS;
use crate::ticker::Ticker;
use crate::windows::Windows;
use crate::wire::{HELLO, SHORT_DATA, SHORT_HELLO};

pub use thread::TICK_TIME;
use thread::Waiting;

/// An open interface adapter.
pub struct FabricDevice(Arc<Dev>);

/// What all objects of an adapter share. Fields are dropped in this order: endpoints and registrations before the fabric.
pub struct Dev {
    pub owner: Owner,
    pub params: Params,
    pub chans: Mutex<HashMap<u32, Arc<Chan>>>,
    pub connector: Connector,
    pub datagrams: Option<Datagrams>,
    pub regions: Regions,
    pub windows: Windows,
    pub fabric: Arc<Fabric>,
    pub reader: Lock<Reader>,
    /// Channels the engine closed.
    closed: Mutex<Vec<u32>>,
    next_chan: AtomicU32,
    pub open_chans: AtomicU32,
    open_queues: AtomicU32,
    open_srqs: AtomicU32,
    /// Queues whose sleepers the fabric wakes.
    watchers: AtomicUsize,
    pub events: Mutex<Events>,
    /// Channels to look after, because they owe or wait for something.
    listed: Mutex<VecDeque<Arc<Chan>>>,
    /// One of them waits for the next poll that finds nothing.
    more: AtomicBool,
    /// Counts polls of queues, so that the event thread sees whether it is needed.
    pub polls: AtomicU64,
    /// Looks at the fabric where that wakes nobody.
    pub ticker: Ticker,
    wait: Waiting,
}

/// What a device has at most.
pub const CAPS: Caps = Caps(
    Caps::RECEIVER_WAITS.0
        | Caps::INTER_PROCESS.0
        | Caps::INTER_HOST.0
        | Caps::IMMEDIATE.0
        | Caps::SRQ.0
        | Caps::WINDOWS.0
        | Caps::ATOMICS.0,
);

const MAX_QUEUES: u32 = 65_536;
const MAX_SRQS: u32 = 4096;
const MAX_READS: u32 = 256;

impl FabricDevice {
    pub(crate) fn open(config: &Config) -> Result<FabricDevice, Failure> {
        dat_sync::prepare();
        let params = Params::parse(config)?;
        let library = Library::get()
            .map_err(|why| Failure::new(Status::NO_DEVICE, format!("{}: {why}", params.ia_name)))?;
        let fabric = Arc::new(Fabric::open(library, &params)?);
        let regions = Regions::new(&fabric);
        let datagrams = match params.endpoint {
            Endpoint::Msg => None,
            Endpoint::Rdm => Some(Datagrams::open(&fabric, &regions)?),
        };
        let dev = Arc::new(Dev {
            owner: Owner::new().map_err(|e| Failure::os("a page that children do not inherit", &e))?,
            chans: Mutex::default(),
            connector: Connector::default(),
            datagrams,
            regions,
            windows: Windows::default(),
            reader: Lock::new(Reader::new()),
            closed: Mutex::default(),
            next_chan: AtomicU32::new(1),
            open_chans: AtomicU32::new(0),
            open_queues: AtomicU32::new(0),
            open_srqs: AtomicU32::new(0),
            watchers: AtomicUsize::new(0),
            events: Mutex::default(),
            listed: Mutex::new(VecDeque::with_capacity(64)),
            more: AtomicBool::new(false),
            polls: AtomicU64::new(0),
            ticker: Ticker::default(),
            wait: Waiting::new(&fabric).map_err(|error| Failure::os("descriptors of a device", &error))?,
            fabric,
            params,
        });
        if let Some(fd) = dev.datagrams.as_ref().and_then(Datagrams::wait) {
            dev.wake_on(fd).map_err(|error| Failure::os("a descriptor of a device", &error))?;
        }
        if let Some(time) = dev.params.keepalive {
            let _ = dev.wait.keepalive.set(dev.look_interval(time));
        }
        if dev.params.progress == Progress::Tick {
            dev.tick();
        }
        if !dev.fabric.wakes() {
            dev.ticker
                .start(&dev)
                .map_err(|error| Failure::os("a thread that looks at the fabric", &error))?;
        }
        dev.hurry();
        Ok(FabricDevice(dev))
    }
}

#[cfg(test)]
impl FabricDevice {
    pub(crate) fn dev(&self) -> &Arc<Dev> {
        &self.0
    }
}

impl Dev {
    pub fn check_fork(&self) -> Result<(), Failure> {
        if self.owner.here() {
            return Ok(());
        }
        let message =
            "this process is a child made by fork from the one that opened the adapter; open it anew";
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

    /// Connections there may be: as many as the fabric's completion queue has room for, too.
    pub fn max_channels(&self) -> u32 {
        let most = if self.fabric.limits.framed { CQ_SIZE as u32 / FRAMES_IN / 2 } else { u32::MAX };
        self.params.max_channels.min(most)
    }

    pub fn max_message(&self) -> u64 {
        self.fabric.limits.max_message.min(1 << 31)
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

    pub fn chan(&self, id: u32) -> Option<Arc<Chan>> {
        self.chans.lock().get(&id).cloned()
    }

    /// Somebody polls a queue; how many did before, about.
    pub fn polled(&self) -> u64 {
        // Some may be lost when several do at once: it is to see whether any do.
        let before = self.polls.load(Ordering::Relaxed);
        self.polls.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }

    /// A listed channel has something to do that is better done when a poll finds nothing than now.
    pub fn do_more_later(&self) {
        self.more.store(true, Ordering::Relaxed);
    }

    pub fn has_more_to_do(&self) -> bool {
        self.more.load(Ordering::Relaxed)
    }

    /// Somebody begins or ceases to rely on being woken by the fabric.
    pub fn sleeper(&self, begins: bool) {
        if let Some(Wait::Sockets(naps)) = self.fabric.near.as_ref().map(|near| &near.wait) {
            naps.count(begins);
        }
    }

    pub fn queue_closed(&self) {
        self.open_queues.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn srq_closed(&self) {
        self.open_srqs.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether one more queue may be woken by the fabric itself; then it counts as one.
    pub fn may_watch(&self) -> bool {
        let one_more = |count| (count < WATCHERS).then_some(count + 1);
        self.watchers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub fn watches_no_more(&self) {
        self.watchers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The endpoint all datagrams go through, or null.
    pub fn shared_endpoint(&self) -> *mut libfabric_sys::types::fid_ep {
        self.datagrams.as_ref().map_or(std::ptr::null_mut(), Datagrams::endpoint)
    }

    fn shut_down(self: &Arc<Dev>) {
        self.ticker.stop();
        self.connector.shut_down(self);
        if let Some(datagrams) = &self.datagrams {
            datagrams.shut_down(self);
        }
        self.progress_to_the_end();
        self.reap();
        // What libfabric never handed back goes with the endpoints, which are closed.
        let rest = std::mem::take(&mut *self.chans.lock());
        self.listed.lock().clear();
        self.events.lock().clear();
        drop(rest);
    }
}
