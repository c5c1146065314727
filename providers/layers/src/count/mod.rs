//! `count`: counters and latency histograms of each channel and device, for [`crate::stats`].
//!
//! Each channel has atomic counters of its own. A device's numbers are the sums over its channels, made when a reader asks.
//! A post costs a reading of the clock and a few stores, and so does each batch of completions. A channel allocates the
//! counters of an operation when it first uses it.

mod counters;
mod device;
mod publish;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use dat_plugin::host::{BelowChannel, BelowQueue};
use dat_plugin::{ChannelAttr, Completion, Event, Failure};

use crate::layer::{Control, Direction, Kind, Layer, Moment, Outcome, Post, QueueOver};
use counters::ChannelCounters;
use device::{DeviceCounters, lock};
use publish::Publisher;

/// The layer.
pub struct Count {
    device: Arc<DeviceCounters>,
    _publisher: Option<Arc<Publisher>>,
}

impl Count {
    /// Counts for one device. Other users can prevent that the counters are published. Then a line goes to the log, and
    /// counting goes on.
    pub fn new(ia: &str, provider: &str) -> Count {
        let device = Arc::new(DeviceCounters {
            ia: ia.to_owned(),
            provider: provider.to_owned(),
            opened: Instant::now(),
            control: Mutex::default(),
            events: Mutex::default(),
            channels: Mutex::default(),
            next: AtomicU64::new(1),
        });
        let publisher = Publisher::shared(&device).inspect_err(|error| {
            tracing::warn!(ia, %error, "`dat stats` cannot read the counters of this process");
        });
        Count { device, _publisher: publisher.ok() }
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
