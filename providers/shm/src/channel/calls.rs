//! The calls of the engine.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ConnectParam, Event, EventKind, Failure, Opcode, RecvRequest,
    Request, Status,
};

use super::{Attempt, Chan, End, Phase, SEND, ShmChannel};
use crate::device::Source;
use crate::handshake::{self, Packet};
use crate::link::{Link, check_data, no_resource, peer_credentials};
use crate::listener::Asked;
use crate::rx::NEVER;
use crate::segment::Segment;
use crate::slab::Slot;

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
        let pid = match peer_credentials(&socket) {
            Some((pid, uid)) if chan.dev.params.users.allow(uid) => pid,
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
        };
        let ring = chan.ring_bytes();
        let mut known = chan.dev.peers.at(param.port, pid);
        let mut slot = known.as_ref().map_or_else(|| Slot::single(ring), |peer| peer.pool.take(ring));
        // Memory that others use too goes to the very process it was made for.
        if let (Some(peer), Ok(taken)) = (&known, &slot)
            && !taken.is_shared()
            && !peer.lives()
        {
            (known, slot) = (None, Slot::single(ring));
        }
        let segment = Segment::new(slot.map_err(|error| no_resource("a segment", &error))?);
        let Some(me) = chan.me.upgrade() else { return Ok(()) };
        let socket = Arc::new(socket);
        let mut attempt = Box::new(Attempt {
            segment,
            socket: socket.clone(),
            token: chan.dev.new_token(),
            pid,
            known: known.clone(),
            _wakers: Vec::new(),
            port: param.port,
            qos: param.qos,
            data: param.data.to_vec(),
        });
        if let Err(error) = chan.ask(&mut attempt) {
            *phase = Phase::Stopped;
            refused(format!("the listener went away: {error}"));
            return Ok(());
        }
        let token = attempt.token;
        *phase = Phase::Connecting(attempt);
        if let Err(error) = chan.dev.add_source(token, Source::Channel(me), socket.as_fd()) {
            *phase = Phase::Stopped;
            return Err(Failure::os("epoll", &error));
        }
        drop(phase);
        if let Some(peer) = known {
            // While the other side is at work.
            peer.pool.prepare(ring, peer.links());
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
        let Some(mut incoming) = chan.dev.take_request(request) else {
            return Err(Failure::new(Status::GONE, format!("there is no connection request {request}")));
        };
        let asked = incoming.asked.take();
        let (pid, registered) = (incoming.pid, incoming.registered);
        let socket = Arc::new(incoming.socket);
        let failed = |phase: &mut Phase| {
            *phase = Phase::Stopped;
            chan.dev.forget(request, socket.as_fd());
            chan.dev.event(chan, Event::new(EventKind::ACCEPT_FAILED, chan.attr.user));
            Ok(())
        };
        let Some(asked) = asked else { return failed(&mut phase) };
        let holds = asked.holds;
        let link = match chan.linked_to(asked, socket.clone(), pid, request) {
            Ok(link) => link,
            Err(why) => {
                tracing::warn!("a peer's request: {why}");
                return failed(&mut phase);
            }
        };
        let cma = link.cma.load(Ordering::Relaxed);
        let link = chan.link.get_or_init(|| link);
        chan.linked();
        let known = holds.device == chan.dev.id;
        let (hello, with, fds) = chan.hello(!known, |queue| !known || !holds.queues.contains(&queue));
        let answer = Packet::Accept { with, hello, cma, data: data.to_vec() };
        if let Err(error) = handshake::send(&*link.socket, &answer, &fds) {
            tracing::debug!(%error, "the peer of an accepted request is gone");
            return failed(&mut phase);
        }
        *phase = Phase::Accepting;
        if let Some(me) = chan.me.upgrade()
            && let Err(error) = chan.dev.take_over(request, Source::Channel(me), socket.as_fd(), registered)
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
        // The shortest messages take a way without a call, across which something would have to be kept.
        if request.opcode == Opcode::SEND
            && chan.dev.owner.here()
            && let Some(link) = chan.link.get()
            && let Some(mut tx) = chan.tx.lock_at_once()
            && let Some(tell) = tx.post_at_once(chan, link, request)
        {
            drop(tx);
            if tell {
                chan.posted(link);
            }
            return Status::OK;
        }
        chan.post_slowly(request)
    }

    #[inline]
    fn post_recv(&self, request: &RecvRequest) -> Status {
        let chan = &*self.0;
        // Nearly all receives take a way without a call, across which something would have to be kept.
        if chan.dev.owner.here()
            && let Some(mut rx) = chan.rx.lock_at_once()
            && rx.post_plain(request)
        {
            return Status::OK;
        }
        chan.post_recv_slowly(request)
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

impl Chan {
    #[inline(never)]
    fn post_slowly(&self, request: &Request) -> Status {
        if !self.dev.owner.here() {
            return Status::FORKED;
        }
        let (mut tx, link) = (self.tx.lock(), self.link.get());
        match link {
            Some(link) if tx.post_direct(self, link, request) => Status::OK,
            _ => tx.post(self, link, request),
        }
    }

    /// A message went into the ring, and somebody may want to hear of it.
    #[cold]
    fn posted(&self, link: &Link) {
        link.wake_receiver();
        self.tell(SEND);
    }

    #[inline(never)]
    fn post_recv_slowly(&self, request: &RecvRequest) -> Status {
        if !self.dev.owner.here() {
            return Status::FORKED;
        }
        let mut rx = self.rx.lock();
        let status = rx.post(request);
        if status == Status::OK {
            self.unblock(rx);
        }
        status
    }

    /// The accepting side of a connection.
    fn linked_to(&self, asked: Asked, socket: Arc<OwnedFd>, pid: u32, token: u64) -> Result<Link, String> {
        let Asked { ring, place, hello, parts, peer, .. } = asked;
        let peer = self.dev.peer(pid, hello.device, parts.device, peer)?;
        let slab = peer.slab(ring, place, parts.memory)?;
        let segment = Segment::new(Slot::given(&slab, place)?);
        Link::new(self, peer, segment, socket, token, hello, parts.queues, false).map_err(|(_, why)| why)
    }
}
