//! Writes and reads by each mechanism, and who may do them.

mod common;

use common::*;
use dat_plugin::host::{Memory, Remote};
use dat_plugin::{Access, Completion, CompletionStatus, EventKind, Opcode, PostFlag, Status};

const WRITE: Opcode = Opcode::WRITE;
const READ: Opcode = Opcode::READ;
const MODES: [&str; 3] = ["mapped", "cma", "target"];

/// Memory of the peer's that a mode reaches in its own way.
fn exposed(host: &Host, mode: &str, len: u64, access: Access, domain: u32) -> Area {
    let memory = if mode == "mapped" { host.device.alloc(len).unwrap() } else { Memory::heap(len as usize) };
    host.area_of(memory, access, domain)
}

#[test]
fn bytes_are_written_and_read_by_each_mechanism() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        let (local, remote) = (a.area(1 << 20), exposed(&b, mode, 1 << 20, ALL, 7));
        for size in [1u32, 7, 8, 64, 4095, 5000, 70_001, 1 << 19] {
            let bytes = local.fill(size as u8);
            let half = size / 2;
            let mut segs = vec![local.seg(3, size - half)];
            segs.extend((half > 0).then(|| local.seg(600_000, half)));
            assert_eq!(from.post(WRITE, PostFlag::NONE, 1, &segs, remote.remote(11, 0)), Status::OK);
            assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, size);
            let expected =
                [&bytes[3..][..(size - half) as usize], &bytes[600_000..][..half as usize]].concat();
            assert_eq!(remote.bytes(11, size as usize), expected, "{mode}, {size} bytes written");

            let bytes = remote.fill(!size as u8);
            assert_eq!(from.post(READ, PostFlag::NONE, 2, &segs, remote.remote(5, size)), Status::OK);
            assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, size);
            let got = [local.bytes(3, (size - half) as usize), local.bytes(600_000, half as usize)].concat();
            assert_eq!(got, bytes[5..][..size as usize], "{mode}, {size} bytes read");
        }
        assert!(a.events().is_empty() && b.events().is_empty());
        assert!(from.channel.describe().contains(if mode == "target" { "by the target" } else { mode }));
    }
}

#[test]
fn a_read_may_be_shorter_than_its_segments_and_empty_transfers_touch_nothing() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        let (local, remote) = (a.area(64), exposed(&b, mode, 4096, ALL, 7));
        remote.fill(9);
        assert_eq!(from.post(READ, PostFlag::NONE, 1, &[local.seg(0, 64)], remote.remote(0, 10)), Status::OK);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, 10);
        assert_eq!(local.bytes(0, 10), remote.bytes(0, 10));
        assert_eq!(local.bytes(10, 54), [0; 54]);
        let nowhere = Remote { addr: 5, rkey: 6, len: 0 };
        assert_eq!(from.post(WRITE, PostFlag::NONE, 2, &[], nowhere), Status::OK);
        assert_eq!(from.post(READ, PostFlag::NONE, 3, &[local.seg(0, 64)], nowhere), Status::OK);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, 0);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 3, 0);
        let longer = remote.remote(0, 65);
        assert_eq!(from.post(READ, PostFlag::NONE, 4, &[local.seg(0, 64)], longer), Status::INVALID);
    }
}

