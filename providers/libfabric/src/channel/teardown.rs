//! The end of a channel.

use std::time::{Duration, Instant};

use dat_plugin::{EventKind, Status};

use crate::channel::ring::RecvStage;
use crate::channel::{ChannelInner, Phase, State};
use crate::wire::control::{CloseReason, Control, PAYLOAD};

impl ChannelInner {
    /// Ends the connection, or the attempt: stops everything, sends `reason` to the peer and `kind` to the engine.
    pub fn end(&self, st: &mut State, kind: EventKind, data: &[u8], reason: Option<CloseReason>) {
        let kind = match st.phase {
            Phase::Stopped | Phase::Idle => return,
            Phase::Leaving(_) => EventKind::DISCONNECTED,
            Phase::Accepting => EventKind::ACCEPT_FAILED,
            Phase::Connecting | Phase::Connected => kind,
        };
        if let Some(reason) = reason {
            self.send_close(st, reason);
        }
        self.stop(st);
        if self.is_settled(st) {
            self.event(kind, data);
        } else {
            // Handed out once libfabric has handed back all operations.
            st.pending.last_event = Some(Box::new(self.event_of(kind, data)));
            self.schedule();
        }
    }

    /// Makes libfabric stop touching memory of the application, or at least begin to stop.
    pub fn stop(&self, st: &mut State) {
        if st.phase == Phase::Stopped {
            return;
        }
        self.report_unsignalled(st);
        st.phase = Phase::Stopped;
        let resolved = std::mem::take(&mut st.resolved_keys);
        self.core.regions.forget(self.id, &resolved);
        if let Some(link) = st.link {
            if link.datagrams {
                for count in 0..st.recvs.len() {
                    let count = st.recvs.head.wrapping_add(count);
                    // A receive that failed before a message came is still posted.
                    if matches!(st.recvs.slot(count).stage, RecvStage::Posted | RecvStage::Failed)
                        && !st.recvs.slot(count).poisoned
                    {
                        link.cancel(st.recvs.context(count));
                    }
                }
                self.core.wake.now();
            } else if self.is_closing(st) {
                self.schedule();
            } else {
                self.shut_down_endpoint(st);
            }
        }
        self.return_receives(st);
    }

    /// Shuts a connected endpoint down.
    pub fn shut_down_endpoint(&self, st: &mut State) {
        st.framing.closing = None;
        if let Some(link) = st.link.take() {
            self.core.endpoints.shut_down(link.ep);
            self.core.wake.now();
        }
    }

    /// Whether a stopped channel's memory is free of libfabric. A connected endpoint lets go when it is shut down, a
    /// datagram endpoint when it has handed back the channel's operations.
    pub fn is_settled(&self, st: &State) -> bool {
        st.link.is_none_or(|link| link.datagrams && st.inflight == 0)
    }

    /// Whether a stopped channel's endpoint stays open for its close message.
    pub fn is_closing(&self, st: &State) -> bool {
        st.framing.closing.is_some()
    }

    fn send_close(&self, st: &mut State, reason: CloseReason) {
        if !matches!(st.phase, Phase::Connected | Phase::Accepting | Phase::Leaving(_)) {
            return;
        }
        // First what the peer's completions depend on.
        self.flush_control(st, true);
        if st.link.is_some_and(|link| link.framed) {
            return self.send_close_frame(st, reason);
        }
        let sent = self.send_control(st, Control::Close, reason.code(), &[0; PAYLOAD]);
        if let (Err(_), Some(dest), Some(outbox)) = (sent, &st.peer_address, &self.core.outbox) {
            // The channel may be gone by the time libfabric takes it.
            outbox.queue_close(dest, (st.peer, st.peer_secret), reason);
            self.core.wake.soon();
        }
    }

    /// Disconnects. Requests under way may take `linger`. `PENDING`: the last event follows.
    pub fn disconnect(&self, st: &mut State, linger: Duration) -> Status {
        match st.phase {
            Phase::Connected => {}
            // The last event was not handed out yet, and now it is not needed.
            Phase::Stopped if st.pending.last_event.take().is_some() => return Status::PENDING,
            Phase::Stopped | Phase::Leaving(_) => return Status::OK,
            Phase::Idle | Phase::Connecting | Phase::Accepting => {
                self.send_close(st, CloseReason::Disconnect);
                self.stop(st);
                return self.settled_status(st);
            }
        }
        self.send_close(st, CloseReason::Disconnect);
        let datagrams = st.link.is_some_and(|link| link.datagrams);
        if st.requests_inflight == 0 || datagrams || linger.is_zero() {
            self.stop(st);
            return self.settled_status(st);
        }
        // libfabric finishes what it has begun to send, so that the peer's stream ends in order.
        st.phase = Phase::Leaving(Instant::now() + linger);
        self.schedule();
        Status::PENDING
    }

    fn settled_status(&self, st: &State) -> Status {
        if self.is_settled(st) { Status::OK } else { Status::PENDING }
    }

    /// Hands out the last event of a stopped channel, once libfabric has let go of its memory.
    pub fn finish_end(&self, st: &mut State) {
        self.return_receives(st);
        if self.is_settled(st)
            && let Some(event) = st.pending.last_event.take()
        {
            self.send_event(*event);
        }
    }

    /// Keeps memory registered that libfabric may still write to after the channel is closed.
    pub fn hold_memory(&self, st: &State) {
        let mut lkeys = Vec::new();
        for count in (0..st.recvs.len()).map(|ahead| st.recvs.head.wrapping_add(ahead)) {
            lkeys.extend(st.recvs.segs(count).iter().map(|seg| seg.lkey));
        }
        for count in (0..st.requests.len()).map(|ahead| st.requests.head.wrapping_add(ahead)) {
            lkeys.extend(st.requests.segs(count).iter().map(|seg| seg.lkey));
        }
        self.core.regions.hold(&lkeys);
        *self.held_keys.lock() = lkeys;
    }
}
