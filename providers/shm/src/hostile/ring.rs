//! A peer that keeps a thread busy, or makes this process ask for memory, with frames that are well formed.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Instant;

use dat_plugin::host::Remote;
use dat_plugin::{Access, Completion, CompletionStatus, EventKind, Opcode, PostFlag, Status};

use super::{Attacker, RING, broken};
use crate::common::{End, Host, LIMIT};
use crate::control::handshake::{self, CMA, Packet, Received};
use crate::control::session::MAX_ASKED;
use crate::data::protocol::kind;
use crate::data::ring::{Memory, UNIT};
use crate::memory::mapping::HugePages;
use crate::memory::target::{Part, Target};

/// Connects with access through the kernel, which the victim probes: both ends are this process.
fn connected_with_cma() -> (Host, End, Attacker) {
    static NONCE: u64 = 0x5EED;
    let mut host = Host::open(&[]);
    let end = host.end(2);
    let listener = host.device.listen(0, 1).unwrap();
    let attacker = Attacker::new(listener.port());
    let mut request = Attacker::request(listener.port());
    if let Packet::Request { hello, .. } = &mut request {
        (hello.flags, hello.probe, hello.nonce) = (CMA, &raw const NONCE as u64, NONCE);
    }
    attacker.send(&request, &attacker.fds());
    let asked = host.wait(EventKind::REQUEST);
    end.channel.accept(asked.request, b"").unwrap();
    attacker.mark();
    attacker.send(&Packet::Confirm { cma: true }, &[]);
    host.wait(EventKind::ESTABLISHED);
    (host, end, attacker)
}

/// Calls `f` on a thread of its own, which must come back.
fn comes_back<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(f()));
    result.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{what} does not come back"))
}

/// A frame at `at` that names memory of the sender's.
fn pull(attacker: &Attacker, at: usize, part: Part) {
    // SAFETY: inside the ring, whose frames of this size never lie across its end.
    unsafe { part.store(attacker.ring().at(at + UNIT)) };
    attacker.ring().set_word((at + UNIT + Part::BYTES) % RING, 0, Ordering::Relaxed);
    attacker.header(at, kind::PULL, Part::BYTES, part.len << 32);
}

#[test]
fn a_ring_full_of_empty_writes_holds_up_no_thread() {
    let (mut host, end, _listener, attacker) = Attacker::connected();
    let frame = UNIT + 32;
    for at in (0..RING - frame + 1).step_by(frame) {
        // SAFETY: inside the ring.
        unsafe { Target { addr: 0, len: 0, rkey: 0 }.store(attacker.ring().at(at + UNIT)) };
        attacker.header(at, kind::WRITE, Target::BYTES, 0);
    }
    attacker.header(RING / frame * frame, 1, 0, 0);
    let (end, polled) = comes_back("a poll", move || {
        let mut out = [Completion::default(); 8];
        let polled: usize = (0..8).map(|_| end.recv.poll(&mut out)).sum();
        (end, polled)
    });
    assert_eq!(polled, 0);
    attacker.send(&Packet::Kick, &[]);
    comes_back("the event thread", move || host.events());
    drop(end);
}

#[test]
fn a_message_is_fetched_through_the_kernel_only_where_that_was_agreed() {
    let bytes = [7u8; 64];
    let part = Part { addr: bytes.as_ptr() as u64, len: 64, map: 0, offset: 0 };
    let (host, end, _listener, attacker) = Attacker::connected();
    let area = host.area(64);
    assert_eq!(end.post_recv(1, &[area.seg(0, 64)]), Status::OK);
    pull(&attacker, 0, part);
    broken("a message that only the kernel could fetch", host, end);
    assert_eq!(area.bytes(0, 64), [0; 64]);
    // Where it was agreed the same frame is a message.
    let (mut host, end, attacker) = connected_with_cma();
    let area = host.area(64);
    assert_eq!(end.post_recv(1, &[area.seg(0, 64)]), Status::OK);
    pull(&attacker, 0, part);
    assert_eq!(end.received(&mut [&mut host]).status, CompletionStatus::SUCCESS);
    assert_eq!(area.bytes(0, 64), bytes);
}

#[test]
fn a_peer_is_asked_for_a_limited_number_of_descriptors() {
    let bytes = [7u8; 64];
    let (mut host, end, attacker) = connected_with_cma();
    let area = host.area(64);
    let frame = UNIT + Part::BYTES;
    let (mut at, mut asked) = (0, 0);
    for map in 1..=u64::from(MAX_ASKED) + 100 {
        assert_eq!(end.post_recv(map, &[area.seg(0, 64)]), Status::OK);
        if at + frame > RING {
            attacker.ring().set_word(0, 0, Ordering::Relaxed);
            attacker.header(at, 1, 0, 0);
            at = 0;
        }
        pull(&attacker, at, Part { addr: bytes.as_ptr() as u64, len: 64, map, offset: 0 });
        at += frame;
        assert_eq!(end.received(&mut [&mut host]).status, CompletionStatus::SUCCESS, "message {map}");
        while let Received::Packet(packet, _) = handshake::receive(&attacker.socket) {
            asked += u32::from(matches!(packet, Packet::MapRequest { .. }));
        }
    }
    assert_eq!(asked, MAX_ASKED);
}

#[test]
fn a_peer_that_does_not_answer_is_asked_again() {
    let (mut host, end, _listener, attacker) = Attacker::connected();
    let area = host.area(64);
    let block = attacker.keys.alloc(4096, HugePages::Off).unwrap();
    let keys = attacker.keys.register(block.addr, 64, Access::REMOTE_WRITE, 7).unwrap();
    let remote = Remote { addr: block.addr, rkey: keys.rkey, len: 64 };
    assert_eq!(end.post(Opcode::WRITE, PostFlag::NONE, 1, &[area.seg(0, 64)], remote), Status::OK);
    let (mut asked, deadline) = (0, Instant::now() + LIMIT);
    while asked < 2 {
        host.pump();
        match handshake::receive(&attacker.socket) {
            Received::Packet(Packet::MapRequest { write: true, .. }, _) => asked += 1,
            Received::Packet(..) | Received::Empty => {
                assert!(Instant::now() < deadline, "asked {asked} times")
            }
            other => panic!("{other:?}"),
        }
    }
}
