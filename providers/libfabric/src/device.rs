//! An open interface adapter: what all its objects share, and what goes on without the application.

mod calls;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use dat_plugin::{Caps, ChannelAttr, Config, Event, Failure, Status};
use dat_sync::Lock;
use libfabric_sys::Library;
use parking_lot::Mutex;
use rustix::event::epoll;

use crate::channel::{Chan, Page, Phase};
use crate::connect::Connector;
use crate::cq::Wait;
use crate::datagrams::Datagrams;
use crate::events::Events;
use crate::fabric::{CQ_SIZE, Fabric};
use crate::flow::Lull;
use crate::framed::{FRAMES_IN, Frames};
use crate::memory::{Mr, Regions};
use crate::owner::Owner;
use crate::params::{Endpoint, Params, Progress};
use crate::progress::Reader;
use crate::queue::{Que, WATCHERS};
use crate::srq::Shared;
use crate::ticker::Ticker;
use crate::windows::Windows;
use crate::wire::{HELLO, MAX_CHANS, SHORT_DATA, SHORT_HELLO};

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

/// What the event thread sleeps on, and when it last looked.
struct Waiting {
    epoll: OwnedFd,
    bell: EventFd,
    tick: Timer,
    ticking: AtomicBool,
    keepalive: Timer,
    seen: AtomicU64,
    /// Ticks in a row that were left to threads that poll.
    left: AtomicU32,
    /// Wakes by the fabric in a row that brought nothing.
    idle: AtomicU32,
    /// A port's descriptor is not in `epoll`.
    blind: AtomicBool,
}

const BELL: u64 = 0;
const TICK: u64 = 1;
const KEEPALIVE: u64 = 2;
const EVENTS: u64 = 3;
/// And those after it: the completion queues.
const COMPLETIONS: u64 = 4;

/// How often the event thread looks while applications poll, and so keep it from being woken by the fabric.
pub const TICK_TIME: Duration = Duration::from_millis(1);

/// Polls since the last look that show that a thread does nothing else; then the most ticks to the next one, and how many
/// in a row are left to that thread.
const SPINNING: u64 = 64;
const SLOWEST: u32 = 4;
const MOST_LEFT: u32 = 256;

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

/// Looks at a peer in the time it may be silent.
const LIVES: u32 = 4;

impl Waiting {
    fn new(fabric: &Fabric) -> io::Result<Waiting> {
        let this = Waiting {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            bell: EventFd::new()?,
            tick: Timer::new()?,
            ticking: AtomicBool::new(false),
            keepalive: Timer::new()?,
            seen: AtomicU64::new(0),
            left: AtomicU32::new(0),
            idle: AtomicU32::new(0),
            blind: AtomicBool::new(false),
        };
        let add = |fd: std::os::fd::BorrowedFd<'_>, token, flags| {
            epoll::add(&this.epoll, fd, epoll::EventData::new_u64(token), flags)
        };
        add(this.bell.as_fd(), BELL, epoll::EventFlags::IN)?;
        add(this.tick.as_fd(), TICK, epoll::EventFlags::IN)?;
        add(this.keepalive.as_fd(), KEEPALIVE, epoll::EventFlags::IN)?;
        if let Some(fd) = fabric.eq_wait() {
            add(fd, EVENTS, epoll::EventFlags::IN)?;
        }
        // Armed only while nobody polls.
        for (fd, token) in fabric.wait_fds().zip(COMPLETIONS..) {
            add(fd, token, epoll::EventFlags::ONESHOT)?;
        }
        Ok(this)
    }
}

impl Dev {
    // For all objects.

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

    /// Has the event thread look at once.
    pub fn hurry(&self) {
        self.wait.bell.signal();
    }

