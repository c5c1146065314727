//! `faults`: what can go wrong, on purpose and repeatably.
//!
//! # Parameters
//! All but `seed` are off by default; without any of them it is `delay_us` 300 and `reorder_one_in` 4, under which
//! everything an application is promised still holds.
//! - `seed` (1): of every decision. What happens to the n-th completion of the m-th channel is a function of the seed,
//!   m, n and the direction, never of time: the same program over the same seed meets the same faults.
//! - `delay_us`: completions are handed out up to so much later, each by its own draw.
//! - `delay_one_in` (1): only one in so many is delayed.
//! - `reorder_one_in`: one completion in so many waits until one of another channel or direction was handed out, or
//!   for 200 µs. Completions of one channel and direction stay in order, as the interface asks.
//! - `slow_recv_us`: receive completions of a channel are handed out at least so far apart, as to a receiver that does
//!   not keep up.
//! - `drop_after`: after so many accepted posts a channel is disconnected, and its side is told that it broke.
//! - `fail_register`: the so many-th registration fails for want of resources.
//! - `fail_connect`: the same of connects.
//!
//! Every fault is an event of `tracing`, target `dat.faults`, level debug.

mod plan;
mod queue;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use dat_kit::EventFd;
use dat_plugin::host::{Below, BelowChannel, BelowQueue};
use dat_plugin::{Channel as _, ChannelAttr, Completion, Device as _, Event, EventKind, Failure, Status};
use rustix::event::epoll;

use crate::layer::{Control, Direction, Kind, Layer, Outcome, Over, Post, QueueOver};
pub use plan::{Plan, Verdict};
use queue::FaultyQueue;

/// The layer.
pub struct Faults {
    ia: String,
    plan: Plan,
    channels: AtomicU64,
    registrations: AtomicU64,
    connects: AtomicU64,
    /// Events of the layer's own.
    injected: Mutex<VecDeque<Event>>,
    wake: EventFd,
    both: OnceLock<Option<OwnedFd>>,
}

/// A channel and what happened to it.
pub struct FaultyChannel {
    number: u64,
    user: u64,
    below: Weak<BelowChannel>,
    queues: Vec<Weak<QueueOver<Faults>>>,
    posts: AtomicU64,
    completions: [AtomicU64; 2],
    /// Nothing of it is held back any more.
    stopped: AtomicBool,
    /// Dropped, and stopped when the provider says so.
    breaking: AtomicBool,
}

impl Faults {
    pub(crate) fn new(ia: &str, plan: Plan) -> Result<Faults, Failure> {
        let wake = EventFd::new().map_err(|error| Failure::os("the layer faults", &error))?;
        Ok(Faults {
            ia: ia.to_owned(),
            plan,
            channels: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            injected: Mutex::default(),
            wake,
            both: OnceLock::new(),
        })
    }

    fn injected(&self) -> MutexGuard<'_, VecDeque<Event>> {
        // A panic while an event is added or taken leaves the list sound.
        self.injected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to the next completion of this channel and direction.
    fn next_verdict(&self, channel: &FaultyChannel, direction: Direction) -> Verdict {
        let nth = channel.completions[direction as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let verdict = self.plan.completion(channel.number, direction, nth);
        if verdict != Verdict::default() {
            self.tell(channel.number, name(direction), nth, &verdict.to_string());
        }
        verdict
    }

    fn tell(&self, channel: u64, site: &str, nth: u64, fault: &str) {
        let seed = self.plan.seed;
        tracing::debug!(target: "dat.faults", ia = %self.ia, seed, channel, site, nth, fault, "fault");
    }

    fn drop_channel(&self, channel: &FaultyChannel) {
        let Some(below) = channel.below.upgrade() else { return };
        let mut injected = self.injected();
        if channel.stopped.load(Ordering::Acquire) {
            return;
        }
        match below.disconnect() {
            Status::PENDING => channel.breaking.store(true, Ordering::Release),
            _ => {
                injected.push_back(Event::new(EventKind::BROKEN, channel.user));
                self.wake.signal();
            }
        }
        drop(injected);
        channel.stop();
    }

    /// Whether the `nth` call of a kind is to fail; counts it.
    fn is_to_fail(&self, counter: &AtomicU64, nth: u64, site: &str) -> bool {
        let count = counter.fetch_add(1, Ordering::Relaxed) + 1;
        let fails = count == nth;
        if fails {
            self.tell(0, site, count, "fail");
        }
        fails
    }
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "send",
        Direction::Recv => "recv",
    }
}

fn is_terminal(kind: EventKind) -> bool {
    [
        EventKind::REJECTED,
        EventKind::REFUSED,
        EventKind::UNREACHABLE,
        EventKind::ACCEPT_FAILED,
        EventKind::DISCONNECTED,
        EventKind::BROKEN,
    ]
    .contains(&kind)
}

