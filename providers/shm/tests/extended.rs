//! What goes beyond messages, writes and reads: immediate values, atomic operations, windows, shared receives, silence.

mod common;

use std::sync::Arc;

use common::*;
use dat_plugin::CompletionStatus as Done;
use dat_plugin::host::{Batch, Memory, RecvBatch, Remote};
use dat_plugin::{
    Access, AtomicRequest, Completion, CompletionFlag, ConnectParam, EventKind, Opcode, PostFlag, SrqAttr,
    Status,
};

const MODES: [&str; 3] = ["mapped", "cma", "target"];
const ATOMIC: Access = Access(ALL.0 | Access::REMOTE_ATOMIC.0);
const WINDOW: Access = Access(ALL.0 | Access::WINDOW.0);

fn exposed(host: &Host, mode: &str, len: u64, access: Access) -> Area {
    let memory = if mode == "mapped" { host.device.alloc(len).unwrap() } else { Memory::heap(len as usize) };
    host.area_of(memory, access, 7)
}

fn marks(done: &Completion) -> (u64, Done, u32, CompletionFlag, u32) {
    (done.token, done.status, done.length, done.flags, done.imm)
}

/// No completion of `end` now, with progress on both sides.
fn nothing(end: &End, hosts: &mut [&mut Host]) {
    let mut out = [Completion::default()];
    for _ in 0..20 {
        hosts.iter_mut().for_each(|host| host.pump());
        assert_eq!(end.send.poll(&mut out) + end.recv.poll(&mut out), 0, "{out:?}");
    }
}

#[test]
fn immediate_values_come_with_messages_of_every_length() {
    let (mut a, mut b, from, to) = pair(&[]);
    let (local, sink) = (a.area(1 << 20), b.area(1 << 20));
    for (token, size) in [(1, 0u32), (2, 8), (3, 4096), (4, 4097), (5, 60_000), (6, 1 << 20)] {
        let bytes = local.fill(token as u8);
        assert_eq!(to.post_recv(token, &[sink.seg(0, 1 << 20)]), Status::OK);
        let segs: Vec<_> = (size > 0).then(|| local.seg(0, size)).into_iter().collect();
        let flags = if token % 2 == 0 { PostFlag::SOLICITED } else { PostFlag::NONE };
        let value = 0xFFFF_FF00 | token as u32;
        let status = from.channel.post_imm(
            Opcode::SEND_IMM,
            flags,
            token,
            &segs,
            size.into(),
            Remote::default(),
            value,
        );
        assert_eq!(status, Status::OK);
        let done = to.received(&mut [&mut a, &mut b]);
        let solicited = if token % 2 == 0 { CompletionFlag::SOLICITED } else { CompletionFlag::NONE };
        assert_eq!(marks(&done), (token, Done::SUCCESS, size, solicited | CompletionFlag::IMMEDIATE, value));
        assert_eq!(sink.bytes(0, size as usize), bytes[..size as usize]);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), token, size);
        // The one after it has none.
        assert_eq!(to.post_recv(99, &[]), Status::OK);
        assert_eq!(from.post_send(98, &[]), Status::OK);
        let done = to.received(&mut [&mut a, &mut b]);
        assert_eq!(marks(&done), (99, Done::SUCCESS, 0, CompletionFlag::NONE, 0));
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 98, 0);
    }
}

