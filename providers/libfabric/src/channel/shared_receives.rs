//! Receives from a queue that several channels share.
//!
//! The queue is kept by this provider and not by the fabric, so every fabric has shared queues. A channel with a shared
//! queue gives its peer no credit in advance. The peer announces how many messages it has
//! ([`crate::wire::control::Control::RequestReceives`]), the channel draws receives, and only then the peer sends. So:
//!
//! - A receive is with a channel only while a message is on its way; idle connections hold none.
//! - The length of a message is checked before it is sent, as without a shared queue.
//! - An empty queue delays only messages.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use crate::channel::shared_pool::SHARE;
use crate::channel::{ChannelInner, Phase, State};
use crate::core::Task;
use crate::wire::count::reached;

/// Most receives one channel holds before its peer sent anything: a peer that only announces messages holds no more.
const FIRST_SHARE: u32 = 4;

impl ChannelInner {
    /// The peer's receives come from a shared queue: requests one for each message to send, once the receives
    /// requested before are used.
    pub fn request_receives(&self, st: &mut State) {
        if !reached(st.sent, st.requested) {
            return;
        }
        let waiting = st.requests.tail.wrapping_sub(st.requests.next).min(SHARE);
        let next = st.requests.next;
        let messages =
            (0..waiting).filter(|ahead| st.requests.slot(next.wrapping_add(*ahead)).is_message()).count();
        st.requested = st.sent.wrapping_add(messages as u32);
        st.pending.request_receives = Some(st.requested);
    }

    /// The peer has messages up to this one.
    pub fn on_request_receives(&self, st: &mut State, requested: u32) {
        if reached(requested, st.peer_requested) {
            st.peer_requested = requested;
        }
    }

    /// Draws receives from the shared queue for the messages that the peer announced, or waits for them.
    pub fn draw_receives(&self, st: &mut State) {
        let Some(srq) = &self.srq else { return };
        let drawn = st.credit_state.posted.wrapping_add(st.recvs.tail.wrapping_sub(st.recvs.next));
        if reached(drawn, st.peer_requested) || st.phase != Phase::Connected {
            return;
        }
        // The share grows with messages that came, not with messages that were only announced.
        let share = FIRST_SHARE.saturating_add(st.credit_state.consumed).min(SHARE);
        srq.draw(&mut st.recvs, (st.peer_requested.wrapping_sub(drawn), share), || {
            let waits = self.waits_for_receive.swap(true, Ordering::AcqRel);
            (!waits).then(|| self.this.clone() as Weak<dyn Task>)
        });
    }

    /// Returns receives that this channel drew and did not use, once libfabric has let go of them.
    pub fn return_receives(&self, st: &mut State) {
        let Some(srq) = &self.srq else { return };
        if st.recvs.len() == 0 || !self.is_settled(st) {
            return;
        }
        srq.take_back(&mut st.recvs);
        srq.serve_later();
    }
}

#[cfg(test)]
mod tests {
    use dat_plugin::{ChannelAttr, SrqAttr};

    use super::*;
    use crate::channel::ring::Recv;
    use crate::channel::shared_pool::SharedPool;
    use crate::testing::device;
    use crate::wire::control::CreditState;

    /// A peer that announces many messages and sends none holds a few receives, not all that a channel may have.
    #[test]
    fn announced_messages_alone_do_not_empty_a_shared_queue() {
        let Some(device) = device(&[("fabric", "tcp"), ("address", "127.0.0.1")]) else { return };
        let attr = SrqAttr { depth: 256, max_segments: 1, ..SrqAttr::default() };
        let shared = SharedPool::new(&device.inner().core, &attr).expect("a shared queue");
        for token in 0..256 {
            assert_eq!(shared.post(Recv { token, ..Recv::default() }, &[]), Ok(false));
        }
        let attr = ChannelAttr { max_requests: 4, max_recvs: 4, ..ChannelAttr::default() };
        let chan = device.inner().channels.create(&attr, [None, None], Some(shared)).expect("a channel");
        let mut st = chan.lock();
        st.phase = Phase::Connected;
        chan.on_request_receives(&mut st, 1000);
        chan.draw_receives(&mut st);
        assert_eq!(st.recvs.len(), FIRST_SHARE, "nothing came yet");
        // Messages use them, and the share grows.
        st.recvs.head = FIRST_SHARE;
        st.recvs.next = FIRST_SHARE;
        st.credit_state = CreditState { posted: FIRST_SHARE, consumed: FIRST_SHARE, ..st.credit_state };
        chan.draw_receives(&mut st);
        assert_eq!(st.recvs.len(), 2 * FIRST_SHARE);
    }
}
