//! Tests with a peer that breaks every rule: its connection breaks, and nothing else happens.

mod budget;
mod connection;
mod frames;
mod memory;
mod ring;
mod user;
mod wake;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::host::{Listener, Remote};
use dat_plugin::{Access, Completion, ConnectParam, EventKind, Opcode, PostFlag, Status};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::common::{End, Host, LIMIT, connect};
use crate::control::handshake::{self, Hello, Packet, Received, With};
use crate::data::protocol::kind;
use crate::data::ring::{Memory, UNIT};
use crate::data::segment::{RingMemory, Segment};
use crate::data::slab::{Place, Slot};
use crate::memory::keys::KeyTable;
use crate::notify::ready_bitmap::{BitmapFile, ReadyBitmaps};

pub(crate) const RING: usize = 16384;

/// A peer that speaks the protocol as far as its test wants.
pub(crate) struct Attacker {
    pub(crate) socket: OwnedFd,
    segment: Segment,
    keys: KeyTable,
    bitmaps: ReadyBitmaps,
}

impl Attacker {
    pub(crate) fn new(port: u64) -> Attacker {
        let socket = Attacker::knock(port);
        let segment = Segment::new(Slot::single(RING).unwrap());
        Attacker { socket, segment, keys: KeyTable::new().unwrap(), bitmaps: ReadyBitmaps::new().unwrap() }
    }

    /// A new socket in place of the one there is.
    #[cfg(fuzzing)]
    pub(crate) fn reconnect(&mut self, port: u64) {
        self.socket = Attacker::knock(port);
    }

    fn knock(port: u64) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(format!("dat-shm/default/{port}").as_bytes()).unwrap();
        rustix::net::connect(&socket, &name).unwrap();
        socket
    }

    pub(crate) fn hello() -> Hello {
        Hello { device: 1, domain: 7, port: 5, reads_in: 8, ..Hello::default() }
    }

    /// A request with everything but queues, for the only place of a file.
    fn request(port: u64) -> Packet {
        Packet::Request {
            with: With(With::MEMORY.0 | With::DEVICE.0 | With::KEYS.0),
            ring: RING as u32,
            place: Place { slab: 1, slots: 1, slot: 0, turn: 1 },
            port,
            qos: 0,
            hello: Attacker::hello(),
            holds: 0,
            data: vec![],
        }
    }

    /// The descriptors that go with it.
    pub(crate) fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.segment.slot().slab().file(), self.bitmaps.file(), self.keys.file()].map(Option::unwrap)
    }

    fn send(&self, packet: &Packet, fds: &[BorrowedFd<'_>]) {
        handshake::send(&self.socket, packet, fds).unwrap();
    }

    fn send_bytes(&self, bytes: &[u8]) {
        rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL).unwrap();
    }

    /// Waits until the victim closed.
    fn wait_closed(&self, host: &mut Host) {
        let deadline = Instant::now() + LIMIT;
        loop {
            host.pump();
            match handshake::receive(&self.socket) {
                Received::Closed => return,
                _ => assert!(Instant::now() < deadline, "the victim keeps the connection"),
            }
        }
    }

    /// A whole handshake.
    fn connected() -> (Host, End, Listener, Attacker) {
        let (host, end, listener, attacker, _) = Attacker::connected_to();
        (host, end, listener, attacker)
    }

    /// The same, with the victim's bitmaps and its description of itself.
    fn connected_to() -> (Host, End, Listener, Attacker, (Arc<BitmapFile>, Hello)) {
        let mut host = Host::open(&[]);
        let end = host.end(2);
        let listener = host.device.listen(0, 1).unwrap();
        let attacker = Attacker::new(listener.port());
        let request = Attacker::request(listener.port());
        attacker.send(&request, &attacker.fds());
        let asked = host.wait(EventKind::REQUEST);
        end.channel.accept(asked.request, b"").unwrap();
        let known = attacker.mark();
        attacker.send(&Packet::Confirm { cma: false }, &[]);
        host.wait(EventKind::ESTABLISHED);
        (host, end, listener, attacker, known)
    }

    /// Has the victim's queues look at the connection.
    fn mark(&self) -> (Arc<BitmapFile>, Hello) {
        let Received::Packet(Packet::Accept { hello, .. }, fds) = handshake::receive(&self.socket) else {
            panic!("not accepted");
        };
        let map = Arc::new(BitmapFile::open(fds[0].as_fd().try_clone_to_owned().unwrap().into()).unwrap());
        for wake in hello.wake {
            map.bitmap(wake.bitmap).unwrap().ring(wake.slot);
        }
        (map, hello)
    }

    fn ring(&self) -> RingMemory {
        self.segment.requests()[0]
    }

    fn header(&self, at: usize, kind: u8, len: usize, arg: u64) {
        self.ring().set_rest(at, len as u32, arg);
        self.ring().set_word(at, 0xDA7A_0000 | kind as u32, Ordering::Release);
    }
}

/// The victim notices, reports it once, and goes on to serve others.
fn broken(what: &str, mut host: Host, end: End) {
    let mut out = [Completion::default(); 8];
    let deadline = Instant::now() + LIMIT;
    loop {
        end.recv.poll(&mut out);
        end.send.poll(&mut out);
        if host.take(EventKind::BROKEN).is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "{what}: the connection lives");
    }
    assert!(host.events().is_empty(), "{what}");
    let area = host.area(8);
    assert_eq!(end.post_send(1, &[area.seg(0, 8)]), Status::NOT_CONNECTED, "{what}");
    let mut other = Host::open(&[]);
    let (from, to) = (other.end(1), host.end(3));
    connect(&mut other, &mut host, &from, &to);
}
