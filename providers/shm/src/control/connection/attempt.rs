//! The connecting side, and how each side introduces itself.

use super::*;

impl Chan {
    /// Sends a request; what the peer has, as far as it is known, is left out.
    pub(crate) fn ask(&self, attempt: &Attempt) -> std::io::Result<()> {
        let known = attempt.known.as_deref();
        let (hello, mut with, mut fds) =
            self.hello(known.is_none(), known.is_none() && attempt.from.is_trusted());
        let slot = attempt.segment.slot();
        if known.is_none() || !slot.is_shared() {
            with.add(With::MEMORY);
            fds.splice(0..0, slot.slab().file());
        }
        let holds = known.map_or(0, |peer| peer.device);
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
    pub(super) fn ask_again(&self) -> Result<(), End> {
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
    pub(super) fn accepted(
        &self,
        hello: Hello,
        cma_there: bool,
        data: &[u8],
        parts: Parts,
    ) -> Result<(), End> {
        let mut phase = self.phase();
        let Phase::Connecting(attempt) = std::mem::replace(&mut *phase, Phase::Stopped) else {
            return Err(End::Fault);
        };
        let Attempt { segment, socket, token, from, known, port, .. } = *attempt;
        let refused = |phase: &mut Phase, segment, socket, why: &str| {
            tracing::warn!("a peer's answer: {why}");
            // To be ended as an attempt.
            let (known, data) = (None, Vec::new());
            let attempt = Attempt { segment, socket, token, from, known, port, qos: 0, data };
            *phase = Phase::Connecting(Box::new(attempt));
            Err(End::Fault)
        };
        let peer = match self.dev.peer(from, hello.device, (parts.bitmaps, parts.keys), known, &socket) {
            Ok(peer) => peer,
            Err(why) => return refused(&mut phase, segment, socket, &why),
        };
        let established = Session::establish(&self.dev, peer, segment, socket.clone(), token, hello, true);
        let established = match established {
            Ok(established) => established,
            Err((segment, why)) => return refused(&mut phase, segment, socket, &why),
        };
        let cma = established.cma;
        established.link.cma.fetch_and(cma_there, Ordering::Relaxed);
        let session = self.set_session(established);
        session.send(&Packet::Confirm { cma });
        *phase = Phase::Live;
        self.go_live();
        drop(phase);
        self.dev.peers.listens(port, &session.peer);
        self.dev.event(self, Event::new(EventKind::ESTABLISHED, self.attr.user).with_data(data));
        Ok(())
    }

    /// How this side introduces itself, and the descriptors that go with it: the ready bitmaps where `device` is set, the
    /// key table where `keys` is, too.
    pub(crate) fn hello(&self, device: bool, keys: bool) -> (Hello, With, Vec<BorrowedFd<'_>>) {
        let mut flags = 0;
        if self.dev.barriers {
            flags |= MEMBARRIER;
        }
        if self.dev.params.cma {
            flags |= CMA;
        }
        let wake = |which: usize, queue: &Option<Arc<CompletionQueue>>| {
            let slot = self.pair.conn.doorbells.slot(which);
            queue.as_ref().map_or(Wake::default(), |queue| Wake {
                queue: queue.id,
                bitmap: queue.doorbell.bitmap.number(),
                slot,
                secret: queue.doorbell.socket.secret(),
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
        let (mut with, mut fds) = (With::default(), Vec::with_capacity(3));
        if device {
            with.add(With::DEVICE);
            fds.extend(self.dev.bitmaps.file());
        }
        if keys {
            with.add(With::KEYS);
            fds.extend(self.dev.keys.file());
        }
        (hello, with, fds)
    }
}
