//! The counters of one open device.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::counters::ChannelCounters;
use crate::stats::{ChannelStats, DeviceStats, OpStats};

/// What is counted of one open device.
pub struct DeviceCounters {
    pub(super) ia: String,
    pub(super) provider: String,
    pub(super) opened: Instant,
    pub(super) control: Mutex<BTreeMap<&'static str, [u64; 2]>>,
    pub(super) events: Mutex<BTreeMap<&'static str, u64>>,
    pub(super) channels: Mutex<Channels>,
    pub(super) next: AtomicU64,
}

#[derive(Default)]
pub(super) struct Channels {
    pub(super) open: BTreeMap<u64, Arc<ChannelCounters>>,
    /// The sums over closed channels.
    pub(super) closed: Vec<OpStats>,
    pub(super) closed_count: u64,
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
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
