//! Messages between two devices of one process.

mod common;

use common::*;
use dat_plugin::host::Remote;
use dat_plugin::{Completion, CompletionFlag, CompletionStatus, EventKind, Opcode, PostFlag, Status};

#[test]
fn a_message_arrives_in_the_posted_segments() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (src, dst) = (a.area(256), b.area(256));
    let bytes = src.fill(1);
    assert_eq!(to.post_recv(5, &[dst.seg(100, 3), dst.seg(0, 50)]), Status::OK);
    assert_eq!(
        from.post(Opcode::SEND, PostFlag::SOLICITED, 6, &[src.seg(10, 8), src.seg(40, 9)], Remote::default()),
        Status::OK
    );
    let got = to.received(&mut [&mut a, &mut b]);
    assert_ok(&got, 5, 17);
    assert_eq!((got.user, got.flags), (22, CompletionFlag::SOLICITED));
    let sent = from.sent(&mut [&mut a, &mut b]);
    assert_ok(&sent, 6, 17);
    assert_eq!(sent.user, 11);
    let expected = [&bytes[10..18], &bytes[40..49]].concat();
    assert_eq!([dst.bytes(100, 3), dst.bytes(0, 14)].concat(), expected);
}

#[test]
fn messages_of_every_size_arrive_in_order_and_intact() {
    for params in [&[("cma", "off")][..], &[]] {
        let (mut a, mut b, from, to) = pair(params);
        let sizes =
            [0u32, 1, 8, 15, 16, 17, 4000, 4096, 4097, 8192, 16384, 16385, 65535, 65536, 100_000, 1 << 20];
        let (src, dst) = (a.area(1 << 20), b.area(1 << 20));
        for (round, size) in sizes.into_iter().enumerate() {
            let bytes = src.fill(round as u8);
            let seg = |area: &Area| if size == 0 { vec![] } else { vec![area.seg(0, size)] };
            assert_eq!(from.post_send(round as u64, &seg(&src)), Status::OK);
            assert_eq!(to.post_recv(round as u64, &seg(&dst)), Status::OK);
            assert_ok(&to.received(&mut [&mut a, &mut b]), round as u64, size);
            assert_ok(&from.sent(&mut [&mut a, &mut b]), round as u64, size);
            assert_eq!(dst.bytes(0, size as usize), bytes[..size as usize], "{size} bytes");
        }
    }
}

#[test]
fn messages_out_of_allocated_memory_arrive_intact() {
    let (mut a, mut b, from, to) = pair(&[]);
    let src = a.area_of(a.device.alloc(1 << 20).unwrap(), ALL, 7);
    let plain = a.area(1 << 20);
    let dst = b.area(1 << 20);
    // The first goes another way, while the receiver gets hold of the memory.
    for round in 0..20u32 {
        let size = 5000 + round * 20_011;
        let bytes = src.fill(round as u8);
        let other = plain.fill(!round as u8);
        let (segs, expected) = if round % 3 == 0 {
            (
                vec![src.seg(77, size), plain.seg(3, 5000)],
                [&bytes[77..][..size as usize], &other[3..5003]].concat(),
            )
        } else {
            let expected = [&bytes[77..][..size as usize], &bytes[9..109]].concat();
            (vec![src.seg(77, size), src.seg(9, 100)], expected)
        };
        assert_eq!(to.post_recv(1, &[dst.seg(0, 3), dst.seg(100, 1 << 19)]), Status::OK);
        assert_eq!(from.post_send(2, &segs), Status::OK);
        assert_ok(&to.received(&mut [&mut a, &mut b]), 1, expected.len() as u32);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, expected.len() as u32);
        assert_eq!([dst.bytes(0, 3), dst.bytes(100, expected.len() - 3)].concat(), expected, "round {round}");
        a.pump();
        b.pump();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let readable = maps.lines().filter(|line| line.contains("dat-shm-memory") && line.contains("r--s"));
    assert!(readable.count() >= 1, "the receiver mapped the sender's memory, to read");
}

