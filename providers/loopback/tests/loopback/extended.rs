//! What goes beyond messages, writes and reads: immediate values, atomic operations, windows, shared receives.

use dat_plugin::CompletionStatus as Done;
use dat_plugin::host::{Batch, RecvBatch, Remote, Window};
use dat_plugin::{
    Access, AtomicRequest, CompletionFlag, EventKind, Opcode, PostFlag, Segment, SrqAttr, Status,
};
use std::sync::Arc;

use crate::setup::*;

#[test]
fn an_immediate_value_arrives_with_a_message_and_with_a_write() {
    let (a, b) = connected("immediate", &[]);
    let (from, to, other) = (a.buffer(b"hello"), b.buffer(&[b'.'; 8]), b.buffer(&[b'.'; 8]));
    let bytes = [a.segment(&from, 0, 5, Access::LOCAL_READ)];
    for token in [1, 2] {
        assert_eq!(b.recv(token, &[(&to, 0, 8)]), Status::OK);
    }
    let post = |opcode, token, remote, imm| {
        a.channel.post_imm(opcode, PostFlag::SOLICITED, token, &bytes, 5, remote, imm)
    };
    assert_eq!(post(Opcode::SEND_IMM, 7, Remote::default(), 0xfeed_beef), Status::OK);
    let remote = Remote { addr: other.memory.addr() + 1, rkey: other.keys.rkey, len: 0 };
    assert_eq!(post(Opcode::WRITE_IMM, 8, remote, 77), Status::OK);
    let got = taken(&b.recvs);
    let marks = CompletionFlag::SOLICITED | CompletionFlag::IMMEDIATE;
    let seen: Vec<_> = got.iter().map(|done| (done.token, done.length, done.imm, done.flags)).collect();
    assert_eq!(seen, [(1, 5, 0xfeed_beef, marks), (2, 5, 77, marks | CompletionFlag::WRITTEN)]);
    assert_eq!((content(&to), content(&other)), (b"hello...".to_vec(), b".hello..".to_vec()));
    assert_eq!(a.sent(), [(7, Done::SUCCESS, 5), (8, Done::SUCCESS, 5)]);
}

#[test]
fn a_write_with_an_immediate_value_waits_for_a_receive() {
    let (a, b) = connected("immediate waits", &[]);
    let (from, to) = (a.buffer(b"x"), b.buffer(b"."));
    let bytes = [a.segment(&from, 0, 1, Access::LOCAL_READ)];
    let remote = Remote { addr: to.memory.addr(), rkey: to.keys.rkey, len: 0 };
    let status = a.channel.post_imm(Opcode::WRITE_IMM, PostFlag::NONE, 1, &bytes, 1, remote, 5);
    assert_eq!(status, Status::OK);
    assert!(a.sent().is_empty());
    assert_eq!(b.recv(2, &[]), Status::OK, "its buffer is not used");
    assert_eq!(b.received(), [(2, Done::SUCCESS, 1)]);
    assert_eq!(content(&to), b"x");
}

fn atomic(
    opcode: Opcode,
    token: u64,
    at: &Buffer,
    offset: u64,
    values: [u64; 2],
    sink: Segment,
) -> AtomicRequest {
    AtomicRequest {
        token,
        opcode,
        flags: PostFlag::NONE,
        rkey: at.keys.rkey,
        remote_addr: at.memory.addr() + offset,
        operand: values[0],
        swap: values[1],
        sink,
    }
}

#[test]
fn atomic_operations_change_the_peer_and_bring_the_old_value() {
    let (a, b) = connected("atomic", &[]);
    let old = a.buffer(&[0; 16]);
    let word = b.buffer_for(&40u64.to_ne_bytes(), ALL | Access::REMOTE_ATOMIC, 9);
    let sink = |at| a.segment(&old, at, 8, Access::LOCAL_WRITE);
    let add = atomic(Opcode::FETCH_ADD, 1, &word, 0, [2, 0], sink(0));
    let swap = atomic(Opcode::CMP_SWAP, 2, &word, 0, [42, 99], sink(8));
    assert_eq!(a.channel.post_atomic(&add), Status::OK);
    assert_eq!(a.channel.post_atomic(&swap), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 8), (2, Done::SUCCESS, 8)]);
    assert_eq!(content(&old), [40u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat());
    assert_eq!(content(&word), 99u64.to_ne_bytes());
    let refused = atomic(Opcode::CMP_SWAP, 3, &word, 0, [1, 2], sink(0));
    assert_eq!(a.channel.post_atomic(&refused), Status::OK, "unequal is no failure");
    assert_eq!(a.sent(), [(3, Done::SUCCESS, 8)]);
    assert_eq!(content(&word), 99u64.to_ne_bytes());
    assert_eq!(a.channel.post_atomic(&AtomicRequest { opcode: Opcode::READ, ..add }), Status::INVALID);
}

