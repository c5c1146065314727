//! What a peer writes into rings and counters.

use super::*;

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
            crate::memory::target::Target { addr: area.memory.addr(), len, rkey: area.rkey ^ 0x5000_0000 };
        // SAFETY: the ring's first payload has room.
        unsafe { target.store(attacker.ring().at(UNIT)) };
        attacker.header(0, kind, crate::memory::target::Target::BYTES, 0);
        broken("a wild request", host, end);
        assert_eq!(area.bytes(0, 64), [0; 64]);
    }
}

#[test]
fn more_reads_than_were_agreed_break_the_connection() {
    let (host, end, _listener, attacker) = Attacker::connected();
    let area = host.area(1 << 16);
    let target = crate::memory::target::Target { addr: area.memory.addr(), len: 1 << 16, rkey: area.rkey };
    for index in (0..20).rev() {
        let at = index * (UNIT + 32);
        // SAFETY: inside the ring.
        unsafe { target.store(attacker.ring().at(at + UNIT)) };
        attacker.header(at, kind::READ, crate::memory::target::Target::BYTES, 0);
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
