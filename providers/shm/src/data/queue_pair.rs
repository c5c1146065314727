//! Both halves of a channel with their locks: what posts, polls and the event thread call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_plugin::{
    AtomicRequest, BindRequest, Completion, CompletionStatus, Opcode, RecvRequest, Request, Status,
};
use dat_sync::{BiasPolicy, Guard, Lock};

use crate::data::conn::Conn;
use crate::data::doorbell::{RECV, SEND};
use crate::data::link::Link;
use crate::data::rx::Rx;
use crate::data::srq::Shared;
use crate::data::tx::Tx;
use crate::notify::barrier;

pub(crate) struct QueuePair {
    pub(crate) conn: Conn,
    rx: Lock<Rx>,
    tx: Lock<Tx>,
}

/// What [`QueuePair::progress_idle`] found.
pub(crate) struct Idle {
    /// There is more to look after.
    pub(crate) go_on: bool,
    /// Something happened since the last time.
    pub(crate) moved: bool,
}

impl QueuePair {
    pub(crate) fn new(conn: Conn, reads_in: u32, srq: Option<Arc<Shared>>) -> QueuePair {
        let attr = &conn.attr;
        let rx = Rx::new(attr, reads_in, srq);
        let tx = Tx::new(attr.max_requests, attr.max_request_segments, attr.max_reads_out, attr.send_user);
        QueuePair { rx: Lock::new(rx), tx: Lock::new(tx), conn }
    }

    // Posts.

    #[inline]
    pub(crate) fn post(&self, request: &Request) -> Status {
        let conn = &self.conn;
        if request.opcode == Opcode::SEND
            && conn.owner.here()
            && let Some(link) = conn.link.get()
            && let Some(mut tx) = self.tx.try_lock_biased()
            && let Some(ring) = tx.submit_short(conn, link, request)
        {
            drop(tx);
            if ring {
                Tx::ring(conn, link);
            }
            return Status::OK;
        }
        self.post_list(std::slice::from_ref(request)).1
    }

