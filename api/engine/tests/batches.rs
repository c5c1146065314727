//! Completions taken several at once are those taken one by one: the same, in the same order, with the same effects.

mod support;

use dat_engine::Posting;
use dat_types::{
    CloseFlags, CompletionFlags, ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, EpCounter, EventData,
};

use support::{LONG, Node, connected};

const NONE: CompletionFlags = CompletionFlags::empty();

/// Takes `count` completions, by turns of `room`; one by one when that is 0.
fn take(side: &Node, count: usize, room: usize) -> Vec<DtoCompletion> {
    let deadline = std::time::Instant::now() + LONG.duration().unwrap();
    let mut all = Vec::new();
    let mut some = Vec::with_capacity(room);
    while all.len() < count {
        assert!(std::time::Instant::now() < deadline, "{} of {count} completions came", all.len());
        if room == 0 {
            match side.dto.poll().unwrap().map(|event| event.data) {
                Some(EventData::Dto(done)) => all.push(done),
                Some(other) => panic!("{other:?}"),
                None => std::thread::yield_now(),
            }
        } else if side.dto.poll_completions(&mut some).unwrap() == 0 {
            std::thread::yield_now();
        }
        assert!(some.len() <= room);
        all.append(&mut some);
    }
    assert!(side.dto.poll().unwrap().is_none());
    all
}

/// Messages both ways over one dispatcher a side, writes and silent sends between; what both sides see, without the
/// numbers of their endpoints.
fn traffic(room: usize) -> Vec<(u64, DtoStatus, DtoOperation, u64)> {
    let (a, b) = connected(100 + room as u64);
    let posts: Vec<_> = (0..6).map(|i| [b.lmr.triplet(i * 8, 8)]).collect();
    let posts: Vec<_> =
        posts.iter().zip(0..).map(|(iov, cookie)| Posting { iov, cookie, flags: NONE }).collect();
    let (posted, result) = b.ep.post_recv_many(&posts);
    assert_eq!((posted, result.is_ok()), (6, true));
    a.ep.post_recv(&[a.lmr.triplet(512, 8)], 50, NONE).unwrap();
    for i in 0..6u64 {
        let flags = if i % 3 == 1 { CompletionFlags::SUPPRESS } else { NONE };
        a.ep.post_send(&[a.lmr.triplet(0, 1 + i as u32)], 10 + i, flags).unwrap();
    }
    b.ep.post_send(&[b.lmr.triplet(0, 3)], 60, NONE).unwrap();
    a.ep.post_rdma_write(&[a.lmr.triplet(0, 4)], 70, b.lmr.remote_triplet(1024, 4), NONE).unwrap();
    let seen = [take(&b, 7, room), take(&a, 6, room)].concat();
    let bytes = b.ep.counters(false).unwrap();
    assert_eq!((bytes[EpCounter::Recv as usize], bytes[EpCounter::RecvData as usize]), (6, 21));
    seen.into_iter().map(|done| (done.cookie, done.status, done.operation, done.length)).collect()
}

#[test]
fn they_are_the_same_in_every_batch_size() {
    // Of one direction in order; which direction comes first is the provider's.
    let sorted = |room| {
        let mut seen = traffic(room);
        seen.sort_by_key(|done| (done.2 == DtoOperation::Receive, done.2 as u32 / 4));
        seen
    };
    let single = sorted(0);
    assert_eq!(single.len(), 13);
    assert!(
        single.iter().all(|done| done.1 == DtoStatus::Success && ![11, 14].contains(&done.0)),
        "{single:?}"
    );
    for room in [1, 2, 5, 64] {
        assert_eq!(sorted(room), single, "{room} at once");
    }
}

#[test]
fn a_failure_in_the_middle_ends_the_batch_and_breaks_the_connection() {
    let (a, b) = connected(100);
    for (cookie, len) in [(1, 8), (2, 8), (3, 2), (4, 8)] {
        b.ep.post_recv(&[b.lmr.triplet(0, len)], cookie, NONE).unwrap();
    }
    for cookie in 0..4 {
        // Later ones may find the connection broken already.
        let _ = a.ep.post_send(&[a.lmr.triplet(0, 4)], cookie, NONE);
    }
    let seen: Vec<_> = take(&b, 4, 16).into_iter().map(|done| (done.cookie, done.status)).collect();
    let expected = [
        (1, DtoStatus::Success),
        (2, DtoStatus::Success),
        (3, DtoStatus::LocalLength),
        (4, DtoStatus::Flushed),
    ];
    assert_eq!(seen, expected);
    assert_eq!(b.conn(), ConnectionKind::Broken);
}

#[test]
fn a_graceful_disconnect_ends_with_the_last_completion_of_a_batch() {
    let (a, b) = connected(100);
    for cookie in 0..3 {
        a.ep.post_send(&[a.lmr.triplet(0, 4)], cookie, NONE).unwrap();
    }
    a.ep.disconnect(CloseFlags::Graceful).unwrap();
    for cookie in 0..3 {
        b.ep.post_recv(&[b.lmr.triplet(0, 8)], cookie, NONE).unwrap();
    }
    assert!(take(&a, 3, 8).iter().all(|done| done.status.is_success()));
    assert_eq!(a.conn(), ConnectionKind::Disconnected);
    assert!(take(&b, 3, 8).iter().all(|done| done.status.is_success()));
    assert_eq!(b.conn(), ConnectionKind::Disconnected);
}
