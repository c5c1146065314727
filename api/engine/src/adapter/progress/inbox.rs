//! The order of the provider's events: the end of a connection comes after all beginnings that happened before it.
//!
//! A provider watches one descriptor for each connection, and reads them in any order. So it can see the end of one
//! connection before the beginning of another, although the peer made them the other way round. Programs count
//! beginnings, then ends; they must not get an end in between. An end is therefore held until the provider was looked at
//! once more, completely: that look finds every beginning that is older than the end.

use dat_plugin::{Event, EventKind};

/// How many events one call into the provider takes at most.
const BATCH: usize = 8;

/// How many calls are made in a row. Then everything that was taken is delivered, so that a provider with endless events
/// cannot keep the thread.
const MOST_CALLS: usize = 256;

/// What one thread at a time takes from the provider.
pub(crate) struct Inbox {
    batch: [Event; BATCH],
    /// Ends that were taken and not yet delivered; empty between calls of [`Inbox::take`].
    ends: Vec<Event>,
}

impl Inbox {
    pub(in crate::adapter) fn new() -> Inbox {
        Inbox { batch: [Event::new(EventKind(0), 0); BATCH], ends: Vec::new() }
    }

    /// Takes all events that `poll` has and hands them to `deliver`, ends last.
    ///
    /// `poll` that returns fewer events than there is room for has looked at everything that happened before the call.
    pub(in crate::adapter) fn take(
        &mut self,
        mut poll: impl FnMut(&mut [Event]) -> usize,
        mut deliver: impl FnMut(&Event),
    ) {
        let mut calls = 0;
        loop {
            let older = self.ends.len();
            loop {
                calls += 1;
                let n = poll(&mut self.batch);
                for event in &self.batch[..n] {
                    match is_end(event.kind) {
                        true => self.ends.push(*event),
                        false => deliver(event),
                    }
                }
                if n < BATCH || calls == MOST_CALLS {
                    break;
                }
            }
            let ripe = if calls < MOST_CALLS { older } else { self.ends.len() };
            self.ends.drain(..ripe).for_each(|event| deliver(&event));
            if self.ends.is_empty() {
                return;
            }
        }
    }
}

fn is_end(kind: EventKind) -> bool {
    matches!(kind, EventKind::DISCONNECTED | EventKind::BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Delivers what a provider returns call by call; the result lists the connections' numbers in order.
    fn delivered(calls: &[&[(EventKind, u64)]]) -> Vec<(EventKind, u64)> {
        let mut calls = calls.iter();
        let mut order = Vec::new();
        let poll = |out: &mut [Event]| {
            let events = calls.next().copied().unwrap_or_default();
            for (slot, (kind, user)) in out.iter_mut().zip(events) {
                *slot = Event::new(*kind, *user);
            }
            events.len()
        };
        Inbox::new().take(poll, |event| order.push((event.kind, event.user)));
        order
    }

    const UP: EventKind = EventKind::ESTABLISHED;
    const DOWN: EventKind = EventKind::DISCONNECTED;

    #[test]
    fn an_end_comes_after_beginnings_of_the_same_call() {
        assert_eq!(delivered(&[&[(DOWN, 1), (UP, 2)]]), [(UP, 2), (DOWN, 1)]);
    }

    #[test]
    fn an_end_comes_after_beginnings_of_the_next_look() {
        assert_eq!(delivered(&[&[(UP, 1), (DOWN, 1)], &[(UP, 2)]]), [(UP, 1), (UP, 2), (DOWN, 1)]);
    }

    #[test]
    fn ends_keep_their_order() {
        let broken = EventKind::BROKEN;
        let order = delivered(&[&[(DOWN, 3), (broken, 1)], &[(DOWN, 2)], &[(UP, 4)]]);
        assert_eq!(order, [(DOWN, 3), (broken, 1), (UP, 4), (DOWN, 2)]);
    }

    #[test]
    fn endless_events_do_not_keep_the_thread() {
        let (mut polls, mut ends) = (0, 0);
        let poll = |out: &mut [Event]| {
            polls += 1;
            out.fill(Event::new(DOWN, 1));
            out.len()
        };
        Inbox::new().take(poll, |_| ends += 1);
        assert_eq!((polls, ends), (MOST_CALLS, MOST_CALLS * BATCH));
    }
}
