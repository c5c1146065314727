//! Immediate values, atomic operations, windows, shared receives: where the device has them.

use std::sync::Arc;

use dat_plugin::host::Remote;
use dat_plugin::{
    Access, AtomicRequest, Caps, CompletionFlag, CompletionStatus, EventKind, Opcode, PostFlag, SrqAttr,
    Status,
};

use crate::setup::*;

const DONE: CompletionStatus = CompletionStatus::SUCCESS;

/// Whether the device has it. It is printed, so that a run shows what it did not test.
fn has(pair: &Pair, cap: Caps) -> bool {
    let there = pair.a.device.attr().caps.contains(cap);
    if !there {
        println!("NOT RUN: the device has no {cap:?}");
    }
    there
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn immediate_values_arrive_with_a_message_and_with_a_write() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to, other) = (a.buffer(b"hello"), b.buffer(&[b'.'; 8]), b.buffer(&[b'.'; 8]));
    for token in [1, 2] {
        assert_eq!(b.recv(token, &to, 8), Status::OK);
    }
    let bytes = [a.segment(&from, 0, 5, Access::LOCAL_READ)];
    let remote = Remote { addr: other.memory.addr() + 1, rkey: other.keys.rkey, len: 0 };
    let post = |opcode, token, remote, imm| {
        a.channel.post_imm(opcode, PostFlag::SOLICITED, token, &bytes, 5, remote, imm)
    };
    assert_eq!(post(Opcode::SEND_IMM, 7, Remote::default(), 0xfeed_beef), Status::OK);
    assert_eq!(post(Opcode::WRITE_IMM, 8, remote, 77), Status::OK);
    let (first, second) = (b.received(), b.received());
    let marks = CompletionFlag::SOLICITED | CompletionFlag::IMMEDIATE;
    assert_eq!((first.token, first.length, first.imm, first.flags), (1, 5, 0xfeed_beef, marks));
    let marks = marks | CompletionFlag::WRITTEN;
    assert_eq!((second.token, second.length, second.imm, second.flags), (2, 5, 77, marks));
    assert_eq!((content(&to), content(&other)), (b"hello...".to_vec(), b".hello..".to_vec()));
    assert_eq!((a.sent(), a.sent()), ((7, DONE, 5), (8, DONE, 5)));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn atomic_operations_change_the_peer_and_bring_the_old_value() {
    let pair = Pair::new(&[]);
    if !has(&pair, Caps::ATOMICS) {
        return;
    }
    let Pair { a, b, .. } = &pair;
    let old = a.buffer(&[0; 16]);
    let word = b.buffer_for(&40u64.to_ne_bytes(), ALL | Access::REMOTE_ATOMIC);
    let atomic = |opcode, token, operand, swap, at| AtomicRequest {
        token,
        opcode,
        flags: PostFlag::NONE,
        rkey: word.keys.rkey,
        remote_addr: word.memory.addr(),
        operand,
        swap,
        sink: a.segment(&old, at, 8, Access::LOCAL_WRITE),
    };
    assert_eq!(a.channel.post_atomic(&atomic(Opcode::FETCH_ADD, 1, 2, 0, 0)), Status::OK);
    assert_eq!(a.channel.post_atomic(&atomic(Opcode::CMP_SWAP, 2, 42, 99, 8)), Status::OK);
    assert_eq!((a.sent(), a.sent()), ((1, DONE, 8), (2, DONE, 8)));
    assert_eq!(content(&old), [40u64.to_ne_bytes(), 42u64.to_ne_bytes()].concat());
    assert_eq!(content(&word), 99u64.to_ne_bytes());
    assert_eq!(a.channel.post_atomic(&atomic(Opcode::READ, 3, 0, 0, 0)), Status::INVALID);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_window_opens_a_part_and_closes_it() {
    let pair = Pair::new(&[]);
    if !has(&pair, Caps::WINDOWS) {
        return;
    }
    let Pair { a, b, .. } = &pair;
    let (mine, theirs) = (a.buffer(b"??"), b.buffer_for(b"0123456789", ALL | Access::WINDOW));
    let window = b.device.open_window(9).expect("a window");
    let part = b.segment(&theirs, 2, 4, Access::NONE);
    let bound = b.channel.bind(PostFlag::NONE, 5, &window, Some((part, Access::REMOTE_READ)));
    let key = bound.expect("the binding is posted");
    assert_ne!(key, 0);
    assert_eq!(b.sent(), (5, DONE, 0));
    assert_eq!(a.read(1, &mine, 2, theirs.memory.addr() + 4, key), Status::OK);
    assert_eq!(a.sent(), (1, DONE, 2));
    assert_eq!(content(&mine), b"45");
    assert_eq!(b.channel.bind(PostFlag::NONE, 6, &window, None), Ok(0));
    assert_eq!(b.sent(), (6, DONE, 0));
    assert_eq!(a.read(2, &mine, 2, theirs.memory.addr() + 4, key), Status::OK);
    assert_eq!(a.sent().1, CompletionStatus::REMOTE_ACCESS);
    assert_eq!(pair.at_a.take("BROKEN at A", |event| event.user == 10).kind, EventKind::BROKEN);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_registration_ends_although_a_window_is_bound_to_it() {
    let pair = Pair::new(&[]);
    if !has(&pair, Caps::WINDOWS) {
        return;
    }
    let Pair { a, b, .. } = &pair;
    let (mine, theirs) = (a.buffer(b"??"), b.buffer_for(b"0123456789", ALL | Access::WINDOW));
    let window = b.device.open_window(9).expect("a window");
    let part = b.segment(&theirs, 0, 4, Access::NONE);
    let key = b.channel.bind(PostFlag::NONE, 5, &window, Some((part, Access::REMOTE_READ))).expect("bound");
    assert_eq!(b.sent(), (5, DONE, 0));
    drop(b.spans.remove(theirs.context).expect("registered"));
    assert_eq!(a.read(1, &mine, 2, theirs.memory.addr(), key), Status::OK);
    assert_eq!(a.sent().1, CompletionStatus::REMOTE_ACCESS, "the memory is out of reach");
    assert_eq!(content(&mine), b"??");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn channels_share_receives_and_hear_when_they_run_out() {
    let mut shared = None;
    let pair = Pair::prepared(&[], |device| {
        let attr = SrqAttr { user: 55, depth: 8, max_segments: 2, domain: 9, reserved: 0 };
        let srq = Arc::new(device.open_srq(&attr).expect("a shared queue"));
        let side = Side::with(device, 20, 9, Some(&srq));
        shared = Some(srq);
        side
    });
    let Pair { a, b, at_b, .. } = &pair;
    let srq = shared.expect("made above");
    let (from, to) = (a.buffer(b"shared"), b.buffer(&[b'.'; 48]));
    let post = |token: u64| {
        let sink = [b.segment(&to, token * 6, 6, Access::LOCAL_WRITE)];
        srq.post_recv(PostFlag::NONE, token, &sink, 6)
    };
    for token in 0..8 {
        assert_eq!(post(token), Status::OK);
    }
    assert_eq!(post(0), Status::NO_RESOURCE, "it holds 8");
    assert_eq!(srq.arm(6), Status::OK);
    for i in 0..2 {
        assert_eq!(a.send(i, PostFlag::NONE, &from, 6), Status::OK);
        assert_eq!(a.sent(), (i, DONE, 6));
        let got = b.received();
        assert_eq!((got.token, got.status, got.length), (i, DONE, 6));
    }
    assert!(!at_b.left().contains(&EventKind::SRQ_LIMIT), "6 are left");
    assert_eq!(a.send(2, PostFlag::NONE, &from, 6), Status::OK);
    let told = at_b.kind(EventKind::SRQ_LIMIT);
    assert_eq!(told.user, 55);
    assert_eq!(b.received().token, 2);
    assert_eq!(srq.arm(6), Status::OK, "few already");
    assert_eq!(at_b.kind(EventKind::SRQ_LIMIT).user, 55);
    assert_eq!(srq.resize(16), Status::OK);
    assert_eq!(srq.resize(2), Status::INVALID, "it holds more");
    assert_eq!(&content(&to)[..20], b"sharedsharedshared..");
}