#[test]
fn a_write_with_an_immediate_value_uses_a_receive_when_its_bytes_are_there() {
    for mode in MODES {
        let (mut a, mut b, from, to) = pair(&[("one_sided", mode)]);
        let (local, remote) = (a.area(100_000), exposed(&b, mode, 100_000, ALL));
        for (token, size) in [(1, 0u32), (2, 8), (3, 70_000)] {
            let bytes = local.fill(token as u8);
            let segs: Vec<_> = (size > 0).then(|| local.seg(0, size)).into_iter().collect();
            let at = remote.remote(16, 0);
            let status = from.channel.post_imm(
                Opcode::WRITE_IMM,
                PostFlag::NONE,
                token,
                &segs,
                size.into(),
                at,
                7000 + token as u32,
            );
            assert_eq!(status, Status::OK);
            nothing(&to, &mut [&mut a, &mut b]);
            nothing(&from, &mut [&mut a, &mut b]);
            assert_eq!(to.post_recv(token, &[]), Status::OK, "no byte goes into its buffer");
            let done = to.received(&mut [&mut a, &mut b]);
            let flags = CompletionFlag::IMMEDIATE | CompletionFlag::WRITTEN;
            assert_eq!(marks(&done), (token, Done::SUCCESS, size, flags, 7000 + token as u32), "{mode}");
            assert_eq!(remote.bytes(16, size as usize), bytes[..size as usize], "{mode}");
            assert_ok(&from.sent(&mut [&mut a, &mut b]), token, size);
        }
        // A refused request uses none.
        assert_eq!(to.post_recv(4, &[]), Status::OK);
        let wrong = Remote { rkey: remote.rkey ^ 1, ..remote.remote(0, 0) };
        let seg = [local.seg(0, 8)];
        from.channel.post_imm(Opcode::WRITE_IMM, PostFlag::NONE, 5, &seg, 8, wrong, 1);
        let done = from.sent(&mut [&mut a, &mut b]);
        assert_eq!((done.token, done.status), (5, Done::REMOTE_ACCESS), "{mode}");
        nothing(&to, &mut [&mut a, &mut b]);
        b.wait(EventKind::BROKEN);
    }
}

fn atomic(
    opcode: Opcode,
    token: u64,
    at: Remote,
    values: [u64; 2],
    sink: dat_plugin::Segment,
) -> AtomicRequest {
    AtomicRequest {
        token,
        opcode,
        flags: PostFlag::NONE,
        rkey: at.rkey,
        remote_addr: at.addr,
        operand: values[0],
        swap: values[1],
        sink,
    }
}

#[test]
fn atomic_operations_are_executed_by_each_mechanism() {
    for mode in MODES {
        let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
        let (old, word) = (a.area(64), exposed(&b, mode, 4096, ATOMIC));
        word.memory.write(8, &40u64.to_ne_bytes());
        let add = atomic(Opcode::FETCH_ADD, 1, word.remote(8, 0), [2, 0], old.seg(0, 8));
        let swap = atomic(Opcode::CMP_SWAP, 2, word.remote(8, 0), [42, 99], old.seg(8, 8));
        let unequal = atomic(Opcode::CMP_SWAP, 3, word.remote(8, 0), [1, 2], old.seg(16, 8));
        for request in [add, swap, unequal] {
            assert_eq!(from.channel.post_atomic(&request), Status::OK);
            assert_ok(&from.sent(&mut [&mut a, &mut b]), request.token, 8);
        }
        let olds = [40u64, 42, 99].map(u64::to_ne_bytes).concat();
        assert_eq!((old.bytes(0, 24), word.bytes(8, 8)), (olds, 99u64.to_ne_bytes().to_vec()), "{mode}");
        assert_eq!(from.channel.post_atomic(&AtomicRequest { opcode: Opcode::READ, ..add }), Status::INVALID);
        // More than the peer lets be under way at once.
        for token in 10..40 {
            let one = atomic(Opcode::FETCH_ADD, token, word.remote(8, 0), [1, 0], old.seg(0, 8));
            assert_eq!(from.channel.post_atomic(&one), Status::OK);
        }
        for token in 10..40 {
            assert_ok(&from.sent(&mut [&mut a, &mut b]), token, 8);
        }
        assert_eq!(word.bytes(8, 8), 129u64.to_ne_bytes(), "{mode}");
        assert!(a.events().is_empty() && b.events().is_empty());
    }
}

