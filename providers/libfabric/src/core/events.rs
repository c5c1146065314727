//! Events on their way to the engine.
//!
//! Connections have no order among each other on the wire, but programs rely on one: a server that collects the
//! beginnings of all its connections does not expect ends among them. Queues and sockets are read in an order of their
//! own. So an end is handed out only after one more look at everything; beginnings found by then go first.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dat_plugin::{Event, EventKind};

/// The flag of a closed channel, whose events are dropped.
type Closed = Option<Arc<AtomicBool>>;

/// Events that were not handed out yet.
#[derive(Default)]
pub struct Events {
    queue: VecDeque<(Closed, Event)>,
    /// How many of them are ends of connections.
    ends: usize,
}

impl Events {
    pub fn push(&mut self, closed: Closed, event: Event) {
        let first_end = match event.kind {
            EventKind::ESTABLISHED if self.ends > 0 => self.queue.iter().position(|(_, event)| is_end(event)),
            _ => None,
        };
        self.ends += usize::from(is_end(&event));
        self.queue.insert(first_end.unwrap_or(self.queue.len()), (closed, event));
    }

    /// The oldest event. Without `with_ends`, `None` if that is the end of a connection.
    pub fn pop(&mut self, with_ends: bool) -> Option<(Closed, Event)> {
        if !with_ends && self.queue.front().is_some_and(|(_, event)| is_end(event)) {
            return None;
        }
        let popped = self.queue.pop_front();
        self.ends -= usize::from(popped.as_ref().is_some_and(|(_, event)| is_end(event)));
        popped
    }

    /// How many of them are ends of connections.
    pub fn ends(&self) -> usize {
        self.ends
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub fn clear(&mut self) {
        *self = Events::default();
    }
}

pub fn is_end(event: &Event) -> bool {
    matches!(event.kind, EventKind::DISCONNECTED | EventKind::BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn established_events_overtake_ends_and_nothing_else() {
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
