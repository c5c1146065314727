//! Receives on their way: they go to libfabric as they are posted, and complete in order as messages fill them.

use std::sync::atomic::Ordering;

use dat_plugin::{Completion, CompletionFlag, CompletionStatus, EventKind};

use crate::channel::ring::{Recv, RecvStage};
use crate::channel::{ChannelInner, Phase, State};
use crate::core::CreditDelay;
use crate::endpoint::link::Local;
use crate::status::{self, Errno};
use crate::wire::control::CloseReason;
use crate::wire::count::{reached, widen};
use crate::wire::message::{Detail, MessageInfo, room_code};

impl ChannelInner {
    /// Posts the receives that libfabric does not have yet.
    pub fn start_recvs(&self, st: &mut State) {
        let Some(link) = st.link else { return };
        while st.recvs.next != st.recvs.tail {
            let count = st.recvs.next;
            let recv = *st.recvs.slot(count);
            if !recv.poisoned && !link.framed {
                let local = Local {
                    segs: st.recvs.segs(count),
                    regions: &self.core.regions,
                    context: st.recvs.context(count),
                };
                if let Err(errno) = link.recv(&local) {
                    if errno != -libc::EAGAIN {
                        tracing::warn!(errno, "libfabric refused a receive");
                    }
                    return self.schedule();
                }
                st.inflight += 1;
            }
            st.recvs.slot_mut(count).stage = RecvStage::Posted;
            st.recvs.next = count.wrapping_add(1);
            st.credit_state.posted = st.credit_state.posted.wrapping_add(1);
            st.pending.credit |= self.srq.is_some();
            let code = code_of(&recv);
            if code < st.credit_state.room {
                st.credit_state.room = code;
                st.pending.room = true;
            }
        }
    }

    /// libfabric has finished a receive, or the last frame of its message arrived.
    pub fn on_recv(&self, st: &mut State, index: u32, result: Result<(usize, u64), Errno>) {
        if !matches!(st.phase, Phase::Connected | Phase::Accepting | Phase::Leaving(_)) {
            return;
        }
        self.heard.store(true, Ordering::Relaxed);
        let Some(count) = st.recvs.count_of(index) else { return };
        let (len, data) = match result {
            Ok(filled) => filled,
            Err(errno) if self.is_end_of_connection(st, errno) => return,
            Err(errno) => {
                // The peer knows the room of each receive, so this is an error of the fabric or the peer.
                tracing::warn!(errno, "a receive failed");
                let poisoned = status::of_completion(errno) != CompletionStatus::LOCAL_LENGTH;
                return self.fail_recv(st, count, poisoned);
            }
        };
        let slot = st.recvs.slot_mut(count);
        slot.stage = RecvStage::Filled;
        slot.filled = len as u32;
        slot.info = data;
        if let Detail::Credit { posted, consumed } = MessageInfo::decode(data).detail {
            if let Some(posted) = widen(st.credit, posted) {
                st.credit = posted;
            }
            if let Some(consumed) = widen(st.consumed_by_peer, consumed)
                && reached(st.sent, consumed)
            {
                st.consumed_by_peer = consumed;
            }
        }
        if st.phase == Phase::Accepting {
            // The message overtook the peer's confirmation; it is taken when that arrives.
            return;
        }
        self.take_filled(st);
        let waiting =
            st.requests.next != st.requests.tail || st.recvs.next != st.recvs.tail || st.asked.is_some();
        if waiting || st.phase != Phase::Connected || st.pending.any() || self.much_credit(st) {
            self.progress(st, CreditDelay::Busy);
        } else {
            // The application may answer the message at once: the rest waits until the answer is on its way.
            self.core.defer_work();
        }
    }

    /// Completes filled receives, in order.
    pub fn take_filled(&self, st: &mut State) {
        while st.recvs.head != st.recvs.next {
            let recv = *st.recvs.slot(st.recvs.head);
            if recv.stage != RecvStage::Filled {
                break;
            }
            st.recvs.head = st.recvs.head.wrapping_add(1);
            st.credit_state.consumed = st.credit_state.consumed.wrapping_add(1);
            if let Some(srq) = &self.srq {
                srq.used();
            }
            st.smallest_used |= code_of(&recv) == st.credit_state.room;
            let info = MessageInfo::decode(recv.info);
            let mut flags = CompletionFlag::NONE;
            if info.solicited {
                flags = flags | CompletionFlag::SOLICITED;
            }
            if info.imm.is_some() {
                flags = flags | CompletionFlag::IMMEDIATE;
            }
            let length = match info.detail {
                Detail::Credit { .. } => recv.filled,
                Detail::Written(len) => {
                    flags = flags | CompletionFlag::WRITTEN;
                    len
                }
            };
            let imm = info.imm.unwrap_or(0);
            self.complete(
                &self.recv,
                self.attr.recv_user,
                &Completion { token: recv.token, length, flags, imm, ..Completion::default() },
            );
        }
        self.schedule();
    }

    /// A receive cannot take its message: it fails, and the connection breaks.
    pub fn fail_recv(&self, st: &mut State, count: u32, poisoned: bool) {
        let recv = st.recvs.slot_mut(count);
        recv.stage = RecvStage::Failed;
        let token = recv.token;
        if let Some(srq) = &self.srq {
            srq.used();
        }
        let status = if poisoned { CompletionStatus::LOCAL_ACCESS } else { CompletionStatus::LOCAL_LENGTH };
        self.complete(
            &self.recv,
            self.attr.recv_user,
            &Completion { token, status, ..Completion::default() },
        );
        self.end(st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
    }

    /// The smallest receive was used. If all others are larger, the peer need not ask any more. Looks only if there are few.
    pub fn update_room(&self, st: &mut State) {
        const QUICK: u32 = 32;
        let open = st.recvs.next.wrapping_sub(st.recvs.head);
        if open == 0 || open > QUICK {
            return;
        }
        let codes = (0..open).map(|ahead| code_of(st.recvs.slot(st.recvs.head.wrapping_add(ahead))));
        let smallest = codes.min().unwrap_or(st.credit_state.room);
        if smallest > st.credit_state.room {
            st.credit_state.room = smallest;
            st.pending.room = true;
        }
    }
}

/// The code of a receive's room.
fn code_of(recv: &Recv) -> u32 {
    room_code(recv.len.into(), !recv.poisoned)
}
