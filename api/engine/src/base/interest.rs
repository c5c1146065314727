//! What epoll reports of a descriptor. Miri only has edge-triggered epoll. That is enough here: a sleeper empties its
//! descriptors before it sleeps again.

use rustix::event::epoll::EventFlags;

const TRIGGER: EventFlags = if cfg!(miri) { EventFlags::ET } else { EventFlags::empty() };

/// Report when it can be read.
pub(crate) const READABLE: EventFlags = EventFlags::IN.union(TRIGGER);

/// Report nothing for now.
pub(crate) const PAUSED: EventFlags = TRIGGER;

/// Report once that it can be read, then pause.
pub(crate) const ONE_SHOT: EventFlags = READABLE.union(EventFlags::ONESHOT);
