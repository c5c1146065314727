//! Who the peers of a datagram endpoint are: their names in frames, their numbers in the fabric's table, and where their
//! processes are; and how a connect goes on once it is known where its peer is.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use dat_plugin::{Failure, Status};
use libfabric_sys::types::fi_addr_t;
use parking_lot::Mutex;

use crate::address::Raw;
use crate::channel::Phase;
use crate::datagrams::{ASK_AGAIN, Datagrams, MAX_PEERS, NOBODYS, Unanswered};
use crate::device::Dev;
use crate::endpoint::Errno;
use crate::fabric::Fabric;
use crate::finder::{Ask, Finder, Found};
use crate::frames::{Body, Frame};
use crate::port::Port;
use crate::wire::{Bell, PAYLOAD};

/// The endpoints of this process on fabrics that map each other's memory, by address. libfabric's shm uses the mapping of
/// another endpoint of the process as long as it knows its address, closed or not; so who has one for a peer keeps it open.
static NEIGHBOURS: Mutex<BTreeMap<Vec<u8>, Weak<Port>>> = Mutex::new(BTreeMap::new());

/// Notes an endpoint of this process.
pub fn introduce(name: &Raw, port: &Arc<Port>) {
    let mut all = NEIGHBOURS.lock();
    all.retain(|_, port| port.strong_count() > 0);
    all.insert(name.bytes().to_vec(), Arc::downgrade(port));
}

