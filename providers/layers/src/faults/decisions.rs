//! What happens to each completion, and its log line.

use std::sync::atomic::Ordering;

use super::channel::FaultyChannel;
use super::plan::{Plan, Verdict};
use crate::layer::Direction;

pub(super) struct Decisions {
    pub(super) ia: String,
    pub(super) plan: Plan,
}

impl Decisions {
    /// What happens to the next completion of this channel and direction.
    pub(super) fn next_verdict(&self, channel: &FaultyChannel, direction: Direction) -> Verdict {
        let nth = channel.completions[direction as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let verdict = self.plan.completion(channel.number, direction, nth);
        if verdict != Verdict::default() {
            self.log(channel.number, name(direction), nth, &verdict.to_string());
        }
        verdict
    }

    pub(super) fn log(&self, channel: u64, site: &str, nth: u64, fault: &str) {
        let seed = self.plan.seed;
        tracing::debug!(target: "dat.faults", ia = %self.ia, seed, channel, site, nth, fault, "fault");
    }
}

fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::Send => "send",
        Direction::Recv => "recv",
    }
}