#[test]
fn an_atomic_operation_needs_the_right_an_aligned_word_and_a_good_key() {
    for mode in MODES {
        for (access, offset, wrong) in [(ALL, 0, 0), (ATOMIC, 4, 0), (ATOMIC, 0, 1), (ATOMIC, 4096, 0)] {
            let (mut a, mut b, from, _to) = pair(&[("one_sided", mode)]);
            let (old, word) = (a.area(8), exposed(&b, mode, 4096, access));
            let at = Remote { rkey: word.rkey ^ wrong, ..word.remote(offset, 0) };
            let add = atomic(Opcode::FETCH_ADD, 1, at, [1, 0], old.seg(0, 8));
            assert_eq!(from.channel.post_atomic(&add), Status::OK);
            let done = from.sent(&mut [&mut a, &mut b]);
            assert_eq!((done.status, done.length), (Done::REMOTE_ACCESS, 0), "{mode} {access:?} {offset}");
            assert_eq!(word.bytes(0, 4096), vec![0; 4096]);
            a.wait(EventKind::BROKEN);
            b.wait(EventKind::BROKEN);
        }
    }
}

#[test]
fn a_window_opens_a_part_and_closes_it() {
    for mode in MODES {
        let (mut a, mut b, from, to) = pair(&[("one_sided", mode)]);
        let (mine, theirs) = (a.area(64), exposed(&b, mode, 4096, WINDOW));
        let bytes = theirs.fill(3);
        let window = b.device.open_window(7).unwrap();
        let bind = |token, range| to.channel.bind(PostFlag::NONE, token, &window, range);
        let read = |key, offset| {
            let at = Remote { rkey: key, ..theirs.remote(offset, 8) };
            from.post(Opcode::READ, PostFlag::NONE, 1, &[mine.seg(0, 8)], at)
        };
        let first = bind(5, Some((theirs.seg(100, 50), Access::REMOTE_READ))).unwrap();
        assert_ok(&to.sent(&mut [&mut a, &mut b]), 5, 0);
        let second = bind(6, Some((theirs.seg(200, 50), Access::REMOTE_READ))).unwrap();
        assert_ok(&to.sent(&mut [&mut a, &mut b]), 6, 0);
        assert!(first != 0 && second != 0 && first != second && second != theirs.rkey);
        assert_eq!(read(second, 242), Status::OK);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, 8);
        assert_eq!(mine.bytes(0, 8), bytes[242..250], "{mode}");
        assert_eq!(bind(7, None), Ok(0));
        assert_ok(&to.sent(&mut [&mut a, &mut b]), 7, 0);
        assert_eq!(read(second, 242), Status::OK);
        assert_eq!(from.sent(&mut [&mut a, &mut b]).status, Done::REMOTE_ACCESS, "{mode}");
    }
}

#[test]
fn a_window_gives_no_more_than_its_part_and_rights() {
    type Case = (u64, Opcode, u64);
    let cases: [Case; 4] =
        [(99, Opcode::READ, 0), (143, Opcode::READ, 0), (100, Opcode::WRITE, 0), (100, Opcode::READ, 1)];
    for (offset, opcode, stale) in cases {
        let (mut a, mut b, from, to) = pair(&[]);
        let (mine, theirs) = (a.area(8), b.area_of(b.device.alloc(4096).unwrap(), WINDOW, 7));
        let window = b.device.open_window(7).unwrap();
        let range = || Some((theirs.seg(100, 50), Access::REMOTE_READ));
        let old = to.channel.bind(PostFlag::NONE, 1, &window, range()).unwrap();
        let new = to.channel.bind(PostFlag::NONE, 2, &window, range()).unwrap();
        let key = if stale == 1 { old } else { new };
        let at = Remote { rkey: key, ..theirs.remote(offset, 8) };
        assert_eq!(from.post(opcode, PostFlag::NONE, 3, &[mine.seg(0, 8)], at), Status::OK);
        assert_eq!(
            from.sent(&mut [&mut a, &mut b]).status,
            Done::REMOTE_ACCESS,
            "{offset} {opcode:?} {stale}"
        );
    }
}