/// Sends messages of many sizes out of ordinary memory, and compares their bytes. Their number is high enough that each
/// way is tried. Returns the description of the sender's channel.
fn out_of_ordinary_memory(params: &[(&str, &str)]) -> String {
    let (mut a, mut b, from, to) = pair(params);
    let (src, dst) = (a.area(3 << 20), b.area(3 << 20));
    for round in 0..320u32 {
        let size = 4097 + (round % 40) * 24_011;
        let bytes = src.fill(round as u8);
        let first = size / 3;
        let parts = [src.seg(0, first), src.seg(u64::from(first), size - first)];
        assert_eq!(to.post_recv(1, &[dst.seg(0, 5), dst.seg(5, 3 << 19)]), Status::OK);
        assert_eq!(from.post_send(2, &parts), Status::OK);
        assert_ok(&to.received(&mut [&mut a, &mut b]), 1, size);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, size);
        assert_eq!(dst.bytes(0, size as usize), bytes[..size as usize], "{size} bytes");
    }
    assert!(a.events().is_empty() && b.events().is_empty());
    from.channel.describe()
}

#[test]
fn messages_out_of_ordinary_memory_arrive_by_ring_and_kernel() {
    let measured = out_of_ordinary_memory(&[]);
    assert!(measured.contains("cma where it is faster") || measured.contains("no cma"), "{measured}");
    let fixed = out_of_ordinary_memory(&[("cma_threshold", "5000")]);
    assert!(fixed.contains("cma from 5000 bytes") || fixed.contains("no cma"), "{fixed}");
    let none = out_of_ordinary_memory(&[("cma", "off")]);
    assert!(none.contains("no cma") && none.contains("large messages ring"), "{none}");
}

#[test]
fn messages_wait_for_receives_without_limit_and_do_not_block_the_sender() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (src, dst) = (a.area(4096), b.area(4096));
    for token in 0..64 {
        src.memory.write(0, &[token as u8; 1]);
        assert_eq!(from.post_send(token, &[src.seg(0, 1000)]), Status::OK);
    }
    assert_eq!(from.post_send(64, &[src.seg(0, 1)]), Status::NO_RESOURCE);
    std::thread::sleep(std::time::Duration::from_millis(20));
    a.pump();
    b.pump();
    let mut out = [Completion::default(); 4];
    assert_eq!(from.send.poll(&mut out) + to.recv.poll(&mut out), 0);
    for token in 0..64 {
        assert_eq!(to.post_recv(100 + token, &[dst.seg(0, 1000)]), Status::OK);
        assert_ok(&to.received(&mut [&mut a, &mut b]), 100 + token, 1000);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), token, 1000);
    }
    assert!(a.events().is_empty() && b.events().is_empty());
}

/// The ring of a connection holds all requests that its endpoints may have outstanding. So they reach a late receiver
/// while the sender makes no progress: neither its completions nor its events are polled.
#[test]
fn as_many_messages_as_may_be_under_way_need_no_sender() {
    const DEPTH: u32 = 1000;
    const PLACE: u64 = 160;
    let deep = |host: &Host, user| {
        host.end_with(user, |attr| (attr.max_requests, attr.max_recvs) = (DEPTH, DEPTH), false)
    };
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let (from, to) = (deep(&a, 1), deep(&b, 2));
    connect(&mut a, &mut b, &from, &to);
    let (src, dst) = (a.area(4 * DEPTH as usize), b.area((PLACE as u32 * DEPTH) as usize));
    // From 4 to 152 bytes. The first four are its number.
    let length = |token: u32| 4 * (1 + token % 38);
    for token in 0..DEPTH {
        let at = 4 * u64::from(token);
        src.memory.write(at, &token.to_ne_bytes());
        let segs = [src.seg(at, 4), src.seg(0, (length(token) - 4).max(4))];
        assert_eq!(from.post_send(token.into(), &segs[..1 + usize::from(length(token) > 4)]), Status::OK);
    }
    for token in 0..u64::from(DEPTH) {
        assert_eq!(to.post_recv(token, &[dst.seg(PLACE * token, PLACE as u32)]), Status::OK);
    }
    for token in 0..DEPTH {
        assert_ok(&to.received(&mut [&mut b]), token.into(), length(token));
        assert_eq!(dst.bytes(PLACE * u64::from(token), 4), token.to_ne_bytes(), "message {token}");
    }
    for token in 0..DEPTH {
        assert_ok(&from.sent(&mut [&mut a]), token.into(), length(token));
    }
}

