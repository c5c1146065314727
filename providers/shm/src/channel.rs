//! One end of a connection: its phases, and what its two halves share.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ChannelAttr, Completion, ConnectParam, Event, EventKind, Failure,
    RecvRequest, Request, Status,
};

use crate::device::{Dev, Source};
use crate::handshake::{self, Addr, CMA, Hello, MEMBARRIER, Packet, Received, Wake};
use crate::link::{Hints, Link, check_data, no_resource, peer_credentials, peer_pid};
use crate::peer::Peer;
use crate::queue::Que;
use crate::rx::{NEVER, Rx};
use crate::segment::Segment;
use crate::srq::Shared;
use crate::tx::Tx;
use crate::wait;
use dat_sync::{Guard, Lock};

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
    Connecting {
        segment: Segment,
        socket: Arc<OwnedFd>,
        token: u64,
    },
    /// The answer is sent, the peer's word awaited.
    Accepting,
    Live,
    Stopped,
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

    // What queues call.

    /// Whether a poll of the receiving half may find something.
    #[inline]
    pub(crate) fn rx_ready(&self) -> bool {
        // SAFETY: points to a static, or into the segment of `link`, which lives as long as `self`.
        unsafe { (*self.peek.load(Ordering::Acquire)).load(Ordering::Relaxed) != 0 }
    }

    /// Whether a poll of the requesting half may find something. Without `look`, only by what is known here already.
    #[inline]
    pub(crate) fn tx_ready(&self, look: bool) -> bool {
        match self.hint.hint.load(Ordering::Acquire) {
            0 => false,
            1 => {
                let need = self.hint.need.load(Ordering::Relaxed);
                let past = |counter: u32| counter.wrapping_sub(need) as i32 > 0;
                if past(self.acked.load(Ordering::Relaxed)) {
                    return true;
                }
                let Some(link) = self.link.get().filter(|_| look) else { return false };
                let peer = link.segment.peer();
                past(peer.completed.load(Ordering::Relaxed)) || peer.fail.load(Ordering::Relaxed) != 0
            }
            _ => true,
        }
    }

    /// Whether requests are under way.
    pub(crate) fn tx_busy(&self) -> bool {
        self.hint.hint.load(Ordering::Relaxed) != 0
    }

    /// `burst`: the last look found something too, so that more than one message is likely.
    #[inline]
    pub(crate) fn poll_recv(&self, out: &mut [Completion], burst: bool) -> usize {
        match self.rx.try_lock() {
            Some(mut rx) => rx.poll(self, self.link.get(), out, burst),
            None => 0,
        }
    }

    #[inline]
    pub(crate) fn poll_send(&self, out: &mut [Completion]) -> usize {
        match self.tx.try_lock() {
            Some(mut tx) => tx.poll(self, self.link.get(), out),
            None => 0,
        }
    }

    /// Whether there is a completion for the receive queue, with everything done to make one.
    pub(crate) fn rx_waiting(&self) -> bool {
        let mut rx = self.rx.lock();
        match self.link.get() {
            Some(link) => rx.pump(self, link),
            None => rx.has_completion(),
        }
    }

    /// The same for the send queue.
    pub(crate) fn tx_waiting(&self) -> bool {
        let mut tx = self.tx.lock();
        if let Some(link) = self.link.get()
            && tx.busy()
        {
            tx.advance(self, link);
        }
        tx.has_completion()
    }

    /// From now on a queue's polls do not look here unless they are told; with 0 they do.
    pub(crate) fn park(&self, send: bool, recv: bool, number: u32) {
        for (which, affected) in [(RECV, recv), (SEND, send)] {
            if affected {
                self.parked[which].store(number != 0, Ordering::Relaxed);
                if let Some(link) = self.link.get() {
                    link.segment.own().parked[which].store(number, Ordering::Relaxed);
                }
            }
        }
    }

    /// Something was made ready for a queue other than by its own polling.
    #[inline]
    pub(crate) fn tell(&self, which: usize) {
        wait::light_barrier(!self.dev.barriers);
        if self.parked[which].load(Ordering::Relaxed) {
            let queue = if which == RECV { &self.recv_queue } else { &self.send_queue };
            if let Some(queue) = queue {
                queue.mark(self.slots[which].load(Ordering::Relaxed));
            }
        }
    }

    /// Has its queues serve it. `false`: one of them cannot.
    pub(crate) fn attach(self: &Arc<Chan>) -> bool {
        let both = [&self.recv_queue, &self.send_queue].map(|queue| queue.as_ref());
        let slots = match both {
            [Some(recv), Some(send)] if Arc::ptr_eq(recv, send) => {
                let slot = recv.attach(self, true, true);
                [slot, slot]
            }
            [recv, send] => [
                recv.map_or(Some(0), |queue| queue.attach(self, false, true)),
                send.map_or(Some(0), |queue| queue.attach(self, true, false)),
            ],
        };
        for (place, slot) in self.slots.iter().zip(slots) {
            place.store(slot.unwrap_or(u32::MAX), Ordering::Relaxed);
        }
        slots.iter().all(Option::is_some)
    }

    pub(crate) fn detach(&self) {
        for (queue, slot) in [&self.recv_queue, &self.send_queue].into_iter().zip(&self.slots) {
            if let Some(queue) = queue {
                queue.detach(slot.load(Ordering::Relaxed), self);
            }
        }
    }

    /// Its queues ask the peer to tell them, which has not heard of it yet.
    fn linked(&self) {
        for (queue, slot) in [&self.recv_queue, &self.send_queue].into_iter().zip(&self.slots) {
            if let Some(queue) = queue {
                queue.linked(slot.load(Ordering::Relaxed));
            }
        }
    }

    /// Has the event thread look after this channel in a while.
    pub(crate) fn watch(&self) {
        if !self.watched.swap(true, Ordering::AcqRel)
            && let Some(me) = self.me.upgrade()
        {
            self.dev.timer.watch(me);
        }
    }

    /// A receive was posted. A message may have waited for it, and its sender for that.
    #[inline]
    fn unblock(&self, mut rx: Guard<'_, Rx>) {
        if rx.blocked() {
            let ready = self.link.get().is_some_and(|link| rx.pump(self, link));
            drop(rx);
            if ready {
                self.tell(RECV);
            }
        }
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

    /// Everything the peer sent over the socket, and its end if that is there.
    pub(crate) fn socket_ready(&self, hung_up: bool) {
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
                }
            }
        }
    }

    fn packet(&self, packet: Packet, mut fds: Vec<OwnedFd>) -> Result<(), End> {
        let connecting = matches!(*self.phase(), Phase::Connecting { .. });
        match packet {
            Packet::Accept { hello, cma, data } if connecting => self.accepted(hello, cma, &data, fds),
            Packet::Reject { consumer, data } if connecting => {
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
            _ => Err(End::Fault),
        }
    }

    /// The peer accepted.
    fn accepted(&self, hello: Hello, cma_there: bool, data: &[u8], fds: Vec<OwnedFd>) -> Result<(), End> {
        let mut phase = self.phase();
        let Phase::Connecting { segment, socket, token } = std::mem::replace(&mut *phase, Phase::Stopped)
        else {
            return Err(End::Fault);
        };
        let refused = |phase: &mut Phase, segment, socket, token| {
            *phase = Phase::Connecting { segment, socket, token };
            Err(End::Fault)
        };
        if fds.len() != hello.fds() {
            return refused(&mut phase, segment, socket, token);
        }
        let Some(pid) = peer_pid(&socket) else { return refused(&mut phase, segment, socket, token) };
        let link = Link::new(self, segment, socket.clone(), token, pid, hello, fds.into_iter(), true);
        let link = match link {
            Ok(link) => link,
            Err((segment, why)) => {
                tracing::warn!("a peer's answer: {why}");
                return refused(&mut phase, segment, socket, token);
            }
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
        self.dev.event(self, Event::new(EventKind::ESTABLISHED, self.attr.user).with_data(data));
        Ok(())
    }

    fn go_live(&self, link: &Link) {
        self.tx.lock().start(link);
        self.rx.lock().start(self, link);
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

    /// Ends the connection or the attempt, once.
    pub(crate) fn finish(&self, end: End) {
        let event = |kind| Some(Event::new(kind, self.attr.user));
        let event = match (&*self.phase(), end) {
            (Phase::Idle | Phase::Stopped, _) => return,
            (_, End::Local) => None,
            (Phase::Connecting { .. }, _) => event(EventKind::REFUSED),
            (Phase::Accepting, _) => event(EventKind::ACCEPT_FAILED),
            (Phase::Live, End::Peer) => event(EventKind::DISCONNECTED),
            (Phase::Live, _) => event(EventKind::BROKEN),
        };
        self.end_with(end, event);
    }

    fn end_with(&self, end: End, event: Option<Event>) {
        let mut phase = self.phase();
        let (socket, token) = match std::mem::replace(&mut *phase, Phase::Stopped) {
            Phase::Stopped => return,
            Phase::Idle => {
                *phase = Phase::Idle;
                return;
            }
            Phase::Connecting { socket, token, .. } => (socket, token),
            Phase::Accepting => match self.link.get() {
                Some(link) => (link.socket.clone(), link.token),
                None => return,
            },
            Phase::Live => match self.link.get() {
                Some(link) => {
                    self.stop_data(link, end);
                    (link.socket.clone(), link.token)
                }
                None => return,
            },
        };
        self.rx.lock().stop(self);
        self.tx.lock().stop(self);
        let word = if end == End::Local { Packet::Disconnect } else { Packet::Error };
        let _ = handshake::send(&*socket, &word, &[]);
        let _ = rustix::net::shutdown(&*socket, rustix::net::Shutdown::Both);
        // A socket closed with something unread in it is reset, and the peer would not get to read the word.
        while matches!(handshake::receive(&socket), Received::Packet(..) | Received::Garbage(_)) {}
        self.dev.forget(token, socket.as_fd());
        // Before the phase is let go: whoever finds it stopped takes the completions there are.
        for which in [RECV, SEND] {
            self.tell(which);
        }
        drop(phase);
        if let Some(event) = event {
            self.dev.event(self, event);
        }
        let shared = self.rx.lock().shared();
        if let Some(shared) = shared {
            // What it gave back is for others that wait.
            shared.serve();
        }
    }

    /// Takes what succeeded before the end, then closes the data path.
    fn stop_data(&self, link: &Link, end: End) {
        let mut rx = self.rx.lock();
        if end != End::Local {
            rx.pump(self, link);
        }
        rx.stop(self);
        drop(rx);
        let mut tx = self.tx.lock();
        if tx.busy() {
            tx.advance(self, link);
        }
        tx.stop(self);
        drop(tx);
        link.segment.own().gone.store(1, Ordering::SeqCst);
        if end != End::Gone {
            // The peer may be in the middle of a write or read. It starts no other, and this one is soon over.
            wait::barrier(self.dev.barriers);
            if !link.peer_left(Instant::now() + LEAVE) {
                tracing::warn!(
                    pid = link.peer.pid,
                    "the peer does not end its access to this process's memory"
                );
            }
        }
    }

    /// Waits until the peer is in no access to this process's memory that began before. `false`: it does not leave.
    pub(crate) fn peer_left(&self, deadline: Instant) -> bool {
        self.link.get().is_none_or(|link| link.peer_left(deadline))
    }

    /// A counted reference, unless it is being dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Chan>> {
        self.me.upgrade()
    }

    /// The peer process this channel talks to.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.link.get().map(|link| &link.peer)
    }

    fn socket(&self) -> Option<Arc<OwnedFd>> {
        match &*self.phase() {
            Phase::Connecting { socket, .. } => Some(socket.clone()),
            Phase::Accepting | Phase::Live => self.link.get().map(|link| link.socket.clone()),
            Phase::Idle | Phase::Stopped => None,
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this side says of itself, and the descriptors that go with it.
    fn hello(&self) -> (Hello, Vec<std::os::fd::BorrowedFd<'_>>) {
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
        let queues = [&self.recv_queue, &self.send_queue].into_iter().flatten().map(|queue| queue.fd.as_fd());
        (hello, [self.dev.keys.fd(), self.dev.boards.fd()].into_iter().chain(queues).collect())
    }
}

impl Channel for ShmChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let chan = &*self.0;
        chan.dev.check_fork()?;
        check_data(param.data)?;
        chan.dev.check_reachable(param.addr)?;
        let mut phase = chan.phase();
        if !matches!(*phase, Phase::Idle) {
            return Err(Failure::new(Status::INVALID, "the channel was used for a connection before"));
        }
        let ring = chan.dev.params.ring_bytes;
        let (segment, memory) = Segment::create(ring).map_err(|error| no_resource("a segment", &error))?;
        let socket = chan.dev.socket().map_err(|error| no_resource("a socket", &error))?;
        let refused = |why: String| {
            tracing::debug!(port = param.port, "{why}");
            chan.dev.event(chan, Event::new(EventKind::REFUSED, chan.attr.user));
        };
        let name = chan.dev.port_name(param.port)?;
        if let Err(error) = rustix::net::connect(&socket, &name) {
            *phase = Phase::Stopped;
            refused(format!("connect: {error}"));
            return Ok(());
        }
        match peer_credentials(&socket) {
            Some((_, uid)) if chan.dev.params.users.allow(uid) => {}
            Some((_, uid)) => {
                *phase = Phase::Stopped;
                refused(format!("the listener belongs to user {uid}, which allow_users does not name"));
                return Ok(());
            }
            None => {
                *phase = Phase::Stopped;
                refused("the listener does not say who it is".into());
                return Ok(());
            }
        }
        let (hello, fds) = chan.hello();
        let fds: Vec<_> = std::iter::once(memory.as_fd()).chain(fds).collect();
        let request = Packet::Request {
            ring: ring as u32,
            port: param.port,
            qos: param.qos,
            hello,
            data: param.data.to_vec(),
        };
        if let Err(error) = handshake::send(&socket, &request, &fds) {
            *phase = Phase::Stopped;
            refused(format!("the listener went away: {error}"));
            return Ok(());
        }
        let Some(me) = chan.me.upgrade() else { return Ok(()) };
        let socket = Arc::new(socket);
        let token = chan.dev.new_token();
        *phase = Phase::Connecting { segment, socket: socket.clone(), token };
        if let Err(error) = chan.dev.add_source(token, Source::Channel(me), socket.as_fd()) {
            *phase = Phase::Stopped;
            return Err(Failure::os("epoll", &error));
        }
        Ok(())
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let chan = &*self.0;
        chan.dev.check_fork()?;
        check_data(data)?;
        let mut phase = chan.phase();
        if !matches!(*phase, Phase::Idle) {
            return Err(Failure::new(Status::INVALID, "the channel was used for a connection before"));
        }
        let Some(incoming) = chan.dev.take_request(request) else {
            return Err(Failure::new(Status::GONE, format!("there is no connection request {request}")));
        };
        let failed = |phase: &mut Phase| {
            *phase = Phase::Stopped;
            chan.dev.event(chan, Event::new(EventKind::ACCEPT_FAILED, chan.attr.user));
            Ok(())
        };
        let Some(asked) = incoming.asked else { return failed(&mut phase) };
        let segment = match Segment::open(&asked.segment, asked.ring) {
            Ok(segment) => segment,
            Err(why) => {
                tracing::warn!("a peer's segment: {why}");
                return failed(&mut phase);
            }
        };
        let socket = Arc::new(incoming.socket);
        let fds = asked.fds.into_iter();
        let link = Link::new(chan, segment, socket.clone(), request, incoming.pid, asked.hello, fds, false);
        let link = match link {
            Ok(link) => link,
            Err((_, why)) => {
                tracing::warn!("a peer's request: {why}");
                return failed(&mut phase);
            }
        };
        let cma = link.cma.load(Ordering::Relaxed);
        let link = chan.link.get_or_init(|| link);
        chan.linked();
        let (hello, fds) = chan.hello();
        let answer = Packet::Accept { hello, cma, data: data.to_vec() };
        if let Err(error) = handshake::send(&*link.socket, &answer, &fds) {
            tracing::debug!(%error, "the peer of an accepted request is gone");
            return failed(&mut phase);
        }
        *phase = Phase::Accepting;
        if let Some(me) = chan.me.upgrade()
            && let Err(error) = chan.dev.add_source(request, Source::Channel(me), socket.as_fd())
        {
            *phase = Phase::Stopped;
            return Err(Failure::os("epoll", &error));
        }
        Ok(())
    }

    fn disconnect(&self) -> Status {
        if !self.0.dev.owner.here() {
            return Status::FORKED;
        }
        self.0.silent.store(true, Ordering::Release);
        self.0.finish(End::Local);
        Status::OK
    }

    #[inline]
    fn post(&self, request: &Request) -> Status {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return Status::FORKED;
        }
        chan.tx.lock().post(chan, chan.link.get(), request)
    }

    #[inline]
    fn post_recv(&self, request: &RecvRequest) -> Status {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return Status::FORKED;
        }
        let mut rx = chan.rx.lock();
        let status = rx.post(request);
        if status == Status::OK {
            chan.unblock(rx);
        }
        status
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return (0, Status::FORKED);
        }
        let mut tx = chan.tx.lock();
        for (index, request) in requests.iter().enumerate() {
            let status = tx.post(chan, chan.link.get(), request);
            if status != Status::OK {
                return (index, status);
            }
        }
        (requests.len(), Status::OK)
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return (0, Status::FORKED);
        }
        let mut rx = chan.rx.lock();
        let refused = requests.iter().map(|request| rx.post(request)).enumerate();
        let refused = { refused }.find(|(_, status)| *status != Status::OK);
        let (count, status) = refused.unwrap_or((requests.len(), Status::OK));
        if count > 0 {
            chan.unblock(rx);
        }
        (count, status)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return Status::FORKED;
        }
        chan.tx.lock().post_atomic(chan, chan.link.get(), request)
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return Err(Status::FORKED);
        }
        chan.tx.lock().bind(chan, chan.link.get(), request)
    }

    fn settle(&self) {
        let chan = &*self.0;
        if !chan.dev.owner.here() {
            return;
        }
        let mut tx = chan.tx.lock();
        if let Some(link) = chan.link.get()
            && tx.busy()
        {
            tx.advance(chan, link);
        }
        tx.settle(chan);
        let ready = tx.has_completion();
        drop(tx);
        if ready {
            chan.tell(SEND);
        }
    }

    fn local_port(&self) -> u64 {
        self.0.port
    }

    fn describe(&self) -> String {
        match self.0.link.get() {
            Some(link) if self.0.dev.owner.here() => link.describe(&self.0.dev),
            _ => format!("port {}, not connected", self.0.port),
        }
    }

    fn close(&self) {
        if self.0.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.0.silent.store(true, Ordering::Release);
        if self.0.dev.owner.here() {
            self.0.finish(End::Local);
        }
        self.0.detach();
        self.0.peek.store((&raw const NEVER).cast_mut(), Ordering::Release);
        self.0.dev.channel_closed();
    }
}
