//! Descriptors that wake a sleeper.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A descriptor that is readable from [`EventFd::signal`] to [`EventFd::drain`]. Never blocks.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A descriptor that is not readable yet.
    pub fn new() -> io::Result<EventFd> {
        Ok(EventFd(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn signal(&self) {
        signal(self.0.as_fd());
    }

    /// Makes it unreadable.
    pub fn drain(&self) {
        drain(self.0.as_fd());
    }
}

/// Makes an eventfd readable that came from elsewhere, as from a peer. It must not block.
pub fn signal(fd: BorrowedFd<'_>) {
    // The only failures of a non-blocking eventfd: the counter is full, which means readable already; and a signal.
    while rustix::io::write(fd, &1u64.to_ne_bytes()) == Err(Errno::INTR) {}
}

/// A descriptor that becomes readable when a time is up. Never blocks.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    pub fn new() -> io::Result<Timer> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Timer(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Becomes readable in `time`, once, in place of what was set before.
    pub fn set(&self, time: Duration) -> io::Result<()> {
        // 0 would switch it off.
        let time = time.max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Makes it unreadable until it is up again.
    pub fn drain(&self) {
        drain(self.0.as_fd());
    }
}

/// One read of 8 bytes empties the counter of both kinds.
fn drain(fd: BorrowedFd<'_>) {
    while rustix::io::read(fd, &mut [0u8; 8]) == Err(Errno::INTR) {}
}

macro_rules! as_fd {
    ($($name:ident),*) => {$(
        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }
        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }
    )*};
}
as_fd!(EventFd, Timer);

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn readable(fd: &impl AsFd, milliseconds: i64) -> bool {
        let time = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&time)).unwrap() == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no poll(2)")]
    fn an_event_is_readable_from_signal_to_drain() {
        let event = EventFd::new().unwrap();
        assert!(!readable(&event, 0));
        event.signal();
        event.signal();
        assert!(readable(&event, 0));
        event.drain();
        assert!(!readable(&event, 0), "one drain takes all signals");
        event.drain();
        event.signal();
        assert!(readable(&event, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no timerfd")]
    fn a_timer_is_readable_when_its_time_is_up() {
        let timer = Timer::new().unwrap();
        assert!(!readable(&timer, 0));
        timer.set(Duration::ZERO).unwrap();
        assert!(readable(&timer, 999));
        timer.drain();
        assert!(!readable(&timer, 0));
        timer.set(Duration::from_secs(1000)).unwrap();
        assert!(!readable(&timer, 1));
        timer.set(Duration::from_millis(1)).unwrap();
        assert!(readable(&timer, 999));
    }
}
