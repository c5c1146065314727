//! The connecting side.

use std::time::{Duration, Instant};

use dat::{
    ConnectionKind, DtoCompletion, Ep, EpAttr, Evd, Event, Ia, Privileges, Pz, Region, Result, RmrTriplet,
};

use crate::service::{BYTES, IDLE, SINK};

/// Completions that may wait to be taken: more than one life of an endpoint can leave.
pub const COMPLETIONS: u32 = 4096;
/// Operations kept under way by [`Link::step`].
const DEPTH: u32 = 8;

/// An endpoint with all it needs, and how much it has under way.
#[derive(Debug)]
pub struct Link {
    /// The adapter.
    pub ia: Ia,
    /// Zone of everything.
    pub pz: Pz,
    /// Connection events.
    pub connections: Evd,
    /// Completions.
    pub completions: Evd,
    /// Local memory.
    pub region: Region,
    /// The endpoint.
    pub ep: Ep,
    /// The server's memory.
    pub remote: RmrTriplet,
    /// Posted and not completed.
    pub outstanding: u32,
}

/// What goes on while the other side dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is its name")]
pub enum Load {
    Idle,
    Send,
    Write,
    Read,
    Large,
}

impl Load {
    /// All.
    pub const ALL: [Load; 5] = [Load::Idle, Load::Send, Load::Write, Load::Read, Load::Large];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Load> {
        Load::ALL.into_iter().find(|load| format!("{load:?}") == name)
    }

    /// The service that the client requests.
    pub fn mode(self) -> &'static [u8] {
        match self {
            Load::Send | Load::Large => SINK,
            _ => IDLE,
        }
    }
}

impl Link {
    /// An endpoint that is not connected.
    pub fn new(ia: &Ia) -> Result<Link> {
        Link::with(ia, EpAttr::default())
    }

    /// The same with these limits.
    pub fn with(ia: &Ia, attr: EpAttr) -> Result<Link> {
        let pz = ia.pz()?;
        let (connections, completions) = (ia.evd(16)?, ia.evd(COMPLETIONS)?);
        let region = pz.region(BYTES, Privileges::ALL)?;
        let ep = ia.ep(&pz).connect_evd(&connections).recv_evd(&completions).request_evd(&completions);
        let limits = ia.attr()?;
        let attr = EpAttr {
            max_message_size: attr.max_message_size.min(limits.max_message_size),
            max_rdma_size: attr.max_rdma_size.min(limits.max_rdma_size),
            ..attr
        };
        let ep = ep.attr(attr).create()?;
        let remote = RmrTriplet::default();
        Ok(Link { ia: ia.clone(), pz, connections, completions, region, ep, remote, outstanding: 0 })
    }

    /// Connects to a [`crate::Server`] on this host and learns its memory.
    pub fn connect(&mut self, port: u64, mode: &[u8]) -> Result<()> {
        let address = self.ia.address()?;
        let data = self.ep.connect(address, port).private_data(mode).timeout(crate::LONG).establish()?;
        self.remote = crate::server::decode(&data).expect("a server of these tests tells its memory");
        Ok(())
    }

    /// Keeps the load going: posts what is missing and takes what completed. Never blocks.
    pub fn step(&mut self, load: Load) -> Result<()> {
        while load != Load::Idle && self.outstanding < DEPTH {
            self.post(load)?;
        }
        while let Some(event) = self.completions.poll()? {
            self.count(&event);
        }
        Ok(())
    }

    fn post(&mut self, load: Load) -> Result<()> {
        const LARGE: usize = 1 << 20;
        let remote = |length| RmrTriplet { length, ..self.remote };
        match load {
            Load::Idle => return Ok(()),
            Load::Send => self.ep.send_from(&[self.region.slice(..64)]).post()?,
            Load::Large => self.ep.send_from(&[self.region.slice(..LARGE)]).post()?,
            Load::Write => self.ep.write_from(&[self.region.slice(..8192)], remote(8192)).post()?,
            Load::Read => self.ep.read_into(&[self.region.slice(..8192)], remote(8192)).post()?,
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Takes note of a completion.
    ///
    /// # Panics
    /// When it completes what was not posted.
    pub fn count(&mut self, event: &Event) {
        let Event::Completion(_) = event else { panic!("{event:?} on a dispatcher for completions") };
        self.outstanding =
            self.outstanding.checked_sub(1).expect("a completion of something that was posted");
    }

    /// The next completion.
    ///
    /// # Panics
    /// When none comes.
    pub fn completion(&self) -> DtoCompletion {
        match self.completions.wait(crate::LONG) {
            Ok(Some(Event::Completion(done))) => done,
            other => panic!("expected a completion, got {other:?}"),
        }
    }

    /// The next connection event within `limit`.
    pub fn connection(&self, limit: Duration) -> Option<ConnectionKind> {
        match self.connections.wait(limit) {
            Ok(Some(Event::Connection { kind, .. })) => Some(kind),
            Ok(None) => None,
            other => panic!("expected a connection event, got {other:?}"),
        }
    }

    /// Ends the connection at once and forgets what was flushed, ready to connect again.
    pub fn hang_up(&mut self) -> Result<()> {
        self.ep.disconnect(dat::CloseFlags::Abrupt)?;
        let deadline = Instant::now() + crate::LONG;
        while self.connection(deadline.saturating_duration_since(Instant::now())).is_none() {
            assert!(Instant::now() < deadline, "no event after a disconnect");
        }
        while self.completions.poll()?.is_some() {}
        self.outstanding = 0;
        self.ep.reset()
    }
}

/// Bytes that depend on their position.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(seed | 1).wrapping_add(at >> 8) ^ seed) as u8).collect()
}

/// A check sum (FNV-1a).
pub fn sum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
