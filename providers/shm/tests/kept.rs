//! What is kept of a peer from one connection to the next: that it serves, that it means the same peer, and that it goes.
//!
//! One test at a time, because they count what the process holds.

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use common::*;
use dat_plugin::host::Listener;
use dat_plugin::{ConnectParam, EventKind, Status};

fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Descriptors, and mappings of memory files with their bytes, once the threads that close descriptors are done.
fn holdings() -> (usize, usize, u64) {
    let mut last = holdings_now();
    loop {
        std::thread::sleep(Duration::from_millis(5));
        let now = holdings_now();
        if now.0 >= last.0 {
            return now;
        }
        last = now;
    }
}

fn holdings_now() -> (usize, usize, u64) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let sizes = maps.lines().filter(|line| line.contains("/memfd:dat-shm")).map(|line| {
        let (from, rest) = line.split_once('-').unwrap();
        let to = rest.split_once(' ').unwrap().0;
        u64::from_str_radix(to, 16).unwrap() - u64::from_str_radix(from, 16).unwrap()
    });
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    sizes.fold((descriptors, 0, 0), |(fds, count, bytes), size| (fds, count + 1, bytes + size))
}

/// By then memory must no longer grow.
const ROUNDS: u8 = 120;

/// Memory files that are mapped, round after round. A place is given out again when both sides have left it. On a busy
/// machine one side leaves late, so a single round may need more. Memory that is lost makes it grow again and again.
#[derive(Debug, Default)]
struct Mapped {
    most: u64,
    rounds_without_growth: u32,
}

impl Mapped {
    /// Looks at the end of a round. Whether it has been the same for long.
    fn stays(&mut self) -> bool {
        let bytes = holdings().2;
        self.rounds_without_growth = if bytes <= self.most { self.rounds_without_growth + 1 } else { 0 };
        self.most = self.most.max(bytes);
        self.rounds_without_growth == 35
    }
}

/// Connects to a listener that is there already.
fn connect_to(a: &mut Host, b: &mut Host, from: &End, to: &End, listener: &Listener) {
    let addr = b.device.attr().address;
    from.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"" }).unwrap();
    let deadline = Instant::now() + LIMIT;
    let request = loop {
        // It may be asked to say more.
        a.pump();
        match b.take(EventKind::REQUEST) {
            Some(request) => break request,
            None => assert!(Instant::now() < deadline, "no request"),
        }
    };
    to.channel.accept(request.request, b"").unwrap();
    assert_eq!(a.wait(EventKind::ESTABLISHED).user, from.user);
    assert_eq!(b.wait(EventKind::ESTABLISHED).user, to.user);
}

/// A message there and one back.
fn talk(a: &mut Host, b: &mut Host, from: &End, to: &End, seed: u8) {
    let (src, dst) = (a.area(3000), b.area(3000));
    for (sender, receiver, src, dst) in [(from, to, &src, &dst), (to, from, &dst, &src)] {
        let bytes = src.fill(seed);
        dst.fill(!seed);
        assert_eq!(receiver.post_recv(1, &[dst.seg(0, 3000)]), Status::OK);
        assert_eq!(sender.post_send(2, &[src.seg(0, 3000)]), Status::OK);
        assert_ok(&receiver.received(&mut [&mut *a, &mut *b]), 1, 3000);
        assert_ok(&sender.sent(&mut [&mut *a, &mut *b]), 2, 3000);
        assert_eq!(dst.bytes(0, 3000), bytes);
    }
}

fn end_both(a: &mut Host, b: &mut Host, from: End, to: End) {
    from.channel.disconnect();
    b.wait(EventKind::DISCONNECTED);
    drop((from, to));
    assert!(a.events().is_empty() && b.events().is_empty());
}

#[test]
fn memory_is_used_again_and_nothing_is_left_in_it() {
    let _alone = alone();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let mut mapped = Mapped::default();
    for round in 0..ROUNDS {
        let (from, to) = (a.end(1), b.end(2));
        connect_to(&mut a, &mut b, &from, &to, &listener);
        talk(&mut a, &mut b, &from, &to, round);
        // Unreceived messages stay in the ring, in both directions.
        let (mine, theirs) = (a.area(64), b.area(64));
        for token in 0..10 {
            assert_eq!(from.post_send(token, &[mine.seg(0, 64)]), Status::OK);
            assert_eq!(to.post_send(token, &[theirs.seg(0, 64)]), Status::OK);
        }
        end_both(&mut a, &mut b, from, to);
        if mapped.stays() {
            return;
        }
    }
    panic!("after {ROUNDS} rounds mapped memory still grows: {mapped:?}");
}

/// A place is given out again, and for rings of its size only.
#[test]
fn places_of_several_sizes_do_not_mix() {
    let _alone = alone();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let mut mapped = Mapped::default();
    for round in 0..ROUNDS {
        for (depth, longest, ring) in
            [(1, 64, "ring 4 KiB"), (16, 1 << 24, "ring 16 KiB"), (300, 64, "ring 32 KiB")]
        {
            let end = |host: &Host, user| {
                let change = |attr: &mut dat_plugin::ChannelAttr| {
                    (attr.max_requests, attr.max_recvs, attr.max_message) = (depth, depth, longest);
                };
                host.end_with(user, change, false)
            };
            let (from, to) = (end(&a, 1), end(&b, 2));
            connect_to(&mut a, &mut b, &from, &to, &listener);
            for end in [&from, &to] {
                assert!(end.channel.describe().starts_with(ring), "{}", end.channel.describe());
            }
            talk(&mut a, &mut b, &from, &to, round);
            end_both(&mut a, &mut b, from, to);
        }
        if mapped.stays() {
            return;
        }
    }
    panic!("after {ROUNDS} rounds mapped memory still grows: {mapped:?}");
}