    pub(crate) fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        let conn = &self.conn;
        let link = match self.live_link() {
            Ok(link) => link,
            Err(status) => return (0, status),
        };
        let mut tx = self.tx.lock();
        let (mut posted, mut status, mut ring) = (0, Status::OK, false);
        for request in requests {
            let short =
                if request.opcode == Opcode::SEND { tx.submit_short(conn, link, request) } else { None };
            match short {
                Some(wanted) => ring |= wanted,
                None => status = tx.submit(conn, link, request),
            }
            if status != Status::OK {
                break;
            }
            posted += 1;
        }
        drop(tx);
        if ring {
            Tx::ring(conn, link);
        }
        (posted, status)
    }

    pub(crate) fn post_atomic(&self, request: &AtomicRequest) -> Status {
        match self.live_link() {
            Ok(link) => self.tx.lock().submit_atomic(&self.conn, link, request),
            Err(status) => status,
        }
    }

    /// The peer freed an area of its memory. After this no copy goes to or from it.
    pub(crate) fn forget_mapping(&self, map: u64) {
        self.tx.lock().mappings().forget(map);
        self.rx.lock().mappings().forget(map);
    }

    /// Binds a window by `bind`, which gives its new key. The key is good for what is posted next; the completion keeps
    /// its turn.
    pub(crate) fn bind(
        &self,
        request: &BindRequest,
        bind: impl FnOnce() -> Option<u32>,
    ) -> Result<u32, Status> {
        let link = self.live_link()?;
        let mut tx = self.tx.lock();
        let room = tx.check_room();
        if room != Status::OK {
            return Err(room);
        }
        let bound = bind();
        let status = if bound.is_some() { CompletionStatus::SUCCESS } else { CompletionStatus::WINDOW };
        tx.submit_bind(&self.conn, link, request.token, request.flags, status);
        Ok(bound.unwrap_or(0))
    }

    fn live_link(&self) -> Result<&Link, Status> {
        if !self.conn.owner.here() {
            return Err(Status::FORKED);
        }
        self.conn.link.get().ok_or(Status::NOT_CONNECTED)
    }

    #[inline]
    pub(crate) fn post_recv(&self, request: &RecvRequest) -> Status {
        if self.conn.owner.here()
            && let Some(mut rx) = self.rx.try_lock_biased()
            && rx.post_one(request)
        {
            return Status::OK;
        }
        self.post_recv_list(std::slice::from_ref(request)).1
    }

    pub(crate) fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        if !self.conn.owner.here() {
            return (0, Status::FORKED);
        }
        let mut rx = self.rx.lock();
        let (mut posted, mut status, mut blocked) = (0, Status::OK, false);
        for request in requests {
            match rx.post(request) {
                Ok(waiting) => blocked |= waiting,
                Err(refused) => {
                    status = refused;
                    break;
                }
            }
            posted += 1;
        }
        if blocked {
            self.unblock(rx);
        }
        (posted, status)
    }

    /// A message may have waited for the receive that was posted, and its sender for that.
    #[cold]
    fn unblock(&self, mut rx: Guard<'_, Rx>) {
        let ready = self.conn.link.get().is_some_and(|link| rx.pump(&self.conn, link));
        drop(rx);
        if ready {
            self.conn.doorbells.ring(RECV);
        }
    }

    /// Reports the last unsignalled success, unless a later completion covers it.
    pub(crate) fn flush(&self) {
        if !self.conn.owner.here() {
            return;
        }
        let mut tx = self.tx.lock();
        self.advance(&mut tx);
        tx.flush(&self.conn);
        let ready = tx.has_completion();
        drop(tx);
        if ready {
            self.conn.doorbells.ring(SEND);
        }
    }

    fn advance(&self, tx: &mut Tx) {
        if let Some(link) = self.conn.link.get()
            && tx.busy()
        {
            tx.advance(&self.conn, link);
        }
    }

    // Polls.

    /// Whether a poll of the requesting half may find something, also by what the peer's control page says.
    pub(crate) fn tx_ready(&self) -> bool {
        let counters = &self.conn.counters;
        if counters.tx_ready() {
            return true;
        }
        let Some(link) = self.conn.link.get().filter(|_| counters.tx_busy()) else { return false };
        let peer = link.segment.peer();
        counters.is_due(peer.completed.load(Ordering::Relaxed)) || peer.fail.load(Ordering::Relaxed) != 0
    }

    /// The hot arm of a poll: takes one short message. `None`: nothing was done; else whether [`QueuePair::wake_peer`] is
    /// to be called.
    #[inline]
    pub(crate) fn poll_short(&self, place: &mut Completion) -> Option<bool> {
        let link = self.conn.link.get()?;
        self.rx.try_lock_biased()?.take_short(&self.conn, link, place)
    }

    /// After [`QueuePair::poll_short`].
    #[cold]
    pub(crate) fn wake_peer(&self) {
        if let Some(link) = self.conn.link.get() {
            self.rx.lock().wake_peer(&self.conn, link);
        }
    }

    /// `burst`: the last look found something too, so that more than one message is likely.
    ///
    /// Waits for the event thread if that is at work here: a poll must find what is there, for the engine flushes what it
    /// did not find. The event thread takes a limited number of frames.
    pub(crate) fn poll_recv(&self, out: &mut [Completion], burst: bool) -> usize {
        self.rx.lock().poll(&self.conn, self.conn.link.get(), out, burst)
    }

    /// As [`QueuePair::poll_recv`], of completed requests.
    pub(crate) fn poll_send(&self, out: &mut [Completion]) -> usize {
        self.tx.lock().poll(&self.conn, self.conn.link.get(), out)
    }

    /// Whether there is a completion for the receive queue, with everything done to make one.
    pub(crate) fn rx_waiting(&self) -> bool {
        let mut rx = self.rx.lock();
        match self.conn.link.get() {
            Some(link) => rx.pump(&self.conn, link),
            None => rx.has_completion(),
        }
    }

    /// The same for the send queue.
    pub(crate) fn tx_waiting(&self) -> bool {
        let mut tx = self.tx.lock();
        self.advance(&mut tx);
        tx.has_completion()
    }

    /// From now on a queue does not poll this channel unless a doorbell has it; with the number 0 it does. Each number is
    /// a new request to the peer.
    pub(crate) fn set_event_driven(&self, send: bool, recv: bool, number: u32) {
        for (which, affected) in [(RECV, recv), (SEND, send)] {
            if affected {
                self.conn.doorbells.set_event_driven(which, number != 0);
                if let Some(link) = self.conn.link.get() {
                    link.segment.own().parked[which].store(number, Ordering::Relaxed);
                }
            }
        }
    }

    // The control plane.

    /// Connected: the link is set.
    pub(crate) fn start(&self, single_threaded: bool) {
        let Some(link) = self.conn.link.get() else { return };
        self.tx.lock().start(&self.conn, link);
        self.rx.lock().start(&self.conn, link);
        if single_threaded {
            // This thread takes them now and then, and not again soon: the next is the one.
            self.tx.set_bias(BiasPolicy::SingleThread);
            self.rx.set_bias(BiasPolicy::SingleThread);
        }
        // The peer's doorbells of before could not be served yet.
        if self.conn.counters.rx_ready() {
            self.conn.doorbells.ring(RECV);
        }
    }

    /// Takes what succeeded before the end, then stops. `last`: also what the peer sent.
    pub(crate) fn stop(&self, last: bool) {
        let link = self.conn.link.get();
        let mut rx = self.rx.lock();
        if let Some(link) = link.filter(|_| last) {
            rx.pump(&self.conn, link);
        }
        rx.stop(&self.conn);
        drop(rx);
        let mut tx = self.tx.lock();
        self.advance(&mut tx);
        tx.stop(&self.conn);
        if let Some(link) = link {
            link.segment.own().gone.store(1, Ordering::SeqCst);
        }
    }

    /// The shared queue that its receives come from.
    pub(crate) fn shared(&self) -> Option<Arc<Shared>> {
        self.rx.lock().shared()
    }

    /// Makes all progress there is without the application; wakes its sleepers.
    pub(crate) fn pump(&self) {
        if self.conn.link.get().is_none() {
            return;
        }
        if self.rx_waiting() {
            self.conn.doorbells.ring(RECV);
        }
        if self.tx_waiting() {
            self.conn.doorbells.ring(SEND);
        }
    }

    /// Looks after a channel whose application may be away. `last` is for the next call.
    pub(crate) fn progress_idle(&self, last: &mut u64) -> Idle {
        let conn = &self.conn;
        let Some(link) = conn.link.get() else {
            conn.unscheduled();
            return Idle { go_on: false, moved: false };
        };
        self.pump();
        let (busy, wants, progress) = {
            let tx = self.tx.lock();
            (tx.busy() && !tx.has_completion(), tx.wants_room(), tx.progress())
        };
        let answers = self.rx.lock().wants_progress();
        let own = link.segment.own();
        if wants || answers {
            own.want_room.store(1, Ordering::Relaxed);
            barrier::barrier(!conn.doorbells.fence());
            self.pump();
        } else {
            own.want_room.store(0, Ordering::Relaxed);
        }
        let moved = *last != progress;
        *last = progress;
        if busy && !moved {
            conn.kick();
        }
        let go_on = busy || wants || answers;
        if !go_on {
            conn.unscheduled();
        }
        Idle { go_on, moved }
    }

    /// Breaks the connection when a message has waited for a receive for too long.
    pub(crate) fn check_rnr_timeout(&self, limit: Duration) {
        let Some(link) = self.conn.link.get() else { return };
        self.pump();
        let mut rx = self.rx.lock();
        if rx.waits_since().is_some_and(|since| since.elapsed() >= limit) {
            rx.not_ready(&self.conn, link);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::{Weak, mpsc};

    use dat_kit::ForkGuard;
    use dat_plugin::ChannelAttr;

    use super::*;
    use crate::data::conn::Control;
    use crate::data::doorbell::Doorbells;
    use crate::data::protocol::OneSided;
    use crate::data::protocol::Thresholds;
    use crate::memory::keys::KeyTable;

    struct NoControl;

    impl Control for NoControl {
        fn schedule_progress(&self) {}
        fn fault(&self, _: &str) {}
        fn receive_available(&self) {}
        fn kick(&self) {}
        fn ask_for(&self, _: u64, _: bool) -> bool {
            false
        }
        fn end_window(&self, _: u32) -> bool {
            false
        }
    }

    /// The engine flushes what a last poll did not find: the poll must not give up because the event thread is at work.
    #[test]
    #[cfg_attr(miri, ignore = "needs memfd")]
    fn a_poll_waits_for_the_event_thread() {
        let thresholds = Thresholds { mapped: 1, kernel: Some(1), one_sided: OneSided::Auto };
        let control: Weak<NoControl> = Weak::new();
        let conn = Conn::new(
            ChannelAttr::default(),
            Doorbells::new([None, None], true),
            thresholds,
            Arc::new(ForkGuard::new().unwrap()),
            Arc::new(KeyTable::new().unwrap()),
            control,
        );
        let (pair, released) = (QueuePair::new(conn, 1, None), AtomicBool::new(false));
        let (locked, is_locked) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let halves = (pair.rx.lock(), pair.tx.lock());
                locked.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                released.store(true, Ordering::SeqCst);
                drop(halves);
            });
            is_locked.recv().unwrap();
            let mut out = [Completion::default()];
            assert_eq!(pair.poll_recv(&mut out, false) + pair.poll_send(&mut out), 0);
            assert!(released.load(Ordering::SeqCst), "the poll gave up");
        });
    }
}