#[test]
fn a_message_too_long_for_its_receive_ends_the_connection_at_both_ends() {
    for size in [100, 10_000, 200_000] {
        let (mut a, mut b, from, to) = pair(&[]);
        let (src, dst) = (a.area(200_000), b.area(4096));
        assert_eq!(to.post_recv(1, &[dst.seg(0, 8)]), Status::OK);
        assert_eq!(to.post_recv(2, &[dst.seg(0, 99)]), Status::OK);
        assert_eq!(from.post_send(3, &[src.seg(0, 8)]), Status::OK);
        assert_eq!(from.post_send(4, &[src.seg(0, size)]), Status::OK);
        assert_ok(&to.received(&mut [&mut a, &mut b]), 1, 8);
        let failed = to.received(&mut [&mut a, &mut b]);
        assert_eq!((failed.token, failed.status), (2, CompletionStatus::LOCAL_LENGTH));
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 3, 8);
        let failed = from.sent(&mut [&mut a, &mut b]);
        assert_eq!((failed.token, failed.status), (4, CompletionStatus::REMOTE_ERROR));
        assert_eq!(a.wait(EventKind::BROKEN).user, 1);
        assert_eq!(b.wait(EventKind::BROKEN).user, 2);
        assert_eq!(from.post_send(5, &[src.seg(0, 8)]), Status::NOT_CONNECTED);
        assert!(a.events().is_empty() && b.events().is_empty());
    }
}

#[test]
fn a_poisoned_receive_fails_the_message_that_would_use_it() {
    let (mut a, mut b, from, to) = pair(&[]);
    let src = a.area(64);
    let dst = b.area(64);
    assert_eq!(to.channel.post_recv(PostFlag::POISON, 9, &[dst.seg(0, 64)], 64), Status::OK);
    assert_eq!(from.post_send(1, &[src.seg(0, 8)]), Status::OK);
    assert_eq!(to.received(&mut [&mut a, &mut b]).status, CompletionStatus::LOCAL_ACCESS);
    assert_eq!(from.sent(&mut [&mut a, &mut b]).status, CompletionStatus::REMOTE_ERROR);
    a.wait(EventKind::BROKEN);
    b.wait(EventKind::BROKEN);
}

#[test]
fn a_bounded_wait_for_a_receive_ends_with_not_ready() {
    let (mut a, mut b, from, _to) = pair(&[("rnr_timeout_ms", "20")]);
    let src = a.area(64);
    assert_eq!(from.post_send(1, &[src.seg(0, 8)]), Status::OK);
    let failed = from.sent(&mut [&mut a, &mut b]);
    assert_eq!((failed.token, failed.status), (1, CompletionStatus::NOT_READY));
    a.wait(EventKind::BROKEN);
    b.wait(EventKind::BROKEN);
}

