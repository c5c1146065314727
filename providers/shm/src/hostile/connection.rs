//! What a peer sends over the socket, in connecting and after.

use dat_plugin::RejectReason;
use rustix::fs::MemfdFlags;

use super::*;
use crate::control::device::MAX_UNANSWERED;

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
    let left = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|to| to.to_string_lossy().contains("dat-hostile-marked")).count()
    };
    let deadline = Instant::now() + LIMIT;
    while left() > 1 {
        assert!(Instant::now() < deadline, "descriptors that came with them stay open");
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut other = Host::open(&[]);
    let (from, to) = (other.end(1), host.end(2));
    connect(&mut other, &mut host, &from, &to);
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
    attacker.send(&leaving_out(With::DEVICE.0), &attacker.fds()[1..2]);
    attacker.wait_closed(&mut host);
}

/// A listener that requests everything twice, or sends nothing about itself.
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
        assert_eq!((with.0, fds.len()), (7, 3), "everything, because nothing is known");
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

/// Requests that the application leaves unanswered hold a limited number of descriptors.
#[test]
fn requests_that_nobody_answers_are_limited() {
    let mut host = Host::open(&[]);
    let listener = host.device.listen(0, 1).unwrap();
    let ask = |host: &mut Host| {
        let attacker = Attacker::new(listener.port());
        attacker.send(&Attacker::request(listener.port()), &attacker.fds());
        host.pump();
        attacker
    };
    let mut waiting: Vec<_> = (0..MAX_UNANSWERED)
        .map(|_| {
            let attacker = ask(&mut host);
            (attacker, host.wait(EventKind::REQUEST).request)
        })
        .collect();
    ask(&mut host).wait_closed(&mut host);
    assert!(host.events().is_empty(), "one more is refused, and the application is not asked");
    // An answer makes room.
    let (_, request) = waiting.pop().unwrap();
    let _ = host.device.reject(request, RejectReason::CONSUMER, b"no");
    let _attacker = ask(&mut host);
    host.wait(EventKind::REQUEST);
}

/// An accepted peer that never confirms does not keep the endpoint.
#[test]
fn an_accepted_client_that_says_nothing_is_dropped_in_time() {
    let mut host = Host::open(&[("handshake_timeout_ms", "50")]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    attacker.send(&Attacker::request(listener.port()), &attacker.fds());
    let asked = host.wait(EventKind::REQUEST);
    let start = Instant::now();
    end.channel.accept(asked.request, b"").unwrap();
    assert_eq!(host.wait(EventKind::ACCEPT_FAILED).user, 2);
    assert!(start.elapsed() >= Duration::from_millis(50), "{:?}", start.elapsed());
}

/// One peer that never stops sending does not keep the event thread from others.
#[test]
fn a_flood_of_packets_does_not_hold_the_event_thread() {
    let (mut host, _end, _listener, attacker) = Attacker::connected();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = handshake::send(&attacker.socket, &Packet::Kick, &[]);
            }
        });
        let start = Instant::now();
        for _ in 0..200 {
            host.pump();
        }
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        assert!(took < LIMIT, "{took:?}");
    });
}
