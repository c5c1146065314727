//! How devices find each other on fabrics whose ports are not TCP's: the listening one answers at a TCP port where it is
//! ([`crate::desk`]), the connecting one asks there ([`crate::seek`]). The same sockets tell when a process is gone, which
//! such a fabric does not.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::{FI_ADDR_STR, FI_PROTO_SHM};
use parking_lot::Mutex;

use crate::address::Raw;
use crate::desk::Desk;
use crate::endpoint::Errno;
use crate::fabric::Fabric;
use crate::inquiry::{self, Answer, MAX_ADDRESS, Speech};
use crate::knock::{Door, Knock};
use crate::place;
use crate::seek::{Outcome, Seek};
use crate::wire::Hello;

/// The finding of a device.
pub struct Finder {
    ip: IpAddr,
    desk: Desk,
    speech: Speech,
    host: [u8; 16],
    pub token: u64,
    /// The device's name in frames.
    pub name: Raw,
    address: Raw,
    answer: Vec<u8>,
    asks: Mutex<Vec<Ask>>,
    /// Channels whose peer is knocked at.
    knocks: Mutex<Vec<(u32, Knock)>>,
    /// Something was said to or by the device since this was last looked at, and when it was last so.
    spoken: AtomicBool,
    last: Mutex<Instant>,
}

/// A connect that waits to know where its peer is.
pub struct Ask {
    pub chan: u32,
    pub hello: Hello,
    pub data: Vec<u8>,
    seek: Seek,
}

impl Ask {
    pub fn to(&self) -> SocketAddr {
        self.seek.to
    }
}

/// How long after the last word somebody must look at a fabric that wakes nobody: for what is on its way.
const ECHO: Duration = Duration::from_secs(5);

/// Where a peer is.
pub struct Found {
    pub address: Raw,
    pub door: SocketAddr,
    pub token: u64,
}

impl Finder {
    pub fn open(fabric: &Fabric, address: &Raw, token: u64) -> Result<Finder, Failure> {
        let info = fabric.info.first();
        // SAFETY: an entry of the library's has all attributes.
        let endpoint = unsafe { &*info.ep_attr };
        let speech = Speech {
            protocol: endpoint.protocol,
            version: endpoint.protocol_version,
            format: info.addr_format,
        };
        let Some(ip) = fabric.ip() else {
            let message =
                "the host has no internet address, so nobody could find the device; give one (address)";
            return Err(Failure::new(Status::NO_DEVICE, message));
        };
        if address.bytes().len() > MAX_ADDRESS {
            return Err(Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"));
        }
        let os = |error| Failure::os(&format!("a port at {ip}"), &error);
        let desk = Desk::new().map_err(os)?;
        let door = SocketAddr::new(ip, desk.open(ip, 0, None).map_err(os)?);
        let name = inquiry::name(door, address)
            .ok_or_else(|| Failure::new(Status::NOT_SUPPORTED, "the fabric's addresses are too long"))?;
        let answer = Answer { speech, door: door.port(), token, host: place::host(), address: *address };
        Ok(Finder {
            ip,
            desk,
            speech,
            host: answer.host,
            token,
            name,
            address: *address,
            answer: answer.encode(),
            asks: Mutex::default(),
            knocks: Mutex::default(),
            spoken: AtomicBool::new(true),
            last: Mutex::new(Instant::now()),
        })
    }

    /// Readable when there is something to look after.
    pub fn wait(&self) -> BorrowedFd<'_> {
        self.desk.wait()
    }

    pub fn listen(&self, port: u16, user: u64) -> Result<u16, Failure> {
        let at = SocketAddr::new(self.ip, port);
        self.desk
            .open(self.ip, port, Some(user))
            .map_err(|error| Failure::os(&format!("listen at {at}"), &error))
    }

    pub fn close(&self, port: u16) {
        self.desk.close(port);
    }

    /// Whose port a request names, if it names one.
    pub fn user_of(&self, port: u32) -> Option<u64> {
        self.desk.user_of(u16::try_from(port).ok()?)
    }

