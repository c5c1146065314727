//! What the event thread does.

use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_plugin::{Event, EventKind};
use rustix::event::epoll;

use crate::channel::{ChannelInner, Phase};
use crate::core::CreditDelay;
use crate::core::wake::{COMPLETIONS, DOORBELL, EVENTS, KEEPALIVE, TICK, TICK_TIME};
use crate::device::DeviceInner;

/// Polls since the last look that show that a thread polls all the time.
const SPINNING: u64 = 64;

/// The longest time to the next tick that is left to such a thread, in ticks; and how many in a row are left to it.
const SLOWEST: u32 = 4;
const MOST_LEFT: u32 = 256;

/// Checks of a peer in the time it may be silent.
const CHECKS: u32 = 4;

impl DeviceInner {
    /// Handles everything that is due and hands out events.
    pub fn poll_events(&self, out: &mut [Event]) -> usize {
        let core = &self.core;
        if !core.fork_guard.here() {
            return 0;
        }
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(8);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        if epoll::wait(&self.core.wake.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&now)).is_err()
        {
            ready.clear();
        }
        let complete = core.wake.look_again.swap(false, Ordering::Relaxed);
        if !complete && self.leave_to_pollers(&ready) {
            return 0;
        }
        let mut woken_by_fabric = false;
        for event in &ready {
            match event.data.u64() {
                DOORBELL => core.wake.doorbell.drain(),
                TICK => core.wake.drain_timer(),
                KEEPALIVE => self.check_peers(),
                EVENTS => {}
                _ => woken_by_fabric = true,
            }
        }
        if complete {
            // Another thread may be reading.
            self.progress.all_waiting();
        }
        let mut brought = self.progress.all();
        brought += self.take_connection_events();
        brought += self.progress.all();
        core.run_tasks(CreditDelay::None);
        self.progress.drop_closed_channels();
        if woken_by_fabric {
            let idle = if brought > 0 { 0 } else { self.core.wake.idle_wakes.load(Ordering::Relaxed) + 1 };
            self.core.wake.idle_wakes.store(idle, Ordering::Relaxed);
        }
        let count = self.take_events(out);
        self.prepare_to_sleep();
        count
    }

    /// Whether this is only a tick while an application polls all the time. The polling thread does all the work of a tick.
    /// It must not find locks held by an event thread that lost its processor. So ticks are put off for up to a second.
    fn leave_to_pollers(&self, ready: &[epoll::Event]) -> bool {
        let ticked = matches!(ready, [event] if event.data.u64() == TICK);
        let polls = self.core.polls.load(Ordering::Relaxed);
        let spinning = polls.wrapping_sub(self.core.wake.polls_seen.load(Ordering::Relaxed)) >= SPINNING;
        let frames_pending = self.datagrams.as_ref().is_some_and(|datagrams| !datagrams.is_idle());
        let left = self.core.wake.ticks_left.load(Ordering::Relaxed);
        if !ticked || !spinning || frames_pending || self.core.wake.always_ticks() || left >= MOST_LEFT {
            self.core.wake.ticks_left.store(0, Ordering::Relaxed);
            return false;
        }
        self.core.wake.ticks_left.store(left + 1, Ordering::Relaxed);
        self.core.wake.polls_seen.store(polls, Ordering::Relaxed);
        self.core.fabric.stop_watching();
        self.core.wake.drain_timer();
        self.core.wake.after(TICK_TIME * (left + 1).min(SLOWEST));
        true
    }

    /// Chooses what wakes the event thread next: the fabric, or, while applications poll, the timer. Otherwise each message
    /// would wake it for nothing.
    fn prepare_to_sleep(&self) {
        let polls = self.core.polls.load(Ordering::Relaxed);
        let polled = self.core.wake.polls_seen.swap(polls, Ordering::Relaxed) != polls;
        let woken_in_vain = self.core.wake.idle_wakes.load(Ordering::Relaxed) > 16;
        if woken_in_vain {
            self.core.wake.idle_wakes.store(0, Ordering::Relaxed);
        }
        if polled || woken_in_vain || self.core.wake.always_ticks() || self.core.has_tasks() {
            if polled {
                // From now on messages wake no thread, unless one sleeps on a queue.
                self.core.fabric.stop_watching();
            }
            // An event that was read leaves its signal behind, which would wake this thread again and again.
            if !self.core.fabric.may_wait_for_events() {
                self.core.wake.now();
            }
            return self.core.wake.soon();
        }
        if !self.core.fabric.wakes() {
            return;
        }
        let ports_quiet = self.datagrams.as_ref().is_none_or(|datagrams| datagrams.may_sleep());
        if !ports_quiet || !self.progress.may_sleep() || !self.core.fabric.may_wait_for_events() {
            return self.core.wake.now();
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        for (fd, token) in self.core.fabric.wait_fds().zip(COMPLETIONS..) {
            if epoll::modify(&self.core.wake.epoll, fd, epoll::EventData::new_u64(token), flags).is_err() {
                self.core.wake.soon();
            }
        }
    }

    /// Pings silent peers, and breaks connections whose peer did not answer.
    fn check_peers(&self) {
        self.core.wake.keepalive.drain();
        let Some(time) = self.core.params.keepalive else { return };
        let interval = self.check_interval(time);
        let most = (time.as_nanos() / interval.as_nanos()).max(2) as u32;
        let all = self.channels.all();
        for chan in all {
            self.check_peer(&chan, most);
        }
        let _ = self.core.wake.keepalive.set(interval);
    }

    /// How often peers are checked. With datagrams the fabric does not report that a peer's process ended, so that is
    /// often.
    pub fn check_interval(&self, time: Duration) -> Duration {
        let most = if self.datagrams.is_some() { Duration::from_secs(1) } else { Duration::MAX };
        (time / CHECKS).min(most).max(Duration::from_millis(1))
    }

    fn check_peer(&self, channel: &ChannelInner, most: u32) {
        let mut st = channel.lock();
        if !matches!(st.phase, Phase::Connected | Phase::Accepting) {
            return;
        }
        if channel.heard.swap(false, Ordering::Relaxed) {
            st.missed_checks = 0;
            return;
        }
        st.missed_checks += 1;
        if st.missed_checks >= most {
            tracing::warn!(channel = channel.id, "the peer is silent; the connection is broken");
            return channel.end(&mut st, EventKind::BROKEN, &[], None);
        }
        match (&self.datagrams, &st.peer_address) {
            (Some(datagrams), Some(dest)) => {
                datagrams.check_peer(channel.id, dest, (st.peer, st.peer_secret));
            }
            _ => st.pending.ping = true,
        }
        channel.progress(&mut st, CreditDelay::None);
    }

    /// Takes events for the engine.
    fn take_events(&self, out: &mut [Event]) -> usize {
        let mut count = 0;
        let mut events = self.core.events.lock();
        while count < out.len() {
            let Some((closed, event)) = events.pop_front() else { break };
            if closed.is_none_or(|closed| !closed.load(Ordering::Acquire)) {
                if matches!(event.kind, EventKind::DISCONNECTED | EventKind::BROKEN) {
                    self.core.wake.look_again.store(true, Ordering::Relaxed);
                }
                out[count] = event;
                count += 1;
            }
        }
        if !events.is_empty() {
            self.core.wake.now();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use dat_plugin::{Device as _, Queue as _};

    use super::*;
    use crate::testing::device;

    fn ready(token: u64) -> epoll::Event {
        epoll::Event { flags: epoll::EventFlags::IN, data: epoll::EventData::new_u64(token) }
    }

    #[test]
    fn ticks_are_left_to_a_polling_thread_but_not_for_ever() {
        let pairs = [("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1")];
        let Some(device) = device(&pairs) else { return };
        let dev = device.inner();
        let queue = device.open_queue(8).expect("a queue");
        let spin = || (0..SPINNING).for_each(|_| assert_eq!(queue.poll(&mut [Default::default()]), 0));
        assert!(!dev.leave_to_pollers(&[ready(TICK)]), "no thread polls");
        for _ in 0..MOST_LEFT {
            spin();
            assert!(dev.leave_to_pollers(&[ready(TICK)]));
            assert!(dev.core.wake.timer_armed.load(Ordering::Acquire), "the next tick is set");
        }
        spin();
        assert!(!dev.leave_to_pollers(&[ready(TICK)]), "something may need the event thread");
        spin();
        assert!(
            !dev.leave_to_pollers(&[ready(EVENTS), ready(TICK)]),
            "pollers do not handle connection events"
        );
        assert!(dev.leave_to_pollers(&[ready(TICK)]));
        assert!(!dev.leave_to_pollers(&[ready(TICK)]), "the application stopped polling");
    }
}
