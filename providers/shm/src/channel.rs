//! One end of a connection: its phases, and what its two halves share.

mod calls;
mod ending;
mod served;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use dat_plugin::{ChannelAttr, ChannelFlag, Event, EventKind};

use crate::device::Dev;
use crate::handshake::{self, Addr, CMA, Hello, Holds, MEMBARRIER, Packet, Parts, Received, Wake, With};
use crate::link::{Hints, Link};
use crate::peer::{Peer, Waker};
use crate::queue::Que;
use crate::rx::{NEVER, Rx};
use crate::segment::Segment;
use crate::sizes;
use crate::slab::Slot;
use crate::srq::Shared;
use crate::tx::Tx;
use crate::wait;
use dat_sync::Lock;

/// How long a peer in the middle of an access to this process's memory is waited for.
pub(crate) const LEAVE: Duration = Duration::from_millis(100);

/// One end of a connection.
#[derive(Clone)]
pub struct ShmChannel(pub(crate) Arc<Chan>);

pub(crate) struct Chan {
    // Read by polls of an idle channel.
    /// The word that is not 0 when there is something to receive.
    pub(crate) peek: AtomicPtr<AtomicU32>,
    pub(crate) hint: Hints,
    /// What frames of the peer said of its counter.
    pub(crate) acked: AtomicU32,
    /// The peer's requests finished here, for frames to tell.
    pub(crate) rx_completed: AtomicU32,
    link: OnceLock<Link>,
    pub(crate) dev: Arc<Dev>,
    pub(crate) attr: ChannelAttr,
    pub(crate) send_queue: Option<Arc<Que>>,
    recv_queue: Option<Arc<Que>>,
    rx: Lock<Rx>,
    tx: Lock<Tx>,
    phase: Mutex<Phase>,
    me: Weak<Chan>,
    port: u64,
    /// A fault is known and awaits the event thread.
    faulty: AtomicBool,
    /// Its events are of no interest any more.
    pub(crate) silent: AtomicBool,
    watched: AtomicBool,
    closed: AtomicBool,
    /// By queue, [`RECV`] and [`SEND`]: its polls do not look here unless they are told; and the place it is told by.
    parked: [AtomicBool; 2],
    slots: [AtomicU32; 2],
    /// It waits for a receive of a shared queue.
    pub(crate) in_line: AtomicBool,
}

pub(crate) const RECV: usize = 0;
pub(crate) const SEND: usize = 1;

enum Phase {
    Idle,
    /// The request is sent.
    Connecting(Box<Attempt>),
    /// The answer is sent, the peer's word awaited.
    Accepting,
    Live,
    Stopped,
}

/// A request under way.
struct Attempt {
    segment: Segment,
    socket: Arc<OwnedFd>,
    token: u64,
    /// The listener's process.
    pid: u32,
    /// Whom it was taken for, and queues of that device, so that they can be left out of the answer.
    known: Option<Arc<Peer>>,
    _wakers: Vec<Arc<Waker>>,
    port: u64,
    qos: u32,
    data: Vec<u8>,
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
    /// Something failed here, or the peer says so.
    Fault,
}

impl Chan {
    pub(crate) fn new(
        dev: Arc<Dev>,
        attr: &ChannelAttr,
        send_queue: Option<Arc<Que>>,
        recv_queue: Option<Arc<Que>>,
        srq: Option<Arc<Shared>>,
        port: u64,
    ) -> Arc<Chan> {
        Arc::new_cyclic(|me| Chan {
            peek: AtomicPtr::new((&raw const NEVER).cast_mut()),
            hint: Hints::default(),
            acked: AtomicU32::new(0),
            rx_completed: AtomicU32::new(0),
            link: OnceLock::new(),
            attr: *attr,
            rx: Lock::new(Rx::new(attr, dev.reads_in(attr), srq)),
            in_line: AtomicBool::new(false),
            tx: Lock::new(Tx::new(attr.max_requests, attr.max_request_segments, attr.max_reads_out)),
            dev,
            send_queue,
            recv_queue,
            phase: Mutex::new(Phase::Idle),
            me: me.clone(),
            port,
            faulty: AtomicBool::new(false),
            silent: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            parked: Default::default(),
            slots: Default::default(),
        })
    }

