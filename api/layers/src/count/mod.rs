//! `count`: counters and latency histograms of each channel and device, for [`crate::stats`].
//!
//! Every number is an atomic of its channel's own; a device's are the sum over its channels, taken when somebody asks.
//! A post costs a reading of the clock and a few stores, so do the completions that are taken in one go. Memory for an
//! operation is taken when a channel uses it first.

mod counters;
mod publish;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use dat_plugin::host::{BelowChannel, BelowQueue};
use dat_plugin::{ChannelAttr, Completion, Event, Failure};

use crate::layer::{Control, Direction, Kind, Layer, Moment, Outcome, Post, QueueOver};
use crate::stats::{ChannelStats, DeviceStats, OpStats};
use counters::ChannelCounters;
use publish::Publisher;

/// The layer.
pub struct Count {
    device: Arc<DeviceCounters>,
    _publisher: Arc<Publisher>,
}

/// What is counted of one open device.
pub struct DeviceCounters {
    ia: String,
    provider: String,
    opened: Instant,
    control: Mutex<BTreeMap<&'static str, [u64; 2]>>,
    events: Mutex<BTreeMap<&'static str, u64>>,
    channels: Mutex<Channels>,
    next: AtomicU64,
}

#[derive(Default)]
struct Channels {
    open: BTreeMap<u64, Arc<ChannelCounters>>,
    /// The sums of those that were closed.
    closed: Vec<OpStats>,
    closed_count: u64,
}

impl Count {
    pub fn new(ia: &str, provider: &str) -> Result<Count, Failure> {
        let device = Arc::new(DeviceCounters {
            ia: ia.to_owned(),
            provider: provider.to_owned(),
            opened: Instant::now(),
            control: Mutex::default(),
            events: Mutex::default(),
            channels: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let publisher = Publisher::shared(&device)?;
        Ok(Count { device, _publisher: publisher })
    }
}

impl Layer for Count {
    type Channel = Arc<ChannelCounters>;
    type Queue = ();

    const NAME: &'static str = "count";

    fn queue(&self, _below: &Arc<BelowQueue>) -> Result<(), Failure> {
        Ok(())
    }

    fn channel(
        &self,
        attr: &ChannelAttr,
        _below: &Arc<BelowChannel>,
        _queues: [Option<&Arc<QueueOver<Count>>>; 2],
    ) -> Arc<ChannelCounters> {
        let number = self.device.next.fetch_add(1, Ordering::Relaxed);
        let counters = Arc::new(ChannelCounters::new(number, self.device.opened, attr.max_requests));
        lock(&self.device.channels).open.insert(number, counters.clone());
        counters
    }

    fn closed(&self, channel: &Arc<ChannelCounters>) {
        let mut channels = lock(&self.device.channels);
        channels.open.remove(&channel.number());
        channels.closed_count += 1;
        channel.snapshot().iter().for_each(|op| op.add_to(&mut channels.closed));
    }

    fn control<T: Outcome>(
        &self,
        _channel: Option<&Arc<ChannelCounters>>,
        call: &Control<'_>,
        next: impl FnOnce() -> T,
    ) -> T {
        let outcome = next();
        let failed = usize::from(outcome.status().0 < 0);
        lock(&self.device.control).entry(call_name(call)).or_default()[failed] += 1;
        outcome
    }

    fn post<T: Outcome>(
        &self,
        channel: Option<&Arc<ChannelCounters>>,
        post: &Post,
        next: impl FnOnce() -> T,
    ) -> T {
        let Some(channel) = channel else { return next() };
        let timed = post.kind != Kind::Recv;
        if timed {
            channel.begin(post.kind, post.token);
        }
        let outcome = next();
        channel.posted(post.kind, post.bytes, outcome.status().0 >= 0);
        outcome
    }

    fn completed(
        &self,
        channel: &Arc<ChannelCounters>,
        direction: Direction,
        completion: &Completion,
        taken: &mut Moment,
    ) {
        match direction {
            Direction::Send => channel.request_completed(completion, taken.time()),
            Direction::Recv => channel.recv_completed(completion),
        }
    }

    fn event(&self, channel: Option<&Arc<ChannelCounters>>, event: &Event) {
        if let Some(channel) = channel {
            channel.saw(event.kind);
        }
        *lock(&self.device.events).entry(event.kind.name().unwrap_or("OTHER")).or_default() += 1;
    }
}

impl DeviceCounters {
    /// All numbers as they are now.
    pub fn snapshot(&self) -> DeviceStats {
        let channels = lock(&self.channels);
        let mut totals = channels.closed.clone();
        let mut list = Vec::with_capacity(channels.open.len());
        for channel in channels.open.values() {
            let ops = channel.snapshot();
            ops.iter().for_each(|op| op.add_to(&mut totals));
            list.push(ChannelStats { channel: channel.number(), state: channel.state().to_owned(), ops });
        }
        let closed_channels = channels.closed_count;
        drop(channels);
        let control = lock(&self.control);
        let calls = control.iter().map(|(name, [ok, failed])| ((*name).to_owned(), [*ok, *failed]));
        let events = lock(&self.events).iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        DeviceStats {
            ia: self.ia.clone(),
            provider: self.provider.clone(),
            open_seconds: self.opened.elapsed().as_secs_f64(),
            calls: calls.collect(),
            events,
            closed_channels,
            totals,
            channels: list,
        }
    }
}

/// A panic while something is counted leaves it sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn call_name(call: &Control<'_>) -> &'static str {
    match call {
        Control::OpenQueue { .. } => "open_queue",
        Control::OpenChannel { .. } => "open_channel",
        Control::OpenSrq { .. } => "open_srq",
        Control::ResizeSrq { .. } => "resize_srq",
        Control::ArmSrq { .. } => "arm_srq",
        Control::Listen { .. } => "listen",
        Control::Register { .. } => "register",
        Control::Deregister { .. } => "deregister",
        Control::Alloc { .. } => "alloc",
        Control::Free { .. } => "free",
        Control::OpenWindow { .. } => "open_window",
        Control::CloseWindow { .. } => "close_window",
        Control::Connect { .. } => "connect",
        Control::Accept { .. } => "accept",
        Control::Reject { .. } => "reject",
        Control::Disconnect => "disconnect",
        Control::CloseChannel => "close_channel",
    }
}
