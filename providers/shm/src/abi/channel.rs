//! The calls of the engine.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::{
    AtomicRequest, BindRequest, Channel, ConnectParam, Event, EventKind, Failure, RecvRequest, Request,
    Status,
};

use crate::control::connection::{Attempt, Chan, End, Phase};
use crate::control::device::Source;
use crate::control::handshake::{self, Packet};
use crate::control::listener::Asked;
use crate::control::session::{Established, Session, check_data, no_resource};
use crate::control::trust::Credentials;
use crate::data::completion::Ready;
use crate::data::queue_pair::QueuePair;
use crate::data::segment::Segment;
use crate::data::slab::Slot;
use crate::foreign::ForeignFd;

/// One end of a connection.
#[derive(Clone)]
pub struct ShmChannel {
    /// The data path of `chan`, without the way through it.
    pair: Arc<QueuePair>,
    chan: Arc<Chan>,
}

impl ShmChannel {
    pub(crate) fn new(chan: Arc<Chan>) -> ShmChannel {
        ShmChannel { pair: chan.pair.clone(), chan }
    }
}

impl Channel for ShmChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let chan = &*self.chan;
        chan.dev.check_fork()?;
        check_data(param.data)?;
        chan.dev.check_reachable(param.addr)?;
        let mut phase = chan.phase();
        if !matches!(*phase, Phase::Idle) {
            return Err(Failure::new(Status::INVALID, "the channel was used for a connection before"));
        }
        // To close it closes what the listener may have sent.
        let socket = chan.dev.socket().map_err(|error| no_resource("a socket", &error))?;
        let socket = ForeignFd::from(socket);
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
        let from = match Credentials::of(&socket) {
            Some(from) if chan.dev.params.users.allow(from.uid) => from,
            Some(from) => {
                *phase = Phase::Stopped;
                let uid = from.uid;
                refused(format!("the listener belongs to user {uid}, which allow_users does not name"));
                return Ok(());
            }
            None => {
                *phase = Phase::Stopped;
                refused("the system does not name the listener's process".into());
                return Ok(());
            }
        };
        let ring = chan.ring_bytes();
        let mut known = chan.dev.peers.at(param.port, from);
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
        let attempt = Box::new(Attempt {
            segment,
            socket: socket.clone(),
            token: chan.dev.new_token(),
            from,
            known: known.clone(),
            port: param.port,
            qos: param.qos,
            data: param.data.to_vec(),
        });
        if let Err(error) = chan.ask(&attempt) {
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
        let chan = &*self.chan;
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
        let (from, registered) = (incoming.from, incoming.registered);
        let socket = Arc::new(incoming.socket);
        let failed = |phase: &mut Phase| {
            *phase = Phase::Stopped;
            chan.dev.forget(request, socket.as_fd());
            chan.dev.event(chan, Event::new(EventKind::ACCEPT_FAILED, chan.attr.user));
            Ok(())
        };
        let Some(asked) = asked else { return failed(&mut phase) };
        let holds = asked.holds;
        let established = match chan.establish(asked, socket.clone(), from, request) {
            Ok(established) => established,
            Err(why) => {
                tracing::warn!("a peer's request: {why}");
                return failed(&mut phase);
            }
        };
        let cma = established.cma;
        let session = chan.set_session(established);
        let known = holds == chan.dev.id;
        let (hello, with, fds) = chan.hello(!known, !known && session.peer.is_trusted());
        let answer = Packet::Accept { with, hello, cma, data: data.to_vec() };
        if let Err(error) = handshake::send(&*session.socket, &answer, &fds) {
            tracing::debug!(%error, "the peer of an accepted request is gone");
            return failed(&mut phase);
        }
        let deadline = Instant::now() + Duration::from_millis(chan.dev.params.handshake_timeout_ms);
        *phase = Phase::Accepting(deadline);
        chan.dev.timer.handshake(deadline);
        if let Some(me) = chan.me.upgrade()
            && let Err(error) = chan.dev.take_over(request, Source::Channel(me), socket.as_fd(), registered)
        {
            *phase = Phase::Stopped;
            return Err(Failure::os("epoll", &error));
        }
        Ok(())
    }

    fn disconnect(&self) -> Status {
        if !self.chan.dev.owner.here() {
            return Status::FORKED;
        }
        self.chan.silent.store(true, Ordering::Release);
        self.chan.finish(End::Local);
        Status::OK
    }

    #[inline]
    fn post(&self, request: &Request) -> Status {
        self.pair.post(request)
    }

    #[inline]
    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.pair.post_recv(request)
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        self.pair.post_list(requests)
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        self.pair.post_recv_list(requests)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        self.pair.post_atomic(request)
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let range = request.range().map(|range| (range, request.access));
        self.pair.bind(request, || self.chan.dev.bind(request.window, range))
    }

    fn settle(&self) {
        self.pair.flush();
    }

    fn local_port(&self) -> u64 {
        self.chan.port
    }

    fn describe(&self) -> String {
        match self.chan.session.get().zip(self.chan.link()) {
            Some((session, link)) if self.chan.dev.owner.here() => session.describe(&self.chan.dev, link),
            _ => format!("port {}, not connected", self.chan.port),
        }
    }

    fn close(&self) {
        if self.chan.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.chan.silent.store(true, Ordering::Release);
        if self.chan.dev.owner.here() {
            self.chan.finish(End::Local);
            // In a child made by fork a thread of the parent may hold the queue's lock for ever.
            self.chan.detach();
        }
        self.pair.conn.counters.set_ready(Ready::Never);
        self.chan.dev.channel_closed();
    }
}

impl Chan {
    /// The accepting side of a connection.
    fn establish(
        &self,
        asked: Asked,
        socket: Arc<ForeignFd>,
        from: Credentials,
        token: u64,
    ) -> Result<Established, String> {
        let Asked { ring, place, hello, parts, peer, .. } = asked;
        let peer = self.dev.peer(from, hello.device, (parts.bitmaps, parts.keys), peer, &socket)?;
        let slab = peer.slab(ring, place, parts.memory)?;
        let segment = Segment::new(Slot::given(&slab, place)?);
        Session::establish(&self.dev, peer, segment, socket, token, hello, false).map_err(|(_, why)| why)
    }
}