    /// Has the event thread woken by a descriptor, until that is closed.
    pub fn wake_on(&self, fd: std::os::fd::BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(EVENTS);
        Ok(epoll::add(&self.wait.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// The same of a port, or else it is looked at by the clock: newer libfabrics have the sockets of a whole domain behind
    /// each of their descriptors, and Linux refuses to let one socket wake through more than a few.
    pub fn wake_on_port(&self, fd: std::os::fd::BorrowedFd<'_>) {
        if let Err(error) = self.wake_on(fd)
            && !self.wait.blind.swap(true, Ordering::Relaxed)
        {
            tracing::debug!(%error, "a port's descriptor; the event thread looks every millisecond");
        }
    }

    /// Whether the event thread looks every millisecond, whatever wakes it besides.
    fn goes_by_the_clock(&self) -> bool {
        self.params.progress == Progress::Tick || self.wait.blind.load(Ordering::Relaxed)
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

    pub fn channel_closed(&self, chan: &Chan) {
        self.open_chans.fetch_sub(1, Ordering::Relaxed);
        // Goes when libfabric has handed back all its operations, which somebody has to see.
        self.closed.lock().push(chan.id);
        self.hurry();
    }

    /// Puts a channel on the list of those to look after.
    pub fn list(&self, chan: Arc<Chan>) {
        self.listed.lock().push_back(chan);
        self.tick();
    }

    /// Has the event thread look in a millisecond.
    pub fn tick(&self) {
        self.tick_after(TICK_TIME);
    }

    fn tick_after(&self, time: Duration) {
        // Looked at first: this is called for most messages, mostly in vain.
        if !self.wait.ticking.load(Ordering::Acquire)
            && !self.wait.ticking.swap(true, Ordering::AcqRel)
            && self.wait.tick.set(time).is_err()
        {
            self.wait.ticking.store(false, Ordering::Release);
            self.wait.bell.signal();
        }
    }

    /// Looks after the listed channels: says what they owe, tries again what libfabric did not take.
    pub fn look_after_channels(&self, lull: Lull) {
        self.more.store(false, Ordering::Relaxed);
        let count = self.listed.lock().len();
        for _ in 0..count {
            // One at a time: a channel may list itself again.
            let Some(chan) = self.listed.lock().pop_front() else { return };
            chan.listed.store(false, Ordering::Release);
            let mut st = chan.lock();
            chan.pump(&mut st, lull);
        }
    }

    // The event thread.

    fn poll_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
        if !self.owner.here() {
            return 0;
        }
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(8);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.wait.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&now)).is_err() {
            ready.clear();
        }
        if self.is_left_to_pollers(&ready) {
            return 0;
        }
        let mut by_fabric = false;
        for event in &ready {
            match event.data.u64() {
                BELL => self.wait.bell.drain(),
                TICK => {
                    self.wait.tick.drain();
                    self.wait.ticking.store(false, Ordering::Release);
                }
                KEEPALIVE => self.look_for_life(),
                EVENTS => {}
                _ => by_fabric = true,
            }
        }
        let mut brought = self.progress_to_the_end();
        brought += self.take_connection_events();
        brought += self.progress_to_the_end();
        self.look_after_channels(Lull::Long);
        self.reap();
        if by_fabric {
            let idle = if brought > 0 { 0 } else { self.wait.idle.load(Ordering::Relaxed) + 1 };
            self.wait.idle.store(idle, Ordering::Relaxed);
        }
        let count = self.take_events(out);
        self.prepare_to_sleep();
        count
    }

    /// Whether this is a mere tick while a thread polls all the time. That one does everything a tick is for, and must not
    /// find its locks held by a thread that lost its processor: then nothing goes on until that one gets it back. So the
    /// tick is put off, for a second or so.
    fn is_left_to_pollers(&self, ready: &[epoll::Event]) -> bool {
        let ticked = matches!(ready, [event] if event.data.u64() == TICK);
        let polls = self.polls.load(Ordering::Relaxed);
        let spinning = polls.wrapping_sub(self.wait.seen.load(Ordering::Relaxed)) >= SPINNING;
        let frames_wait = self.datagrams.as_ref().is_some_and(|datagrams| !datagrams.is_idle());
        let left = self.wait.left.load(Ordering::Relaxed);
        if !ticked || !spinning || frames_wait || self.goes_by_the_clock() || left >= MOST_LEFT {
            self.wait.left.store(0, Ordering::Relaxed);
            return false;
        }
        self.wait.left.store(left + 1, Ordering::Relaxed);
        self.wait.seen.store(polls, Ordering::Relaxed);
        self.fabric.do_not_watch();
        self.wait.tick.drain();
        self.wait.ticking.store(false, Ordering::Release);
        self.tick_after(TICK_TIME * (left + 1).min(SLOWEST));
        true
    }

    /// Takes completions until there are none, within reason.
    pub fn progress_to_the_end(&self) -> usize {
        let mut all = 0;
        for _ in 0..64 {
            match self.progress() {
                0 => break,
                some => all += some,
            }
        }
        all
    }

    /// The same, waiting for a thread that is at it: what was there when this was called is taken when it returns.
    pub fn progress_for_certain(&self) {
        for _ in 0..64 {
            if self.progress_now() == 0 {
                break;
            }
        }
    }

    /// Decides what wakes the event thread next: the fabric itself, or, while applications poll and would have it woken
    /// for nothing at every message, a tick.
    fn prepare_to_sleep(&self) {
        let polls = self.polls.load(Ordering::Relaxed);
        let polled = self.wait.seen.swap(polls, Ordering::Relaxed) != polls;
        let busy_for_nothing = self.wait.idle.load(Ordering::Relaxed) > 16;
        if busy_for_nothing {
            self.wait.idle.store(0, Ordering::Relaxed);
        }
        if polled || busy_for_nothing || self.goes_by_the_clock() || !self.listed.lock().is_empty() {
            if polled {
                // From now on messages wake nobody, unless somebody sleeps.
                self.fabric.do_not_watch();
            }
            // An event that was read leaves its signal behind, which would wake this thread for ever.
            if !self.fabric.may_wait_for_events() {
                self.wait.bell.signal();
            }
            return self.tick();
        }
        if !self.fabric.wakes() {
            return;
        }
        let ports_quiet = self.datagrams.as_ref().is_none_or(|datagrams| datagrams.may_wait(&self.fabric));
        if !ports_quiet || !self.may_wait() || !self.fabric.may_wait_for_events() {
            return self.wait.bell.signal();
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        for (fd, token) in self.fabric.wait_fds().zip(COMPLETIONS..) {
            if epoll::modify(&self.wait.epoll, fd, epoll::EventData::new_u64(token), flags).is_err() {
                self.tick();
            }
        }
    }

    /// Asks silent peers whether they are there, and gives up on those that did not answer.
    fn look_for_life(&self) {
        self.wait.keepalive.drain();
        let Some(time) = self.params.keepalive else { return };
        let interval = self.look_interval(time);
        let lives = (time.as_nanos() / interval.as_nanos()).max(2) as u32;
        let all: Vec<Arc<Chan>> = self.chans.lock().values().cloned().collect();
        for chan in all {
            chan.look_for_life(lives);
        }
        let _ = self.wait.keepalive.set(interval);
    }

    /// How often peers are looked at. With datagrams nothing tells that a peer's process ended, so that is soon.
    fn look_interval(&self, time: Duration) -> Duration {
        let most = if self.datagrams.is_some() { Duration::from_secs(1) } else { Duration::MAX };
        (time / LIVES).min(most).max(Duration::from_millis(1))
    }

    /// Drops channels the engine closed and libfabric knows nothing of any more.
    fn reap(&self) {
        let mut closed = self.closed.lock();
        if closed.is_empty() {
            return;
        }
        // Nobody is handing completions to channels meanwhile.
        let reader = self.reader.lock();
        let mut gone = Vec::new();
        closed.retain(|id| {
            let mut chans = self.chans.lock();
            let free =
                chans.get(id).is_none_or(|chan| chan.state.try_lock().is_some_and(|st| st.inflight == 0));
            if free && let Some(chan) = chans.remove(id) {
                gone.push(chan);
            }
            !free
        });
        drop(reader);
        drop(closed);
        drop(gone);
    }
}

impl Chan {
    /// Puts it on the device's list.
    pub fn list(&self) {
        if !self.listed.swap(true, Ordering::AcqRel)
            && let Some(chan) = self.arc()
        {
            self.dev.list(chan);
        }
    }

    fn look_for_life(&self, lives: u32) {
        let mut st = self.lock();
        if !matches!(st.phase, Phase::Up | Phase::Accepting) {
            return;
        }
        if self.heard.swap(false, Ordering::Relaxed) {
            st.silence = 0;
            return;
        }
        st.silence += 1;
        if st.silence >= lives {
            tracing::warn!(channel = self.id, "the peer is silent; the connection is broken");
            return self.end(&mut st, dat_plugin::EventKind::BROKEN, &[], None);
        }
        match (&self.dev.datagrams, st.link) {
            (Some(datagrams), Some(link)) => {
                datagrams.ask_for_life(&self.dev, self.id, link.dest, (st.peer, st.peer_secret));
            }
            _ => st.owed.ping = true,
        }
        self.pump(&mut st, Lull::Long);
    }
}

impl Dev {
    pub fn new_chan(
        self: &Arc<Dev>,
        attr: &ChannelAttr,
        queues: [Option<Arc<Que>>; 2],
        srq: Option<Arc<Shared>>,
    ) -> Result<Arc<Chan>, Failure> {
        let page = Page::new(|addr, len| match self.params.endpoint {
            Endpoint::Rdm => Ok(None),
            Endpoint::Msg if self.fabric.limits.framed => Ok(None),
            Endpoint::Msg => {
                let key = self.regions.secret(self.fabric.limits.mr_key_size);
                let rights = libfabric_sys::consts::FI_REMOTE_WRITE;
                Mr::new(&self.fabric, addr, len, rights, key, std::ptr::null_mut()).map(Some).map_err(
                    |errno| {
                        crate::status::failure(
                            self.fabric.library,
                            "fi_mr_reg of a control page",
                            errno.into(),
                        )
                    },
                )
            }
        })?;
        let frames = match self.fabric.limits.framed {
            true => Some(Frames::new(&self.fabric, &self.regions)?),
            false => None,
        };
        let mut chans = self.chans.lock();
        let id = loop {
            let id = self.next_chan.fetch_add(1, Ordering::Relaxed) & (MAX_CHANS - 1);
            if id != 0 && !chans.contains_key(&id) {
                break id;
            }
        };
        let chan = Chan::new(self, id, attr, queues, srq, page, frames)?;
        chans.insert(id, chan.clone());
        drop(chans);
        self.look_from_now_on();
        Ok(chan)
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

#[cfg(test)]
mod tests {
    use super::*;
    use dat_plugin::Queue as _;

    fn ready(token: u64) -> epoll::Event {
        epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(token) }
    }

    #[test]
    fn ticks_are_left_to_a_thread_that_polls_but_not_for_ever() {
        let params = [("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1")];
        let params = params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        if Library::get().is_err() {
            assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
            return println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
        }
        let device = FabricDevice::open(&Config { ia_name: "ofi".into(), params }).expect("a device");
        let dev = device.dev();
        let queue = crate::queue::FabricQueue(Que::new(dev, 8).expect("a queue"));
        let spin = || (0..SPINNING).for_each(|_| assert_eq!(queue.poll(&mut [Default::default()]), 0));
        assert!(!dev.is_left_to_pollers(&[ready(TICK)]), "nobody polls");
        for _ in 0..MOST_LEFT {
            spin();
            assert!(dev.is_left_to_pollers(&[ready(TICK)]));
            assert!(dev.wait.ticking.load(Ordering::Acquire), "it is looked again");
        }
        spin();
        assert!(!dev.is_left_to_pollers(&[ready(TICK)]), "something may need this thread");
        spin();
        assert!(!dev.is_left_to_pollers(&[ready(EVENTS), ready(TICK)]), "connections are not theirs");
        assert!(dev.is_left_to_pollers(&[ready(TICK)]));
        assert!(!dev.is_left_to_pollers(&[ready(TICK)]), "they stopped");
    }
}
