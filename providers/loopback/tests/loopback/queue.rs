//! Arming a queue, and its descriptor.

use std::os::fd::BorrowedFd;

use dat_plugin::{Completion, PostFlag, Status};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::setup::*;

pub fn readable(fd: BorrowedFd<'_>) -> bool {
    readable_within(fd, 0)
}

pub fn readable_within(fd: BorrowedFd<'_>, milliseconds: i64) -> bool {
    let time = Timespec { tv_sec: milliseconds / 1000, tv_nsec: milliseconds % 1000 * 1_000_000 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&time)).unwrap() == 1
}

#[test]
#[cfg_attr(miri, ignore = "miri has no poll(2)")]
fn an_armed_queue_wakes_once() {
    let (a, b) = connected("arm", &[]);
    let ready = || readable(b.recvs.fd().unwrap());
    let message = || {
        assert_eq!(b.recv(1, &[]), Status::OK);
        assert_eq!(a.send(1, PostFlag::NONE, &[]), Status::OK);
    };
    message();
    assert!(!ready(), "it was not armed");
    assert!(!b.recvs.arm(), "there is a completion to poll for");
    assert_eq!(b.received().len(), 1);
    assert!(b.recvs.arm());
    assert!(!ready());
    message();
    assert!(ready());
    b.recvs.disarm();
    assert!(!ready());
    message();
    assert!(!ready(), "one arm, one wake");
    assert_eq!(b.received().len(), 2);
    assert!(b.recvs.arm());
    b.recvs.disarm();
    message();
    assert!(!ready(), "disarmed in time");
}

#[test]
fn arming_answers_whether_to_poll_again() {
    let (a, b) = connected("arm again", &[]);
    assert!(b.recvs.arm());
    assert_eq!(b.recv(1, &[]), Status::OK);
    assert_eq!(a.send(1, PostFlag::NONE, &[]), Status::OK);
    assert!(!b.recvs.arm());
    b.recvs.disarm();
    assert_eq!(b.received().len(), 1);
    assert!(b.recvs.arm());
    b.recvs.disarm();
}

#[test]
fn completions_come_in_parts_and_none_is_lost_beyond_the_depth() {
    let (a, b) = connected("depth", &[]);
    for token in 0..40 {
        assert_eq!(b.recv(token, &[]), Status::OK);
        assert_eq!(a.send(token, PostFlag::NONE, &[]), Status::OK);
    }
    let mut tokens = Vec::new();
    loop {
        let mut out = [Completion::default(); 7];
        let count = a.sends.poll(&mut out);
        tokens.extend(out[..count].iter().map(|done| done.token));
        if count == 0 {
            break;
        }
    }
    assert_eq!(tokens, (0..40).collect::<Vec<_>>());
    assert_eq!(b.recvs.poll(&mut []), 0);
}