#[test]
fn requests_complete_in_post_order_whatever_they_are() {
    for mode in MODES {
        let (mut a, mut b, from, to) = pair(&[("one_sided", mode)]);
        let (local, remote, sink) = (a.area(20_000), exposed(&b, mode, 20_000, ALL, 7), b.area(64));
        let segs = [local.seg(0, 20_000)];
        let fenced = PostFlag::FENCE;
        for round in 0..8 {
            assert_eq!(
                from.post(READ, PostFlag::NONE, round * 4, &segs, remote.remote(0, 20_000)),
                Status::OK
            );
            assert_eq!(from.post_send(round * 4 + 1, &[local.seg(0, 8)]), Status::OK);
            assert_eq!(from.post(WRITE, fenced, round * 4 + 2, &segs, remote.remote(0, 0)), Status::OK);
            assert_eq!(from.post_send(round * 4 + 3, &[local.seg(0, 8)]), Status::OK);
        }
        // Each second message is late: nothing behind it may overtake.
        let mut out = [Completion::default(); 64];
        for round in 0..8 {
            for message in 0..2 {
                assert_eq!(to.post_recv(round * 2 + message, &[sink.seg(0, 8)]), Status::OK);
                assert_ok(&to.received(&mut [&mut a, &mut b]), round * 2 + message, 8);
            }
        }
        let deadline = std::time::Instant::now() + LIMIT;
        let mut tokens = Vec::new();
        while tokens.len() < 32 {
            let n = from.send.poll(&mut out);
            tokens.extend(out[..n].iter().map(|c| (c.token, c.status)));
            a.pump();
            b.pump();
            assert!(std::time::Instant::now() < deadline, "{tokens:?}");
        }
        let expected: Vec<_> = (0..32).map(|token| (token, CompletionStatus::SUCCESS)).collect();
        assert_eq!(tokens, expected, "{mode}");
    }
}

/// Where memory is mapped they are done when they are posted: they take no slot and are reported on demand only.
#[test]
fn silent_writes_and_reads_without_end_and_a_message_among_them() {
    let (mut a, mut b, from, to) = pair(&[("one_sided", "mapped")]);
    let (local, remote, sink) = (a.area(64), exposed(&b, "mapped", 64, ALL, 7), b.area(64));
    let one = |op, flags, token| {
        let status = from.post(op, flags, token, &[local.seg(0, 8)], remote.remote(8, 8));
        assert_eq!(status, Status::OK, "{token}");
    };
    local.fill(1);
    // Has the memory mapped, for either.
    for op in [WRITE, READ] {
        one(op, PostFlag::NONE, 1);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, 8);
    }
    let mut out = [Completion::default(); 4];
    for token in 2u64..1000 {
        local.memory.write(0, &token.to_ne_bytes());
        one(WRITE, PostFlag::UNSIGNALLED, token);
        assert_eq!(remote.bytes(8, 8), token.to_ne_bytes(), "at once");
        local.memory.write(0, &[0; 8]);
        one(READ, PostFlag::UNSIGNALLED, token);
        assert_eq!(local.bytes(0, 8), token.to_ne_bytes());
        assert_eq!(from.send.poll(&mut out), 0);
    }
    // A signalled completion covers those before it; no completion is left then.
    one(WRITE, PostFlag::NONE, 1000);
    from.channel.settle();
    assert_eq!(from.send.poll(&mut out), 1);
    assert_ok(&out[0], 1000, 8);
    one(READ, PostFlag::UNSIGNALLED, 1001);
    assert_eq!(from.send.poll(&mut out), 0);
    from.channel.settle();
    assert_eq!(from.send.poll(&mut out), 1);
    assert_ok(&out[0], 1001, 8);
    // Behind a message that was not received they are done too, and complete in their turn.
    assert_eq!(from.post_send(1002, &[local.seg(0, 8)]), Status::OK);
    local.memory.write(0, &[7; 8]);
    one(WRITE, PostFlag::UNSIGNALLED, 1003);
    one(WRITE, PostFlag::NONE, 1004);
    assert_eq!(remote.bytes(8, 8), [7; 8]);
    assert_eq!(from.send.poll(&mut out), 0);
    assert_eq!(to.post_recv(5, &[sink.seg(0, 8)]), Status::OK);
    assert_ok(&to.received(&mut [&mut a, &mut b]), 5, 8);
    assert_ok(&from.sent(&mut [&mut a, &mut b]), 1002, 8);
    assert_ok(&from.sent(&mut [&mut a, &mut b]), 1004, 8);
}

