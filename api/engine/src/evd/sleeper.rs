//! The descriptors a waiter sleeps on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use dat_plugin::host::Queue;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::adapter::progress::mailbox::sleep_on;
use crate::base::interest::READABLE;

/// What a waiter sleeps on: made for the first one.
#[derive(Default)]
pub(super) struct Sleeper {
    inner: OnceLock<(OwnedFd, OwnedFd)>,
    /// The poller and the provider's event descriptor together.
    both: OnceLock<OwnedFd>,
}

impl Sleeper {
    /// The descriptor that is readable when an event was pushed or a completion arrived.
    pub(super) fn poller(&self, queue: impl FnOnce() -> Option<Arc<Queue>>) -> io::Result<BorrowedFd<'_>> {
        if let Some((_, poller)) = self.inner.get() {
            return Ok(poller.as_fd());
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poller, &wake, epoll::EventData::new_u64(0), READABLE)?;
        if let Some(fd) = queue().as_deref().and_then(Queue::fd) {
            epoll::add(&poller, fd, epoll::EventData::new_u64(1), READABLE)?;
        }
        Ok(self.inner.get_or_init(|| (wake, poller)).1.as_fd())
    }

    pub(super) fn signal(&self) {
        if let Some((wake, _)) = self.inner.get() {
            // Only fails when the counter is full, and then it is readable already.
            let _ = rustix::io::write(wake, &1u64.to_ne_bytes());
        }
    }

    pub(super) fn drain(&self) {
        if let Some((wake, _)) = self.inner.get() {
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
    }

    pub(super) fn sleep(
        &self,
        deadline: Option<Instant>,
        events: Option<BorrowedFd<'_>>,
    ) -> std::result::Result<(), Errno> {
        let Some((_, poller)) = self.inner.get() else { return Ok(()) };
        let both = events.and_then(|events| self.both(poller, events));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        sleep_on(both.unwrap_or(poller.as_fd()), left.map(round_up))
    }

    /// Whether a sleeper can be woken by the provider's event descriptor too.
    pub(super) fn watches(&self, queue: impl FnOnce() -> Option<Arc<Queue>>, events: BorrowedFd<'_>) -> bool {
        self.poller(queue).is_ok()
            && self.inner.get().is_some_and(|(_, poller)| self.both(poller, events).is_some())
    }

    /// `None`: without it the IA's thread does the work.
    fn both(&self, poller: &OwnedFd, events: BorrowedFd<'_>) -> Option<BorrowedFd<'_>> {
        // Miri watches no epoll descriptor through another.
        if cfg!(miri) {
            return None;
        }
        if self.both.get().is_none() {
            let both = epoll::create(epoll::CreateFlags::CLOEXEC).ok()?;
            epoll::add(&both, poller, epoll::EventData::new_u64(0), READABLE).ok()?;
            epoll::add(&both, events, epoll::EventData::new_u64(1), READABLE).ok()?;
            let _ = self.both.set(both);
        }
        self.both.get().map(AsFd::as_fd)
    }
}

/// Whole milliseconds are what the oldest form of the system call takes; never wake early.
fn round_up(left: Duration) -> Duration {
    Duration::from_millis(left.as_nanos().div_ceil(1_000_000) as u64)
}
