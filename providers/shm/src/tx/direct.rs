//! Plain writes and reads of memory that is mapped here: done when they are posted.

use dat_kit::Stretch;
use dat_plugin::{Completion, CompletionStatus, Opcode, PostFlag, Request};

use super::{Hint, State, Tx};
use crate::channel::{Chan, SEND};
use crate::link::Link;
use crate::one_sided;

impl Tx {
    /// Executes a write or read at once, if nothing waits to be started before it. `false`: nothing was done, and it has
    /// to take its way through the queue, if only to find out that it fails.
    ///
    /// It may overtake messages and other requests that the peer has not finished, as from the queue; its completion keeps
    /// its turn.
    #[inline(always)]
    pub(crate) fn post_direct(&mut self, chan: &Chan, link: &Link, request: &Request) -> bool {
        let idle = self.on && !self.halted && self.sent == self.tail;
        if !idle || self.tail - self.head >= self.capacity {
            return false;
        }
        let (read, len) = match request.opcode {
            Opcode::WRITE => (false, request.total),
            Opcode::READ => (true, request.remote_len.into()),
            _ => return false,
        };
        let [segment] = request.segments() else { return false };
        let local = Stretch::from(segment);
        let fenced = request.flags.contains(PostFlag::FENCE) && self.reads_open > 0;
        if fenced || len == 0 || len > request.total || local.len() as u64 != request.total {
            return false;
        }
        let remote = one_sided::Target { addr: request.remote_addr, len, rkey: request.rkey };
        if !one_sided::execute_near(chan, link, &mut self.near, &remote, local, read) {
            return false;
        }
        self.finished(chan, request, len);
        true
    }

    /// [`Tx::post_direct`], where several are posted.
    #[inline(never)]
    pub(super) fn post_another_direct(&mut self, chan: &Chan, link: &Link, request: &Request) -> bool {
        self.post_direct(chan, link, request)
    }

    /// Takes in a request that is done.
    #[inline]
    fn finished(&mut self, chan: &Chan, request: &Request, len: u64) {
        let (token, status) = (request.token, CompletionStatus::SUCCESS);
        if self.head == self.tail && request.flags.contains(PostFlag::UNSIGNALLED) {
            // Nobody waits for it, and nothing that somebody waits for is before it: it leaves no trace.
            let (user, length) = (chan.attr.send_user, len as u32);
            self.silent = Some(Completion { token, user, status, length, ..Completion::default() });
            self.tail += 1;
            (self.head, self.done, self.sent) = (self.tail, self.tail, self.tail);
            return;
        }
        let all_done = self.done == self.tail;
        let entry = self.entry(self.tail);
        (entry.token, entry.flags, entry.total) = (token, request.flags, len);
        (entry.state, entry.status) = (State::Done, status);
        self.tail += 1;
        self.sent = self.tail;
        if all_done {
            self.done = self.tail;
            self.tell_hint(chan, Hint::Now, 0);
            chan.tell(SEND);
        }
    }
}