#[test]
fn a_bind_that_cannot_be_done_fails_in_its_turn() {
    let plain = Access(ALL.0 & !Access::WINDOW.0);
    let unwritable = Access::LOCAL_READ | Access::WINDOW;
    for (access, wanted) in [(plain, Access::REMOTE_READ), (unwritable, Access::REMOTE_WRITE)] {
        let (mut a, mut b, _from, to) = pair(&[]);
        let theirs = b.area_of(Memory::heap(64), access, 7);
        let window = b.device.open_window(7).unwrap();
        assert_eq!(to.channel.bind(PostFlag::NONE, 1, &window, Some((theirs.seg(0, 8), wanted))), Ok(0));
        let done = to.sent(&mut [&mut a, &mut b]);
        assert_eq!((done.token, done.status), (1, Done::WINDOW));
        b.wait(EventKind::BROKEN);
    }
}

#[test]
fn a_message_ends_a_window_before_its_receive_completes() {
    for size in [8u32, 60_000] {
        let (mut a, mut b, from, to) = pair(&[]);
        let (mine, theirs) = (a.area(60_000), b.area_of(b.device.alloc(60_000).unwrap(), WINDOW, 7));
        let window = b.device.open_window(7).unwrap();
        let range = Some((theirs.seg(0, 64), Access::REMOTE_READ));
        let key = to.channel.bind(PostFlag::NONE, 5, &window, range).unwrap();
        assert_ok(&to.sent(&mut [&mut a, &mut b]), 5, 0);
        for token in [1, 2] {
            assert_eq!(to.post_recv(token, &[theirs.seg(0, 60_000)]), Status::OK);
        }
        let end = Remote { rkey: key, ..Remote::default() };
        let send =
            |token| from.post(Opcode::SEND_INVALIDATE, PostFlag::NONE, token, &[mine.seg(0, size)], end);
        assert_eq!(send(1), Status::OK);
        let done = to.received(&mut [&mut a, &mut b]);
        assert_eq!(marks(&done), (1, Done::SUCCESS, size, CompletionFlag::INVALIDATED, key));
        assert_ok(&from.sent(&mut [&mut a, &mut b]), 1, size);
        assert_eq!(send(2), Status::OK);
        let done = to.received(&mut [&mut a, &mut b]);
        assert_eq!((done.token, done.status), (2, Done::WINDOW), "there is no such window any more");
        assert_eq!(from.sent(&mut [&mut a, &mut b]).status, Done::REMOTE_ACCESS);
        b.wait(EventKind::BROKEN);
    }
}

