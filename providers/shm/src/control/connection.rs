//! One end of a connection: its phases, the packets of its socket, and what the data path asks of it.

mod attempt;
mod teardown;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_plugin::{ChannelAttr, ChannelFlag, Event, EventKind};

use crate::control::device::{Dev, PACKETS};
use crate::control::handshake::{self, Addr, CMA, Hello, MEMBARRIER, Packet, Parts, Received, Wake, With};
use crate::control::peer::Peer;
use crate::control::session::{Established, Session};
use crate::control::timer::Timed;
use crate::control::trust::Credentials;
use crate::data::conn::{Conn, Control};
use crate::data::doorbell::{Doorbells, RECV, SEND};
use crate::data::link::Link;
use crate::data::queue::CompletionQueue;
use crate::data::queue_pair::{Idle, QueuePair};
use crate::data::segment::Segment;
use crate::data::sizes;
use crate::data::slab::Slot;
use crate::data::srq::Shared;
use crate::foreign::ForeignFd;
use crate::memory::mapping::HugePages;

/// How long a peer in the middle of an access to this process's memory is waited for.
pub(crate) const LEAVE: Duration = Duration::from_millis(100);

/// One end of a connection.
pub(crate) struct Chan {
    /// The data path.
    pub(crate) pair: Arc<QueuePair>,
    /// Set with the link of `pair`.
    pub(crate) session: OnceLock<Session>,
    pub(crate) dev: Arc<Dev>,
    pub(crate) attr: ChannelAttr,
    send_queue: Option<Arc<CompletionQueue>>,
    recv_queue: Option<Arc<CompletionQueue>>,
    pub(crate) phase: Mutex<Phase>,
    pub(crate) me: Weak<Chan>,
    pub(crate) port: u64,
    /// A fault is known and awaits the event thread.
    faulty: AtomicBool,
    /// Its events are of no interest any more.
    pub(crate) silent: AtomicBool,
    pub(crate) closed: AtomicBool,
}

pub(crate) enum Phase {
    Idle,
    /// The request is sent.
    Connecting(Box<Attempt>),
    /// The answer is sent; the peer confirms it until then.
    Accepting(Instant),
    Live,
    Stopped,
}

/// A request under way.
pub(crate) struct Attempt {
    pub(crate) segment: Segment,
    pub(crate) socket: Arc<ForeignFd>,
    pub(crate) token: u64,
    /// The listener's process.
    pub(crate) from: Credentials,
    /// The device that listened there before: what it knows already is left out of the request.
    pub(crate) known: Option<Arc<Peer>>,
    pub(crate) port: u64,
    pub(crate) qos: u32,
    pub(crate) data: Vec<u8>,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// This side's wish.
    Local,
    /// The peer's wish.
    Peer,
    /// The peer is gone.
    Gone,
    /// Something failed here, or the peer reports a failure.
    Fault,
}

impl Chan {
    pub(crate) fn new(
        dev: Arc<Dev>,
        attr: &ChannelAttr,
        send_queue: Option<Arc<CompletionQueue>>,
        recv_queue: Option<Arc<CompletionQueue>>,
        srq: Option<Arc<Shared>>,
        port: u64,
    ) -> Arc<Chan> {
        Arc::new_cyclic(|me: &Weak<Chan>| {
            let queues =
                [&recv_queue, &send_queue].map(|queue| queue.as_ref().map(|queue| queue.doorbell.clone()));
            let conn = Conn::new(
                *attr,
                Doorbells::new(queues, !dev.barriers),
                dev.params.thresholds(),
                dev.owner.clone(),
                dev.keys.clone(),
                me.clone(),
            );
            Chan {
                pair: Arc::new(QueuePair::new(conn, dev.reads_in(attr), srq)),
                session: OnceLock::new(),
                attr: *attr,
                dev,
                send_queue,
                recv_queue,
                phase: Mutex::new(Phase::Idle),
                me: me.clone(),
                port,
                faulty: AtomicBool::new(false),
                silent: AtomicBool::new(false),
                closed: AtomicBool::new(false),
            }
        })
    }

    // What the event thread calls.

    fn connected(&self) -> Option<(&Session, &Link)> {
        self.session.get().zip(self.link())
    }

    pub(crate) fn link(&self) -> Option<&Link> {
        self.pair.conn.link.get()
    }

