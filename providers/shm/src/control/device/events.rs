//! The event thread: what is done about each descriptor that is ready.

use super::*;

impl Dev {
    pub(crate) fn poll_events(self: &Arc<Dev>, out: &mut [Event]) -> usize {
        if !self.owner.here() {
            return 0;
        }
        let mut n = self.take_events(out);
        if n == out.len() {
            return n;
        }
        self.events().polling = true;
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(64);
        let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
        // Until the kernel has no more: the engine relies on a complete look for the order of events.
        for _ in 0..MOST_LOOKS {
            ready.clear();
            if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), Some(&now)).is_err() {
                ready.clear();
            }
            for event in &ready {
                let flags = event.flags;
                let hung_up = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
                self.dispatch(event.data.u64(), hung_up);
            }
            if ready.len() < ready.capacity() {
                break;
            }
        }
        let finish = std::mem::take(&mut *self.finish.lock().unwrap_or_else(PoisonError::into_inner));
        for chan in finish {
            // What the peer said before counts: an orderly end stays one.
            chan.take_packets(PACKETS, false);
            chan.finish(End::Fault);
        }
        n += self.take_events(&mut out[n..]);
        let left = {
            let mut events = self.events();
            events.polling = false;
            !events.waiting.is_empty()
        };
        if left {
            self.bell.signal();
        }
        n
    }

    fn take_events(&self, out: &mut [Event]) -> usize {
        let mut n = 0;
        while n < out.len() {
            let next = self.events().waiting.pop_front();
            let Some((chan, event)) = next else { break };
            if chan.is_none_or(|chan| !chan.silent.load(Ordering::Acquire)) {
                out[n] = event;
                n += 1;
            }
        }
        n
    }

    fn dispatch(self: &Arc<Dev>, token: u64, hung_up: bool) {
        match token {
            BELL => return self.bell.drain(),
            TIMER => {
                let patience = Duration::from_millis(self.params.rnr_timeout_ms);
                return self.timer.expired(patience, |now| self.drop_late(now), || self.peers.sweep());
            }
            _ => {}
        }
        enum Found {
            Listener(Arc<Listening>),
            Channel(Arc<Chan>),
            Peer,
            Incoming,
        }
        let found = match self.sources().get(&token) {
            None => Found::Peer,
            Some(Source::Listener(listening)) => Found::Listener(listening.clone()),
            Some(Source::Channel(chan)) => Found::Channel(chan.clone()),
            Some(Source::Incoming(_)) => Found::Incoming,
        };
        match found {
            Found::Listener(listening) => listening.ready(self),
            Found::Channel(chan) => chan.socket_ready(hung_up),
            Found::Incoming => self.incoming(token),
            Found::Peer => {
                let peer = self.watches().get(&token).and_then(Weak::upgrade);
                if let Some(peer) = peer {
                    self.died(&peer);
                }
            }
        }
    }

    /// A peer's process is dead.
    fn died(&self, peer: &Arc<Peer>) {
        peer.died(self);
        self.peers.forget(peer);
        let theirs: Vec<Arc<Chan>> = self
            .sources()
            .values()
            .filter_map(|source| match source {
                Source::Channel(chan) if chan.peer().is_some_and(|its| its.pid == peer.pid) => {
                    Some(chan.clone())
                }
                _ => None,
            })
            .collect();
        for chan in theirs {
            chan.socket_ready(true);
        }
    }

    fn incoming(&self, token: u64) {
        let mut sources = self.sources();
        let Some(Source::Incoming(incoming)) = sources.get_mut(&token) else { return };
        match incoming.ready(self, token) {
            Verdict::Keep => {}
            Verdict::Gone => {
                incoming.registered = false;
                let _ = epoll::delete(&self.epoll, &incoming.socket);
            }
            Verdict::Tell(event) if self.may_ask() => self.push_event(None, *event),
            Verdict::Drop | Verdict::Tell(_) => {
                self.close_incoming(incoming);
                sources.remove(&token);
            }
        }
    }

    /// Its descriptor is closed later, so the peer gets the end now, and the epoll set no more of it.
    fn close_incoming(&self, incoming: &mut Incoming) {
        if std::mem::take(&mut incoming.registered) {
            let _ = epoll::delete(&self.epoll, &incoming.socket);
        }
        let _ = rustix::net::shutdown(&incoming.socket, rustix::net::Shutdown::Both);
    }

    /// Drops connections that were silent for too long, and gives the next deadline.
    fn drop_late(&self, now: Instant) -> Option<Instant> {
        if self.paused.swap(false, Ordering::AcqRel) {
            let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
            if spare.is_none() {
                *spare = EventFd::new().ok();
            }
            drop(spare);
            self.watch_listeners(epoll::EventFlags::IN);
        }
        let mut sources = self.sources();
        sources.retain(|_, source| match source {
            Source::Incoming(incoming) => {
                let keep = incoming.told() || incoming.deadline() > now;
                if !keep {
                    self.close_incoming(incoming);
                }
                keep
            }
            _ => true,
        });
        let waiting = sources.values().filter_map(|source| match source {
            Source::Incoming(incoming) if !incoming.told() => Some(incoming.deadline()),
            _ => None,
        });
        let strangers = waiting.min();
        let channels: Vec<Arc<Chan>> = sources
            .values()
            .filter_map(|source| match source {
                Source::Channel(chan) => Some(chan.clone()),
                _ => None,
            })
            .collect();
        drop(sources);
        let accepted = channels.iter().filter_map(|chan| chan.drop_late(now)).min();
        [strangers, accepted].into_iter().flatten().min()
    }
}
