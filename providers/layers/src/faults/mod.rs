//! `faults`: injects faults, repeatably.
//!
//! # Parameters
//! All but `seed` are off by default. Without any of them the layer takes `delay_us` 300 and `reorder_one_in` 4, under which
//! every promise to the application still holds.
//! - `seed` (1): of all decisions. What happens to the n-th completion of the m-th channel is a function of the seed,
//!   m, n and the direction, never of time: the same program over the same seed meets the same faults.
//! - `delay_us`: each completion is handed out up to this many microseconds later, by a draw of its own.
//! - `delay_one_in` (1): only one completion in N is delayed.
//! - `reorder_one_in`: one completion in N waits until one of another channel or direction was handed out, or for 200 µs. Completions of one channel and direction stay in order, as the interface asks.
//! - `slow_recv_us`: the least time between two receive completions of a channel, as of a receiver that does not keep up.
//! - `drop_after`: after N accepted posts a channel is disconnected, and its side gets the event BROKEN.
//! - `fail_register`: the N-th registration fails with NO_RESOURCE.
//! - `fail_connect`: the N-th connect fails with NO_RESOURCE.
//!
//! Every fault is an event of `tracing`, target `dat.faults`, level debug.

mod channel;
mod decisions;
mod plan;
mod queue;

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use dat_kit::EventFd;
use dat_plugin::host::{Below, BelowChannel, BelowQueue};
use dat_plugin::{Channel as _, ChannelAttr, Completion, Device as _, Event, EventKind, Failure, Status};
use rustix::event::epoll;

use crate::layer::{Control, Kind, Layer, Outcome, Over, Post, QueueOver};
pub use channel::FaultyChannel;
use decisions::Decisions;
pub use plan::{Plan, Verdict};
pub use queue::FaultyQueue;

/// The layer.
pub struct Faults {
    decisions: Decisions,
    channels: AtomicU64,
    registrations: AtomicU64,
    connects: AtomicU64,
    /// Events of the layer's own.
    injected: Mutex<VecDeque<Event>>,
    wake: EventFd,
    both: OnceLock<Option<OwnedFd>>,
}

impl Faults {
    pub(crate) fn new(ia: &str, plan: Plan) -> Result<Faults, Failure> {
        let wake = EventFd::new().map_err(|error| Failure::os("the layer faults", &error))?;
        Ok(Faults {
            decisions: Decisions { ia: ia.to_owned(), plan },
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
            self.decisions.log(0, site, count, "fail");
        }
        fails
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
            timers: queues.into_iter().flatten().map(|queue| Arc::downgrade(queue.own.timer())).collect(),
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
            T::failed(Failure::new(
                Status::NO_RESOURCE,
                format!("{}: {what} failed on purpose", self.decisions.ia),
            ))
        };
        match (call, channel) {
            (Control::Register { .. }, _)
                if self.is_to_fail(&self.registrations, self.decisions.plan.fail_register, "register") =>
            {
                refused("this registration")
            }
            (Control::Connect { .. }, _)
                if self.is_to_fail(&self.connects, self.decisions.plan.fail_connect, "connect") =>
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
            if count == self.decisions.plan.drop_after {
                self.decisions.log(channel.number, "post", count, "drop");
                self.drop_channel(channel);
            }
        }
        outcome
    }

    fn poll(&self, queue: &QueueOver<Faults>, out: &mut [Completion]) -> usize {
        let feeder = |user: u64| queue.feeders().get(&user).cloned();
        queue.own.poll(&self.decisions, &queue.below, feeder, out)
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
