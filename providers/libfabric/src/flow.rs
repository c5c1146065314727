//! What keeps the data path of a channel going: posts are in rings ([`crate::posting`]), and go to libfabric from there as far
//! as they can ([`crate::requests`], [`crate::receives`]). What cannot go now goes when something changed; nothing spins.

use std::time::{Duration, Instant};

use dat_plugin::{Completion, EventKind};

use crate::channel::{Chan, Phase, State};
use crate::endpoint::Errno;
use crate::work::Role;

/// How much time there is for what could be told later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lull {
    /// Something is being done.
    None,
    /// A poll found nothing: a message may follow that carries the news.
    Moment,
    /// Nothing is going on, or somebody is about to sleep.
    Long,
}

/// How long news wait for a message that could carry them, while somebody polls.
const PATIENCE: Duration = Duration::from_micros(15);

impl Chan {
    /// Brings everything forward that can be.
    pub fn pump(&self, st: &mut State, lull: Lull) {
        if let Phase::Leaving(until) = st.phase
            && (st.requests_out == 0 || Instant::now() >= until)
        {
            return self.end(st, EventKind::DISCONNECTED, &[], None);
        }
        if st.phase == Phase::Stopped {
            if self.still_says_farewell(st) {
                self.list();
            }
            return self.finish_ending(st);
        }
        if st.link.is_some() {
            self.draw(st);
            self.start_recvs(st);
        }
        if lull != Lull::None {
            st.owed.revoke.append(&mut self.revokes.lock());
            if std::mem::take(&mut st.smallest_gone) {
                self.look_for_more_room(st);
            }
        }
        if st.asked.is_some() {
            self.answer(st);
        }
        if st.phase == Phase::Up {
            self.start_requests(st);
        }
        let all = match lull {
            Lull::Long => true,
            Lull::Moment => self.peer_may_wait(st) && self.has_news_for_long(st),
            Lull::None => self.much_gathered(st),
        };
        self.say_what_is_owed(st, all);
        self.complete_or_break(st);
        if self.owes(st) {
            self.list();
        }
    }

    /// Whether the peer may wait for news that nothing else carries: that its messages were consumed, or for credit.
    fn peer_may_wait(&self, st: &State) -> bool {
        let known = st.told.posted.wrapping_sub(st.books.consumed);
        let open = st.books.posted.wrapping_sub(st.books.consumed);
        st.books.consumed != st.told.consumed || known < open.div_ceil(2)
    }

    /// Who takes a completion polls once more before it answers: the answer carries the news, so it is given a little time.
    fn has_news_for_long(&self, st: &mut State) -> bool {
        st.news_since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE
    }

    /// Whether half a window of news has gathered while there was no time to tell it.
    pub fn much_gathered(&self, st: &State) -> bool {
        let gathered = st.books.consumed.wrapping_sub(st.told.consumed);
        gathered >= 8 && gathered >= (st.recvs.len() + gathered) / 2
    }

    /// Hands out the last event of a channel that waited for libfabric to let go.
    pub fn finish_ending(&self, st: &mut State) {
        self.give_back(st);
        if self.settled(st)
            && let Some(event) = st.owed.ending.take()
        {
            self.dev.event(self.arc(), *event);
        }
    }

    /// libfabric is done with an operation of this channel: with what came, or with an error.
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
            self.finish_ending(&mut st);
        }
    }

    /// Operations libfabric hands back because the connection is over say nothing of their own; with connected endpoints
    /// an event tells of the end.
    pub fn is_just_the_end(&self, st: &State, errno: Errno) -> bool {
        let datagrams = st.link.is_some_and(|link| link.datagrams);
        !matches!(st.phase, Phase::Up) || (!datagrams && errno == libc::ECANCELED)
    }

    pub fn complete(
        &self,
        queue: &Option<std::sync::Arc<crate::queue::Que>>,
        user: u64,
        completion: &Completion,
    ) {
        if let Some(queue) = queue {
            queue.push(Completion { user, ..*completion });
        }
    }
}
