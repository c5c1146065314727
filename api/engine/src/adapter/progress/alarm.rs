//! A time at which the IA's thread wakes up, set by other threads without waking it before.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

pub(crate) struct Alarm {
    fd: OwnedFd,
    /// What it is set to.
    due: Mutex<Option<Instant>>,
}

impl Alarm {
    pub(in crate::adapter) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm { fd: timerfd_create(TimerfdClockId::Monotonic, flags)?, due: Mutex::default() })
    }

    /// Wakes the thread at this time or earlier. `false`: it cannot.
    pub(in crate::adapter) fn by(&self, at: Instant) -> bool {
        let mut due = self.due.lock();
        if due.is_some_and(|due| due <= at) {
            return true;
        }
        // 0 would switch it off.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let it_value = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let value = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let set = timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &value).is_ok();
        if set {
            *due = Some(at);
        }
        set
    }

    /// The thread is awake, and looks at all it may be set for after this.
    pub(in crate::adapter) fn off(&self) {
        let mut due = self.due.lock();
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        *due = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, poll};

    fn rings(alarm: &Alarm, milliseconds: i64) -> bool {
        let time = Timespec { tv_sec: 0, tv_nsec: milliseconds * 1_000_000 };
        poll(&mut [PollFd::new(alarm, PollFlags::IN)], Some(&time)).unwrap() == 1
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no timerfd")]
    fn it_rings_at_the_earliest_time_it_was_set_to() {
        let alarm = Alarm::new().unwrap();
        let now = Instant::now();
        let late = now + Duration::from_secs(1000);
        assert!(alarm.by(late) && !rings(&alarm, 1));
        assert!(alarm.by(now + Duration::from_millis(2)) && alarm.by(late));
        assert!(rings(&alarm, 999));
        alarm.off();
        assert!(!rings(&alarm, 0));
        // A time that has passed is now.
        assert!(alarm.by(now) && rings(&alarm, 999));
    }
}