    pub fn ask(&self, chan: u32, to: SocketAddr, hello: Hello, data: &[u8]) {
        self.asks.lock().push(Ask { chan, hello, data: data.to_vec(), seek: Seek::new(self.ip, to) });
    }

    /// Answers who asks. How much was done.
    pub fn answer_all(&self) -> usize {
        let answered = self.desk.look_after(&self.answer);
        if answered > 0 {
            self.speaks();
        }
        answered
    }

    /// Goes on with what is asked. Those that have an answer, or will have none; `waits` says which still matter.
    pub fn answers(&self, waits: impl Fn(u32) -> bool) -> Vec<(Ask, Result<Found, Errno>)> {
        let mut done = Vec::new();
        let mut asks = self.asks.lock();
        let mut at = 0;
        while at < asks.len() {
            let outcome = match waits(asks[at].chan) {
                false => None,
                true => match asks[at].seek.look(self.desk.wait()) {
                    Outcome::Pending => {
                        at += 1;
                        continue;
                    }
                    Outcome::Found(answer) => Some(self.judge(answer, asks[at].to())),
                    Outcome::Failed(errno) => Some(Err(errno)),
                },
            };
            let ask = asks.swap_remove(at);
            done.extend(outcome.map(|outcome| (ask, outcome)));
        }
        done
    }

    fn judge(&self, answer: Answer, to: SocketAddr) -> Result<Found, Errno> {
        if answer.speech != self.speech {
            tracing::warn!(%to, theirs = ?answer.speech, ours = ?self.speech, "the device there is of another fabric");
            return Err(libc::ECONNREFUSED);
        }
        // Addresses in shared memory mean something on one host.
        if self.speech.protocol == FI_PROTO_SHM && answer.host != self.host {
            tracing::warn!(%to, "the device there is on another host, and this fabric on one only");
            return Err(libc::EHOSTUNREACH);
        }
        if !self.fits(&answer.address) {
            tracing::warn!(%to, "the device there has an address that is none of this fabric's");
            return Err(libc::ECONNREFUSED);
        }
        let door = SocketAddr::new(to.ip(), answer.door);
        Ok(Found { address: answer.address, door, token: answer.token })
    }

    /// Whether libfabric may be given this address: it reads as much as an address has.
    fn fits(&self, address: &Raw) -> bool {
        let bytes = address.bytes();
        match self.speech.format {
            FI_ADDR_STR => bytes.iter().position(|byte| *byte == 0) == bytes.len().checked_sub(1),
            _ => bytes.len() == self.address.bytes().len(),
        }
    }

    /// A peer's name, as frames have it.
    pub fn read_name(&self, name: &[u8]) -> Option<(Raw, SocketAddr)> {
        let (door, address) = inquiry::read_name(name)?;
        self.fits(&address).then_some((address, door))
    }

    /// Knocks at a channel's peer, unless it does already.
    pub fn knock(&self, chan: u32, door: SocketAddr) {
        let mut knocks = self.knocks.lock();
        if !knocks.iter().any(|(whose, _)| *whose == chan) {
            knocks.push((chan, Knock::begin(Some(self.ip), door)));
        }
    }

    /// Channels whose peer's process is gone, and how that shows.
    pub fn gone(&self) -> Vec<(u32, Errno)> {
        let mut gone = Vec::new();
        self.knocks.lock().retain_mut(|(chan, knock)| match knock.door() {
            Door::Unknown => knock.is_young(),
            Door::Answered => false,
            Door::Nobody(errno) => {
                gone.push((*chan, errno));
                false
            }
        });
        gone
    }

    /// Whether nothing waits for a socket.
    pub fn is_idle(&self) -> bool {
        self.desk.is_idle() && self.asks.lock().is_empty() && self.knocks.lock().is_empty()
    }

    /// Something is said to the device, or by it.
    pub fn speaks(&self) {
        if !self.spoken.load(Ordering::Relaxed) {
            self.spoken.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something may be on its way to or from the device, though it has no connection.
    pub fn may_be_spoken_to(&self) -> bool {
        let mut last = self.last.lock();
        if self.spoken.swap(false, Ordering::Relaxed) {
            *last = Instant::now();
        }
        last.elapsed() < ECHO
    }
}
