//! What a peer sends as memory, and what it asks for.

use rustix::fs::{MemfdFlags, SealFlags};

use super::*;

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
fn segments_that_are_not_what_they_should_be_are_not_mapped() {
    let memfd = |size: u64, seals: SealFlags| {
        let fd =
            rustix::fs::memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, size).unwrap();
        rustix::fs::fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let full = crate::data::sizes::segment(RING) as u64;
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
            &[file.as_fd(), attacker.bitmaps.file().unwrap(), attacker.keys.file().unwrap()],
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

/// Two connections in one slot: both may break, nothing else does.
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

/// A block is given out to a channel only if a registration of its protection domain gives the right.
#[test]
fn memory_of_another_protection_domain_is_not_given_out() {
    for (domain, access, expected) in
        [(8, crate::common::ALL, false), (7, Access::REMOTE_READ, false), (7, crate::common::ALL, true)]
    {
        let (mut host, _end, _listener, attacker) = Attacker::connected();
        let area = host.area_of(host.device.alloc(4096).unwrap(), access, domain);
        attacker.send(&Packet::MapRequest { map: 1, write: true }, &[]);
        let deadline = Instant::now() + LIMIT;
        let given = loop {
            host.pump();
            match handshake::receive(&attacker.socket) {
                Received::Packet(Packet::MapReply { ok, .. }, fds) => break ok && fds.len() == 1,
                _ => assert!(Instant::now() < deadline),
            }
        };
        assert_eq!(given, expected, "domain {domain}, {access:?}");
        drop(area);
    }
}

/// A peer that is stopped in the middle of a copy may go on at any time: what it copies to is never given back.
#[test]
fn memory_that_a_stopped_peer_may_write_to_is_kept() {
    use std::sync::atomic::AtomicBool;
    struct Given(#[expect(dead_code, reason = "the memory")] Vec<u8>, Arc<AtomicBool>);
    impl Drop for Given {
        fn drop(&mut self) {
            self.1.store(true, Ordering::Relaxed);
        }
    }
    for disconnected in [false, true] {
        for leaves in [true, false] {
            let (mut host, end, _listener, attacker) = Attacker::connected();
            let given = Arc::new(AtomicBool::new(false));
            let bytes = vec![0; 4096];
            let (addr, owner) = (bytes.as_ptr() as u64, Arc::new(Given(bytes, given.clone())));
            // SAFETY: `owner` keeps the range, and nothing has a reference to it.
            let memory = unsafe { dat_plugin::host::Memory::foreign(addr, 4096, Some(owner)) };
            let area = host.area_of(memory, crate::common::ALL, 7);
            // It is in the middle of a write.
            attacker.segment.own().busy.store(1, Ordering::SeqCst);
            if disconnected {
                assert_eq!(end.channel.disconnect(), Status::OK);
                host.pump();
            }
            if leaves {
                attacker.segment.own().busy.store(2, Ordering::SeqCst);
            }
            drop(area);
            assert_eq!(given.load(Ordering::Relaxed), leaves, "disconnected: {disconnected}");
        }
    }
}