impl Datagrams {
    /// A descriptor that is readable when somebody asks where the device is, or answers.
    pub fn wait(&self) -> Option<BorrowedFd<'_>> {
        self.finder.as_ref().map(Finder::wait)
    }

    /// Whether frames may come though there is no connection.
    pub fn may_be_spoken_to(&self) -> bool {
        self.finder.as_ref().map_or_else(|| !self.ports.lock().is_empty(), Finder::may_be_spoken_to)
    }

    /// The device's name in frames.
    pub fn name(&self) -> &[u8] {
        self.finder.as_ref().map_or(&self.name, |finder| &finder.name).bytes()
    }

    /// The table's number for an address, entered when it is new.
    pub fn peer(&self, fabric: &Fabric, addr: &Raw, place: Option<SocketAddr>) -> Result<fi_addr_t, Failure> {
        let mut peers = self.peers.lock();
        let known = peers.get(addr.bytes()).copied();
        if let (Some(number), Some(place)) = (known, place) {
            self.places.lock().insert(number, place);
        }
        if let Some(known) = known {
            return Ok(known);
        }
        if peers.len() >= MAX_PEERS {
            return Err(Failure::new(
                Status::NO_RESOURCE,
                format!("{MAX_PEERS} peers are known, the most there can be"),
            ));
        }
        if fabric.maps_peers() {
            let neighbour = NEIGHBOURS.lock().get(addr.bytes()).and_then(Weak::upgrade);
            self.kept.lock().extend(neighbour);
        }
        let number = fabric.add_peer(addr)?;
        peers.insert(addr.bytes().to_vec(), number);
        if let Some(place) = place {
            self.places.lock().insert(number, place);
        }
        Ok(number)
    }

    /// A peer's name in a frame: its address, and where its process is to be knocked at.
    fn read_name(&self, name: &[u8]) -> Option<(Raw, Option<SocketAddr>)> {
        match &self.finder {
            Some(finder) => finder.read_name(name).map(|(address, door)| (address, Some(door))),
            None => {
                let address = Raw::new(name).filter(|raw| raw.bytes().len() == self.name.bytes().len())?;
                Some((address, address.socket()))
            }
        }
    }

    /// The peer that goes by this name, and what its host is called.
    pub fn named(&self, fabric: &Fabric, name: &[u8]) -> Result<(fi_addr_t, Option<SocketAddr>), Failure> {
        let (address, place) = self
            .read_name(name)
            .ok_or_else(|| Failure::new(Status::BAD_ADDRESS, "an address that is none of this fabric's"))?;
        Ok((self.peer(fabric, &address, place)?, place))
    }

    /// Where a peer is, if that is known.
    pub fn place(&self, dest: fi_addr_t) -> Option<SocketAddr> {
        self.places.lock().get(&dest).copied()
    }

    /// It is known where a peer is, or that it is nowhere: a connect goes on, or ends.
    fn found(&self, dev: &Dev, ask: &Ask, found: Result<Found, Errno>) {
        let met = found.and_then(|found| {
            let dest = self.peer(&dev.fabric, &found.address, Some(found.door)).map_err(|failure| {
                tracing::warn!(%failure, "a peer cannot be spoken to");
                libc::ENOMEM
            })?;
            Ok((dest, found))
        });
        let (dest, found) = match met {
            Ok(met) => met,
            Err(errno) => return self.gave_up(dev, ask.chan, errno),
        };
        let Some(chan) = dev.chan(ask.chan) else { return };
        let mut st = chan.lock();
        if st.phase != Phase::Connecting {
            return;
        }
        if let Some(link) = &mut st.link {
            link.dest = dest;
        }
        let body = Body::Hello { name: self.name(), hello: ask.hello, data: &ask.data };
        let frame = Frame { to: 0, secret: found.token, arg: ask.to().port().into(), body };
        self.send_soon(dest, &frame, ask.chan, Some(found.door));
        self.unanswered.lock().push(Unanswered { chan: ask.chan, dest, next: Instant::now() + ASK_AGAIN });
    }

    /// Answers who asks, goes on with connects that got an answer, and breaks with peers that are gone.
    pub fn look_after_finding(&self, dev: &Dev, finder: &Finder) -> usize {
        let mut done = finder.answer_all();
        if done > 0 {
            dev.look_from_now_on();
        }
        // A channel whose lock is held may be the one that waits for this to end; another look comes.
        let waits = |chan| {
            let chan = dev.chan(chan);
            chan.is_some_and(|chan| chan.state.try_lock().is_none_or(|st| st.phase == Phase::Connecting))
        };
        for (ask, found) in finder.answers(waits) {
            self.found(dev, &ask, found);
            done += 1;
        }
        for (chan, errno) in finder.gone() {
            tracing::warn!(channel = chan, "the peer's process is gone");
            self.gave_up(dev, chan, errno);
            done += 1;
        }
        if !finder.is_idle() {
            dev.tick();
        }
        done
    }

    /// The user and number of the port a request is for, if somebody listens there.
    pub fn port_for(&self, port: &Port, frame: &Frame<'_>) -> Option<(u64, u64)> {
        match &self.finder {
            Some(finder) => Some((finder.user_of(frame.arg)?, frame.arg.into())),
            None => (port.id != 0).then(|| (port.user, port.port.load(Ordering::Relaxed))),
        }
    }

    /// Sends a frame without meaning to where an answer is waited for: it does not go if nobody is there any more.
    pub fn ask_the_silent(&self, dev: &Dev) {
        let now = Instant::now();
        let mut unanswered = self.unanswered.lock();
        unanswered.retain_mut(|asked| {
            let Some(chan) = dev.chan(asked.chan) else { return false };
            // Its lock may be held by who waits for this one; another look comes.
            if chan.state.try_lock().is_some_and(|st| st.phase != Phase::Connecting) {
                return false;
            }
            if now >= asked.next {
                asked.next = now + ASK_AGAIN;
                if let (Some(finder), Some(door)) = (&self.finder, self.place(asked.dest)) {
                    finder.knock(asked.chan, door);
                    return true;
                }
                let body = Body::Bell { bell: Bell::Ping, payload: [0; PAYLOAD] };
                let frame = Frame { to: NOBODYS, secret: 0, arg: 0, body };
                self.send_soon(asked.dest, &frame, asked.chan, self.place(asked.dest));
            }
            true
        });
        if !unanswered.is_empty() {
            dev.tick();
        }
    }
}
