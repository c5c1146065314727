//! How a connection ends: once, whoever ends it, and with what succeeded before.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_plugin::{Event, EventKind};

use super::{Chan, End, LEAVE, Phase, RECV, SEND};
use crate::handshake::{self, Packet, Received};
use crate::link::Link;
use crate::wait;

impl Chan {
    /// Ends the connection or the attempt, once.
    pub(crate) fn finish(&self, end: End) {
        let event = |kind| Some(Event::new(kind, self.attr.user));
        let event = match (&*self.phase(), end) {
            (Phase::Idle | Phase::Stopped, _) => return,
            (_, End::Local) => None,
            (Phase::Connecting(_), _) => event(EventKind::REFUSED),
            (Phase::Accepting, _) => event(EventKind::ACCEPT_FAILED),
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
            Phase::Accepting => match self.link.get() {
                Some(link) => (link.socket.clone(), link.token),
                None => return,
            },
            Phase::Live => match self.link.get() {
                Some(link) => {
                    self.stop_data(link, end);
                    (link.socket.clone(), link.token)
                }
                None => return,
            },
        };
        self.rx.lock().stop(self);
        self.tx.lock().stop(self);
        let word = if end == End::Local { Packet::Disconnect } else { Packet::Error };
        let _ = handshake::send(&*socket, &word, &[]);
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        // A socket closed with something unread in it is reset, and the peer would not get to read the word.
        while matches!(handshake::receive(&socket), Received::Packet(..) | Received::Garbage(_)) {}
        self.dev.forget(token, socket.as_fd());
        // Before the phase is let go: whoever finds it stopped takes the completions there are.
        for which in [RECV, SEND] {
            self.tell(which);
        }
        drop(phase);
        if let Some(event) = event {
            self.dev.event(self, event);
        }
        let shared = self.rx.lock().shared();
        if let Some(shared) = shared {
            // What it gave back is for others that wait.
            shared.serve();
        }
    }

    /// Takes what succeeded before the end, then closes the data path.
    fn stop_data(&self, link: &Link, end: End) {
        let mut rx = self.rx.lock();
        if end != End::Local {
            rx.pump(self, link);
        }
        rx.stop(self);
        drop(rx);
        let mut tx = self.tx.lock();
        if tx.busy() {
            tx.advance(self, link);
        }
        tx.stop(self);
        drop(tx);
        link.segment.own().gone.store(1, Ordering::SeqCst);
        self.tx.lock().give_up(link);
        if end != End::Gone {
            // The peer may be in the middle of a write or read. It starts no other, and this one is soon over.
            wait::barrier(self.dev.barriers);
            if !link.peer_left(Instant::now() + LEAVE) {
                tracing::warn!(
                    pid = link.peer.pid,
                    "the peer does not end its access to this process's memory"
                );
            }
        }
    }

    /// Waits until the peer is in no access to this process's memory that began before. `false`: it does not leave.
    pub(crate) fn peer_left(&self, deadline: Instant) -> bool {
        self.link.get().is_none_or(|link| link.peer_left(deadline))
    }
}