    // What the event thread calls.

    /// Makes all progress there is without the application; wakes its sleepers.
    pub(crate) fn pump(&self) {
        let Some(link) = self.link.get() else { return };
        let ready = self.rx.lock().pump(self, link);
        if ready {
            self.tell(RECV);
        }
        let ready = {
            let mut tx = self.tx.lock();
            if tx.busy() {
                tx.advance(self, link);
            }
            tx.has_completion()
        };
        if ready {
            self.tell(SEND);
        }
    }

    /// Looks after a channel that was watched. `idle` is how long nothing happened; the result says whether to go on,
    /// and whether something did happen.
    pub(crate) fn tend(&self, last: &mut u64) -> (bool, bool) {
        let Some(link) = self.link.get() else {
            self.watched.store(false, Ordering::Release);
            return (false, false);
        };
        self.offer_stage(link);
        self.pump();
        let (busy, wants, progress) = {
            let tx = self.tx.lock();
            (tx.busy() && !tx.has_completion(), tx.wants_room(), tx.progress())
        };
        let answers = self.rx.lock().wants_room();
        let own = link.segment.own();
        if wants || answers {
            own.want_room.store(1, Ordering::Relaxed);
            wait::barrier(self.dev.barriers);
            self.pump();
        } else {
            own.want_room.store(0, Ordering::Relaxed);
        }
        let moved = *last != progress;
        *last = progress;
        if busy && !moved {
            link.kick();
        }
        let go_on = busy || wants || answers;
        if !go_on {
            self.watched.store(false, Ordering::Release);
        }
        (go_on, moved)
    }

    /// Breaks the connection when a message has waited for a receive for too long.
    pub(crate) fn check_patience(&self, limit: Duration) {
        let Some(link) = self.link.get() else { return };
        self.pump();
        let mut rx = self.rx.lock();
        if rx.waits_since().is_some_and(|since| since.elapsed() >= limit) {
            rx.not_ready(self, link);
        }
    }

    /// The socket is readable, or the peer hung up. One packet is taken at a time: the descriptor stays readable while
    /// there are more, and to ask for one that is not there costs as much as being called again.
    pub(crate) fn socket_ready(&self, hung_up: bool) {
        self.take_packets(hung_up, hung_up);
    }

