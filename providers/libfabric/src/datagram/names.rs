//! The names of peers in frames, and how a connect goes on when its peer's address is known.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use dat_kit::Qualifier;
use dat_plugin::{Failure, Status};

use crate::address::Raw;
use crate::channel::Phase;
use crate::datagram::{Datagrams, NO_CHANNEL, PROBE_INTERVAL, Unanswered};
use crate::discovery::{Discovery, Found, PendingLookup};
use crate::endpoint::address_vector::PeerAddress;
use crate::endpoint::port::Port;
use crate::status::Errno;
use crate::wire::control::{Control, PAYLOAD};
use crate::wire::datagram::{Body, Frame};

impl Datagrams {
    /// A descriptor that is readable when a socket of the discovery service is.
    pub fn wait(&self) -> Option<BorrowedFd<'_>> {
        self.discovery.as_ref().map(Discovery::wait)
    }

    /// Whether frames may arrive although there is no connection.
    pub fn may_have_frames(&self) -> bool {
        self.discovery.as_ref().map_or_else(|| !self.ports.lock().is_empty(), Discovery::may_have_frames)
    }

    /// The device's name in frames.
    pub fn name(&self) -> &[u8] {
        self.discovery.as_ref().map_or(&self.address, |discovery| &discovery.name).bytes()
    }

    /// Decodes a peer's name in a frame: its address, and where its process listens by TCP.
    fn read_name(&self, name: &[u8]) -> Option<(Raw, Option<SocketAddr>)> {
        match &self.discovery {
            Some(discovery) => discovery.read_name(name).map(|(address, tcp)| (address, Some(tcp))),
            None => {
                let address = Raw::new(name).filter(|raw| raw.bytes().len() == self.address.bytes().len())?;
                Some((address, address.socket()))
            }
        }
    }

    /// Whether the address of this name is in the address vector.
    pub fn is_known(&self, name: &[u8]) -> bool {
        self.read_name(name).is_some_and(|(address, _)| self.peers.contains(&address))
    }

    /// The peer with this name, entered in the address vector, and where its process listens by TCP.
    pub fn named(&self, name: &[u8]) -> Result<(Arc<PeerAddress>, Option<SocketAddr>), Failure> {
        let (address, place) = self.read_name(name).ok_or_else(|| {
            Failure::new(Status::BAD_ADDRESS, "an address in another format than this fabric's")
        })?;
        Ok((self.peers.get(&address, place)?, place))
    }

    /// A lookup has ended: the connect goes on, or fails.
    fn on_lookup(&self, lookup: &PendingLookup, found: Result<Found, Errno>) {
        let peer = found.and_then(|found| {
            let dest = self.peers.get(&found.address, Some(found.liveness_at)).map_err(|failure| {
                tracing::warn!(%failure, "cannot add a peer's address");
                libc::ENOMEM
            })?;
            Ok((dest, found))
        });
        let (dest, found) = match peer {
            Ok(peer) => peer,
            Err(errno) => return self.on_undeliverable(lookup.chan, errno),
        };
        let Some(chan) = self.channels.get(lookup.chan) else { return };
        let mut st = chan.lock();
        if st.phase != Phase::Connecting {
            return;
        }
        if let Some(link) = &mut st.link {
            link.dest = dest.number;
        }
        st.peer_address = Some(dest.clone());
        let body = Body::Hello { name: self.name(), hello: lookup.hello, data: &lookup.data };
        let frame = Frame { to: 0, secret: found.token, arg: lookup.to().port().into(), body };
        self.outbox.queue(&dest, &frame, lookup.chan, Some(found.liveness_at));
        self.unanswered.lock().push(Unanswered {
            chan: lookup.chan,
            dest,
            next: Instant::now() + PROBE_INTERVAL,
        });
    }

    /// Answers lookups, continues connects whose lookup ended, and ends connections whose peer's process has ended.
    pub fn service_discovery(&self, discovery: &Discovery) -> usize {
        let mut done = discovery.serve();
        if done > 0 {
            self.core.start_polling();
        }
        // The holder of a channel's lock may wait for this thread, so a locked channel is left for the next call.
        let waits = |chan| {
            let chan = self.channels.get(chan);
            chan.is_some_and(|chan| chan.state.try_lock().is_none_or(|st| st.phase == Phase::Connecting))
        };
        for (lookup, found) in discovery.finished_lookups(waits) {
            self.on_lookup(&lookup, found);
            done += 1;
        }
        for (chan, errno) in discovery.gone() {
            tracing::warn!(channel = chan, "the peer's process has ended");
            self.on_undeliverable(chan, errno);
            done += 1;
        }
        if !discovery.is_idle() {
            self.core.wake.soon();
        }
        done
    }

    /// User and qualifier of the listener that a request is for, if there is one.
    pub fn listener_for(&self, port: &Port, frame: &Frame<'_>, quotient: u64) -> Option<(u64, u64)> {
        let listener = match &self.discovery {
            Some(discovery) => discovery.listener(frame.arg),
            None => (port.id != 0).then(|| (port.user, port.port.load(Ordering::Relaxed))),
        };
        // Several qualifiers share a port.
        listener.filter(|(_, number)| Qualifier::new(*number).quotient == quotient)
    }

    /// Probes peers whose answer is missing: a frame to no channel fails if no process is there any more.
    pub fn probe_unanswered(&self) {
        let now = Instant::now();
        let mut unanswered = self.unanswered.lock();
        unanswered.retain_mut(|request| {
            let Some(chan) = self.channels.get(request.chan) else { return false };
            // The holder of its lock may wait for this thread, so it is left for the next call.
            if chan.state.try_lock().is_some_and(|st| st.phase != Phase::Connecting) {
                return false;
            }
            if now >= request.next {
                request.next = now + PROBE_INTERVAL;
                if let (Some(discovery), Some(tcp)) = (&self.discovery, request.dest.tcp()) {
                    discovery.probe(request.chan, tcp);
                    return true;
                }
                let body = Body::Control { control: Control::Ping, payload: [0; PAYLOAD] };
                let frame = Frame { to: NO_CHANNEL, secret: 0, arg: 0, body };
                self.outbox.queue(&request.dest, &frame, request.chan, request.dest.tcp());
            }
            true
        });
        if !unanswered.is_empty() {
            self.core.wake.soon();
        }
    }
}