#[test]
fn channels_share_receives_and_few_left_is_an_event() {
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let attr = SrqAttr { user: 77, depth: 3, max_segments: 2, ..SrqAttr::default() };
    let srq = Arc::new(b.device.open_srq(&attr).unwrap());
    let sharing = |b: &Host, user| {
        let mut end = b.end(user);
        let attr = dat_plugin::ChannelAttr {
            user,
            send_user: user * 10 + 1,
            recv_user: user * 10 + 2,
            domain: 7,
            max_requests: 8,
            max_request_segments: 2,
            ..dat_plugin::ChannelAttr::default()
        };
        end.channel = b.device.open_channel(&attr, Some(&end.send), Some(&end.recv), Some(&srq)).unwrap();
        end
    };
    let ends = [(a.end(1), sharing(&b, 11)), (a.end(2), sharing(&b, 12))];
    for (from, to) in &ends {
        connect(&mut a, &mut b, from, to);
    }
    let (local, sink) = (a.area(60_000), b.area(60_000));
    let bytes = local.fill(1);
    let post = |token: u64, len: u32| srq.post_recv(PostFlag::NONE, token, &[sink.seg(0, len)], len.into());
    assert_eq!(ends[0].1.post_recv(1, &[]), Status::INVALID, "its receives are shared");
    assert_eq!(srq.post_recv(PostFlag::NONE, 1, &[sink.seg(0, 1); 3], 3), Status::INVALID);
    // A message that waits takes the first one, be it long or short.
    assert_eq!(ends[1].0.post_send(9, &[local.seg(0, 60_000)]), Status::OK);
    nothing(&ends[1].1, &mut [&mut a, &mut b]);
    assert_eq!(post(11, 60_000), Status::OK);
    let done = ends[1].1.received(&mut [&mut a, &mut b]);
    assert_eq!((done.token, done.status, done.length, done.user), (11, Done::SUCCESS, 60_000, 122));
    assert_eq!(sink.bytes(0, 60_000), bytes);
    assert_ok(&ends[1].0.sent(&mut [&mut a, &mut b]), 9, 60_000);
    for token in [12, 13, 14] {
        assert_eq!(post(token, 8), Status::OK);
    }
    assert_eq!(post(15, 8), Status::NO_RESOURCE);
    assert_eq!(srq.arm(2), Status::OK);
    let send = |index: usize, token: u64, a: &mut Host, b: &mut Host| {
        assert_eq!(ends[index].0.post_send(token, &[local.seg(0, 8)]), Status::OK);
        let done = ends[index].1.received(&mut [a, b]);
        assert_ok(&ends[index].0.sent(&mut [a, b]), token, 8);
        (done.token, done.status, done.user)
    };
    assert_eq!(send(0, 1, &mut a, &mut b), (12, Done::SUCCESS, 112));
    assert!(b.events().is_empty(), "two are left");
    assert_eq!(send(1, 2, &mut a, &mut b), (13, Done::SUCCESS, 122));
    assert_eq!(b.wait(EventKind::SRQ_LIMIT).user, 77);
    assert_eq!(send(0, 3, &mut a, &mut b), (14, Done::SUCCESS, 112));
    assert!(b.events().is_empty(), "once only");
    assert_eq!((srq.arm(1), b.wait(EventKind::SRQ_LIMIT).user), (Status::OK, 77), "few already");
    assert_eq!(srq.resize(5), Status::OK);
    for token in 20..25 {
        assert_eq!(post(token, 8), Status::OK);
    }
    assert_eq!((post(25, 8), srq.resize(4)), (Status::NO_RESOURCE, Status::NO_RESOURCE));
}

#[test]
fn a_shared_receive_of_a_message_that_never_came_whole_is_there_for_others() {
    let (mut a, mut b) = (Host::open(&[("cma", "off")]), Host::open(&[("cma", "off")]));
    let attr = SrqAttr { user: 1, depth: 1, max_segments: 1, ..SrqAttr::default() };
    let srq = Arc::new(b.device.open_srq(&attr).unwrap());
    let listener = b.device.listen(0, 1).unwrap();
    let addr = b.device.attr().address;
    // Before what is posted from it, so that it goes after that.
    let (local, sink) = (a.area(1 << 20), b.area(1 << 20));
    let mut ends = Vec::new();
    for user in [1, 2] {
        let from = a.end(user);
        let mut to = b.end(user + 10);
        let attr = dat_plugin::ChannelAttr {
            user: user + 10,
            recv_user: user + 20,
            domain: 7,
            ..Default::default()
        };
        to.channel = b.device.open_channel(&attr, Some(&to.send), Some(&to.recv), Some(&srq)).unwrap();
        from.channel.connect(&ConnectParam { addr, port: listener.port(), qos: 0, data: b"" }).unwrap();
        to.channel.accept(b.wait(EventKind::REQUEST).request, b"").unwrap();
        a.wait(EventKind::ESTABLISHED);
        b.wait(EventKind::ESTABLISHED);
        ends.push((from, to));
    }
    assert_eq!(srq.post_recv(PostFlag::NONE, 5, &[sink.seg(0, 1 << 20)], 1 << 20), Status::OK);
    // Longer than the ring, so that only a part of it arrives.
    assert_eq!(ends[0].0.post_send(1, &[local.seg(0, 1 << 20)]), Status::OK);
    let mut out = [Completion::default()];
    assert_eq!(ends[0].1.recv.poll(&mut out), 0, "its first parts are taken");
    assert_eq!(ends[1].0.post_send(2, &[local.seg(0, 8)]), Status::OK);
    nothing(&ends[1].1, &mut []);
    assert_eq!(ends[0].1.channel.disconnect(), Status::OK);
    let done = ends[1].1.received(&mut [&mut a, &mut b]);
    assert_eq!((done.token, done.length, done.user), (5, 8, 22));
}