#[test]
fn many_connections_share_files_and_all_of_it_goes() {
    let _alone = alone();
    // Two ends each, with a socket and two queues, and what else is in use meanwhile.
    if !descriptors::descriptors(100 * 12 + 100, "many_connections_share_files_and_all_of_it_goes") {
        return;
    }
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let queues = (a.end(1), b.end(2));
    let before = holdings();
    let mut ends = Vec::new();
    for round in 0..100u8 {
        let (from, to) = (a.end(1), b.end(2));
        connect_to(&mut a, &mut b, &from, &to, &listener);
        talk(&mut a, &mut b, &from, &to, round);
        ends.push((from, to));
    }
    let with = holdings();
    let files = with.1 - before.1;
    assert!(files < 2 * 20, "{files} mappings for 100 connections seen from both sides");
    for (index, (from, to)) in ends.iter().enumerate() {
        talk(&mut a, &mut b, from, to, index as u8 ^ 0x55);
    }
    for (from, to) in ends {
        end_both(&mut a, &mut b, from, to);
    }
    let deadline = Instant::now() + LIMIT;
    while holdings() != before {
        assert!(Instant::now() < deadline, "{before:?} before, {:?} now", holdings());
        a.pump();
        b.pump();
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(queues);
}

#[test]
fn a_slot_the_peer_is_still_in_is_not_given_out() {
    let _alone = alone();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let mut kept = Vec::new();
    for round in 0..20u8 {
        let (from, to) = (a.end(1), b.end(2));
        connect_to(&mut a, &mut b, &from, &to, &listener);
        let (src, dst) = (a.area(2000), b.area(2000));
        let bytes = src.fill(round);
        assert_eq!(to.post_recv(1, &[dst.seg(0, 2000)]), Status::OK);
        assert_eq!(from.post_send(2, &[src.seg(0, 2000)]), Status::OK);
        // This side leaves at once; the other one has not looked yet, and stays.
        drop(from);
        kept.push((to, dst, bytes));
    }
    for (to, dst, bytes) in &kept {
        assert_ok(&to.received(&mut [&mut a, &mut b]), 1, 2000);
        assert_eq!(dst.bytes(0, 2000), *bytes);
    }
}

#[test]
fn attempts_that_come_to_nothing_leave_nothing() {
    let _alone = alone();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let (first, peer) = (a.end(1), b.end(2));
    connect_to(&mut a, &mut b, &first, &peer, &listener);
    let addr = b.device.attr().address;
    let before = holdings();
    for round in 0..60 {
        let from = a.end(3);
        from.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"" }).unwrap();
        let request = b.wait(EventKind::REQUEST);
        if round % 2 == 0 {
            b.device.reject(request.request, dat_plugin::RejectReason::CONSUMER, b"no");
            assert_eq!(a.wait(EventKind::REJECTED).data(), b"no");
        } else {
            // Gives up; the listener takes it all the same.
            drop(from);
            let to = b.end(4);
            to.channel.accept(request.request, b"").unwrap();
            assert_eq!(b.wait(EventKind::ACCEPT_FAILED).user, 4);
        }
    }
    talk(&mut a, &mut b, &first, &peer, 9);
    let deadline = Instant::now() + LIMIT;
    while holdings() != before {
        assert!(Instant::now() < deadline, "{before:?} before, {:?} now", holdings());
        a.pump();
        b.pump();
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_port_that_belongs_to_another_device_now_is_no_trouble() {
    let _alone = alone();
    let mut a = Host::open(&[]);
    let mut b = Host::open(&[]);
    let listener = b.device.listen(0, 1).unwrap();
    let port = listener.port();
    let (from, to) = (a.end(1), b.end(2));
    connect_to(&mut a, &mut b, &from, &to, &listener);
    talk(&mut a, &mut b, &from, &to, 1);
    drop((from, to, listener, b));
    // Of the same process, at the same port: what was kept of the other one does not hold.
    for round in 0..3 {
        let mut c = Host::open(&[]);
        let listener = c.device.listen(port, 1).unwrap();
        for again in 0..2 {
            let (from, to) = (a.end(1), c.end(2));
            connect_to(&mut a, &mut c, &from, &to, &listener);
            talk(&mut a, &mut c, &from, &to, round * 2 + again);
        }
        a.events();
    }
}

#[test]
fn queues_that_came_later_and_queues_that_went_are_told_of() {
    let _alone = alone();
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let listener = b.device.listen(0, 1).unwrap();
    let (first, peer) = (a.end(1), b.end(2));
    connect_to(&mut a, &mut b, &first, &peer, &listener);
    // More queues than are remembered, back and forth; each end has its own.
    for round in 0..30u8 {
        let (from, to) = (a.end(3), b.end(4));
        connect_to(&mut a, &mut b, &from, &to, &listener);
        talk(&mut a, &mut b, &from, &to, round);
        end_both(&mut a, &mut b, from, to);
        talk(&mut a, &mut b, &first, &peer, !round);
    }
}
