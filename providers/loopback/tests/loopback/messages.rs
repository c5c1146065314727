//! Sends and receives.

use dat_plugin::CompletionStatus as Done;
use dat_plugin::{CompletionFlag, PostFlag, Status};

use crate::setup::*;

#[test]
fn a_message_fills_the_segments_front_to_back() {
    let (a, b) = connected("segments", &[]);
    let (from, to) = (a.buffer(b"0123456789"), b.buffer(&[b'.'; 12]));
    assert_eq!(b.recv(1, &[(&to, 8, 3), (&to, 0, 2), (&to, 4, 4)]), Status::OK);
    assert_eq!(a.send(2, PostFlag::NONE, &[(&from, 7, 3), (&from, 0, 4)]), Status::OK);
    assert_eq!(b.received(), [(1, Done::SUCCESS, 7)]);
    assert_eq!(a.sent(), [(2, Done::SUCCESS, 7)]);
    assert_eq!(content(&to), b"01..23..789.");
}

#[test]
fn messages_wait_in_order_for_receives() {
    let (a, b) = connected("waiting", &[]);
    let (from, to) = (a.buffer(b"abcd"), b.buffer(&[0; 4]));
    for i in 0..4 {
        assert_eq!(a.send(i, PostFlag::NONE, &[(&from, i, 1)]), Status::OK);
    }
    assert!(a.sent().is_empty(), "a send completes when it was matched");
    for i in 0..4 {
        assert_eq!(b.recv(10 + i, &[(&to, i, 1)]), Status::OK);
        assert_eq!(b.received(), [(10 + i, Done::SUCCESS, 1)]);
        assert_eq!(a.sent(), [(i, Done::SUCCESS, 1)]);
    }
    assert_eq!(content(&to), b"abcd");
}

#[test]
fn receives_posted_before_the_connection_are_used() {
    let (x, y) = (device("early", &[]), device("early", &[]));
    let listener = y.listen(0, 0).unwrap();
    let (a, b) = (Side::new(&x, 1, 0), Side::new(&y, 5, 0));
    assert_eq!(a.recv(1, &[]), Status::OK);
    assert_eq!(a.send(0, PostFlag::NONE, &[]), Status::NOT_CONNECTED);
    a.connect(listener.port(), b"");
    assert_eq!(a.recv(2, &[]), Status::OK);
    assert_eq!(a.send(0, PostFlag::NONE, &[]), Status::NOT_CONNECTED);
    b.channel.accept(event(&y).request, b"").unwrap();
    for token in [3, 4] {
        assert_eq!(b.send(token, PostFlag::NONE, &[]), Status::OK);
    }
    assert_eq!(a.received(), [(1, Done::SUCCESS, 0), (2, Done::SUCCESS, 0)]);
    assert_eq!(b.sent(), [(3, Done::SUCCESS, 0), (4, Done::SUCCESS, 0)]);
}

#[test]
fn a_message_of_no_bytes_uses_a_receive() {
    let (a, b) = connected("zero", &[]);
    let to = b.buffer(b"kept");
    assert_eq!(b.recv(1, &[(&to, 0, 4)]), Status::OK);
    assert_eq!(a.send(2, PostFlag::NONE, &[]), Status::OK);
    assert_eq!(b.received(), [(1, Done::SUCCESS, 0)]);
    assert_eq!(a.sent(), [(2, Done::SUCCESS, 0)]);
    assert_eq!(content(&to), b"kept");
}

#[test]
fn a_message_longer_than_the_receive_breaks_the_connection() {
    let (a, b) = connected("too long", &[]);
    let (from, to) = (a.buffer(b"12345"), b.buffer(&[0; 5]));
    assert_eq!(b.recv(1, &[(&to, 0, 2), (&to, 2, 2)]), Status::OK);
    assert_eq!(b.recv(2, &[]), Status::OK);
    assert_eq!(a.send(3, PostFlag::NONE, &[(&from, 0, 5)]), Status::OK);
    let received = taken(&b.recvs);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].token, received[0].status), (1, Done::LOCAL_LENGTH));
    let sent = taken(&a.sends);
    assert_eq!(sent.len(), 1);
    assert_eq!((sent[0].token, sent[0].status), (3, Done::REMOTE_ERROR));
    assert_eq!(content(&to), [0; 5], "nothing was written");
    a.expect_broken();
    b.expect_broken();
}

