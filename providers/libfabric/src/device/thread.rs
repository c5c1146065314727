//! What the event thread does, and what wakes it: the fabric, a bell, or while applications poll, the clock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use dat_plugin::Event;
use rustix::event::epoll;

use super::Dev;
use crate::channel::Chan;
use crate::fabric::Fabric;
use crate::flow::Lull;
use crate::params::Progress;

/// What the event thread sleeps on, and when it last looked.
pub(super) struct Waiting {
    pub(super) epoll: OwnedFd,
    bell: EventFd,
    tick: Timer,
    ticking: AtomicBool,
    pub(super) keepalive: Timer,
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

/// Looks at a peer in the time it may be silent.
const LIVES: u32 = 4;

impl Waiting {
    pub(super) fn new(fabric: &Fabric) -> io::Result<Waiting> {
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

    pub(super) fn poll_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
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
    pub(super) fn look_interval(&self, time: Duration) -> Duration {
        let most = if self.datagrams.is_some() { Duration::from_secs(1) } else { Duration::MAX };
        (time / LIVES).min(most).max(Duration::from_millis(1))
    }
}

#[cfg(test)]
mod tests {
    use dat_plugin::{Config, Queue as _};
    use libfabric_sys::Library;

    use super::super::FabricDevice;
    use super::*;
    use crate::queue::Que;

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