#[test]
fn an_atomic_operation_needs_the_right_and_an_aligned_word() {
    for (access, offset) in [(ALL, 0), (ALL | Access::REMOTE_ATOMIC, 4)] {
        let (a, b) = connected(&format!("atomic {offset}"), &[]);
        let (old, word) = (a.buffer(&[0; 8]), b.buffer_for(&[0; 16], access, 9));
        let sink = a.segment(&old, 0, 8, Access::LOCAL_WRITE);
        let add = atomic(Opcode::FETCH_ADD, 1, &word, offset, [1, 0], sink);
        assert_eq!(a.channel.post_atomic(&add), Status::OK);
        assert_eq!(a.sent(), [(1, Done::REMOTE_ACCESS, 0)]);
        a.expect_broken();
        assert_eq!(content(&word), [0; 16]);
    }
}

#[test]
fn a_window_opens_a_part_and_closes_it() {
    let (a, b) = connected("window", &[]);
    let (mine, theirs) = (a.buffer(b"??"), b.buffer_for(b"0123456789", ALL | Access::WINDOW, 9));
    let window: Window = b.device.open_window(9).unwrap();
    let part = b.segment(&theirs, 2, 4, Access::NONE);
    let key = b.channel.bind(PostFlag::NONE, 5, &window, Some((part, Access::REMOTE_READ))).unwrap();
    assert_ne!(key, 0);
    assert_eq!(b.sent(), [(5, Done::SUCCESS, 0)]);
    assert_eq!(a.read(1, &[(&mine, 0, 2)], theirs.memory.addr() + 4, key, 2), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 2)]);
    assert_eq!(content(&mine), b"45");
    assert_eq!(b.channel.bind(PostFlag::NONE, 6, &window, None), Ok(0));
    assert_eq!(a.read(2, &[(&mine, 0, 2)], theirs.memory.addr() + 4, key, 2), Status::OK);
    assert_eq!(a.sent(), [(2, Done::REMOTE_ACCESS, 0)]);
    a.expect_broken();
}

#[test]
fn a_message_ends_a_window_before_its_receive_completes() {
    let (a, b) = connected("invalidate", &[]);
    let (mine, theirs) = (a.buffer(b"m"), b.buffer_for(b"t", ALL | Access::WINDOW, 9));
    let window = b.device.open_window(9).unwrap();
    let part = b.segment(&theirs, 0, 1, Access::NONE);
    let key = b.channel.bind(PostFlag::NONE, 5, &window, Some((part, Access::REMOTE_READ))).unwrap();
    assert_eq!(b.recv(1, &[(&theirs, 0, 1)]), Status::OK);
    assert_eq!(b.recv(2, &[(&theirs, 0, 1)]), Status::OK);
    let bytes = [a.segment(&mine, 0, 1, Access::LOCAL_READ)];
    let end = Remote { rkey: key, ..Remote::default() };
    let send = || a.channel.post(Opcode::SEND_INVALIDATE, PostFlag::NONE, 1, &bytes, 1, end);
    assert_eq!(send(), Status::OK);
    let got = taken(&b.recvs);
    assert_eq!((got.len(), got[0].flags, got[0].imm), (1, CompletionFlag::INVALIDATED, key));
    assert_eq!(send(), Status::OK);
    assert_eq!(b.received(), [(2, Done::WINDOW, 0)], "there is no such window any more");
    a.expect_broken();
}