/// A mapping stays, but its key is checked each time.
#[test]
fn memory_used_last_is_of_no_use_without_its_key() {
    let (mut a, mut b, from, _to) = pair(&[("one_sided", "mapped")]);
    let (local, remote) = (a.area(64), exposed(&b, "mapped", 64, ALL, 7));
    let target = remote.remote(0, 0);
    for token in 0..3 {
        assert_eq!(from.post(WRITE, PostFlag::NONE, token, &[local.seg(0, 8)], target), Status::OK);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), token, 8);
    }
    drop(remote.table.remove(remote.context).unwrap());
    remote.memory.write(0, &[9; 8]);
    assert_eq!(from.post(WRITE, PostFlag::UNSIGNALLED, 4, &[local.seg(0, 8)], target), Status::OK);
    let failed = from.sent(&mut [&mut a, &mut b]);
    assert_eq!((failed.token, failed.status), (4, CompletionStatus::REMOTE_ACCESS));
    assert_eq!(remote.bytes(0, 8), [9; 8]);
    assert_eq!(a.wait(EventKind::BROKEN).user, 1);
}

#[test]
fn what_is_not_allowed_is_refused_and_ends_the_connection() {
    for mode in MODES {
        for case in 0..8 {
            let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
            let local = a.area(4096);
            let access = if case == 0 { Access::REMOTE_READ | Access::LOCAL_WRITE } else { ALL };
            let access = if case == 1 { Access::REMOTE_WRITE | Access::LOCAL_WRITE } else { access };
            let remote = exposed(&b, mode, 4096, access, if case == 2 { 8 } else { 7 });
            remote.memory.write(0, &[7; 4096]);
            let mut target = remote.remote(0, 64);
            match case {
                3 => target.rkey ^= 0x0100_0000,
                4 => target.addr -= 1,
                5 => target.addr += 4096 - 63,
                6 => target.addr = u64::MAX - 10,
                7 => {
                    remote.table.remove(remote.context).unwrap();
                }
                _ => {}
            }
            let op = if case == 1 { READ } else { WRITE };
            assert_eq!(from.post(op, PostFlag::NONE, 1, &[local.seg(0, 64)], target), Status::OK);
            let failed = from.sent(&mut [&mut a, &mut b]);
            assert_eq!(
                (failed.token, failed.status),
                (1, CompletionStatus::REMOTE_ACCESS),
                "{mode}, case {case}"
            );
            assert_eq!(a.wait(EventKind::BROKEN).user, 1);
            assert_eq!(b.wait(EventKind::BROKEN).user, 2);
            let mut bytes = [0; 4096];
            remote.memory.read(0, &mut bytes);
            assert_eq!(bytes, [7; 4096], "{mode}, case {case}");
            assert!(a.events().is_empty() && b.events().is_empty());
        }
    }
}

#[test]
fn what_was_posted_before_a_refused_request_completes() {
    for mode in MODES {
        let (mut a, mut b, from, to) = pair(&[("one_sided", mode)]);
        let (local, remote, sink) = (a.area(4096), exposed(&b, mode, 4096, ALL, 7), b.area(64));
        assert_eq!(
            from.post(READ, PostFlag::NONE, 1, &[local.seg(0, 4096)], remote.remote(0, 4096)),
            Status::OK
        );
        assert_eq!(from.post_send(2, &[local.seg(0, 8)]), Status::OK);
        let bad = Remote { rkey: remote.rkey ^ 0x0010_0000, ..remote.remote(0, 8) };
        assert_eq!(from.post(WRITE, PostFlag::NONE, 3, &[local.seg(0, 8)], bad), Status::OK);
        assert_eq!(from.post_send(4, &[local.seg(0, 8)]), Status::OK);
        assert_eq!(to.post_recv(1, &[sink.seg(0, 8)]), Status::OK);
        assert_eq!(to.post_recv(2, &[sink.seg(0, 8)]), Status::OK);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, 4096);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, 8);
        assert_eq!(from.sent(&mut [&mut a, &mut b]).status, CompletionStatus::REMOTE_ACCESS);
        a.wait(EventKind::BROKEN);
        b.wait(EventKind::BROKEN);
        assert_ok(&to.received(&mut [&mut a, &mut b]), 1, 8);
        let mut out = [Completion::default(); 2];
        assert_eq!(
            to.recv.poll(&mut out) + from.send.poll(&mut out),
            0,
            "{mode}: nothing after the failed request"
        );
    }
}

