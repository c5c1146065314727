//! Control messages of a connection: credit, keys, room for a long message, signs of life, the end. With connected endpoints
//! each is a write with immediate data to the peer's control page, which uses no receive. With datagrams it is a frame.
//!
//! Sending never blocks. A message that libfabric does not take stays pending and goes with the next call of
//! [`ChannelInner::progress`].

use dat_plugin::EventKind;

use crate::channel::ring::{RecvStage, Stage};
use crate::channel::{ChannelInner, Phase, State};
use crate::core::CreditDelay;
use crate::endpoint::link::Remote;
use crate::status::Errno;
use crate::wire::bytes::long;
use crate::wire::control::{CloseReason, Control, CreditState, PAYLOAD, Resolved, doorbell};
use crate::wire::count::reached;

/// Unanswered revocations of keys that this side never used. A peer that reads no answers reaches this bound.
const MAX_UNKNOWN_REVOKED: usize = 1024;

const NOTHING: [u8; PAYLOAD] = [0; PAYLOAD];

impl ChannelInner {
    /// Sends a control message now, or fails.
    pub fn send_control(
        &self,
        st: &State,
        control: Control,
        arg: u32,
        payload: &[u8; PAYLOAD],
    ) -> Result<(), Errno> {
        let Some(link) = &st.link else { return Err(-libc::ENOTCONN) };
        if link.framed {
            return self.send_control_frame(*link, control, arg, payload);
        }
        if link.datagrams {
            let Some(dest) = &st.peer_address else { return Err(-libc::ENOTCONN) };
            let outbox = self.core.outbox.as_ref().ok_or(-libc::ENOSYS)?;
            return outbox.send_control(dest, (st.peer, st.peer_secret), (control, arg), payload);
        }
        let page = st.peer_page;
        let remote = Remote { addr: page.addr.wrapping_add(control.slot() as u64), key: page.key };
        link.write_control(&payload[..control.payload()], doorbell(control, st.peer, arg), remote)
    }

    /// Sends pending control messages, as far as libfabric takes them. With `credit`, also credit that the next message
    /// could carry.
    pub fn flush_control(&self, st: &mut State, credit: bool) {
        if !matches!(st.phase, Phase::Connected | Phase::Leaving(_)) {
            return;
        }
        if self.try_flush(st, credit).is_err() {
            self.schedule();
        }
    }

    fn try_flush(&self, st: &mut State, credit: bool) -> Result<(), Errno> {
        if st.pending.connected {
            self.send_control(st, Control::Connected, 0, &NOTHING)?;
            st.pending.connected = false;
        }
        let changed = st.credit_state != st.advertised;
        if st.pending.room || st.pending.credit || (credit && changed) {
            let state = st.credit_state;
            self.send_control(st, Control::Credit, 0, &state.encode())?;
            st.advertised = state;
            st.unadvertised_since = None;
            st.pending.room = false;
            st.pending.credit = false;
        }
        if let Some(rkey) = st.pending.resolve {
            self.send_control(st, Control::Resolve, rkey, &NOTHING)?;
            st.pending.resolve = None;
        }
        if let Some(resolved) = st.pending.resolved {
            self.send_control(st, Control::Resolved, 0, &resolved.encode())?;
            st.pending.resolved = None;
        }
        if let Some((seq, len)) = st.pending.ask_room {
            let mut payload = NOTHING;
            payload[..8].copy_from_slice(&len.to_le_bytes());
            self.send_control(st, Control::AskRoom, seq, &payload)?;
            st.pending.ask_room = None;
        }
        if let Some(seq) = st.pending.request_receives {
            self.send_control(st, Control::RequestReceives, seq, &NOTHING)?;
            st.pending.request_receives = None;
        }
        if let Some((control, seq)) = st.pending.answer {
            self.send_control(st, control, seq, &NOTHING)?;
            st.pending.answer = None;
        }
        if st.pending.ping {
            self.send_control(st, Control::Ping, 0, &NOTHING)?;
            st.pending.ping = false;
        }
        if st.pending.pong {
            self.send_control(st, Control::Pong, 0, &NOTHING)?;
            st.pending.pong = false;
        }
        while let Some(rkey) = st.pending.revoke.last().copied() {
            self.send_control(st, Control::Revoke, rkey, &NOTHING)?;
            st.pending.revoke.pop();
        }
        while let Some(rkey) = st.pending.revoked.last().copied() {
            if self.is_using(st, rkey) {
                break;
            }
            self.send_control(st, Control::Revoked, rkey, &NOTHING)?;
            st.pending.revoked.pop();
        }
        Ok(())
    }

    /// After a short handshake: the first credit follows the connection.
    pub fn send_first_credit(&self, st: &mut State) {
        if self.core.fabric.limits.framed {
            st.pending.credit = true;
        }
    }

    fn is_using(&self, st: &State, rkey: u32) -> bool {
        let outstanding = st.requests.tail.wrapping_sub(st.requests.head);
        (0..outstanding).map(|ahead| st.requests.slot(st.requests.head.wrapping_add(ahead))).any(|request| {
            request.is_one_sided()
                && request.rkey == rkey
                && (matches!(request.stage, Stage::Started | Stage::Writing) || request.pieces > 0)
        })
    }

    /// A control message from the peer.
    pub fn on_control(&self, st: &mut State, control: Control, arg: u32, payload: &[u8; PAYLOAD]) {
        match (control, st.phase) {
            (Control::Connected, Phase::Accepting) => {
                self.establish(st, &[]);
                self.send_first_credit(st);
                // Messages may have overtaken this one.
                self.take_filled(st);
                self.progress(st, CreditDelay::Busy);
            }
            (_, Phase::Connected | Phase::Leaving(_)) => self.on_control_while_up(st, control, arg, payload),
            (Control::Close, Phase::Accepting | Phase::Connecting) => {
                self.end(st, EventKind::REFUSED, &[], None);
            }
            // The connection is over.
            _ => {}
        }
    }