#[test]
fn channels_share_receives_and_few_left_is_an_event() {
    let (a, b) = (device("shared", &[]), device("shared", &[]));
    let attr = SrqAttr { user: 77, depth: 3, max_segments: 1, ..SrqAttr::default() };
    let srq = Arc::new(b.open_srq(&attr).unwrap());
    let listener = b.listen(0, 500).unwrap();
    let pairs: Vec<(Side, Side)> = [100, 200]
        .map(|user| {
            let (active, passive) = (Side::new(&a, user, 7), Side::sharing(&b, user + 50, 9, &srq));
            active.connect(listener.port(), b"");
            passive.channel.accept(event(&b).request, b"").unwrap();
            active.expect(EventKind::ESTABLISHED);
            passive.expect(EventKind::ESTABLISHED);
            (active, passive)
        })
        .into();
    assert_eq!(pairs[0].1.recv(1, &[]), Status::INVALID, "its receives are shared");
    assert_eq!(pairs[1].0.send(9, PostFlag::NONE, &[]), Status::OK, "waits");
    for token in [11, 12, 13] {
        assert_eq!(srq.post_recv(PostFlag::NONE, token, &[], 0), Status::OK);
    }
    assert_eq!(srq.post_recv(PostFlag::NONE, 14, &[], 0), Status::OK, "one was taken at once");
    assert_eq!(srq.post_recv(PostFlag::NONE, 15, &[], 0), Status::NO_RESOURCE);
    assert_eq!(pairs[1].1.received(), [(11, Done::SUCCESS, 0)]);
    assert_eq!(srq.arm(2), Status::OK);
    assert_eq!(pairs[0].0.send(10, PostFlag::NONE, &[]), Status::OK);
    assert_eq!(pairs[0].1.received(), [(12, Done::SUCCESS, 0)]);
    no_event(&b);
    assert_eq!(pairs[0].0.send(11, PostFlag::NONE, &[]), Status::OK);
    let few = event(&b);
    assert_eq!((few.kind, few.user), (EventKind::SRQ_LIMIT, 77));
    assert_eq!(pairs[1].0.send(12, PostFlag::NONE, &[]), Status::OK);
    no_event(&b);
    assert_eq!(srq.arm(1), Status::OK);
    assert_eq!(event(&b).kind, EventKind::SRQ_LIMIT, "few already");
    assert_eq!((srq.resize(5), srq.post_recv(PostFlag::NONE, 16, &[], 0)), (Status::OK, Status::OK));
}

#[test]
fn an_unsignalled_success_is_silent_and_a_failure_is_not() {
    let (a, b) = connected("unsignalled", &[]);
    assert_eq!(b.recv(1, &[]), Status::OK);
    assert_eq!(a.send(1, PostFlag::UNSIGNALLED, &[]), Status::OK);
    assert!(a.sent().is_empty());
    let (mine, theirs) = (a.buffer(b"1"), b.buffer(b"2"));
    let bytes = [a.segment(&mine, 0, 1, Access::LOCAL_READ)];
    let remote = Remote { addr: theirs.memory.addr(), rkey: theirs.keys.rkey ^ 1, len: 0 };
    a.channel.post(Opcode::WRITE, PostFlag::UNSIGNALLED, 2, &bytes, 1, remote);
    assert_eq!(a.sent(), [(2, Done::REMOTE_ACCESS, 0)], "which says that the first one succeeded");
}

#[test]
fn the_last_silent_success_completes_when_the_channel_stops() {
    let (a, b) = connected("silent", &[]);
    for token in [1, 2] {
        assert_eq!(b.recv(token, &[]), Status::OK);
        assert_eq!(a.send(token, PostFlag::UNSIGNALLED, &[]), Status::OK);
    }
    assert_eq!(a.send(3, PostFlag::UNSIGNALLED, &[]), Status::OK, "waits for a receive");
    b.channel.disconnect();
    a.expect(EventKind::DISCONNECTED);
    assert_eq!(a.sent(), [(2, Done::SUCCESS, 0)]);
}

#[test]
fn a_batch_stops_at_the_first_post_that_is_refused() {
    let (a, b) = connected("batch", &[]);
    let buffer = a.buffer(b"abcdef");
    let mut sends = Batch::default();
    let mut recvs = RecvBatch::default();
    for token in 0..6 {
        let one = [a.segment(&buffer, token, 1, Access::LOCAL_READ)];
        assert!(sends.push(Opcode::SEND, PostFlag::NONE, token, &one, 1, Remote::default()));
        let sink = b.buffer(&[0; 4]);
        assert!(recvs.push(PostFlag::NONE, token, &[b.segment(&sink, 0, 4, Access::LOCAL_WRITE)], 4));
    }
    assert_eq!(a.channel.post_batch(&mut sends), (4, Status::NO_RESOURCE));
    assert_eq!(b.channel.post_recv_batch(&mut recvs), (6, Status::OK), "four meet their messages");
    let lengths: Vec<_> = b.received().iter().map(|done| (done.0, done.2)).collect();
    assert_eq!(lengths, [(0, 1), (1, 1), (2, 1), (3, 1)]);
    sends.clear();
    assert_eq!(a.channel.post_batch(&mut sends), (0, Status::OK));
}
