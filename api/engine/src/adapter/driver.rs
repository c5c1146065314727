//! Who watches the provider's descriptor: the IA's thread, or threads that wait for connection events.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::host::Device;
use rustix::event::epoll;

use super::inner::IaInner;
use super::progress::inbox::Inbox;
use super::progress::mailbox::{EVENTS, Progress, Watch};
use crate::base::interest::{PAUSED, READABLE};

/// How long after the last waiter the IA's thread begins to watch again. A thread that waits once mostly waits again at
/// once, and what happens in between should not wake two threads. An event can be late by this for a thread that does not.
const GRACE: Duration = Duration::from_micros(500);

/// A thread that waits for a connection event takes the provider's events itself. That saves a wake-up through the IA's
/// thread, which does not watch as long as this lives, and a little longer: an event should not wake both.
pub(crate) struct Driver {
    ia: Arc<IaInner>,
    device: Device,
}

impl Driver {
    /// `watches` returns whether the waiter can sleep on the provider's descriptor. If it cannot, the IA's thread must go
    /// on watching.
    pub(crate) fn new(ia: Arc<IaInner>, watches: impl FnOnce(BorrowedFd<'_>) -> bool) -> Option<Driver> {
        let device = ia.device("dat_evd_wait").ok()?;
        if !watches(device.event_fd()?) {
            return None;
        }
        let mut watch = ia.progress.watch.lock();
        watch.drivers += 1;
        if !watch.away {
            watch.away = true;
            ia.progress.point(&device, PAUSED);
        }
        drop(watch);
        Some(Driver { ia, device })
    }

    pub(crate) fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        self.device.event_fd()
    }

    /// Takes what events there are, unless another thread is at it: that one may need this processor to go on.
    pub(crate) fn take(&self) {
        match self.ia.progress.events.try_lock() {
            Some(mut events) => take_events(&self.ia, &self.device, &mut events),
            None => std::thread::yield_now(),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let progress = &self.ia.progress;
        let mut watch = progress.watch.lock();
        watch.drivers -= 1;
        if watch.drivers == 0 {
            let back = Instant::now() + GRACE;
            watch.back = Some(back);
            if !progress.alarm.as_ref().is_some_and(|alarm| alarm.by(back)) {
                progress.look_again(&mut watch, &self.device);
            }
        }
    }
}

impl Progress {
    /// Whether the provider's events are the IA's thread's to take; that is where it is decided when it looks again.
    pub(crate) fn looks(&self, device: &Device) -> bool {
        let mut watch = self.watch.lock();
        if !watch.away || watch.drivers > 0 {
            return !watch.away;
        }
        let back = watch.back.filter(|back| *back > Instant::now());
        if !back.is_some_and(|back| self.alarm.as_ref().is_some_and(|alarm| alarm.by(back))) {
            self.look_again(&mut watch, device);
        }
        true
    }

    fn look_again(&self, watch: &mut Watch, device: &Device) {
        watch.away = false;
        self.point(device, READABLE);
    }

    /// What of the provider's descriptor the IA's thread watches.
    fn point(&self, device: &Device, flags: epoll::EventFlags) {
        if let Some(fd) = device.event_fd() {
            // When it fails both threads wake up, which costs time and nothing else.
            let _ = epoll::modify(&self.poller, fd, epoll::EventData::new_u64(EVENTS), flags);
        }
    }
}

/// Takes the provider's events on the spot, unless another thread is at it.
pub(crate) fn help(ia: &Arc<IaInner>) {
    if let Some(mut events) = ia.progress.events.try_lock()
        && let Ok(device) = ia.device("dat_evd_wait")
    {
        take_events(ia, &device, &mut events);
    }
}

pub(crate) fn take_events(ia: &Arc<IaInner>, device: &Device, inbox: &mut Inbox) {
    inbox.take(|out| device.poll_events(out), |event| (ia.on_event)(ia, event));
}