    /// The socket is readable, or the peer hung up. One packet is taken at a time: the descriptor stays readable while
    /// there are more, and to ask for one that is not there costs as much as being called again.
    pub(crate) fn socket_ready(&self, hung_up: bool) {
        self.take_packets(if hung_up { PACKETS } else { 1 }, hung_up);
    }

    /// Up to `most` packets of the peer, and its end if that is there.
    pub(crate) fn take_packets(&self, most: usize, hung_up: bool) {
        let Some(socket) = self.socket() else { return };
        // The descriptor stays readable: what is left is taken next time.
        for _ in 0..most {
            match handshake::receive(&socket) {
                Received::Empty if hung_up => return self.finish(End::Gone),
                Received::Empty => return,
                Received::Closed => return self.finish(End::Gone),
                Received::Garbage(what) => {
                    tracing::warn!("a peer sent {what}; the connection is broken");
                    return self.finish(End::Fault);
                }
                Received::Packet(packet, fds) => {
                    if let Err(end) = self.packet(packet, fds) {
                        return self.finish(end);
                    }
                }
            }
        }
    }

    fn packet(&self, packet: Packet, mut fds: Vec<ForeignFd>) -> Result<(), End> {
        let connecting = matches!(*self.phase(), Phase::Connecting(_));
        match packet {
            Packet::Accept { with, hello, cma, data } if connecting => {
                let parts = Parts::new(with, fds).ok_or(End::Fault)?;
                self.accepted(hello, cma, &data, parts)
            }
            Packet::Again if connecting => self.ask_again(),
            Packet::Reject { consumer, data } if connecting => {
                if let Phase::Connecting(attempt) = &*self.phase() {
                    attempt.segment.slot().refused();
                }
                let kind = if consumer { EventKind::REJECTED } else { EventKind::REFUSED };
                self.end_with(End::Gone, Some(Event::new(kind, self.attr.user).with_data(&data)));
                Ok(())
            }
            _ if connecting => Err(End::Fault),
            Packet::Confirm { cma } => {
                let mut phase = self.phase();
                let (Phase::Accepting(_), Some((_, link))) = (&*phase, self.connected()) else {
                    return Err(End::Fault);
                };
                link.cma.fetch_and(cma, Ordering::Relaxed);
                *phase = Phase::Live;
                self.go_live();
                drop(phase);
                self.dev.event(self, Event::new(EventKind::ESTABLISHED, self.attr.user));
                Ok(())
            }
            Packet::Kick => {
                self.pair.pump();
                Ok(())
            }
            Packet::Disconnect => Err(End::Peer),
            Packet::Error => Err(End::Fault),
            other => match self.session.get() {
                Some(session) => self.memory_packet(session, other, fds.pop()),
                None => Err(End::Fault),
            },
        }
    }

    /// A packet about memory of either side.
    fn memory_packet(&self, session: &Session, packet: Packet, fd: Option<ForeignFd>) -> Result<(), End> {
        let memory = &session.peer.memory;
        match packet {
            Packet::MapRequest { map, write } => {
                let trusted = session.peer.is_trusted();
                let shared = self.dev.keys.share(map, write, self.attr.domain).filter(|_| trusted);
                if shared.is_some() {
                    session.peer.shares(map);
                }
                let (len, ok) = shared.as_ref().map_or((0, false), |(_, len)| (*len, true));
                let reply = Packet::MapReply { map, write, len, ok };
                let fds: Vec<_> = shared.iter().map(|(fd, _)| fd.as_fd()).collect();
                // A socket without room: the peer asks again.
                let _ = handshake::send(&*session.socket, &reply, &fds);
                Ok(())
            }
            Packet::MapReply { map, write, len, ok } => {
                if !session.answered(map, write) {
                    return Err(End::Fault);
                }
                let huge = self.dev.params.hugepages != HugePages::Off;
                memory.maps.answer(map, write, len, huge, fd.filter(|_| ok));
                self.pair.pump();
                Ok(())
            }
            Packet::Unmap { map } => {
                memory.maps.forget(map);
                self.dev.forget_mapping(&session.peer, map);
                Ok(())
            }
            _ => Err(End::Fault),
        }
    }

    /// Connects the data path, whose queues then ask the peer for doorbells.
    pub(crate) fn set_session(&self, established: Established) -> &Session {
        let Established { session, link, .. } = established;
        self.pair.conn.link.get_or_init(|| link);
        let session = self.session.get_or_init(|| session);
        for (which, queue) in self.queues() {
            queue.linked(self.pair.conn.doorbells.slot(which));
        }
        session
    }

