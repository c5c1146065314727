//! Events on their way to the engine.
//!
//! Connections have no order among each other on the wire, but who ends one of them does so after having heard of others,
//! and programs count on it: a server that collects the beginnings of all its connections does not expect ends among them.
//! Queues and sockets are read in an order of their own. So an end is told only after one more look at everything, and
//! beginnings that are found until then are told before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{Event, EventKind};

use crate::channel::Chan;
use crate::device::Dev;

/// Events that were not handed out yet.
#[derive(Default)]
pub struct Events {
    queue: VecDeque<(Option<Arc<Chan>>, Event)>,
    /// How many of them are ends of connections.
    ends: usize,
}

impl Events {
    fn push(&mut self, chan: Option<Arc<Chan>>, event: Event) {
        let first_end = match event.kind {
            EventKind::ESTABLISHED if self.ends > 0 => self.queue.iter().position(|(_, event)| is_end(event)),
            _ => None,
        };
        self.ends += usize::from(is_end(&event));
        self.queue.insert(first_end.unwrap_or(self.queue.len()), (chan, event));
    }

    /// The oldest event, unless it is an end and there are to be none.
    fn pop(&mut self, with_ends: bool) -> Option<(Option<Arc<Chan>>, Event)> {
        if !with_ends && self.queue.front().is_some_and(|(_, event)| is_end(event)) {
            return None;
        }
        let popped = self.queue.pop_front();
        self.ends -= usize::from(popped.as_ref().is_some_and(|(_, event)| is_end(event)));
        popped
    }

    pub fn clear(&mut self) {
        *self = Events::default();
    }
}

fn is_end(event: &Event) -> bool {
    matches!(event.kind, EventKind::DISCONNECTED | EventKind::BROKEN)
}

impl Dev {
    /// Hands an event to the engine.
    pub fn event(&self, chan: Option<Arc<Chan>>, event: Event) {
        self.events.lock().push(chan, event);
        self.hurry();
    }

    /// Takes events for the engine.
    pub fn take_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
        let mut ends = self.events.lock().ends;
        if ends > 0 {
            // What came before these is there now.
            self.progress_for_certain();
            self.take_connection_events();
        }
        let mut count = 0;
        let mut events = self.events.lock();
        while count < out.len() {
            let Some((chan, event)) = events.pop(ends > 0) else { break };
            ends -= usize::from(is_end(&event));
            if chan.is_none_or(|chan| !chan.silent.load(Ordering::Acquire)) {
                out[count] = event;
                count += 1;
            }
        }
        if !events.queue.is_empty() {
            self.hurry();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_overtakes_ends_and_nothing_else() {
        let mut events = Events::default();
        for (kind, user) in [
            (EventKind::REQUEST, 1),
            (EventKind::DISCONNECTED, 2),
            (EventKind::REQUEST, 3),
            (EventKind::BROKEN, 4),
            (EventKind::ESTABLISHED, 5),
            (EventKind::ESTABLISHED, 6),
        ] {
            events.push(None, Event::new(kind, user));
        }
        let mut take = |with_ends| events.pop(with_ends).map(|(_, event)| event.user);
        assert_eq!([take(false), take(false), take(false), take(false)], [Some(1), Some(5), Some(6), None]);
        assert_eq!([take(true), take(false), take(false)], [Some(2), Some(3), None]);
        assert_eq!([take(true), take(true)], [Some(4), None]);
        assert_eq!(events.ends, 0);
    }
}