impl FaultyChannel {
    /// Everything that is held back of it may be handed out, and whoever waits is woken for it.
    fn stop(&self) {
        if !self.stopped.swap(true, Ordering::AcqRel) {
            self.queues.iter().filter_map(Weak::upgrade).for_each(|queue| queue.own.wake());
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }
}

impl Layer for Faults {
    type Channel = FaultyChannel;
    type Queue = FaultyQueue;

    const NAME: &'static str = "faults";

    fn queue(&self, below: &Arc<BelowQueue>) -> Result<FaultyQueue, Failure> {
        FaultyQueue::new(below).map_err(|error| Failure::os("the layer faults", &error))
    }

    fn channel(
        &self,
        attr: &ChannelAttr,
        below: &Arc<BelowChannel>,
        queues: [Option<&Arc<QueueOver<Faults>>>; 2],
    ) -> FaultyChannel {
        FaultyChannel {
            number: self.channels.fetch_add(1, Ordering::Relaxed) + 1,
            user: attr.user,
            below: Arc::downgrade(below),
            queues: queues.into_iter().flatten().map(Arc::downgrade).collect(),
            posts: AtomicU64::new(0),
            completions: [AtomicU64::new(0), AtomicU64::new(0)],
            stopped: AtomicBool::new(false),
            breaking: AtomicBool::new(false),
        }
    }

    fn control<T: Outcome>(
        &self,
        channel: Option<&FaultyChannel>,
        call: &Control<'_>,
        next: impl FnOnce() -> T,
    ) -> T {
        let refused = |what: &str| {
            T::failed(Failure::new(Status::NO_RESOURCE, format!("{}: {what} failed on purpose", self.ia)))
        };
        match (call, channel) {
            (Control::Register { .. }, _)
                if self.is_to_fail(&self.registrations, self.plan.fail_register, "register") =>
            {
                refused("this registration")
            }
            (Control::Connect { .. }, _)
                if self.is_to_fail(&self.connects, self.plan.fail_connect, "connect") =>
            {
                refused("this connect")
            }
            (Control::Disconnect | Control::CloseChannel, Some(channel)) => {
                // No event follows a disconnect that the engine asked for.
                self.injected().retain(|event| event.user != channel.user);
                let outcome = next();
                channel.stop();
                outcome
            }
            _ => next(),
        }
    }

    fn post<T: Outcome>(&self, channel: Option<&FaultyChannel>, post: &Post, next: impl FnOnce() -> T) -> T {
        let outcome = next();
        if let Some(channel) = channel.filter(|_| post.kind != Kind::Recv)
            && outcome.status() == Status::OK
        {
            let count = channel.posts.fetch_add(1, Ordering::Relaxed) + 1;
            if count == self.plan.drop_after {
                self.tell(channel.number, "post", count, "drop");
                self.drop_channel(channel);
            }
        }
        outcome
    }

    fn poll(&self, queue: &QueueOver<Faults>, out: &mut [Completion]) -> usize {
        queue.own.poll(self, queue, out)
    }

    fn arm(&self, queue: &QueueOver<Faults>) -> bool {
        queue.own.arm(&queue.below)
    }

    fn disarm(&self, queue: &QueueOver<Faults>) {
        queue.own.disarm(&queue.below);
    }

    fn queue_fd(&self, queue: &QueueOver<Faults>) -> RawFd {
        queue.own.fd()
    }

    fn poll_events(&self, over: &Over<Faults>, out: &mut [Event]) -> usize {
        self.wake.drain();
        let mut injected = self.injected();
        let own = injected.len().min(out.len());
        for (place, event) in out.iter_mut().zip(injected.drain(..own)) {
            *place = event;
        }
        if !injected.is_empty() {
            self.wake.signal();
        }
        let count = own + over.below.poll_events(&mut out[own..]);
        for event in &mut out[own..count] {
            let Some(channel) = over.channel_of(event).filter(|_| is_terminal(event.kind)) else { continue };
            if channel.breaking.load(Ordering::Acquire) && event.kind == EventKind::DISCONNECTED {
                event.kind = EventKind::BROKEN;
            }
            channel.stop();
        }
        count
    }

    fn event_fd(&self, below: &Below) -> RawFd {
        let both = self.both.get_or_init(|| {
            let made = below.borrowed_fd().map(|fd| {
                let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
                epoll::add(&both, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
                epoll::add(&both, &self.wake, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
                Ok::<_, rustix::io::Errno>(both)
            });
            made.and_then(|made| {
                made.inspect_err(|error| tracing::error!(%error, "dropped connections may be noticed late"))
                    .ok()
            })
        });
        match both {
            Some(both) => both.as_raw_fd(),
            // Without a descriptor below there is nothing but the layer's own to wait for.
            None if below.event_fd() < 0 => self.wake.as_raw_fd(),
            None => below.event_fd(),
        }
    }
}
