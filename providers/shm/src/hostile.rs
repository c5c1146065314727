//! Tests with a peer that breaks every rule: whatever it does, its connection breaks and nothing else.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dat_plugin::host::{Listener, Remote};
use dat_plugin::{Completion, ConnectParam, EventKind, Opcode, PostFlag, Status};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::board::{Boards, Map};
use crate::common::{End, Host, LIMIT, connect};
use crate::handshake::{self, Hello, Holds, Packet, Received, With};
use crate::memory::KeyTable;
use crate::ring::{Memory, UNIT};
use crate::segment::{RingMemory, Segment};
use crate::slab::{Place, Slot};
use crate::tx::kind;

const RING: usize = 16384;

/// A peer that speaks the protocol as far as its test wants.
struct Attacker {
    socket: OwnedFd,
    segment: Segment,
    keys: KeyTable,
    boards: Boards,
}

impl Attacker {
    fn new(port: u64) -> Attacker {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(format!("dat-shm/default/{port}").as_bytes()).unwrap();
        rustix::net::connect(&socket, &name).unwrap();
        let segment = Segment::new(Slot::single(RING).unwrap());
        Attacker { socket, segment, keys: KeyTable::new().unwrap(), boards: Boards::new().unwrap() }
    }

    fn hello() -> Hello {
        Hello { device: 1, domain: 7, port: 5, reads_in: 8, ..Hello::default() }
    }

    /// A request with everything but queues, for the only place of a file.
    fn request(port: u64) -> Packet {
        Packet::Request {
            with: With(With::MEMORY.0 | With::DEVICE.0),
            ring: RING as u32,
            place: Place { slab: 1, slots: 1, slot: 0, turn: 1 },
            port,
            qos: 0,
            hello: Attacker::hello(),
            holds: Holds::default(),
            data: vec![],
        }
    }

    /// The descriptors that go with it.
    fn fds(&self) -> [BorrowedFd<'_>; 3] {
        [self.segment.slot().slab().fd(), self.keys.fd(), self.boards.fd()]
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
        let mut host = Host::open(&[]);
        let end = host.end(2);
        let listener = host.device.listen(0, 1).unwrap();
        let attacker = Attacker::new(listener.port());
        let request = Attacker::request(listener.port());
        attacker.send(&request, &attacker.fds());
        let asked = host.wait(EventKind::REQUEST);
        end.channel.accept(asked.request, b"").unwrap();
        attacker.mark();
        attacker.send(&Packet::Confirm { cma: false }, &[]);
        host.wait(EventKind::ESTABLISHED);
        (host, end, listener, attacker)
    }

    /// Has the victim's queues look at the connection.
    fn mark(&self) {
        let Received::Packet(Packet::Accept { hello, .. }, fds) = handshake::receive(&self.socket) else {
            panic!("not accepted");
        };
        let map = Arc::new(Map::open(fds[1].try_clone().unwrap()).unwrap());
        for wake in hello.wake {
            map.board(wake.board).unwrap().mark(wake.slot);
        }
    }

    fn ring(&self) -> RingMemory {
        self.segment.requests()[0]
    }

    fn header(&self, at: usize, kind: u8, len: usize, arg: u64) {
        self.ring().set_rest(at, len as u32, arg);
        self.ring().set_word(at, 0xDA7A_0000 | kind as u32, Ordering::Release);
    }
}

/// The victim notices, says so once, and goes on to serve others.
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

