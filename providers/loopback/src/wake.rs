//! What wakes the thread that polls a device's events.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use rustix::event::epoll;

/// A device's event descriptor: readable when there is an event, and with a time limit also when that may be over.
#[derive(Debug)]
pub struct Wake {
    event: EventFd,
    timed: Option<Timed>,
}

#[derive(Debug)]
struct Timed {
    timer: Timer,
    limit: Duration,
    /// Waits for both; this is the descriptor given out.
    both: OwnedFd,
}

impl Wake {
    pub fn new(limit: Option<Duration>) -> io::Result<Wake> {
        let event = EventFd::new()?;
        let timed = limit.map(|limit| Timed::new(&event, limit)).transpose()?;
        Ok(Wake { event, timed })
    }

    pub fn signal(&self) {
        self.event.signal();
    }

    /// Makes the descriptor unreadable.
    pub fn drain(&self) {
        self.event.drain();
        if let Some(timed) = &self.timed {
            timed.timer.drain();
        }
    }

    /// The time limit there is, if any.
    pub fn limit(&self) -> Option<Duration> {
        self.timed.as_ref().map(|timed| timed.limit)
    }

    /// Becomes readable in `time`; at once if the system refuses, so that no thread sleeps past the time.
    pub fn wake_in(&self, time: Duration) {
        if let Some(timed) = &self.timed
            && timed.timer.set(time).is_err()
        {
            self.event.signal();
        }
    }
}

impl AsRawFd for Wake {
    fn as_raw_fd(&self) -> RawFd {
        self.timed.as_ref().map_or(self.event.as_raw_fd(), |timed| timed.both.as_raw_fd())
    }
}

impl Timed {
    fn new(event: &EventFd, limit: Duration) -> io::Result<Timed> {
        let timer = Timer::new()?;
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&both, event, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&both, &timer, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Timed { timer, limit, both })
    }
}