    fn queues(&self) -> impl Iterator<Item = (usize, &Arc<CompletionQueue>)> {
        let both = [(RECV, &self.recv_queue), (SEND, &self.send_queue)];
        both.into_iter().filter_map(|(which, queue)| Some((which, queue.as_ref()?)))
    }

    /// Has its queues serve it. `false`: one of them cannot.
    pub(crate) fn attach(&self) -> bool {
        let pair = &self.pair;
        let slots = match [&self.recv_queue, &self.send_queue].map(Option::as_ref) {
            [Some(recv), Some(send)] if Arc::ptr_eq(recv, send) => {
                let slot = recv.attach(pair, true, true);
                [slot, slot]
            }
            [recv, send] => [
                recv.map_or(Some(0), |queue| queue.attach(pair, false, true)),
                send.map_or(Some(0), |queue| queue.attach(pair, true, false)),
            ],
        };
        for (which, slot) in [RECV, SEND].into_iter().zip(slots) {
            pair.conn.doorbells.set_slot(which, slot.unwrap_or(u32::MAX));
        }
        slots.iter().all(Option::is_some)
    }

    pub(crate) fn detach(&self) {
        for (which, queue) in self.queues() {
            queue.detach(self.pair.conn.doorbells.slot(which), &self.pair);
        }
    }

    fn go_live(&self) {
        let single_threaded = self.attr.flags().contains(ChannelFlag::SINGLE_THREADED);
        self.pair.start(single_threaded);
        if single_threaded {
            self.queues().for_each(|(_, queue)| queue.for_one_thread());
        }
        if self.dev.params.rnr_timeout_ms > 0 {
            let limit = Duration::from_millis(self.dev.params.rnr_timeout_ms);
            self.dev.timer.patience(self.me.clone(), limit);
        }
    }

    /// A counted reference, unless it is being dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Chan>> {
        self.me.upgrade()
    }

    /// How large the rings are, if this side makes them.
    pub(crate) fn ring_bytes(&self) -> usize {
        self.dev.params.ring_bytes.unwrap_or_else(|| sizes::ring(&self.attr))
    }

    /// The peer process this channel talks to.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.session.get().map(|session| &session.peer)
    }

    fn socket(&self) -> Option<Arc<ForeignFd>> {
        match &*self.phase() {
            Phase::Connecting(attempt) => Some(attempt.socket.clone()),
            Phase::Accepting(_) | Phase::Live => self.session.get().map(|session| session.socket.clone()),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    pub(crate) fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the attempt if the peer was accepted and has not confirmed in time. Else gives the deadline, if there is one.
    pub(crate) fn drop_late(&self, now: Instant) -> Option<Instant> {
        let Phase::Accepting(deadline) = *self.phase() else { return None };
        if deadline > now {
            return Some(deadline);
        }
        tracing::warn!(port = self.port, "an accepted peer does not confirm; the connection is given up");
        self.finish(End::Gone);
        None
    }

    /// The peer freed an area of its memory.
    pub(crate) fn forget_mapping(&self, map: u64) {
        self.pair.forget_mapping(map);
        if let Some(session) = self.session.get() {
            session.forget(map);
        }
    }
}

impl Timed for Chan {
    fn progress_idle(&self, last: &mut u64) -> Idle {
        if let Some(session) = self.session.get() {
            session.ask_again();
        }
        self.pair.progress_idle(last)
    }

    fn check_rnr_timeout(&self, limit: Duration) {
        self.pair.check_rnr_timeout(limit);
    }
}

impl Control for Chan {
    fn schedule_progress(&self) {
        if let Some(me) = self.arc() {
            self.dev.timer.watch(me);
        }
    }

    fn fault(&self, what: &str) {
        if !self.faulty.swap(true, Ordering::AcqRel) {
            tracing::debug!(port = self.port, "{what}");
            if let Some(me) = self.arc() {
                self.dev.to_finish(me);
            }
        }
    }

    fn receive_available(&self) {
        self.pair.conn.in_line.store(false, Ordering::Release);
        self.pair.pump();
    }

    fn kick(&self) {
        if let Some(session) = self.session.get() {
            // When the socket is full the peer has enough to wake up for.
            session.send(&Packet::Kick);
        }
    }

    fn ask_for(&self, map: u64, write: bool) -> bool {
        self.session.get().is_some_and(|session| session.ask_for(map, write))
    }

    fn end_window(&self, rkey: u32) -> bool {
        self.dev.end_window(rkey, self.attr.domain)
    }
}