    /// Everything the peer sent over the socket, and its end if that is there.
    pub(crate) fn take_packets(&self, all: bool, hung_up: bool) {
        let Some(socket) = self.socket() else { return };
        loop {
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
                    if !all {
                        return;
                    }
                }
            }
        }
    }

    fn packet(&self, packet: Packet, mut fds: Vec<OwnedFd>) -> Result<(), End> {
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
                let (Phase::Accepting, Some(link)) = (&*phase, self.link.get()) else {
                    return Err(End::Fault);
                };
                link.cma.fetch_and(cma, Ordering::Relaxed);
                *phase = Phase::Live;
                self.go_live(link);
                drop(phase);
                self.told(link);
                self.dev.event(self, Event::new(EventKind::ESTABLISHED, self.attr.user));
                Ok(())
            }
            Packet::Kick => {
                self.pump();
                Ok(())
            }
            Packet::Disconnect => Err(End::Peer),
            Packet::Error => Err(End::Fault),
            Packet::MapRequest { map, write } => {
                let Some(link) = self.link.get() else { return Err(End::Fault) };
                let shared = self.dev.keys.share(map, write);
                let (len, ok) = shared.as_ref().map_or((0, false), |(_, len)| (*len, true));
                let reply = Packet::MapReply { map, write, len, ok };
                let fds: Vec<_> = shared.iter().map(|(fd, _)| fd.as_fd()).collect();
                // If the peer is gone, the socket says how, in order.
                let _ = handshake::send(&*link.socket, &reply, &fds);
                Ok(())
            }
            Packet::MapReply { map, write, len, ok } => {
                let Some(link) = self.link.get() else { return Err(End::Fault) };
                if !link.asked.lock().contains(&(map, write)) {
                    return Err(End::Fault);
                }
                link.peer.maps.answer(map, write, len, fds.pop().filter(|_| ok));
                self.pump();
                Ok(())
            }
            Packet::Lend { map, len } => {
                let Some(link) = self.link.get() else { return Err(End::Fault) };
                let ok = link.peer.staging.may_lend(len) && link.peer.maps.take(map, len, fds.pop());
                let _ = handshake::send(&*link.socket, &Packet::Lent { map, ok }, &[]);
                Ok(())
            }
            Packet::Lent { map, ok } => {
                let Some(link) = self.link.get() else { return Err(End::Fault) };
                if link.peer.staging.answered(link.token, map, ok) { Ok(()) } else { Err(End::Fault) }
            }
            _ => Err(End::Fault),
        }
    }

    /// Makes the staging area for the peer that some message could have used, and tells of it.
    fn offer_stage(&self, link: &Link) {
        let (bytes, areas) = (self.dev.params.stage_bytes, &self.dev.areas);
        let number = || self.dev.keys.next_number();
        if let Some(stage) = link.peer.staging.offer(link.token, bytes, areas, number) {
            let packet = Packet::Lend { map: stage.map, len: stage.len() };
            if handshake::send(&*link.socket, &packet, &[stage.fd()]).is_err() {
                link.peer.staging.over(link.token);
            }
        }
    }

    /// Sends a request; what the peer has, as far as it is known, is left out.
    fn ask(&self, attempt: &mut Attempt) -> std::io::Result<()> {
        let known = attempt.known.as_deref();
        let (hello, mut with, mut fds) =
            self.hello(known.is_none(), |queue| known.is_none_or(|peer| !peer.is_told(queue)));
        let slot = attempt.segment.slot();
        if known.is_none() || !slot.is_shared() {
            with.add(With::MEMORY);
            fds.insert(0, slot.slab().fd());
        }
        let holds = match &attempt.known {
            Some(peer) => {
                let (holds, wakers) = peer.holds();
                attempt._wakers = wakers;
                holds
            }
            None => Holds::default(),
        };
        let request = Packet::Request {
            with,
            ring: attempt.segment.ring_bytes() as u32,
            place: slot.place(),
            port: attempt.port,
            qos: attempt.qos,
            hello,
            holds,
            data: attempt.data.clone(),
        };
        slot.sent();
        handshake::send(&*attempt.socket, &request, &fds)
    }

    /// The peer does not have what was left out of the request, so it may be another one: it gets memory of its own.
    fn ask_again(&self) -> Result<(), End> {
        let mut phase = self.phase();
        let Phase::Connecting(attempt) = &mut *phase else { return Err(End::Fault) };
        if attempt.known.take().is_none() {
            return Err(End::Fault);
        }
        attempt.segment.slot().refused();
        let slot = Slot::single(self.ring_bytes()).map_err(|error| {
            tracing::warn!(%error, "a segment");
            End::Fault
        })?;
        attempt.segment = Segment::new(slot);
        // If the peer is gone already the socket says so next, in order.
        let _ = self.ask(attempt);
        Ok(())
    }

    /// The peer accepted.
    fn accepted(&self, hello: Hello, cma_there: bool, data: &[u8], parts: Parts) -> Result<(), End> {
        let mut phase = self.phase();
        let Phase::Connecting(attempt) = std::mem::replace(&mut *phase, Phase::Stopped) else {
            return Err(End::Fault);
        };
        let Attempt { segment, socket, token, pid, known, port, .. } = *attempt;
        let refused = |phase: &mut Phase, segment, socket, why: &str| {
            tracing::warn!("a peer's answer: {why}");
            // To be ended as an attempt.
            let (known, _wakers, data) = (None, Vec::new(), Vec::new());
            let attempt = Attempt { segment, socket, token, pid, known, _wakers, port, qos: 0, data };
            *phase = Phase::Connecting(Box::new(attempt));
            Err(End::Fault)
        };
        let peer = match self.dev.peer(pid, hello.device, parts.device, known) {
            Ok(peer) => peer,
            Err(why) => return refused(&mut phase, segment, socket, &why),
        };
        let link = Link::new(self, peer, segment, socket.clone(), token, hello, parts.queues, true);
        let link = match link {
            Ok(link) => link,
            Err((segment, why)) => return refused(&mut phase, segment, socket, &why),
        };
        let cma_here = link.cma.load(Ordering::Relaxed);
        link.cma.fetch_and(cma_there, Ordering::Relaxed);
        let link = self.link.get_or_init(|| link);
        self.linked();
        // If the peer is gone already the socket says so next, in order.
        let _ = handshake::send(&*socket, &Packet::Confirm { cma: cma_here }, &[]);
        *phase = Phase::Live;
        self.go_live(link);
        drop(phase);
        self.told(link);
        self.dev.peers.listens(port, &link.peer);
        self.dev.event(self, Event::new(EventKind::ESTABLISHED, self.attr.user).with_data(data));
        Ok(())
    }

    /// The peer has this channel's queues.
    fn told(&self, link: &Link) {
        for queue in [&self.recv_queue, &self.send_queue].into_iter().flatten() {
            link.peer.told(queue.id);
        }
    }

    fn go_live(&self, link: &Link) {
        self.tx.lock().start(self, link);
        self.rx.lock().start(self, link);
        if self.attr.flags().contains(ChannelFlag::SINGLE_THREADED) {
            // This thread takes them now and then, and not again soon: the next is the one.
            self.tx.declare(true);
            self.rx.declare(true);
            let queues = [&self.send_queue, &self.recv_queue];
            queues.into_iter().flatten().for_each(|queue| queue.for_one_thread());
        }
        // What the peer told of before could not be taken yet.
        if self.rx_ready() {
            self.tell(RECV);
        }
        if self.dev.params.rnr_timeout_ms > 0
            && let Some(me) = self.me.upgrade()
        {
            self.dev.timer.patience(me);
        }
    }

    /// The data path met an error: the event thread ends the connection.
    #[cold]
    pub(crate) fn fault(&self, what: &str) {
        if !self.faulty.swap(true, Ordering::AcqRel) {
            tracing::debug!(port = self.port, "{what}");
            if let Some(me) = self.me.upgrade() {
                self.dev.to_finish(me);
            }
        }
    }

    /// A counted reference, unless it is being dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Chan>> {
        self.me.upgrade()
    }

    /// How large the rings are, if this side makes them.
    fn ring_bytes(&self) -> usize {
        self.dev.params.ring_bytes.unwrap_or_else(|| sizes::ring(&self.attr))
    }

    /// The peer process this channel talks to.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.link.get().map(|link| &link.peer)
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        match &*self.phase() {
            Phase::Connecting(attempt) => Some(attempt.socket.clone()),
            Phase::Accepting | Phase::Live => self.link.get().map(|link| link.socket.clone()),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this side says of itself, and the descriptors that go with it: those of the device, and those of the queues
    /// that `queues` wants.
    fn hello(&self, device: bool, queues: impl Fn(u64) -> bool) -> (Hello, With, Vec<BorrowedFd<'_>>) {
        let mut flags = 0;
        if self.dev.barriers {
            flags |= MEMBARRIER;
        }
        if self.dev.params.cma {
            flags |= CMA;
        }
        let wake = |which: usize, queue: &Option<Arc<Que>>| {
            let slot = self.slots[which].load(Ordering::Relaxed);
            queue.as_ref().map_or(Wake::default(), |queue| Wake {
                queue: queue.id,
                board: queue.board.number(),
                slot,
            })
        };
        let hello = Hello {
            device: self.dev.id,
            wake: [wake(RECV, &self.recv_queue), wake(SEND, &self.send_queue)],
            port: self.port,
            addr: Addr(self.dev.params.address.into()),
            domain: self.attr.domain,
            flags,
            probe: self.dev.nonce_addr(),
            nonce: self.dev.nonce(),
            reads_in: self.dev.reads_in(&self.attr),
        };
        let (mut with, mut fds) = (With::default(), Vec::with_capacity(5));
        if device {
            with.add(With::DEVICE);
            fds.extend([self.dev.keys.fd(), self.dev.boards.fd()]);
        }
        for (queue, part) in [&self.recv_queue, &self.send_queue].into_iter().zip(With::QUEUES) {
            if let Some(queue) = queue.as_ref().filter(|queue| queues(queue.id)) {
                with.add(part);
                fds.push(queue.fd.as_fd());
            }
        }
        (hello, with, fds)
    }
}