#[test]
fn a_target_that_does_not_poll_is_reached() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        let (local, remote) = (a.area(100_000), exposed(&b, mode, 100_000, ALL, 7));
        let bytes = local.fill(3);
        assert_eq!(
            from.post(WRITE, PostFlag::NONE, 1, &[local.seg(0, 100_000)], remote.remote(0, 0)),
            Status::OK
        );
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, 100_000);
        assert_eq!(remote.bytes(0, 100_000), bytes[..100_000]);
    }
}

#[test]
fn the_last_byte_of_a_write_is_visible_last() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        const LEN: usize = 3000;
        let (local, remote) = (a.area(LEN), exposed(&b, mode, LEN as u64, ALL, 7));
        for round in 1..=100u8 {
            local.memory.write(0, &[round; LEN]);
            std::thread::scope(|scope| {
                let watcher = scope.spawn(|| {
                    let deadline = std::time::Instant::now() + LIMIT;
                    while remote.memory.read_volatile(LEN as u64 - 1) != round {
                        assert!(std::time::Instant::now() < deadline);
                        std::thread::yield_now();
                    }
                    remote.bytes(0, LEN)
                });
                assert_eq!(
                    from.post(WRITE, PostFlag::NONE, 1, &[local.seg(0, LEN as u32)], remote.remote(0, 0)),
                    Status::OK
                );
                assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, LEN as u32);
                assert_eq!(watcher.join().unwrap(), [round; LEN], "{mode}");
            });
        }
    }
}

#[test]
fn a_registration_ends_while_peers_write_and_nothing_is_written_after() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        let local = a.area(4096);
        let memory = exposed(&b, mode, 4096, ALL, 7);
        let target = memory.remote(0, 0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut out = [Completion::default(); 8];
                let mut round = 0u8;
                loop {
                    round = round.wrapping_add(1);
                    local.memory.write(0, &[round | 1; 4096]);
                    if from.post(WRITE, PostFlag::NONE, 1, &[local.seg(0, 4096)], target)
                        == Status::NOT_CONNECTED
                    {
                        return;
                    }
                    from.send.poll(&mut out);
                    a.pump();
                }
            });
            for _ in 0..200 {
                b.pump();
                std::thread::yield_now();
            }
            drop(memory.table.remove(memory.context).unwrap());
            memory.memory.write(0, &[0; 4096]);
            let deadline = std::time::Instant::now() + LIMIT;
            while !writer.is_finished() {
                b.pump();
                assert!(std::time::Instant::now() < deadline);
            }
            let mut bytes = [1; 4096];
            memory.memory.read(0, &mut bytes);
            assert_eq!(bytes, [0; 4096], "{mode}");
        });
    }
}

/// How many mappings of this process show the file that is mapped at `addr`.
fn mappings(addr: u64) -> (String, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let inode = |line: &str| line.split_whitespace().nth(4).unwrap_or_default().to_owned();
    let start = format!("{addr:x}-");
    let own = maps.lines().find(|line| line.starts_with(&start)).map(inode).expect("the block is mapped");
    let count = maps.lines().filter(|line| inode(line) == own).count();
    (own, count)
}

/// A peer that keeps freed memory mapped would keep its pages: a program that makes and frees regions would leak.
#[test]
fn memory_that_is_freed_is_unmapped_by_peers_too() {
    let (mut a, mut b, from, _to) = pair(&[("one_sided", "mapped")]);
    let local = a.area(64);
    for round in 0..20 {
        let remote = exposed(&b, "mapped", 1 << 20, ALL, 7);
        for opcode in [WRITE, READ] {
            let segs = [local.seg(0, 64)];
            assert_eq!(from.post(opcode, PostFlag::NONE, round, &segs, remote.remote(0, 64)), Status::OK);
            assert_ok(&from.sent(&mut [&mut a, &mut b]), round, 64);
        }
        let (inode, count) = mappings(remote.memory.addr());
        assert!(count >= 2, "the peer has it mapped: {count}");
        drop(remote);
        let deadline = std::time::Instant::now() + LIMIT;
        loop {
            a.pump();
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            if !maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode)) {
                break;
            }
            assert!(std::time::Instant::now() < deadline, "round {round}: freed memory is mapped");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}
