//! Counters of adapters, endpoints and dispatchers, and their reset.

mod support;

use dat_types::{CloseFlags, CompletionFlags, ConnectionKind, EpCounter, EvdCounter, IaCounter, ReturnType};
use support::{Node, SHORT, connected};

const NONE: CompletionFlags = CompletionFlags::empty();

#[test]
fn an_endpoint_counts_what_is_posted_and_received() {
    let (a, b) = connected(7401);
    let count = |side: &Node, counter: EpCounter| side.ep.counters(false).unwrap()[counter as usize];
    for cookie in 0..4 {
        b.ep.post_recv(&[b.lmr.triplet(0, 100)], cookie, NONE).unwrap();
    }
    for cookie in 0..3 {
        a.ep.post_send(&[a.lmr.triplet(0, 10)], cookie, NONE).unwrap();
    }
    a.ep.post_rdma_write(&[a.lmr.triplet(0, 7)], 3, b.lmr.remote_triplet(0, 7), NONE).unwrap();
    a.ep.post_rdma_read(&[a.lmr.triplet(0, 5)], 4, b.lmr.remote_triplet(0, 5), NONE).unwrap();
    for _ in 0..5 {
        assert!(a.dto().status.is_success());
    }
    for _ in 0..3 {
        assert!(b.dto().status.is_success());
    }
    let expected = [
        (EpCounter::Connect, 1),
        (EpCounter::PostSend, 3),
        (EpCounter::PostSendData, 30),
        (EpCounter::PostWrite, 1),
        (EpCounter::PostWriteData, 7),
        (EpCounter::PostRead, 1),
        (EpCounter::PostReadData, 5),
        (EpCounter::Recv, 0),
    ];
    for (counter, value) in expected {
        assert_eq!(count(&a, counter), value, "{}", counter.name());
    }
    let expected = [
        (EpCounter::Connect, 0),
        (EpCounter::PostRecv, 4),
        (EpCounter::PostRecvData, 400),
        (EpCounter::Recv, 3),
        (EpCounter::RecvData, 30),
    ];
    for (counter, value) in expected {
        assert_eq!(count(&b, counter), value, "{}", counter.name());
    }
    assert_eq!(b.ep.counters(true).unwrap()[EpCounter::Recv as usize], 3);
    assert!(b.ep.counters(false).unwrap().iter().all(|count| *count == 0), "begins anew");
    a.ep.post_send(&[a.lmr.triplet(0, 10)], 9, NONE).unwrap();
    assert!(b.dto().status.is_success());
    assert_eq!((count(&b, EpCounter::Recv), count(&a, EpCounter::PostSend)), (1, 4));
    // What is refused is not counted.
    assert!(a.ep.post_send(&[a.lmr.triplet(0, 9000)], 9, NONE).is_err());
    assert_eq!(count(&a, EpCounter::PostSend), 4);
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    assert_eq!(count(&a, EpCounter::Disconnect), 1);
    a.ep.free().unwrap();
    assert_eq!(a.ep.counters(false).unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn a_dispatcher_counts_who_asks_it() {
    let (a, b) = connected(7402);
    let before = b.dto.counters(true).unwrap();
    assert_eq!(before[EvdCounter::DequeuePollFound as usize], 0);
    assert!(b.dto.wait(SHORT, 1).is_err());
    assert!(b.dto.poll().unwrap().is_none());
    b.ep.post_recv(&[b.lmr.triplet(0, 8)], 1, NONE).unwrap();
    a.ep.post_send(&[a.lmr.triplet(0, 8)], 1, NONE).unwrap();
    b.dto();
    let counts = b.dto.counters(false).unwrap();
    let expected = [
        (EvdCounter::Wait, 2),
        (EvdCounter::Dequeue, 1),
        (EvdCounter::DequeueFound, 0),
        (EvdCounter::DequeueNotFound, 1),
        (EvdCounter::DequeuePollFound, 1),
        (EvdCounter::DtoCallback, 1),
    ];
    for (counter, value) in expected {
        assert_eq!(counts[counter as usize], value, "{}", counter.name());
    }
    assert!(counts[EvdCounter::WaitBlocked as usize] >= 1);
    assert!(counts[EvdCounter::DequeuePoll as usize] >= 2);
    assert_eq!(b.conn.counters(false).unwrap()[EvdCounter::ConnCallback as usize], 1);
}

#[test]
fn an_adapter_counts_objects_and_connections() {
    let (a, b) = connected(7403);
    let count = |side: &Node, counter: IaCounter| side.ia.counters(false).unwrap()[counter as usize];
    for (counter, value) in [
        (IaCounter::PzCreate, 1),
        (IaCounter::LmrCreate, 1),
        (IaCounter::EvdCreate, 2),
        (IaCounter::EpCreate, 1),
        (IaCounter::CmReqTx, 1),
        (IaCounter::CmRepRx, 1),
        (IaCounter::CmActiveEst, 1),
        (IaCounter::PspCreate, 0),
        (IaCounter::MemAlloc, 1),
        (IaCounter::MemAllocData, 8192),
    ] {
        assert_eq!(count(&a, counter), value, "{}", counter.name());
    }
    for (counter, value) in [
        (IaCounter::PspCreate, 1),
        (IaCounter::PspFree, 1),
        (IaCounter::CmListen, 1),
        (IaCounter::CmReqRx, 1),
        (IaCounter::SpCr, 1),
        (IaCounter::SpCrAccepted, 1),
        (IaCounter::CmRepTx, 1),
        (IaCounter::CmPassiveEst, 1),
    ] {
        assert_eq!(count(&b, counter), value, "{}", counter.name());
    }
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Disconnected, ConnectionKind::Disconnected));
    assert_eq!((count(&a, IaCounter::CmDreqTx), count(&b, IaCounter::CmDreqRx)), (1, 1));
    a.ep.free().unwrap();
    assert_eq!(a.ia.counters(true).unwrap()[IaCounter::EpFree as usize], 1);
    assert_eq!(count(&a, IaCounter::EpFree), 0);
    a.lmr.free().unwrap();
    assert_eq!(count(&a, IaCounter::LmrFree), 1);
}
