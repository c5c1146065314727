//! `trace`: a `tracing` event for every call, completion and event that goes through. Target `dat.trace`; control
//! calls and events at level debug, posts and completions at level trace. An event without a subscriber costs a load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_plugin::host::{BelowChannel, BelowQueue};
use dat_plugin::{ChannelAttr, Completion, Event, Failure};

use crate::layer::{Control, Direction, Layer, Moment, Outcome, Post, QueueOver};

/// The layer.
pub struct Trace {
    ia: String,
    channels: AtomicU64,
}

/// A channel: its number on this device, from 1.
pub struct Number(u64);

impl Trace {
    pub fn new(ia: &str) -> Trace {
        Trace { ia: ia.to_owned(), channels: AtomicU64::new(0) }
    }
}

fn number(channel: Option<&Number>) -> u64 {
    channel.map_or(0, |channel| channel.0)
}

impl Layer for Trace {
    type Channel = Number;
    type Queue = ();

    const NAME: &'static str = "trace";

    fn queue(&self, _below: &Arc<BelowQueue>) -> Result<(), Failure> {
        Ok(())
    }

    fn channel(
        &self,
        _attr: &ChannelAttr,
        _below: &Arc<BelowChannel>,
        _queues: [Option<&Arc<QueueOver<Trace>>>; 2],
    ) -> Number {
        Number(self.channels.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn control<T: Outcome>(
        &self,
        channel: Option<&Number>,
        call: &Control<'_>,
        next: impl FnOnce() -> T,
    ) -> T {
        let outcome = next();
        tracing::debug!(
            target: "dat.trace",
            ia = %self.ia,
            channel = number(channel),
            status = ?outcome.status(),
            "{call:?}"
        );
        outcome
    }

    fn post<T: Outcome>(&self, channel: Option<&Number>, post: &Post, next: impl FnOnce() -> T) -> T {
        let outcome = next();
        tracing::trace!(
            target: "dat.trace",
            ia = %self.ia,
            channel = number(channel),
            op = post.kind.name(),
            token = post.token,
            bytes = post.bytes,
            segments = post.segments,
            flags = post.flags,
            status = ?outcome.status(),
            "post"
        );
        outcome
    }

    fn completed(&self, channel: &Number, direction: Direction, completion: &Completion, _: &mut Moment) {
        tracing::trace!(
            target: "dat.trace",
            ia = %self.ia,
            channel = channel.0,
            direction = ?direction,
            token = completion.token,
            bytes = completion.length,
            flags = completion.flags.0,
            status = ?completion.status,
            "completion"
        );
    }

    fn event(&self, channel: Option<&Number>, event: &Event) {
        tracing::debug!(
            target: "dat.trace",
            ia = %self.ia,
            channel = number(channel),
            kind = ?event.kind,
            port = event.port,
            peer = ?event.peer,
            private_data = event.data_len,
            "event"
        );
    }
}
