//! Completions held back.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dat_kit::Timer;
use dat_plugin::host::BelowQueue;
use dat_plugin::{Completion, Queue as _};
use rustix::event::epoll;

use super::channel::FaultyChannel;
use super::decisions::Decisions;
use crate::layer::Direction;

/// A queue whose completions may be held back. Its descriptor is readable when the one below is, or when something
/// that is held back is due.
pub struct FaultyQueue {
    held: Mutex<Held>,
    timer: Arc<Timer>,
    both: OwnedFd,
}

/// By the number of channel and direction; each in order.
#[derive(Default)]
struct Held {
    streams: BTreeMap<u64, Stream>,
    /// Completions handed out so far.
    handed: u64,
}

#[derive(Default)]
struct Stream {
    waiting: VecDeque<Waiting>,
    handed: u64,
    last_due: Option<Instant>,
}

struct Waiting {
    completion: Completion,
    channel: Option<Arc<FaultyChannel>>,
    due: Instant,
    /// It may go once more completions of other streams than this were handed out.
    behind: Option<u64>,
}

/// How long a completion waits for one of another stream.
const REORDER: Duration = Duration::from_micros(200);

impl FaultyQueue {
    pub(super) fn new(below: &BelowQueue) -> io::Result<FaultyQueue> {
        let timer = Arc::new(Timer::new()?);
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&both, &*timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        if let Some(fd) = below.borrowed_fd() {
            epoll::add(&both, fd, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        }
        Ok(FaultyQueue { held: Mutex::default(), timer, both })
    }

    pub(super) fn fd(&self) -> RawFd {
        self.both.as_raw_fd()
    }

    pub(super) fn timer(&self) -> &Arc<Timer> {
        &self.timer
    }

    /// Takes all completions below, and hands out those that are due. `feeder` gives channel and direction of a completion
    /// by its number.
    pub(super) fn poll(
        &self,
        decisions: &Decisions,
        below: &BelowQueue,
        feeder: impl Fn(u64) -> Option<(Arc<FaultyChannel>, Direction)>,
        out: &mut [Completion],
    ) -> usize {
        let mut held = self.held();
        let mut batch = [Completion::default(); 32];
        loop {
            let count = below.poll(&mut batch);
            if count == 0 {
                break;
            }
            let now = Instant::now();
            for completion in &batch[..count] {
                held.take_in(decisions, *completion, feeder(completion.user), now);
            }
        }
        held.hand_out(out)
    }

    pub(super) fn arm(&self, below: &BelowQueue) -> bool {
        let held = self.held();
        self.timer.drain();
        let now = Instant::now();
        if held.streams.values().any(|stream| held.is_ready(stream, now)) || !below.arm() {
            return false;
        }
        let Some(next) = held.next_due() else { return true };
        // Without a timer the queue is polled again at once, which is slow and not wrong.
        self.timer.set(next.saturating_duration_since(now)).is_ok()
    }

    pub(super) fn disarm(&self, below: &BelowQueue) {
        below.disarm();
        self.timer.drain();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // What panics here is a bug of this layer; the lists are sound at any point.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn take_in(
        &mut self,
        decisions: &Decisions,
        completion: Completion,
        feeder: Option<(Arc<FaultyChannel>, Direction)>,
        now: Instant,
    ) {
        let handed = self.handed;
        let stream = self.streams.entry(completion.user).or_default();
        let mut waiting = Waiting { completion, channel: None, due: now, behind: None };
        if let Some((channel, direction)) = feeder {
            let verdict = decisions.next_verdict(&channel, direction);
            waiting.due += verdict.delay;
            if verdict.behind {
                waiting.due = waiting.due.max(now + REORDER);
                waiting.behind = Some(handed - stream.handed);
            }
            if direction == Direction::Recv && !decisions.plan.slow_recv.is_zero() {
                let earliest = stream.last_due.map(|last| last + decisions.plan.slow_recv);
                waiting.due = earliest.map_or(waiting.due, |earliest| waiting.due.max(earliest));
                // Apart means apart, also from what could have overtaken.
                waiting.behind = None;
            }
            stream.last_due = Some(waiting.due);
            waiting.channel = Some(channel);
        }
        stream.waiting.push_back(waiting);
    }

    fn is_ready(&self, stream: &Stream, now: Instant) -> bool {
        stream.waiting.front().is_some_and(|first| {
            let overtaken = first.behind.is_some_and(|mark| self.handed - stream.handed > mark);
            overtaken || first.due <= now || first.channel.as_ref().is_none_or(|channel| channel.is_stopped())
        })
    }

    /// Hands out what is due, the longest overdue first.
    fn hand_out(&mut self, out: &mut [Completion]) -> usize {
        let now = Instant::now();
        for (count, place) in out.iter_mut().enumerate() {
            let ready = self.streams.iter().filter(|(_, stream)| self.is_ready(stream, now));
            let next = ready.min_by_key(|(_, stream)| stream.waiting.front().map(|first| first.due));
            let Some(user) = next.map(|(user, _)| *user) else { return count };
            let Some(stream) = self.streams.get_mut(&user) else { return count };
            let Some(first) = stream.waiting.pop_front() else { return count };
            *place = first.completion;
            stream.handed += 1;
            self.handed += 1;
            // Streams of channels that are gone are forgotten, with what they counted.
            if stream.waiting.is_empty() && first.channel.is_none_or(|channel| channel.is_stopped()) {
                self.handed -= stream.handed;
                self.streams.remove(&user);
            }
        }
        out.len()
    }

    fn next_due(&self) -> Option<Instant> {
        self.streams.values().filter_map(|stream| stream.waiting.front()).map(|first| first.due).min()
    }
}
