//! How devices find each other on fabrics whose ports are not TCP ports. The listening device answers lookups at a TCP port
//! ([`server`]); the connecting device looks its address up there ([`client`]). The same sockets show that a process has
//! ended ([`liveness`]), which such a fabric does not report.

pub mod client;
pub mod liveness;
pub mod protocol;
pub mod server;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::{FI_ADDR_STR, FI_PROTO_SHM};
use parking_lot::Mutex;

use crate::address::Raw;
use crate::discovery::client::{Lookup, Outcome};
use crate::discovery::liveness::{Liveness, LivenessProbe};
use crate::discovery::protocol::{Answer, MAX_ADDRESS, Protocol};
use crate::discovery::server::Server;
use crate::fabric::Fabric;
use crate::fabric::host_id;
use crate::status::Errno;
use crate::wire::hello::Hello;

/// The discovery service of a device.
pub struct Discovery {
    ip: IpAddr,
    server: Server,
    protocol_id: Protocol,
    host: [u8; 16],
    pub token: u64,
    /// The device's name in frames.
    pub name: Raw,
    address: Raw,
    answer: Vec<u8>,
    lookups: Mutex<Vec<PendingLookup>>,
    /// Channels whose peer is being probed.
    probes: Mutex<Vec<(u32, LivenessProbe)>>,
    /// Frames came or went since the last check; when that last happened.
    pub activity: Arc<AtomicBool>,
    last: Mutex<Instant>,
}

/// A connect whose peer is being looked up.
pub struct PendingLookup {
    pub chan: u32,
    pub hello: Hello,
    pub data: Vec<u8>,
    lookup: Lookup,
}

impl PendingLookup {
    pub fn to(&self) -> SocketAddr {
        self.lookup.to
    }
}

/// How long a fabric without wait descriptors is polled after the last frame, for frames on their way.
const LINGER: Duration = Duration::from_secs(5);

/// A peer's address on the fabric, and where its process listens by TCP.
pub struct Found {
    pub address: Raw,
    pub liveness_at: SocketAddr,
    pub token: u64,
}

