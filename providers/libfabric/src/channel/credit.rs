//! Moving a channel's work forward. Posts are in rings and go to libfabric from there as far as they can. The rest goes
//! when something changes; no thread spins. Credit updates wait a little for a message that can carry them.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::EventKind;

use crate::channel::{ChannelInner, Phase, State};
use crate::core::{CreditDelay, Task};
use crate::endpoint::context::Role;
use crate::memory::KeyUser;
use crate::status::Errno;

/// How long credit updates wait for a message that can carry them, while a thread polls.
const WAIT_FOR_MESSAGE: Duration = Duration::from_micros(15);

impl ChannelInner {
    /// Does everything that can be done now.
    pub fn progress(&self, st: &mut State, delay: CreditDelay) {
        if let Phase::Leaving(until) = st.phase
            && (st.requests_inflight == 0 || Instant::now() >= until)
        {
            return self.end(st, EventKind::DISCONNECTED, &[], None);
        }
        if st.phase == Phase::Stopped {
            if self.still_closing(st) {
                self.schedule();
            }
            return self.finish_end(st);
        }
        if st.link.is_some() {
            self.draw_receives(st);
            self.start_recvs(st);
        }
        if delay != CreditDelay::Busy {
            st.pending.revoke.append(&mut self.ended_keys.lock());
            if std::mem::take(&mut st.smallest_used) {
                self.update_room(st);
            }
        }
        if st.asked.is_some() {
            self.answer_room(st);
        }
        if st.phase == Phase::Connected {
            self.start_requests(st);
        }
        let with_credit = match delay {
            CreditDelay::None => true,
            CreditDelay::Short => self.peer_may_wait(st) && self.credit_has_waited(st),
            CreditDelay::Busy => self.much_credit(st),
        };
        self.flush_control(st, with_credit);
        self.complete_or_break(st);
        if self.has_pending(st) {
            self.schedule();
        }
    }

    /// Whether anything is pending that needs another call of [`ChannelInner::progress`].
    fn has_pending(&self, st: &State) -> bool {
        matches!(st.phase, Phase::Connected | Phase::Leaving(_))
            && (st.credit_state != st.advertised || st.pending.any())
    }

    /// Whether the peer may wait for an update that no message carries: consumed messages, or credit.
    fn peer_may_wait(&self, st: &State) -> bool {
        let known = st.advertised.posted.wrapping_sub(st.credit_state.consumed);
        let open = st.credit_state.posted.wrapping_sub(st.credit_state.consumed);
        st.credit_state.consumed != st.advertised.consumed || known < open.div_ceil(2)
    }

    /// A thread that takes a completion polls once more before it answers. Its answer can carry the update.
    fn credit_has_waited(&self, st: &mut State) -> bool {
        st.unadvertised_since.get_or_insert_with(Instant::now).elapsed() >= WAIT_FOR_MESSAGE
    }

    /// Whether the peer does not know of half a window of consumed messages.
    pub fn much_credit(&self, st: &State) -> bool {
        let gathered = st.credit_state.consumed.wrapping_sub(st.advertised.consumed);
        gathered >= 8 && gathered >= (st.recvs.len() + gathered) / 2
    }

    /// libfabric has finished an operation of this channel: with length and immediate data, or with an error.
    pub fn on_operation(&self, role: Role, index: u32, result: Result<(usize, u64), Errno>) {
        let mut st = self.lock();
        st.inflight = st.inflight.saturating_sub(1);
        match role {
            Role::Request => self.on_request(&mut st, index, result.err()),
            Role::Recv => self.on_recv(&mut st, index, result),
            Role::FrameIn => self.on_frame_in(&mut st, index, result.map(|(len, _)| len)),
            Role::FrameOut => self.on_frame_out(&mut st, index, result.err()),
        }
        if st.phase == Phase::Stopped {
            self.finish_end(&mut st);
        }
    }

    /// Whether a failed operation only shows that the connection is over. With connected endpoints an event reports that.
    pub fn is_end_of_connection(&self, st: &State, errno: Errno) -> bool {
        let datagrams = st.link.is_some_and(|link| link.datagrams);
        !matches!(st.phase, Phase::Connected) || (!datagrams && errno == libc::ECANCELED)
    }
}

impl Task for ChannelInner {
    fn run(&self, delay: CreditDelay) {
        self.listed.store(false, Ordering::Release);
        let mut st = self.lock();
        self.progress(&mut st, delay);
    }

    fn receives_available(&self, now: bool) {
        self.waits_for_receive.store(false, Ordering::Release);
        if now {
            self.progress(&mut self.lock(), CreditDelay::Busy);
        } else {
            self.schedule();
        }
    }
}

impl KeyUser for ChannelInner {
    fn key_ended(&self, rkey: u32) {
        self.ended_keys.lock().push(rkey);
        self.schedule();
    }
}