#[test]
fn nonsense_in_a_ring_breaks_the_connection() {
    type Case = (&'static str, fn(&Attacker));
    let cases: [Case; 14] = [
        ("a word without mark", |a| a.ring().set_word(0, 0x1234, Ordering::Release)),
        ("an unknown kind", |a| a.header(0, 99, 0, 0)),
        ("a length beyond the ring", |a| a.header(0, kind::SEND, RING, 0)),
        ("the longest length", |a| a.header(0, kind::SEND, u32::MAX as usize, 0)),
        ("a wrap marker at the start", |a| a.header(0, 1, 0, 0)),
        ("a part of nothing", |a| a.header(0, kind::MORE, 16, 0)),
        ("a first part longer than the whole", |a| a.header(0, kind::HEAD, 100, 50 << 32)),
        ("an empty first part", |a| a.header(0, kind::HEAD, 0, 50 << 32)),
        ("parts that exceed the whole", |a| {
            a.header(16 + 32, kind::MORE, 32, 0);
            a.header(0, kind::HEAD, 32, 50 << 32);
        }),
        ("a message inside a message", |a| {
            a.header(16 + 32, kind::SEND, 32, 0);
            a.header(0, kind::HEAD, 32, 50 << 32);
        }),
        ("a write of the wrong size", |a| a.header(0, kind::WRITE, 8, 0)),
        ("an odd list of segments", |a| a.header(0, kind::PULL, 24, 0)),
        ("a list that is not as long as the message", |a| a.header(0, kind::PULL, 32, 99 << 32)),
        ("an answer among the requests", |a| a.header(0, kind::DATA, 16, 0)),
    ];
    for (what, attack) in cases {
        let (host, end, _listener, attacker) = Attacker::connected();
        let area = host.area(4096);
        assert_eq!(end.post_recv(1, &[area.seg(0, 4096)]), Status::OK);
        attack(&attacker);
        broken(what, host, end);
    }
}

#[test]
fn wild_requests_of_memory_are_refused() {
    for (kind, len) in [(kind::WRITE, 8u64), (kind::READ, 8), (kind::READ, u64::MAX), (kind::READ, 0)] {
        let (host, end, _listener, attacker) = Attacker::connected();
        let area = host.area(64);
        let target =
            crate::one_sided::Target { addr: area.memory.addr(), len, rkey: area.rkey ^ 0x5000_0000 };
        // SAFETY: the ring's first payload has room.
        unsafe { target.store(attacker.ring().at(UNIT)) };
        attacker.header(0, kind, crate::one_sided::Target::BYTES, 0);
        broken("a wild request", host, end);
        assert_eq!(area.bytes(0, 64), [0; 64]);
    }
}

#[test]
fn more_reads_than_were_agreed_break_the_connection() {
    let (host, end, _listener, attacker) = Attacker::connected();
    let area = host.area(1 << 16);
    let target = crate::one_sided::Target { addr: area.memory.addr(), len: 1 << 16, rkey: area.rkey };
    for index in (0..20).rev() {
        let at = index * (UNIT + 32);
        // SAFETY: inside the ring.
        unsafe { target.store(attacker.ring().at(at + UNIT)) };
        attacker.header(at, kind::READ, crate::one_sided::Target::BYTES, 0);
    }
    broken("twenty reads in place of eight", host, end);
}

#[test]
fn counters_nobody_can_have_break_the_connection() {
    type Case = (&'static str, fn(&Attacker));
    let cases: [Case; 5] = [
        ("more finished than posted", |a| a.segment.own().completed.store(50, Ordering::Release)),
        ("more finished than posted, in a header", |a| a.header(0, kind::SEND, 0, 77)),
        ("a failure that is none", |a| a.segment.own().fail.store(12345, Ordering::Release)),
        ("a position beyond the ring", |a| a.segment.own().consumed.store(1 << 40, Ordering::Release)),
        ("an odd position", |a| a.segment.own().consumed.store(3, Ordering::Release)),
    ];
    for (what, attack) in cases {
        let (host, end, _listener, attacker) = Attacker::connected();
        let area = host.area(4096);
        assert_eq!(end.post_recv(1, &[area.seg(0, 64)]), Status::OK);
        // Enough to fill the ring, so that the position matters.
        for token in 0..20 {
            assert_eq!(end.post_send(token, &[area.seg(0, 4096)]), Status::OK);
        }
        attack(&attacker);
        broken(what, host, end);
    }
}

#[test]
fn answers_to_questions_nobody_asked_break_the_connection() {
    for (tag, len) in [(5u64, 16), (0, 5000), (0, 0)] {
        let mut host = Host::open(&[("one_sided", "target")]);
        let end = host.end(2);
        let listener = host.device.listen(0, 1).unwrap();
        let attacker = Attacker::new(listener.port());
        attacker.send(&Attacker::request(listener.port()), &attacker.fds());
        let asked = host.wait(EventKind::REQUEST);
        end.channel.accept(asked.request, b"").unwrap();
        attacker.send(&Packet::Confirm { cma: true }, &[]);
        host.wait(EventKind::ESTABLISHED);
        let area = host.area(64);
        let remote = Remote { addr: 0x1000, rkey: 5, len: 64 };
        assert_eq!(end.post(Opcode::READ, PostFlag::NONE, 1, &[area.seg(0, 64)], remote), Status::OK);
        let answers = attacker.segment.answer_rings()[0];
        answers.set_rest(0, len, tag << 32);
        answers.set_word(0, 0xDA7A_0000 | kind::DATA as u32, Ordering::Release);
        broken("a wrong answer", host, end);
    }
}

#[test]
fn packets_out_of_turn_break_the_connection() {
    let packets = [
        Attacker::request(1),
        Packet::Accept { with: With::default(), hello: Attacker::hello(), cma: true, data: vec![] },
        Packet::Again,
        Packet::Confirm { cma: true },
        Packet::Reject { consumer: true, data: vec![] },
        Packet::MapReply { map: 1, write: true, len: 4096, ok: false },
    ];
    for packet in packets {
        let (host, end, _listener, attacker) = Attacker::connected();
        attacker.send(&packet, &[]);
        broken(&format!("{packet:?}"), host, end);
    }
    let (host, end, _listener, attacker) = Attacker::connected();
    attacker.send_bytes(b"hello");
    broken("five bytes", host, end);
    let (host, end, _listener, attacker) = Attacker::connected();
    attacker.send_bytes(&[7; 60_000]);
    broken("a long packet", host, end);
}

#[test]
fn memory_that_is_not_shared_is_not_given_out() {
    let (mut host, _end, _listener, attacker) = Attacker::connected();
    let block = host.device.alloc(4096).unwrap();
    for map in [1, 2, u64::MAX] {
        attacker.send(&Packet::MapRequest { map, write: true }, &[]);
        let deadline = Instant::now() + LIMIT;
        loop {
            host.pump();
            match handshake::receive(&attacker.socket) {
                Received::Packet(Packet::MapReply { ok, .. }, fds) => {
                    assert!(!ok && fds.is_empty());
                    break;
                }
                _ => assert!(Instant::now() < deadline),
            }
        }
    }
    drop(block);
}

#[test]
fn malformed_requests_are_dropped_and_the_port_stays_open() {
    let mut host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let port = listener.port();
    let good = Attacker::request(port).encode();
    let mut wrong_version = good.clone();
    wrong_version[4] ^= 1;
    for bytes in
        [&b"x"[..], &good[..good.len() - 1], &good, &wrong_version, &[0; 2000], &Packet::Kick.encode()]
    {
        let attacker = Attacker::new(port);
        attacker.send_bytes(bytes);
        attacker.wait_closed(&mut host);
    }
    let marked = rustix::fs::memfd_create("dat-hostile-marked", MemfdFlags::CLOEXEC).unwrap();
    for (port, count) in [(port + 1, 3), (port, 1), (port, 2), (port, 4)] {
        let attacker = Attacker::new(port.min(listener.port()));
        let fds = vec![marked.as_fd(); count];
        attacker.send(&Attacker::request(port), &fds);
        attacker.wait_closed(&mut host);
    }
    assert!(host.events().is_empty());
    let left = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(|entry| {
        std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("dat-hostile-marked"))
    });
    assert_eq!(left.count(), 1, "descriptors that came with them are closed");
    let mut other = Host::open(&[]);
    let (from, to) = (other.end(1), host.end(2));
    connect(&mut other, &mut host, &from, &to);
}

#[test]
fn segments_that_are_not_what_they_should_be_are_not_mapped() {
    let memfd = |size: u64, seals: SealFlags| {
        let fd =
            rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let full = Segment::bytes(RING) as u64;
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let files: [OwnedFd; 6] = [
        memfd(full, SealFlags::empty()),
        memfd(full, SealFlags::GROW),
        memfd(full - 4096, sealed),
        memfd(0, sealed),
        memfd(full, sealed | SealFlags::WRITE),
        std::fs::File::open("/dev/zero").unwrap().into(),
    ];
    for file in files {
        let mut host = Host::open(&[]);
        let listener = host.device.listen(0, 1).unwrap();
        let attacker = Attacker::new(listener.port());
        attacker.send(
            &Attacker::request(listener.port()),
            &[file.as_fd(), attacker.keys.fd(), attacker.boards.fd()],
        );
        let asked = host.wait(EventKind::REQUEST);
        let end = host.end(2);
        end.channel.accept(asked.request, b"").unwrap();
        assert_eq!(host.wait(EventKind::ACCEPT_FAILED).user, 2);
        attacker.wait_closed(&mut host);
        assert!(host.events().is_empty());
    }
}

#[test]
fn what_is_not_known_must_be_sent_and_is_asked_for_once() {
    let mut host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let leaving_out = |with: u16| {
        let mut request = Attacker::request(listener.port());
        let Packet::Request { with: said, hello, .. } = &mut request else { unreachable!() };
        (*said, hello.device) = (With(with), 77);
        request
    };
    for resent in [0, With::MEMORY.0] {
        let attacker = Attacker::new(listener.port());
        attacker.send(&leaving_out(0), &[]);
        let deadline = Instant::now() + LIMIT;
        loop {
            host.pump();
            match handshake::receive(&attacker.socket) {
                Received::Packet(Packet::Again, fds) if fds.is_empty() => break,
                Received::Empty => assert!(Instant::now() < deadline, "no answer"),
                other => panic!("{other:?}"),
            }
        }
        // It still leaves out what is not known.
        attacker.send(&leaving_out(resent), &attacker.fds()[..resent as usize]);
        attacker.wait_closed(&mut host);
        assert!(host.events().is_empty());
    }
    // A device, but not its memory: nothing that makes sense.
    let attacker = Attacker::new(listener.port());
    attacker.send(&leaving_out(With::DEVICE.0), &attacker.fds()[1..]);
    attacker.wait_closed(&mut host);
}

#[test]
fn places_that_are_none_are_not_mapped() {
    let places = [
        Place { slab: 1, slots: 1, slot: 1, turn: 1 },
        Place { slab: 1, slots: 0, slot: 0, turn: 1 },
        Place { slab: 1, slots: 1, slot: u32::MAX, turn: 1 },
        Place { slab: 1, slots: 2, slot: 0, turn: 1 },
        Place { slab: 1, slots: u32::MAX, slot: 0, turn: 1 },
    ];
    for place in places {
        let mut host = Host::open(&[]);
        let listener = host.device.listen(0, 1).unwrap();
        let attacker = Attacker::new(listener.port());
        let mut request = Attacker::request(listener.port());
        if let Packet::Request { place: said, .. } = &mut request {
            *said = place;
        }
        attacker.send(&request, &attacker.fds());
        let asked = host.wait(EventKind::REQUEST);
        let end = host.end(2);
        end.channel.accept(asked.request, b"").unwrap();
        assert_eq!(host.wait(EventKind::ACCEPT_FAILED).user, 2, "{place:?}");
        attacker.wait_closed(&mut host);
    }
}

/// What a peer lends is mapped only if it cannot shrink, and neither too much nor too often.
#[test]
fn what_a_peer_lends_is_looked_at_first() {
    let file = |size: u64, seals: SealFlags| {
        let fd =
            rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let answer = |host: &mut Host, attacker: &Attacker, len: u64, fd: Option<&OwnedFd>| {
        let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
        attacker.send(&Packet::Lend { map: 5, len }, &fds);
        let deadline = Instant::now() + LIMIT;
        loop {
            host.pump();
            match handshake::receive(&attacker.socket) {
                Received::Packet(Packet::Lent { map: 5, ok }, _) => return ok,
                Received::Empty => assert!(Instant::now() < deadline, "no answer"),
                other => panic!("{other:?}"),
            }
        }
    };
    let good = file(8192, SealFlags::SHRINK);
    let (mut host, end, _listener, attacker) = Attacker::connected();
    assert!(!answer(&mut host, &attacker, 8192, None));
    assert!(!answer(&mut host, &attacker, 8192, Some(&file(8192, SealFlags::empty()))));
    assert!(!answer(&mut host, &attacker, 8193, Some(&good)));
    assert!(!answer(&mut host, &attacker, 1 << 40, Some(&good)));
    assert!(answer(&mut host, &attacker, 8192, Some(&good)));
    assert!(!answer(&mut host, &attacker, 8192, Some(&good)), "often enough");
    let put = |attacker: &Attacker, kind: u32, total: u64, part: crate::one_sided::Part| {
        // SAFETY: the ring's first payload has room.
        unsafe { part.store(attacker.ring().at(UNIT)) };
        attacker.ring().set_rest(0, crate::one_sided::Part::BYTES as u32, total << 32);
        attacker.ring().set_word(0, 0xDA7A_0000 | kind, Ordering::Release);
    };
    let lent = kind::HEAD as u32 | (crate::tx::LENT as u32) << 8;
    let whole = kind::PULL as u32;
    // What it lent and no more: the message breaks off at what lies outside.
    for (map, offset, len) in
        [(5, 0, 8193), (5, 8192, 1), (5, u64::MAX, 2), (6, 0, 8), (5, 0, 0), (5, 0, 9001)]
    {
        for (kind, total) in [(lent, 9000), (whole, len)] {
            if total == 0 {
                continue;
            }
            let (mut host, end, _listener, attacker) = Attacker::connected();
            assert!(answer(&mut host, &attacker, 8192, Some(&good)));
            let area = host.area(20_000);
            assert_eq!(end.post_recv(1, &[area.seg(0, 20_000)]), Status::OK);
            put(&attacker, kind, total, crate::one_sided::Part { addr: 0, len, map, offset });
            broken("a piece that is none", host, end);
        }
    }
    // The right one arrives, in a piece and as a whole.
    for kind in [lent, whole] {
        let (mut host, end, _listener, attacker) = Attacker::connected();
        assert!(answer(&mut host, &attacker, 8192, Some(&good)));
        let area = host.area(20_000);
        assert_eq!(end.post_recv(1, &[area.seg(0, 20_000)]), Status::OK);
        put(&attacker, kind, 8192, crate::one_sided::Part { addr: 0, len: 8192, map: 5, offset: 0 });
        let got = end.received(&mut [&mut host]);
        assert_eq!((got.token, got.length), (1, 8192));
    }
    // An answer to what was never asked.
    attacker.send(&Packet::Lent { map: 1, ok: true }, &[]);
    broken("an answer out of turn", host, end);
}

/// Two connections in one place: both may be nonsense, nothing else comes of it.
#[test]
fn a_place_that_is_given_twice_harms_nobody() {
    let mut host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    let second = Attacker::new(listener.port());
    let mut ends = Vec::new();
    for (user, socket) in [(2, &attacker), (3, &second)] {
        socket.send(&Attacker::request(listener.port()), &attacker.fds());
        let asked = host.wait(EventKind::REQUEST);
        let end = host.end(user);
        end.channel.accept(asked.request, b"").unwrap();
        socket.mark();
        socket.send(&Packet::Confirm { cma: false }, &[]);
        host.wait(EventKind::ESTABLISHED);
        ends.push(end);
    }
    let area = host.area(4096);
    let mut out = [Completion::default(); 8];
    for round in 0..100 {
        for end in &ends {
            end.post_send(round, &[area.seg(0, 2048)]);
            end.post_recv(round, &[area.seg(2048, 2048)]);
            end.recv.poll(&mut out);
            end.send.poll(&mut out);
        }
        host.pump();
    }
    drop(ends);
    let mut other = Host::open(&[]);
    let (from, to) = (other.end(1), host.end(4));
    host.events();
    connect(&mut other, &mut host, &from, &to);
}

/// A listener that wants to be told everything twice, or sends nothing of what it is.
#[test]
fn a_listener_that_answers_nonsense_is_refused() {
    let answers: [fn() -> Packet; 3] = [
        || Packet::Again,
        || Packet::Accept { with: With::default(), hello: Attacker::hello(), cma: true, data: vec![] },
        || Packet::Accept { with: With::DEVICE, hello: Attacker::hello(), cma: true, data: vec![] },
    ];
    for answer in answers {
        let mut host = Host::open(&[]);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let port = 1_000_000 + u64::from(std::process::id());
        let name = SocketAddrUnix::new_abstract_name(format!("dat-shm/default/{port}").as_bytes()).unwrap();
        rustix::net::bind(&socket, &name).unwrap();
        rustix::net::listen(&socket, 4).unwrap();
        let end = host.end(1);
        let addr = host.device.attr().address;
        end.channel.connect(&ConnectParam { addr, port, qos: 0, data: b"" }).unwrap();
        let taken = rustix::net::accept_with(&socket, flags).unwrap();
        let Received::Packet(Packet::Request { with, .. }, fds) = handshake::receive(&taken) else {
            panic!("no request");
        };
        assert_eq!((with.0, fds.len()), (15, 5), "everything, because nothing is known");
        handshake::send(&taken, &answer(), &[]).unwrap();
        assert_eq!(host.wait(EventKind::REFUSED).user, 1);
    }
}

#[test]
fn a_client_that_says_nothing_is_dropped_in_time() {
    let mut host = Host::open(&[("handshake_timeout_ms", "30")]);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    let start = Instant::now();
    attacker.wait_closed(&mut host);
    assert!(start.elapsed() >= Duration::from_millis(30));
    assert!(host.events().is_empty());
}

/// Random bytes all over the segment, while the victim works.
#[test]
fn scribbling_over_the_whole_segment_harms_nobody() {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..60 {
        let (mut host, end, _listener, attacker) = Attacker::connected();
        let area = host.area(1 << 16);
        let mut out = [Completion::default(); 8];
        for token in 0..16 {
            assert_eq!(end.post_recv(token, &[area.seg(0, 8192)]), Status::OK);
        }
        for round in 0..200 {
            let ring = attacker.ring();
            for _ in 0..8 {
                let at = random() as usize % (RING / UNIT) * UNIT;
                let kind = random() % 12;
                ring.set_rest(at, random() as u32 % 600, random() & 0x3F_FFFF_FFFF);
                ring.set_word(at, 0xDA7A_0000 | kind as u32, Ordering::Release);
            }
            let own = attacker.segment.own();
            if random() % 64 == 0 {
                own.consumed.store(random(), Ordering::Relaxed);
                own.completed.store(random() as u32, Ordering::Relaxed);
                own.answers_consumed.store(random(), Ordering::Relaxed);
            }
            own.want_room.store(random() as u32 & 1, Ordering::Relaxed);
            own.parked[0].store(random() as u32, Ordering::Relaxed);
            let status = end.post_send(round, &[area.seg(0, 5000)]);
            end.recv.poll(&mut out);
            end.send.poll(&mut out);
            if status == Status::NOT_CONNECTED {
                break;
            }
        }
        host.pump();
        assert!(host.events().len() <= 1);
    }
}
