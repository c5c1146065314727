//! Receives on their way: handed to libfabric as they are posted, and completed in order as messages fill them.

use dat_plugin::{Completion, CompletionFlag, CompletionStatus, EventKind};

use crate::channel::{Chan, Phase, State, code_of};
use crate::endpoint::{Errno, Local};
use crate::flow::Lull;
use crate::status;
use crate::wire::{Farewell, Mark, Rest, reached, widen};
use crate::work::RecvStage;

impl Chan {
    /// Gives libfabric the receives it does not have yet.
    pub fn start_recvs(&self, st: &mut State) {
        let Some(link) = st.link else { return };
        while st.recvs.next != st.recvs.tail {
            let count = st.recvs.next;
            let recv = *st.recvs.slot(count);
            if !recv.poisoned && !link.framed {
                let local = Local {
                    segs: st.recvs.segs(count),
                    regions: &self.dev.regions,
                    context: st.recvs.context(count),
                };
                if let Err(errno) = link.recv(&local) {
                    if errno != -libc::EAGAIN {
                        tracing::warn!(errno, "libfabric takes no receive");
                    }
                    return self.list();
                }
                st.inflight += 1;
            }
            st.recvs.slot_mut(count).stage = RecvStage::Posted;
            st.recvs.next = count.wrapping_add(1);
            st.books.posted = st.books.posted.wrapping_add(1);
            st.owed.credit |= self.srq.is_some();
            let code = code_of(&recv);
            if code < st.books.room {
                st.books.room = code;
                st.owed.room = true;
            }
        }
    }

    pub fn on_recv(&self, st: &mut State, index: u32, result: Result<(usize, u64), Errno>) {
        if !matches!(st.phase, Phase::Up | Phase::Accepting | Phase::Leaving(_)) {
            return;
        }
        self.heard.store(true, std::sync::atomic::Ordering::Relaxed);
        let Some(count) = st.recvs.count_of(index) else { return };
        let (len, data) = match result {
            Ok(filled) => filled,
            Err(errno) if self.is_just_the_end(st, errno) => return,
            Err(errno) => {
                // The peer keeps to the room it is told, so this is a fault of the fabric's or the peer's.
                tracing::warn!(errno, "a receive failed");
                let poisoned = status::of_completion(errno) != CompletionStatus::LOCAL_LENGTH;
                return self.fail_recv(st, count, poisoned);
            }
        };
        let slot = st.recvs.slot_mut(count);
        slot.stage = RecvStage::Filled;
        slot.filled = len as u32;
        slot.mark = data;
        if let Rest::Books { posted, consumed } = Mark::decode(data).rest {
            if let Some(posted) = widen(st.credit, posted) {
                st.credit = posted;
            }
            if let Some(consumed) = widen(st.taken, consumed)
                && reached(st.sent, consumed)
            {
                st.taken = consumed;
            }
        }
        if st.phase == Phase::Accepting {
            // Overtook the news that the peer is connected; taken when that came.
            return;
        }
        self.take_filled(st);
        let waiting =
            st.requests.next != st.requests.tail || st.recvs.next != st.recvs.tail || st.asked.is_some();
        if waiting || st.phase != Phase::Up || self.owes_more_than_news(st) || self.much_gathered(st) {
            self.pump(st, Lull::None);
        } else {
            // Whoever takes the message may have an answer to send: the rest can wait until that is on its way.
            self.dev.do_more_later();
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
            st.books.consumed = st.books.consumed.wrapping_add(1);
            if let Some(srq) = &self.srq {
                srq.used();
            }
            st.smallest_gone |= code_of(&recv) == st.books.room;
            let mark = Mark::decode(recv.mark);
            let mut flags = CompletionFlag::NONE;
            if mark.solicited {
                flags = flags | CompletionFlag::SOLICITED;
            }
            if mark.imm.is_some() {
                flags = flags | CompletionFlag::IMMEDIATE;
            }
            let length = match mark.rest {
                Rest::Books { .. } => recv.filled,
                Rest::Written(len) => {
                    flags = flags | CompletionFlag::WRITTEN;
                    len
                }
            };
            let imm = mark.imm.unwrap_or(0);
            self.complete(
                &self.recv,
                self.attr.recv_user,
                &Completion { token: recv.token, length, flags, imm, ..Completion::default() },
            );
        }
        self.list();
    }

    /// A receive cannot take the message that is for it: it fails, and the connection breaks.
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
        self.end(st, EventKind::BROKEN, &[], Some(Farewell::Broken));
    }

    /// The smallest receive was used: if all that are left are larger the peer need not ask any more. Only where that is
    /// quickly seen.
    pub fn look_for_more_room(&self, st: &mut State) {
        const QUICK: u32 = 32;
        let open = st.recvs.next.wrapping_sub(st.recvs.head);
        if open == 0 || open > QUICK {
            return;
        }
        let codes = (0..open).map(|ahead| code_of(st.recvs.slot(st.recvs.head.wrapping_add(ahead))));
        let smallest = codes.min().unwrap_or(st.books.room);
        if smallest > st.books.room {
            st.books.room = smallest;
            st.owed.room = true;
        }
    }
}
