//! Writes and reads, and what a target refuses.

use dat_plugin::CompletionStatus as Done;
use dat_plugin::{Access, PostFlag, Status};

use crate::setup::*;

#[test]
fn a_write_lands_at_the_peer_without_a_receive() {
    let (a, b) = connected("write", &[]);
    let (from, to) = (a.buffer(b"0123456789"), b.buffer(&[b'.'; 12]));
    let at = to.memory.addr() + 2;
    assert_eq!(a.write(1, &[(&from, 5, 5), (&from, 0, 3)], at, to.keys.rkey), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 8)]);
    assert_eq!(content(&to), b"..56789012..");
    assert!(b.received().is_empty());
}

#[test]
fn a_read_fetches_as_much_as_it_asks_for() {
    let (a, b) = connected("read", &[]);
    let (to, from) = (a.buffer(&[b'.'; 12]), b.buffer(b"0123456789"));
    let at = from.memory.addr() + 1;
    assert_eq!(a.read(1, &[(&to, 6, 4), (&to, 0, 5)], at, from.keys.rkey, 7), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 7)]);
    assert_eq!(content(&to), b"567...1234..");
}

#[test]
fn requests_complete_in_post_order() {
    let (a, b) = connected("order", &[]);
    let (mine, theirs) = (a.buffer(b"12"), b.buffer(b"--"));
    let (at, rkey) = (theirs.memory.addr(), theirs.keys.rkey);
    assert_eq!(a.send(1, PostFlag::NONE, &[(&mine, 0, 1)]), Status::OK);
    assert_eq!(a.write(2, &[(&mine, 1, 1)], at + 1, rkey), Status::OK);
    assert_eq!(a.read(3, &[(&mine, 1, 1)], at, rkey, 1), Status::OK);
    assert!(a.sent().is_empty(), "the message waits, so all wait");
    assert_eq!(b.recv(9, &[(&theirs, 0, 1)]), Status::OK);
    let order: Vec<u64> = a.sent().iter().map(|done| done.0).collect();
    assert_eq!(order, [1, 2, 3]);
    assert_eq!(content(&theirs), b"12");
    assert_eq!(content(&mine), b"11", "the read came after the message");
}

#[test]
fn without_bytes_nothing_is_checked() {
    let (a, b) = connected("no bytes", &[]);
    assert_eq!(a.write(1, &[], 0, 12345), Status::OK);
    assert_eq!(a.read(2, &[], u64::MAX, 0, 0), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 0), (2, Done::SUCCESS, 0)]);
    no_event(&b.device);
}

/// Does one bad access of `len` bytes at `offset` of a buffer registered for `access` in `domain`; `rkey` bends the key.
fn refused(write: bool, access: Access, domain: u32, offset: u64, len: u32, rkey: impl Fn(&Buffer) -> u32) {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let network = format!("refused {}", COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
    let (a, b) = connected(&network, &[]);
    let (mine, theirs) = (a.buffer(&[1; 32]), b.buffer_for(&[2; 16], access, domain));
    let (at, key) = (theirs.memory.addr().wrapping_add(offset), rkey(&theirs));
    assert_eq!(b.recv(1, &[]), Status::OK);
    let posted = match write {
        true => a.write(5, &[(&mine, 0, len)], at, key),
        false => a.read(5, &[(&mine, 0, len)], at, key, len),
    };
    assert_eq!(posted, Status::OK, "it is the peer that refuses");
    assert_eq!(a.sent(), [(5, Done::REMOTE_ACCESS, 0)]);
    a.expect_broken();
    b.expect_broken();
    assert!(b.received().is_empty());
    assert_eq!((content(&mine), content(&theirs)), (vec![1; 32], vec![2; 16]), "nothing was touched");
}

#[test]
fn a_peer_is_refused_what_it_was_not_given() {
    let key = |buffer: &Buffer| buffer.keys.rkey;
    const B: u32 = 9; // the domain of the passive side's channel
    for write in [true, false] {
        refused(write, ALL, B, 0, 4, |buffer| buffer.keys.rkey ^ 1 << 20);
        refused(write, ALL, B, 0, 4, |buffer| buffer.keys.rkey ^ 1);
        refused(write, ALL, B, 0, 4, |buffer| buffer.keys.lkey);
        refused(write, ALL, B, 0, 4, |_| 0);
        refused(write, ALL, B, 0, 4, |_| u32::MAX);
        refused(write, ALL, B, 13, 4, key);
        refused(write, ALL, B, 0, 17, key);
        refused(write, ALL, B, 0u64.wrapping_sub(1), 2, key);
        refused(write, ALL, B, 1 << 63, 4, key);
        refused(write, ALL, B + 1, 0, 4, key);
    }
    refused(true, Access::LOCAL_WRITE | Access::REMOTE_READ, B, 0, 4, key);
    refused(false, Access::LOCAL_READ | Access::REMOTE_WRITE, B, 0, 4, key);
}

#[test]
fn an_ended_registration_gives_no_access() {
    let (a, b) = connected("ended", &[]);
    let (mine, theirs) = (a.buffer(b"new"), b.buffer(b"old"));
    let (at, rkey) = (theirs.memory.addr(), theirs.keys.rkey);
    assert_eq!(a.write(1, &[(&mine, 0, 1)], at, rkey), Status::OK);
    drop(b.spans.remove(theirs.context).unwrap());
    assert_eq!(a.write(2, &[(&mine, 0, 3)], at, rkey), Status::OK);
    assert_eq!(a.sent(), [(1, Done::SUCCESS, 1), (2, Done::REMOTE_ACCESS, 0)]);
    assert_eq!(content(&theirs), b"nld");
}

#[test]
fn memory_of_the_device_is_zeroed_and_can_be_reached() {
    let (a, b) = connected("alloc", &[]);
    let memory = b.device.alloc(100).unwrap();
    assert!(memory.len() >= 100 && memory.addr().is_multiple_of(4096));
    let mut bytes = vec![1; memory.len() as usize];
    memory.read(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    let registration = b.device.register(memory.clone(), ALL, 9).unwrap();
    let mine = a.buffer(b"hello");
    let (at, rkey) = (memory.addr() + memory.len() - 5, registration.keys().rkey);
    assert_eq!(a.write(1, &[(&mine, 0, 5)], at, rkey), Status::OK);
    let mut tail = [0; 5];
    memory.read(memory.len() - 5, &mut tail);
    assert_eq!(&tail, b"hello");
    assert_eq!(b.device.alloc(u64::MAX).unwrap_err().status, Status::NO_RESOURCE);
}