    fn on_control_while_up(&self, st: &mut State, control: Control, arg: u32, payload: &[u8; PAYLOAD]) {
        match control {
            Control::Credit => self.on_credit(st, &CreditState::decode(payload)),
            Control::Resolve => {
                let resolved = self.core.regions.resolve(arg, (self.id, self.this.clone()), self.attr.domain);
                if resolved.access != 0 && !st.resolved_keys.contains(&arg) {
                    st.resolved_keys.push(arg);
                }
                st.pending.resolved = Some(resolved);
            }
            Control::Resolved => {
                let resolved = Resolved::decode(payload);
                if st.resolving == Some(resolved.rkey) {
                    st.resolving = None;
                    st.keys.insert(resolved.rkey, resolved);
                }
            }
            Control::Revoke => {
                // A key that this side knows or waits for is marked as ended. Others are not stored.
                if st.keys.contains_key(&arg) || st.resolving == Some(arg) {
                    st.keys.insert(arg, Resolved { rkey: arg, ..Resolved::default() });
                }
                if !st.pending.revoked.contains(&arg) {
                    st.pending.revoked.push(arg);
                }
                if st.pending.revoked.len() > MAX_UNKNOWN_REVOKED + st.keys.len() {
                    tracing::warn!(
                        channel = self.id,
                        "the peer revokes too many unknown keys; the connection is broken"
                    );
                    return self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
                }
            }
            Control::Revoked => {
                st.resolved_keys.retain(|key| *key != arg);
            }
            Control::AskRoom => st.asked = Some((arg, long(payload, 0))),
            Control::ClearToSend if st.asking && arg == st.sent => st.cts = Some(arg),
            Control::NoRoom if st.asking && arg == st.sent => {
                // The message is not sent; its request fails in order.
                let next = st.requests.next;
                if next != st.requests.tail {
                    let request = st.requests.slot_mut(next);
                    request.stage = Stage::Done;
                    request.status = dat_plugin::CompletionStatus::REMOTE_ERROR;
                    st.requests.next = next.wrapping_add(1);
                }
            }
            Control::RequestReceives => self.on_request_receives(st, arg),
            Control::Ping => st.pending.pong = true,
            Control::Close => {
                // Requests that completed before are reported first, a failure included.
                if self.complete_requests(st) {
                    let kind = match CloseReason::of(arg) {
                        CloseReason::Disconnect => EventKind::DISCONNECTED,
                        CloseReason::Broken => EventKind::BROKEN,
                    };
                    self.end(st, kind, &[], None);
                }
                return;
            }
            Control::Connected | Control::Pong | Control::ClearToSend | Control::NoRoom => {}
        }
        self.progress(st, CreditDelay::Busy);
    }

    /// Credit from the peer. Counts that go back are ignored.
    fn on_credit(&self, st: &mut State, credit: &CreditState) {
        if reached(credit.posted, st.credit) {
            st.credit = credit.posted;
            st.room = credit.room;
        }
        // It cannot have consumed what was not sent.
        if reached(credit.consumed, st.consumed_by_peer) && reached(st.sent, credit.consumed) {
            st.consumed_by_peer = credit.consumed;
        }
    }

    /// Answers the peer's question about room for a message, as soon as its receive is known.
    pub fn answer_room(&self, st: &mut State) {
        let Some((seq, len)) = st.asked else { return };
        let ahead = seq.wrapping_sub(st.recvs.head);
        if ahead >= st.recvs.next.wrapping_sub(st.recvs.head) {
            // There is no such receive; a correct peer does not ask.
            return;
        }
        let recv = *st.recvs.slot(seq);
        if recv.stage != RecvStage::Posted {
            st.asked = None;
            return;
        }
        if !recv.poisoned && len <= u64::from(recv.len) {
            st.asked = None;
            st.pending.answer = Some((Control::ClearToSend, seq));
        } else if ahead == 0 {
            // All messages before it are consumed: now it fails, and the connection breaks.
            st.asked = None;
            st.pending.answer = Some((Control::NoRoom, seq));
            self.flush_control(st, true);
            self.fail_recv(st, seq, recv.poisoned);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{channel, device};

    /// A peer that revokes unused keys and reads no answers costs a bounded amount of memory.
    #[test]
    fn revocations_of_unknown_keys_are_bounded() {
        let Some(device) = device(&[("fabric", "tcp"), ("address", "127.0.0.1")]) else { return };
        let chan = channel(&device);
        let mut st = chan.lock();
        st.phase = Phase::Connected;
        let known = Resolved { rkey: 7, access: 2, len: 64, ..Resolved::default() };
        st.keys.insert(7, known);
        chan.on_control(&mut st, Control::Revoke, 7, &NOTHING);
        assert_eq!(st.keys.get(&7).map(|key| key.access), Some(0), "the known key is ended");
        for rkey in 1000..100_000 {
            chan.on_control(&mut st, Control::Revoke, rkey, &NOTHING);
        }
        assert_eq!(st.keys.len(), 1, "unknown keys are stored nowhere");
        assert!(
            st.pending.revoked.len() <= MAX_UNKNOWN_REVOKED + 2,
            "{} answers wait",
            st.pending.revoked.len()
        );
        assert_eq!(st.phase, Phase::Stopped, "the connection is broken");
    }
}
