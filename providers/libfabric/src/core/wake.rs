//! What wakes the event thread: the fabric, a doorbell, or, while applications poll, a timer.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use rustix::event::epoll;

use crate::fabric::Fabric;
use crate::params::Progress;

/// The event thread's descriptors, and its counts of what it did before.
pub struct Wake {
    pub epoll: OwnedFd,
    pub doorbell: EventFd,
    pub timer: Timer,
    pub timer_armed: AtomicBool,
    pub keepalive: Timer,
    /// Polls of queues when the event thread last looked.
    pub polls_seen: AtomicU64,
    /// The end of a connection was handed out. The engine asks for what happened before it, so the next look is complete.
    pub look_again: AtomicBool,
    /// Ticks in a row that were left to threads that poll.
    pub ticks_left: AtomicU32,
    /// Wake-ups by the fabric in a row that brought nothing.
    pub idle_wakes: AtomicU32,
    /// The timer must run, because the fabric does not wake the event thread for everything.
    pub always_tick: AtomicBool,
}

pub const DOORBELL: u64 = 0;
pub const TICK: u64 = 1;
pub const KEEPALIVE: u64 = 2;
pub const EVENTS: u64 = 3;
/// The first of the completion queues; the others follow.
pub const COMPLETIONS: u64 = 4;

/// Period of the timer while applications poll and the fabric wakes nothing.
pub const TICK_TIME: Duration = Duration::from_millis(1);

impl Wake {
    pub fn new(fabric: &Fabric, progress: Progress) -> io::Result<Wake> {
        let this = Wake {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            doorbell: EventFd::new()?,
            timer: Timer::new()?,
            timer_armed: AtomicBool::new(false),
            keepalive: Timer::new()?,
            polls_seen: AtomicU64::new(0),
            look_again: AtomicBool::new(false),
            ticks_left: AtomicU32::new(0),
            idle_wakes: AtomicU32::new(0),
            always_tick: AtomicBool::new(progress == Progress::Tick),
        };
        let add = |fd: BorrowedFd<'_>, token, flags| {
            epoll::add(&this.epoll, fd, epoll::EventData::new_u64(token), flags)
        };
        add(this.doorbell.as_fd(), DOORBELL, epoll::EventFlags::IN)?;
        add(this.timer.as_fd(), TICK, epoll::EventFlags::IN)?;
        add(this.keepalive.as_fd(), KEEPALIVE, epoll::EventFlags::IN)?;
        if let Some(fd) = fabric.eq_wait() {
            add(fd, EVENTS, epoll::EventFlags::IN)?;
        }
        // Armed only while no application polls.
        for (fd, token) in fabric.wait_fds().zip(COMPLETIONS..) {
            add(fd, token, epoll::EventFlags::ONESHOT)?;
        }
        Ok(this)
    }

    /// Wakes the event thread at once.
    pub fn now(&self) {
        self.doorbell.signal();
    }

    /// Wakes the event thread within a millisecond.
    pub fn soon(&self) {
        self.after(TICK_TIME);
    }

    pub fn after(&self, time: Duration) {
        // A load first: this is called for most messages, and the timer is armed mostly.
        if !self.timer_armed.load(Ordering::Acquire)
            && !self.timer_armed.swap(true, Ordering::AcqRel)
            && self.timer.set(time).is_err()
        {
            self.timer_armed.store(false, Ordering::Release);
            self.doorbell.signal();
        }
    }

    /// The timer fired.
    pub fn drain_timer(&self) {
        self.timer.drain();
        self.timer_armed.store(false, Ordering::Release);
    }

    /// Lets a descriptor wake the event thread, until it is closed.
    pub fn add(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let data = epoll::EventData::new_u64(EVENTS);
        Ok(epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN)?)
    }

    /// Lets a port's descriptor wake the event thread, or else the timer does. Newer libfabrics put the sockets of a
    /// whole domain behind each descriptor, and Linux refuses to let one socket wake through more than a few.
    pub fn add_port(&self, fd: BorrowedFd<'_>) {
        if let Err(error) = self.add(fd)
            && !self.always_tick.swap(true, Ordering::Relaxed)
        {
            tracing::debug!(%error, "cannot wait for a port's descriptor; the event thread looks every millisecond");
        }
    }

    /// Whether the event thread looks at least every millisecond.
    pub fn always_ticks(&self) -> bool {
        self.always_tick.load(Ordering::Relaxed)
    }
}