#[test]
fn a_poisoned_receive_breaks_the_connection_when_it_is_used() {
    let (a, b) = connected("poison", &[]);
    let (from, to) = (a.buffer(b"x"), b.buffer(&[0; 2]));
    assert_eq!(b.recv(1, &[(&to, 0, 1)]), Status::OK);
    assert_eq!(b.recv_with(2, PostFlag::POISON, &[(&to, 1, 1)]), Status::OK);
    assert_eq!(a.send(3, PostFlag::NONE, &[(&from, 0, 1)]), Status::OK);
    assert_eq!(b.received(), [(1, Done::SUCCESS, 1)], "the one before it is good");
    assert_eq!(a.send(4, PostFlag::NONE, &[(&from, 0, 1)]), Status::OK);
    assert_eq!(b.received(), [(2, Done::LOCAL_ACCESS, 0)]);
    assert_eq!(a.sent(), [(3, Done::SUCCESS, 1), (4, Done::REMOTE_ERROR, 0)]);
    assert_eq!(content(&to), [b'x', 0]);
    a.expect_broken();
    b.expect_broken();
}

#[test]
fn a_solicited_send_marks_its_completion_at_the_peer() {
    let (a, b) = connected("solicited", &[]);
    for (token, flags) in [(1, PostFlag::SOLICITED), (2, PostFlag::NONE)] {
        assert_eq!(b.recv(token, &[]), Status::OK);
        assert_eq!(a.send(token, flags, &[]), Status::OK);
    }
    let flags: Vec<_> = taken(&b.recvs).iter().map(|done| done.flags).collect();
    assert_eq!(flags, [CompletionFlag::SOLICITED, CompletionFlag::NONE]);
    a.sent();
}

#[test]
fn both_directions_are_independent() {
    let (a, b) = connected("both", &[]);
    let (in_a, in_b) = (a.buffer(b"A."), b.buffer(b"B."));
    assert_eq!(a.send(1, PostFlag::NONE, &[(&in_a, 0, 1)]), Status::OK, "waits");
    assert_eq!(a.recv(2, &[(&in_a, 1, 1)]), Status::OK);
    assert_eq!(b.send(3, PostFlag::NONE, &[(&in_b, 0, 1)]), Status::OK);
    assert_eq!((a.received().len(), b.sent().len(), a.sent().len()), (1, 1, 0));
    assert_eq!(b.recv(4, &[(&in_b, 1, 1)]), Status::OK);
    assert_eq!((content(&in_a), content(&in_b)), (b"AB".to_vec(), b"BA".to_vec()));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no timerfd")]
fn a_bounded_wait_for_a_receive_ends_the_connection() {
    let (a, b) = connected("bounded", &[("rnr_timeout_ms", "40")]);
    let fd = || a.device.event_fd().unwrap();
    assert_eq!(b.recv(1, &[]), Status::OK);
    assert_eq!(a.send(2, PostFlag::NONE, &[]), Status::OK, "this one finds a receive");
    let begin = std::time::Instant::now();
    assert_eq!(a.send(3, PostFlag::NONE, &[]), Status::OK);
    assert_eq!(a.send(4, PostFlag::NONE, &[]), Status::OK);
    no_event(&a.device);
    assert!(!crate::queue::readable(fd()));
    assert!(crate::queue::readable_within(fd(), 5000), "the descriptor wakes whoever sleeps on it");
    assert!(begin.elapsed().as_millis() >= 40);
    a.expect_broken();
    b.expect_broken();
    assert_eq!(a.sent(), [(2, Done::SUCCESS, 0), (3, Done::NOT_READY, 0)]);
    assert!(!crate::queue::readable(fd()));
}

#[test]
#[cfg_attr(miri, ignore = "miri has no timerfd")]
fn a_receive_within_the_bound_saves_the_connection() {
    let (a, b) = connected("saved", &[("rnr_timeout_ms", "60")]);
    assert_eq!(a.send(1, PostFlag::NONE, &[]), Status::OK);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert_eq!(b.recv(2, &[]), Status::OK);
    assert_eq!(a.send(3, PostFlag::NONE, &[]), Status::OK, "its time begins now");
    assert!(crate::queue::readable_within(a.device.event_fd().unwrap(), 5000));
    no_event(&a.device);
    assert_eq!(b.recv(4, &[]), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 0), (3, Done::SUCCESS, 0)]);
}
