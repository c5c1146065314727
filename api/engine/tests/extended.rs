//! Shared receive queues, memory windows, atomic operations and immediate values, over the loopback provider.

use dat_engine::{ConnectOptions, Ep, Evd, Ia, IaOptions, Lmr, Plugin, Posting, Psp, Pz, Rmr, Srq};
use dat_plugin::Config;
use dat_types::{
    AsyncReason, CloseFlags, CompletionFlags, ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, EpAttr,
    EvdFlags, Event, EventData, LmrTriplet, Privileges, PspFlags, ReturnType, RmrTriplet, SrqAttr, Timeout,
};

const LONG: Timeout = Timeout::from_millis(20_000);
const NONE: CompletionFlags = CompletionFlags::empty();

struct Node {
    ia: Ia,
    pz: Pz,
    dto: Evd,
    conn: Evd,
    lmr: Lmr,
    ep: Ep,
    srq: Option<Srq>,
}

impl Node {
    fn new(shared: bool, attr: EpAttr) -> Node {
        let device = Plugin::of::<dat_loopback::Loopback>().open(&Config::default()).unwrap();
        let ia = Ia::open(device, "loopback0", "0", IaOptions::default()).unwrap();
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(64, EvdFlags::DTO | EvdFlags::RMR_BIND).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let rights = Privileges::ALL | Privileges::REMOTE_ATOMIC;
        let lmr = ia.lmr_create(&pz, ia.alloc(8192).unwrap(), rights).unwrap();
        let srq_attr = SrqAttr { max_recv_dtos: 10, max_recv_iov: 2, low_watermark: 0 };
        let srq = shared.then(|| ia.srq_create(&pz, &srq_attr).unwrap());
        let evds = (Some(&dto), Some(&dto), Some(&conn));
        let ep = match &srq {
            Some(srq) => ia.ep_create_with_srq(Some(&pz), evds.0, evds.1, evds.2, srq, &attr).unwrap(),
            None => ia.ep_create(Some(&pz), evds.0, evds.1, evds.2, Some(&attr)).unwrap(),
        };
        Node { ia, pz, dto, conn, lmr, ep, srq }
    }

    fn event(&self, evd: &Evd) -> Event {
        evd.wait(LONG, 1).unwrap().0
    }

    fn dto(&self) -> DtoCompletion {
        match self.event(&self.dto).data {
            EventData::Dto(dto) => dto,
            other => panic!("{other:?}"),
        }
    }

    fn expect(&self, kind: ConnectionKind) {
        match self.event(&self.conn).data {
            EventData::Connection { kind: got, .. } => assert_eq!(got, kind),
            other => panic!("{other:?}"),
        }
    }

    fn word(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.lmr.memory().read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    }
}

fn join(a: &Node, b: &Node) -> Psp {
    let psp = b.ia.psp_create_any(&b.conn, PspFlags::Consumer).unwrap();
    let address = b.ia.query().unwrap().address;
    a.ep.connect(&ConnectOptions {
        timeout: LONG,
        ..ConnectOptions::new((address, 0).into(), psp.conn_qual())
    })
    .unwrap();
    match b.event(&b.conn).data {
        EventData::ConnectionRequest { cr, .. } => b.ia.cr(cr).unwrap().accept(Some(&b.ep), b"").unwrap(),
        other => panic!("{other:?}"),
    }
    a.expect(ConnectionKind::Established);
    b.expect(ConnectionKind::Established);
    psp
}

fn connected(shared: bool) -> (Node, Node) {
    let (a, b) = (Node::new(false, EpAttr::default()), Node::new(shared, EpAttr::default()));
    join(&a, &b);
    (a, b)
}

fn connected_with(attr: EpAttr) -> (Node, Node) {
    let (a, b) = (Node::new(false, attr), Node::new(false, EpAttr::default()));
    join(&a, &b);
    (a, b)
}