impl Discovery {
    pub fn open(fabric: &Fabric, address: &Raw, token: u64) -> Result<Discovery, Failure> {
        let info = fabric.info.first();
        // SAFETY: `fabric` keeps the entry, which libfabric made with all attributes.
        let endpoint = unsafe { &*info.ep_attr };
        let protocol_id = Protocol {
            protocol: endpoint.protocol,
            version: endpoint.protocol_version,
            format: info.addr_format,
        };
        let Some(ip) = fabric.ip() else {
            let message =
                "the host has no IP address, so peers cannot find the device; set parameter address";
            return Err(Failure::new(Status::NO_DEVICE, message));
        };
        if address.bytes().len() > MAX_ADDRESS {
            return Err(Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"));
        }
        let os = |error| Failure::os(&format!("a port at {ip}"), &error);
        let server = Server::new().map_err(os)?;
        let liveness_at = SocketAddr::new(ip, server.open(ip, 0, None).map_err(os)?);
        let name = protocol::name(liveness_at, address)
            .ok_or_else(|| Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"))?;
        let answer = Answer {
            protocol: protocol_id,
            liveness_port: liveness_at.port(),
            token,
            host: host_id::boot_id(),
            address: *address,
        };
        Ok(Discovery {
            ip,
            server,
            protocol_id,
            host: answer.host,
            token,
            name,
            address: *address,
            answer: answer.encode(),
            lookups: Mutex::default(),
            probes: Mutex::default(),
            activity: Arc::new(AtomicBool::new(true)),
            last: Mutex::new(Instant::now()),
        })
    }

    /// Readable when a socket needs service.
    pub fn wait(&self) -> BorrowedFd<'_> {
        self.server.wait()
    }

    /// Listens at a port, for a user and the quotient of a qualifier. Returns the port.
    pub fn listen(&self, port: u16, listener: (u64, u64)) -> Result<u16, Failure> {
        let at = SocketAddr::new(self.ip, port);
        self.server
            .open(self.ip, port, Some(listener))
            .map_err(|error| Failure::os(&format!("listen at {at}"), &error))
    }

    pub fn close(&self, port: u16) {
        self.server.close(port);
    }

    /// User and qualifier of the listener at the port that a request names.
    pub fn listener(&self, port: u32) -> Option<(u64, u64)> {
        self.server.listener(u16::try_from(port).ok()?)
    }

    pub fn look_up(&self, chan: u32, to: SocketAddr, hello: Hello, data: &[u8]) {
        self.lookups.lock().push(PendingLookup {
            chan,
            hello,
            data: data.to_vec(),
            lookup: Lookup::new(self.ip, to),
        });
    }

    /// Answers lookups of other devices; returns how many.
    pub fn serve(&self) -> usize {
        let answered = self.server.serve(&self.answer);
        if answered > 0 {
            self.note_activity();
        }
        answered
    }

    /// Continues this device's lookups and returns the finished ones. Drops those for which `waits` is false.
    pub fn finished_lookups(
        &self,
        waits: impl Fn(u32) -> bool,
    ) -> Vec<(PendingLookup, Result<Found, Errno>)> {
        let mut done = Vec::new();
        let mut lookups = self.lookups.lock();
        let mut at = 0;
        while at < lookups.len() {
            let outcome = match waits(lookups[at].chan) {
                false => None,
                true => match lookups[at].lookup.step(self.server.wait()) {
                    Outcome::Pending => {
                        at += 1;
                        continue;
                    }
                    Outcome::Found(answer) => Some(self.check(answer, lookups[at].to())),
                    Outcome::Failed(errno) => Some(Err(errno)),
                },
            };
            let ask = lookups.swap_remove(at);
            done.extend(outcome.map(|outcome| (ask, outcome)));
        }
        done
    }

    fn check(&self, answer: Answer, to: SocketAddr) -> Result<Found, Errno> {
        if answer.protocol != self.protocol_id {
            tracing::warn!(%to, theirs = ?answer.protocol, ours = ?self.protocol_id, "the device there uses another fabric");
            return Err(libc::ECONNREFUSED);
        }
        // Addresses in shared memory are valid on one host only.
        if self.protocol_id.protocol == FI_PROTO_SHM && answer.host != self.host {
            tracing::warn!(%to, "the device there is on another host, and this fabric works within one host");
            return Err(libc::EHOSTUNREACH);
        }
        if !self.fits(&answer.address) {
            tracing::warn!(%to, "the device there has an address of another format");
            return Err(libc::ECONNREFUSED);
        }
        let liveness_at = SocketAddr::new(to.ip(), answer.liveness_port);
        Ok(Found { address: answer.address, liveness_at, token: answer.token })
    }

    /// Whether the address has the fabric's format, so that libfabric reads no further than its end.
    fn fits(&self, address: &Raw) -> bool {
        let bytes = address.bytes();
        match self.protocol_id.format {
            FI_ADDR_STR => bytes.iter().position(|byte| *byte == 0) == bytes.len().checked_sub(1),
            _ => bytes.len() == self.address.bytes().len(),
        }
    }

    /// Decodes a peer's name in a frame.
    pub fn read_name(&self, name: &[u8]) -> Option<(Raw, SocketAddr)> {
        let (liveness_at, address) = protocol::read_name(name)?;
        self.fits(&address).then_some((address, liveness_at))
    }

    /// Probes a channel's peer, unless a probe is under way.
    pub fn probe(&self, chan: u32, liveness_at: SocketAddr) {
        let mut probes = self.probes.lock();
        if !probes.iter().any(|(whose, _)| *whose == chan) {
            probes.push((chan, LivenessProbe::begin(Some(self.ip), liveness_at)));
        }
    }

    /// Channels whose peer's process has ended, with the error that shows it.
    pub fn gone(&self) -> Vec<(u32, Errno)> {
        let mut gone = Vec::new();
        self.probes.lock().retain_mut(|(chan, probe)| match probe.state() {
            Liveness::Unknown => probe.is_young(),
            Liveness::Alive => false,
            Liveness::Gone(errno) => {
                gone.push((*chan, errno));
                false
            }
        });
        gone
    }

    /// Whether no lookup or probe is under way.
    pub fn is_idle(&self) -> bool {
        self.server.is_idle() && self.lookups.lock().is_empty() && self.probes.lock().is_empty()
    }

    /// Notes that a frame came or went.
    pub fn note_activity(&self) {
        if !self.activity.load(Ordering::Relaxed) {
            self.activity.store(true, Ordering::Relaxed);
        }
    }

    /// Whether frames may be on their way, even without a connection.
    pub fn may_have_frames(&self) -> bool {
        let mut last = self.last.lock();
        if self.activity.swap(false, Ordering::Relaxed) {
            *last = Instant::now();
        }
        last.elapsed() < LINGER
    }
}
