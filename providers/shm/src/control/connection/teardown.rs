//! How a connection ends: once, and after everything that succeeded before.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Event, EventKind};

use super::{Chan, End, LEAVE, Phase};
use crate::control::handshake::{self, Packet};
use crate::data::doorbell::{RECV, SEND};
use crate::notify::barrier;

impl Chan {
    /// Ends the connection or the attempt, once.
    pub(crate) fn finish(&self, end: End) {
        let event = |kind| Some(Event::new(kind, self.attr.user));
        let event = match (&*self.phase(), end) {
            (Phase::Idle | Phase::Stopped, _) => return,
            (_, End::Local) => None,
            (Phase::Connecting(_), _) => event(EventKind::REFUSED),
            (Phase::Accepting(_), _) => event(EventKind::ACCEPT_FAILED),
            (Phase::Live, End::Peer) => event(EventKind::DISCONNECTED),
            (Phase::Live, _) => event(EventKind::BROKEN),
        };
        self.end_with(end, event);
    }

    pub(super) fn end_with(&self, end: End, event: Option<Event>) {
        let mut phase = self.phase();
        let (socket, token) = match std::mem::replace(&mut *phase, Phase::Stopped) {
            Phase::Stopped => return,
            Phase::Idle => {
                *phase = Phase::Idle;
                return;
            }
            Phase::Connecting(attempt) => {
                if attempt.known.is_some() {
                    // What was taken for it may be of no use to anybody now.
                    self.dev.timer.sweep();
                }
                (attempt.socket, attempt.token)
            }
            live_or_not => match self.session.get() {
                Some(session) => {
                    self.stop_data(matches!(live_or_not, Phase::Live), end);
                    (session.socket.clone(), session.token)
                }
                None => return,
            },
        };
        // A request that failed broke the connection at both ends, whoever ends it first.
        let in_order = end == End::Local && !self.faulty.load(Ordering::Acquire);
        let word = if in_order { Packet::Disconnect } else { Packet::Error };
        let _ = handshake::send(&*socket, &word, &[]);
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        self.dev.forget(token, socket.as_fd());
        // Before the phase is let go: whoever finds it stopped takes the completions there are.
        for which in [RECV, SEND] {
            self.pair.conn.doorbells.ring(which);
        }
        drop(phase);
        if let Some(event) = event {
            self.dev.event(self, event);
        }
        let shared = self.pair.shared();
        if let Some(shared) = shared {
            // What it gave back is for others that wait.
            shared.serve();
        }
    }

    /// Takes what succeeded before the end, then closes the data path.
    fn stop_data(&self, live: bool, end: End) {
        self.pair.stop(live && end != End::Local);
        if live && end != End::Gone {
            // The peer may be in the middle of a write or read. It starts no other, and this one is soon over.
            barrier::barrier(self.dev.barriers);
            if !self.peer_left(Instant::now() + LEAVE)
                && let Some(me) = self.arc()
            {
                tracing::warn!(
                    pid = self.peer().map_or(0, |peer| peer.pid),
                    "the peer does not end its access to this process's memory"
                );
                self.dev.unsettled().push(me);
            }
        }
    }

    /// Whether the peer will not touch this process's memory any more in the course of an access that began before the
    /// connection was over: that access has ended, or its process is dead.
    pub(crate) fn is_settled(&self) -> bool {
        self.peer_left(Instant::now()) || self.peer().is_none_or(|peer| !peer.lives())
    }

    /// Waits until the peer is in no access to this process's memory that began before. `false`: it does not leave.
    pub(crate) fn peer_left(&self, deadline: Instant) -> bool {
        self.link().is_none_or(|link| link.peer_left(deadline))
    }
}