#[test]
fn a_shared_queue_counts_what_is_taken_and_what_is_seen() {
    let (a, b) = connected(true);
    let srq = b.srq.as_ref().unwrap();
    let counts = || srq.query().map(|param| (param.available, param.outstanding)).unwrap();
    for cookie in 1..=3 {
        srq.post_recv(&[b.lmr.triplet(cookie * 100, 64)], cookie).unwrap();
    }
    assert_eq!(counts(), (3, 3));
    a.ep.post_send(&[a.lmr.triplet(0, 5)], 9, NONE).unwrap();
    assert_eq!(a.dto().status, DtoStatus::Success);
    assert_eq!(counts(), (2, 3), "taken, not seen yet");
    let recv = b.dto();
    assert_eq!((recv.ep, recv.cookie, recv.length), (b.ep.id(), 1, 5));
    assert_eq!(counts(), (2, 2));
    assert_eq!(b.ep.post_recv(&[], 1, NONE).unwrap_err().kind(), ReturnType::InvalidState);
    assert_eq!(srq.free().unwrap_err().kind(), ReturnType::InvalidState);
    b.ep.disconnect(CloseFlags::Abrupt).unwrap();
    b.expect(ConnectionKind::Disconnected);
    assert_eq!(counts(), (2, 2), "what is in the queue is not flushed");
    b.ep.reset().unwrap();
    b.ep.free().unwrap();
    srq.free().unwrap();
    assert_eq!(srq.query().unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn segments_of_shared_receives_are_those_of_the_queue() {
    for max_recv_iov in [0, 1, u32::MAX] {
        let attr = EpAttr { max_recv_iov, ..EpAttr::default() };
        let (a, b) = (Node::new(false, EpAttr::default()), Node::new(true, attr));
        assert_eq!(b.ep.query().unwrap().attr.max_recv_iov, max_recv_iov);
        let _psp = join(&a, &b);
        let two = [b.lmr.triplet(0, 3), b.lmr.triplet(100, 3)];
        b.srq.as_ref().unwrap().post_recv(&two, 7).unwrap();
        a.ep.post_send(&[a.lmr.triplet(0, 5)], 9, NONE).unwrap();
        let recv = b.dto();
        assert_eq!((recv.status, recv.cookie, recv.length), (DtoStatus::Success, 7, 5));
    }
    let side = Node::new(false, EpAttr::default());
    let attr = EpAttr { max_recv_iov: 0, ..EpAttr::default() };
    let plain = side.ia.ep_create(Some(&side.pz), Some(&side.dto), None, None, Some(&attr));
    assert_eq!(plain.unwrap_err().kind(), ReturnType::InvalidParameter);
}

#[test]
fn a_shared_queue_that_was_freed_is_gone_whatever_else_is_wrong() {
    let side = Node::new(false, EpAttr::default());
    let attr = SrqAttr { max_recv_dtos: 1, max_recv_iov: 1, low_watermark: 0 };
    let srq = side.ia.srq_create(&side.pz, &attr).unwrap();
    let (good, foreign) = (side.lmr.triplet(0, 8), LmrTriplet { context: 77, address: 1, length: 8 });
    let posts: [&[LmrTriplet]; 3] = [&[good], &[good, good], &[foreign]];
    assert!(posts[1..].iter().all(|post| srq.post_recv(post, 1).is_err()));
    srq.free().unwrap();
    for post in posts {
        assert_eq!(srq.post_recv(post, 1).unwrap_err().kind(), ReturnType::InvalidHandle, "{post:?}");
    }
}

#[test]
fn a_shared_queue_has_an_end_and_a_low_mark() {
    let (a, b) = connected(true);
    let srq = b.srq.as_ref().unwrap();
    for cookie in 0..10 {
        srq.post_recv(&[], cookie).unwrap();
    }
    assert_eq!(srq.post_recv(&[], 10).unwrap_err().kind(), ReturnType::InsufficientResources);
    assert_eq!(srq.resize(9).unwrap_err().kind(), ReturnType::InvalidState);
    srq.resize(11).unwrap();
    srq.post_recv(&[], 10).unwrap();
    assert_eq!(srq.set_low_watermark(12).unwrap_err().kind(), ReturnType::InvalidParameter);
    srq.set_low_watermark(10).unwrap();
    a.ep.post_send(&[], 1, NONE).unwrap();
    a.ep.post_send(&[], 2, NONE).unwrap();
    match b.event(&b.ia.async_evd()).data {
        EventData::Async { object, reason: AsyncReason::SrqLowWatermark } => assert_eq!(object, srq.id()),
        other => panic!("{other:?}"),
    }
    assert_eq!([b.dto().cookie, b.dto().cookie], [0, 1]);
    let elsewhere = b.ia.pz_create().unwrap();
    let foreign = b.ia.lmr_create(&elsewhere, b.ia.alloc(64).unwrap(), Privileges::ALL).unwrap();
    let wrong = srq.post_recv(&[foreign.triplet(0, 8)], 1).unwrap_err();
    assert_eq!(wrong.kind(), ReturnType::ProtectionViolation);
}

#[test]
fn a_window_is_bound_used_rebound_and_ended() {
    let (a, b) = connected(false);
    let rmr = b.ia.rmr_create(&b.pz).unwrap();
    let base = b.lmr.memory().addr();
    b.lmr.memory().write(1000, b"window");
    let bind = |at: u64, len| rmr.bind(Some(&b.lmr), base + at, len, Privileges::REMOTE_READ, &b.ep, 5, NONE);
    let context = bind(1000, 6).unwrap();
    match b.event(&b.dto).data {
        EventData::RmrBind { rmr: id, cookie: 5, status: DtoStatus::Success } => assert_eq!(id, rmr.id()),
        other => panic!("{other:?}"),
    }
    assert_eq!(b.lmr.free().unwrap_err().kind(), ReturnType::InvalidState, "a window is bound to it");
    let read = |context, cookie| {
        let remote = RmrTriplet { context, address: base + 1000, length: 6 };
        a.ep.post_rdma_read(&[a.lmr.triplet(0, 6)], cookie, remote, NONE).unwrap();
        a.dto().status
    };
    assert_eq!(read(context, 1), DtoStatus::Success);
    let mut got = [0; 6];
    a.lmr.memory().read(0, &mut got);
    assert_eq!(&got, b"window");
    assert_eq!(bind(8190, 3).unwrap_err().kind(), ReturnType::InvalidParameter);
    let next = bind(1000, 6).unwrap();
    assert_ne!(next, context);
    assert_eq!(rmr.query().unwrap().rmr_context, next);
    rmr.bind(None, 0, 0, Privileges::empty(), &b.ep, 6, NONE).unwrap();
    assert_eq!(rmr.query().unwrap().range, None);
    assert_eq!(read(next, 2), DtoStatus::RemoteAccess);
    a.expect(ConnectionKind::Broken);
    b.expect(ConnectionKind::Broken);
    rmr.bind(Some(&b.lmr), base, 8, Privileges::REMOTE_READ, &b.ep, 7, NONE).unwrap();
    for (cookie, status) in [(5, DtoStatus::Success), (6, DtoStatus::Success), (7, DtoStatus::Flushed)] {
        match b.event(&b.dto).data {
            EventData::RmrBind { cookie: got, status: how, .. } => assert_eq!((got, how), (cookie, status)),
            other => panic!("{other:?}"),
        }
    }
    rmr.free().unwrap();
    b.lmr.free().unwrap();
}

#[test]
fn a_bind_names_its_window_after_binds_nobody_was_told_of() {
    for max_request_dtos in [4, 40] {
        let (a, _b) = connected_with(EpAttr { max_request_dtos, ..EpAttr::default() });
        let [quiet, told] = [(); 2].map(|()| a.ia.rmr_create(&a.pz).unwrap());
        let bind = |rmr: &Rmr, cookie, flags| {
            let base = a.lmr.memory().addr();
            rmr.bind(Some(&a.lmr), base, 8, Privileges::REMOTE_READ, &a.ep, cookie, flags).unwrap();
        };
        for round in 0..50 {
            (0..round % 3).for_each(|_| bind(&quiet, 1, CompletionFlags::SUPPRESS));
            bind(&told, round, NONE);
            match a.event(&a.dto).data {
                EventData::RmrBind { rmr, cookie, status: DtoStatus::Success } => {
                    assert_eq!((rmr, cookie), (told.id(), round));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_read_lands_in_a_window_that_may_be_written() {
    let (a, b) = connected(false);
    let rmr = a.ia.rmr_create(&a.pz).unwrap();
    let base = a.lmr.memory().addr();
    let context = rmr.bind(Some(&a.lmr), base + 64, 16, Privileges::REMOTE_WRITE, &a.ep, 1, NONE).unwrap();
    assert!(matches!(a.event(&a.dto).data, EventData::RmrBind { .. }));
    b.lmr.memory().write(0, b"0123456789abcdef");
    let sink = |offset, length| RmrTriplet { context, address: base + offset, length };
    let post = |sink| a.ep.post_rdma_read_to_rmr(sink, 2, b.lmr.remote_triplet(0, 8), NONE);
    post(sink(68, 8)).unwrap();
    assert_eq!(a.dto().status, DtoStatus::Success);
    let mut got = [0; 8];
    a.lmr.memory().read(68, &mut got);
    assert_eq!(&got, b"01234567");
    assert_eq!(post(sink(73, 8)).unwrap_err().kind(), ReturnType::InvalidParameter);
    assert_eq!(post(sink(64, 4)).unwrap_err().kind(), ReturnType::LengthError);
    let unknown = RmrTriplet { context: context ^ 1, ..sink(64, 8) };
    assert_eq!(post(unknown).unwrap_err().kind(), ReturnType::PrivilegesViolation);
}

#[test]
fn a_message_ends_a_window_of_the_receiver() {
    let (a, b) = connected(false);
    let rmr = b.ia.rmr_create(&b.pz).unwrap();
    let base = b.lmr.memory().addr();
    let context = rmr.bind(Some(&b.lmr), base, 8, Privileges::REMOTE_READ, &b.ep, 1, NONE).unwrap();
    assert!(matches!(b.event(&b.dto).data, EventData::RmrBind { .. }));
    b.ep.post_recv(&[b.lmr.triplet(100, 8)], 2, NONE).unwrap();
    a.ep.post_send_with_invalidate(&[a.lmr.triplet(0, 3)], 3, NONE, context).unwrap();
    let recv = b.dto();
    assert_eq!((recv.operation, recv.invalidated()), (DtoOperation::ReceiveWithInvalidate, Some(context)));
    assert_eq!(rmr.query().unwrap().rmr_context, 0);
    b.lmr.free().unwrap();
}

#[test]
fn words_change_atomically_and_values_arrive() {
    let (a, b) = connected(false);
    b.lmr.memory().write(64, &7u64.to_ne_bytes());
    let word = b.lmr.remote_triplet(64, 8);
    a.ep.post_fetch_add(5, a.lmr.triplet(0, 8), 1, word, NONE).unwrap();
    a.ep.post_compare_swap(12, 99, a.lmr.triplet(8, 8), 2, word, NONE).unwrap();
    let (add, swap) = (a.dto(), a.dto());
    assert_eq!(
        (add.operation, add.length, swap.operation),
        (DtoOperation::FetchAdd, 8, DtoOperation::CmpSwap)
    );
    assert_eq!((a.word(0), a.word(8), b.word(64)), (7, 12, 99));
    let crooked = b.lmr.remote_triplet(68, 8);
    let refused = a.ep.post_fetch_add(1, a.lmr.triplet(0, 8), 1, crooked, NONE).unwrap_err();
    assert_eq!(refused.kind(), ReturnType::InvalidParameter);

    for cookie in [10, 11] {
        b.ep.post_recv(&[b.lmr.triplet(200, 8)], cookie, NONE).unwrap();
    }
    let target = b.lmr.remote_triplet(300, 4);
    a.ep.post_rdma_write_immed(&[a.lmr.triplet(0, 4)], 3, target, 0xabcd, NONE).unwrap();
    a.ep.post_send_immed(&[a.lmr.triplet(0, 4)], 4, 0x1234_5678, NONE).unwrap();
    let (written, sent) = (b.dto(), b.dto());
    assert_eq!((written.operation, written.immediate()), (DtoOperation::RecvImmed, Some(0xabcd)));
    assert_eq!((sent.operation, sent.immediate()), (DtoOperation::RecvMsgImmed, Some(0x1234_5678)));
    assert_eq!([a.dto().operation, a.dto().operation], [DtoOperation::RdmaWriteImmed, DtoOperation::Send]);
}

#[test]
fn marks_tell_of_many_receives_and_break_the_connection() {
    let (a, b) = connected(false);
    for cookie in 0..4 {
        b.ep.post_recv(&[], cookie, NONE).unwrap();
    }
    let held = b.ep.recv_query().unwrap();
    assert_eq!((held.nbufs_allocated, held.bufs_alloc_span), (4, 4));
    b.ep.set_watermark(Some(4), None).unwrap();
    b.ep.post_recv(&[], 4, NONE).unwrap();
    match b.event(&b.ia.async_evd()).data {
        EventData::Async { object, reason: AsyncReason::EpSoftHighWatermark } => {
            assert_eq!(object, b.ep.id())
        }
        other => panic!("{other:?}"),
    }
    b.ep.post_recv(&[], 5, NONE).unwrap();
    assert!(b.ia.async_evd().dequeue().is_err(), "told once");
    b.ep.set_watermark(None, Some(6)).unwrap();
    b.ep.post_recv(&[], 6, NONE).unwrap();
    b.expect(ConnectionKind::Broken);
    a.expect(ConnectionKind::Disconnected);
    for cookie in 0..7 {
        let flushed = b.dto();
        assert_eq!((flushed.cookie, flushed.status), (cookie, DtoStatus::Flushed));
    }
}

#[test]
fn an_empty_segment_names_nothing() {
    let (a, b) = connected(false);
    b.ep.post_recv(&[LmrTriplet::default()], 1, NONE).unwrap();
    a.ep.post_send_immed(&[LmrTriplet::default()], 1, 3, NONE).unwrap();
    assert_eq!((b.dto().immediate(), a.dto().length), (Some(3), 0));
}

#[test]
fn many_posts_are_as_one_by_one() {
    let (a, b) = connected(false);
    let segments: Vec<[LmrTriplet; 1]> = (0..40).map(|i| [b.lmr.triplet(i * 8, 8)]).collect();
    let posts: Vec<Posting<'_>> =
        (0..40).map(|i| Posting { iov: &segments[i], cookie: i as u64, flags: NONE }).collect();
    let (posted, why) = b.ep.post_recv_many(&posts);
    assert_eq!((posted, why.unwrap_err().kind()), (16, ReturnType::InsufficientResources), "the ring has 16");
    let out = [a.lmr.triplet(0, 8)];
    let mut sends = [Posting { iov: &out, cookie: 0, flags: NONE }; 16];
    for (i, send) in sends.iter_mut().enumerate() {
        send.cookie = i as u64;
    }
    sends[10].iov = &[];
    assert_eq!(a.ep.post_send_many(&sends).0, 16);
    for cookie in 0..16 {
        let length = if cookie == 10 { 0 } else { 8 };
        let (sent, got) = (a.dto(), b.dto());
        assert_eq!((sent.cookie, sent.length, got.cookie, got.length), (cookie, length, cookie, length));
    }
    let wrong = [a.lmr.triplet(8190, 8)];
    sends[2].iov = &wrong;
    let (posted, why) = a.ep.post_send_many(&sends[..4]);
    assert_eq!((posted, why.unwrap_err().kind()), (2, ReturnType::InvalidParameter));
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    let flushed = [a.dto(), a.dto()].map(|dto| dto.status);
    assert_eq!(flushed, [DtoStatus::Flushed; 2]);
    assert_eq!(a.ep.post_send_many(&sends[..2]).0, 2, "disconnected: flushed at once");
    assert_eq!([a.dto().status, a.dto().status], [DtoStatus::Flushed; 2]);
}

#[test]
fn silent_requests_are_told_of_in_time() {
    let (a, b) = connected_with(EpAttr { max_request_dtos: 64, ..EpAttr::default() });
    let target = b.lmr.remote_triplet(0, 1);
    let write = |cookie, flags| a.ep.post_rdma_write(&[a.lmr.triplet(0, 1)], cookie, target, flags);
    for cookie in 0..1000 {
        write(cookie, CompletionFlags::SUPPRESS).unwrap();
    }
    assert!(a.ep.status().unwrap().request_idle);
    assert!(a.dto.dequeue().is_err(), "all of them succeeded, none is told of");
    for cookie in 0..10 {
        write(cookie, CompletionFlags::SUPPRESS).unwrap();
    }
    write(10, NONE).unwrap();
    assert_eq!(a.dto().cookie, 10);
    for cookie in 0..10 {
        write(cookie, CompletionFlags::SUPPRESS).unwrap();
    }
    a.ep.post_send(&[], 11, CompletionFlags::SUPPRESS).unwrap();
    a.ep.disconnect(CloseFlags::Graceful).unwrap();
    b.ep.post_recv(&[], 12, NONE).unwrap();
    a.expect(ConnectionKind::Disconnected);
    assert!(a.dto.dequeue().is_err(), "drained, not flushed");
    assert_eq!(b.dto().cookie, 12);
}

#[test]
fn only_what_was_not_done_is_flushed() {
    let (a, b) = connected_with(EpAttr { max_request_dtos: 64, ..EpAttr::default() });
    b.ep.post_recv(&[], 1, NONE).unwrap();
    for cookie in 0..3 {
        a.ep.post_send(&[], cookie, CompletionFlags::SUPPRESS).unwrap();
    }
    b.ep.disconnect(CloseFlags::Abrupt).unwrap();
    a.expect(ConnectionKind::Disconnected);
    let flushed = [a.dto(), a.dto()].map(|dto| (dto.cookie, dto.status));
    assert_eq!(flushed, [(1, DtoStatus::Flushed), (2, DtoStatus::Flushed)]);
    assert!(a.dto.dequeue().is_err());
}