#[test]
fn a_sender_that_sleeps_is_served_by_the_event_thread_of_a_peer_that_does_not_poll() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (src, dst) = (a.area(64), b.area(64));
    assert_eq!(to.post_recv(1, &[dst.seg(0, 64)]), Status::OK);
    assert_eq!(from.post_send(2, &[src.seg(0, 64)]), Status::OK);
    assert!(from.send.arm());
    let deadline = std::time::Instant::now() + LIMIT;
    while !readable(&from.send) {
        a.pump();
        b.pump();
        assert!(std::time::Instant::now() < deadline);
    }
    from.send.disarm();
    assert!(!readable(&from.send));
    let mut out = [Completion::default(); 2];
    assert_eq!(from.send.poll(&mut out), 1);
    assert_ok(&out[0], 2, 64);
    assert!(!to.recv.arm(), "the completion was stored");
    assert_ok(&to.received(&mut [&mut a, &mut b]), 1, 64);
}

#[test]
fn a_receiver_that_sleeps_is_woken_by_a_message() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (src, dst) = (a.area(64), b.area(64));
    for round in 0..3 {
        assert_eq!(to.post_recv(round, &[dst.seg(0, 64)]), Status::OK);
        assert!(to.recv.arm());
        assert!(!readable(&to.recv));
        assert_eq!(from.post_send(round, &[src.seg(0, 64)]), Status::OK);
        assert!(readable(&to.recv));
        to.recv.disarm();
        assert_ok(&to.received(&mut [&mut a, &mut b]), round, 64);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), round, 64);
    }
}

fn readable(queue: &dat_plugin::host::Queue) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let fd = queue.fd().unwrap();
    let now = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

/// Waits as an application does that sleeps: arm, wait for the descriptor, disarm, poll.
fn sleep_for(queue: &dat_plugin::host::Queue, spins: u32) -> Completion {
    use rustix::event::{PollFd, PollFlags, poll};
    let mut out = [Completion::default()];
    loop {
        for _ in 0..=spins {
            if queue.poll(&mut out) == 1 {
                return out[0];
            }
        }
        if queue.arm() {
            let fd = queue.fd().unwrap();
            let limit = rustix::time::Timespec { tv_sec: 5, tv_nsec: 0 };
            assert_eq!(
                poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)),
                Ok(1),
                "a wake-up was lost"
            );
            queue.disarm();
        }
    }
}

#[test]
fn sleepers_never_miss_a_message() {
    for one_queue in [false, true] {
        let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
        let (from, to) = (a.end_with(1, |_| {}, one_queue), b.end_with(2, |_| {}, one_queue));
        connect(&mut a, &mut b, &from, &to);
        let (left, right) = (a.area(64), b.area(64));
        const ROUNDS: u32 = 3000;
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let events = scope.spawn(|| {
                // The engine's threads, which make progress for sleeping threads.
                let deadline = std::time::Instant::now() + LIMIT;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) && std::time::Instant::now() < deadline
                {
                    a.pump();
                    b.pump();
                    std::thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            let (to, right) = (&to, &right);
            let side = |end: &End, area: &Area, first: bool| {
                let (mut sends, mut recvs) = (0, 0);
                for round in 0..ROUNDS {
                    assert_eq!(end.post_recv(1, &[area.seg(0, 8)]), Status::OK);
                    if first {
                        assert_eq!(end.post_send(2, &[area.seg(8, 8)]), Status::OK);
                    }
                    while recvs <= round {
                        let got = sleep_for(&end.recv, round % 97);
                        assert_eq!(got.status, CompletionStatus::SUCCESS);
                        if got.token == 1 { recvs += 1 } else { sends += 1 }
                    }
                    if !first {
                        assert_eq!(end.post_send(2, &[area.seg(8, 8)]), Status::OK);
                    }
                    while sends <= round {
                        let got = sleep_for(&end.send, round % 31);
                        assert_eq!(got.status, CompletionStatus::SUCCESS);
                        if got.token == 1 { recvs += 1 } else { sends += 1 }
                    }
                }
            };
            let other = scope.spawn(move || side(to, right, false));
            side(&from, &left, true);
            other.join().unwrap();
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            events.join().unwrap();
        });
    }
}
