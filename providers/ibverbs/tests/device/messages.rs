//! Messages, writes and reads; what completes and what comes back.

use dat_plugin::host::{Batch, RecvBatch, Remote};
use dat_plugin::{Access, CompletionStatus, EventKind, Opcode, PostFlag, Status};

use crate::setup::*;

const DONE: CompletionStatus = CompletionStatus::SUCCESS;

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_message_a_write_and_a_read_move_bytes() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let long: Vec<u8> = (0..100_000).map(|i| (i * 31) as u8).collect();
    let (from, to, back) = (a.buffer(&long), b.buffer(&vec![0; long.len()]), a.buffer(&vec![0; long.len()]));
    let len = long.len() as u32;
    assert_eq!(b.recv(1, &to, len), Status::OK);
    assert_eq!(a.send(2, PostFlag::NONE, &from, len), Status::OK);
    assert_eq!(a.sent(), (2, DONE, len));
    let got = b.received();
    assert_eq!((got.token, got.status, got.length), (1, DONE, len));
    assert_eq!(content(&to), long);
    to.memory.write(0, &vec![0; long.len()]);
    assert_eq!(a.write(3, &from, len, to.memory.addr(), to.keys.rkey), Status::OK);
    assert_eq!(a.read(4, &back, len, to.memory.addr(), to.keys.rkey), Status::OK);
    assert_eq!((a.sent(), a.sent()), ((3, DONE, len), (4, DONE, len)));
    assert_eq!((content(&to) == long, content(&back) == long), (true, true));
    // A read may ask for less than its segments hold; the rest stays as it is.
    back.memory.write(0, &vec![7; long.len()]);
    assert_eq!(a.read(5, &back, 3, to.memory.addr(), to.keys.rkey), Status::OK);
    assert_eq!(a.sent(), (5, DONE, 3));
    assert_eq!(content(&back)[..5], [long[0], long[1], long[2], 7, 7]);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn unsignalled_requests_free_their_slots_with_the_next_signalled_one() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to) = (a.buffer(b"x"), b.buffer(b"."));
    for round in 0..20u64 {
        for i in 0..4 {
            assert_eq!(b.recv(round * 4 + i, &to, 1), Status::OK);
        }
        for i in 0..3 {
            assert_eq!(a.send(round * 4 + i, PostFlag::UNSIGNALLED, &from, 1), Status::OK);
        }
        assert_eq!(a.send(round * 4 + 3, PostFlag::NONE, &from, 1), Status::OK);
        assert_eq!(a.sent(), (round * 4 + 3, DONE, 1), "the others completed without a word");
        for i in 0..4 {
            assert_eq!(b.received().token, round * 4 + i);
        }
    }
    no_completion(&a.sends);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_channel_that_last_posted_an_unsignalled_request_stops() {
    let pair = Pair::new(&[]);
    let (from, to) = (pair.a.buffer(b"x"), pair.b.buffer(b"."));
    assert_eq!(pair.b.recv(1, &to, 1), Status::OK);
    assert_eq!(pair.a.send(1, PostFlag::UNSIGNALLED, &from, 1), Status::OK);
    assert_eq!(pair.b.received().token, 1);
    let start = std::time::Instant::now();
    pair.a.stop(&pair.at_a);
    assert!(start.elapsed() < std::time::Duration::from_millis(400), "its end was noticed, not waited for");
    assert_eq!(pair.a.sent(), (1, DONE, 1), "what succeeded in silence is told at the end");
    no_completion(&pair.a.sends);
    assert_eq!(pair.at_b.take("the end at B", |event| event.user == 20).kind, EventKind::DISCONNECTED);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_silent_success_is_told_when_asked_for() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to) = (a.buffer(b"x"), b.buffer(b"."));
    a.channel.settle();
    for round in 0..10 {
        for i in 0..2 {
            assert_eq!(b.recv(i, &to, 1), Status::OK);
            assert_eq!(a.send(round * 2 + i, PostFlag::UNSIGNALLED, &from, 1), Status::OK);
            assert_eq!(b.received().token, i);
            a.channel.settle();
        }
        // The first may complete alone, or with the second.
        let (mut token, ..) = a.sent();
        if token == round * 2 {
            token = a.sent().0;
        }
        assert_eq!(token, round * 2 + 1);
        a.channel.settle();
    }
    no_completion(&a.sends);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn lists_are_posted_up_to_what_fits() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to) = (a.buffer(b"abcdefghijklmnop"), b.buffer(&[b'.'; 16]));
    let mut receives = RecvBatch::default();
    let mut requests = Batch::default();
    for i in 0..10 {
        let sink = [b.segment(&to, i, 1, Access::LOCAL_WRITE)];
        assert!(receives.push(PostFlag::NONE, i, &sink, 1));
        let source = [a.segment(&from, i, 1, Access::LOCAL_READ)];
        assert!(requests.push(Opcode::SEND, PostFlag::NONE, i, &source, 1, Remote::default()));
    }
    assert_eq!(b.channel.post_recv_batch(&mut receives), (8, Status::NO_RESOURCE), "the channel holds 8");
    assert_eq!(a.channel.post_batch(&mut requests), (8, Status::NO_RESOURCE));
    for i in 0..8 {
        assert_eq!(b.received().token, i);
        assert_eq!(a.sent(), (i, DONE, 1));
    }
    assert_eq!(content(&to), b"abcdefgh........");
    requests.clear();
    receives.clear();
    assert_eq!(a.channel.post_batch(&mut requests), (0, Status::OK));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_message_waits_for_its_receive() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to) = (a.buffer(b"patient"), b.buffer(&[0; 7]));
    assert_eq!(a.send(1, PostFlag::NONE, &from, 7), Status::OK);
    std::thread::sleep(std::time::Duration::from_millis(300));
    no_completion(&a.sends);
    assert_eq!(b.recv(2, &to, 7), Status::OK);
    assert_eq!(b.received().status, DONE);
    assert_eq!(a.sent(), (1, DONE, 7));
    assert_eq!(content(&to), b"patient");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_message_gives_up_where_retries_are_bounded() {
    let pair = Pair::new(&[("rnr_retry", "2"), ("rnr_timer", "12")]);
    let from = pair.a.buffer(b"x");
    assert_eq!(pair.a.send(1, PostFlag::NONE, &from, 1), Status::OK);
    assert_eq!(pair.a.sent().1, CompletionStatus::NOT_READY);
    assert_eq!(pair.at_a.take("BROKEN at A", |event| event.user == 10).kind, EventKind::BROKEN);
    let end = pair.at_b.take("the end at B", |event| event.user == 20).kind;
    assert!([EventKind::DISCONNECTED, EventKind::BROKEN].contains(&end), "{end:?}");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_wrong_key_is_refused_by_the_peers_device() {
    let pair = Pair::new(&[]);
    let (mine, theirs) = (pair.a.buffer(b"?"), pair.b.buffer_for(b"secret", Access::LOCAL_READ));
    assert_eq!(theirs.keys.rkey, 0, "no remote right, no key");
    let open = pair.b.buffer_for(b"secret", Access(0x13));
    let other_right = pair.a.write(1, &mine, 1, open.memory.addr(), open.keys.rkey);
    assert_eq!(other_right, Status::OK);
    assert_eq!(pair.a.sent().1, CompletionStatus::REMOTE_ACCESS);
    assert_eq!(content(&open), b"secret");
    assert_eq!(pair.at_a.take("BROKEN at A", |event| event.user == 10).kind, EventKind::BROKEN);
    assert_eq!(pair.a.send(2, PostFlag::NONE, &mine, 1), Status::NOT_CONNECTED);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn an_armed_queue_becomes_readable_and_a_full_one_is_not_armed() {
    let Pair { a, b, .. } = &Pair::new(&[]);
    let (from, to) = (a.buffer(b"x"), b.buffer(b"."));
    let readable = |milliseconds: i64| {
        let fd = b.recvs.fd().expect("a descriptor");
        let time =
            rustix::time::Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&time)).expect("poll") == 1
    };
    for token in [1, 2] {
        assert_eq!(b.recv(token, &to, 1), Status::OK);
    }
    assert!(b.recvs.arm());
    assert!(!readable(50));
    assert_eq!(a.send(1, PostFlag::NONE, &from, 1), Status::OK);
    assert!(readable(10_000));
    b.recvs.disarm();
    assert!(!readable(0), "cleared");
    assert!(!b.recvs.arm(), "there is one to take");
    assert_eq!(b.received().token, 1);
    b.recvs.disarm();
    assert!(b.recvs.arm());
    assert_eq!(a.send(2, PostFlag::NONE, &from, 1), Status::OK);
    assert!(readable(10_000));
}