#[test]
fn an_unsignalled_success_is_silent_until_something_tells_of_it() {
    let (mut a, mut b, from, to) = pair(&[]);
    let local = a.area(8);
    let silent =
        |token| from.post(Opcode::SEND, PostFlag::UNSIGNALLED, token, &[local.seg(0, 8)], Remote::default());
    let sink = b.area(8);
    for token in 1..=6 {
        assert_eq!(to.post_recv(token, &[sink.seg(0, 8)]), Status::OK);
    }
    for token in [1, 2] {
        assert_eq!(silent(token), Status::OK);
        assert_ok(&to.received(&mut [&mut a, &mut b]), token, 8);
    }
    nothing(&from, &mut [&mut a, &mut b]);
    from.channel.settle();
    assert_ok(&from.sent(&mut [&mut a, &mut b]), 2, 8);
    from.channel.settle();
    nothing(&from, &mut [&mut a, &mut b]);
    assert_eq!((silent(3), from.post_send(4, &[local.seg(0, 8)])), (Status::OK, Status::OK));
    for token in [3, 4] {
        assert_ok(&to.received(&mut [&mut a, &mut b]), token, 8);
    }
    assert_ok(&from.sent(&mut [&mut a, &mut b]), 4, 8);
    from.channel.settle();
    nothing(&from, &mut [&mut a, &mut b]);
    // The end of the connection tells too.
    assert_eq!(silent(5), Status::OK);
    assert_ok(&to.received(&mut [&mut a, &mut b]), 5, 8);
    to.channel.disconnect();
    a.wait(EventKind::DISCONNECTED);
    assert_ok(&from.sent(&mut [&mut a, &mut b]), 5, 8);
}

#[test]
fn an_unsignalled_failure_completes() {
    let (mut a, mut b, from, to) = pair(&[]);
    let local = a.area(8);
    assert_eq!(to.post_recv(1, &[]), Status::OK);
    let status = from.post(Opcode::SEND, PostFlag::UNSIGNALLED, 9, &[local.seg(0, 8)], Remote::default());
    assert_eq!(status, Status::OK);
    assert_eq!(to.received(&mut [&mut a, &mut b]).status, Done::LOCAL_LENGTH);
    let done = from.sent(&mut [&mut a, &mut b]);
    assert_eq!((done.token, done.status), (9, Done::REMOTE_ERROR));
}

#[test]
fn a_batch_stops_at_the_first_post_that_is_refused() {
    let (mut a, mut b) = (Host::open(&[]), Host::open(&[]));
    let few = |attr: &mut dat_plugin::ChannelAttr| (attr.max_requests, attr.max_recvs) = (4, 4);
    let (from, to) = (a.end_with(1, few, false), b.end_with(2, few, false));
    connect(&mut a, &mut b, &from, &to);
    let (local, sink) = (a.area(128), b.area(128));
    let mut sends = Batch::default();
    let mut recvs = RecvBatch::default();
    for token in 0..6 {
        let one = [local.seg(token, 1)];
        assert!(sends.push(Opcode::SEND, PostFlag::NONE, token, &one, 1, Remote::default()));
        assert!(recvs.push(PostFlag::NONE, token, &[sink.seg(token, 1)], 1));
    }
    let bytes = local.fill(7);
    assert_eq!(from.channel.post_batch(&mut sends), (4, Status::NO_RESOURCE));
    assert_eq!(to.channel.post_recv_batch(&mut recvs), (4, Status::NO_RESOURCE));
    for token in 0..4 {
        assert_ok(&to.received(&mut [&mut a, &mut b]), token, 1);
        assert_ok(&from.sent(&mut [&mut a, &mut b]), token, 1);
    }
    assert_eq!(sink.bytes(0, 4), bytes[..4]);
}
