//! Two endpoints of one process over the loopback provider: the shortest way through everything. Runs under miri.

use std::time::Duration;

use dat_engine::{ConnectOptions, Ep, Evd, Ia, IaOptions, Lmr, Plugin, Psp, Pz};
use dat_plugin::Config;
use dat_types::{
    CloseFlags, CompletionFlags, ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, EpState, EvdFlags,
    Event, EventData, Privileges, PspFlags, ReturnType, Timeout,
};

const LONG: Timeout = Timeout::from_millis(20_000);

struct Node {
    ia: Ia,
    pz: Pz,
    dto: Evd,
    conn: Evd,
    lmr: Lmr,
    ep: Ep,
}

impl Node {
    fn new() -> Node {
        let device = Plugin::of::<dat_loopback::Loopback>().open(&Config::default()).unwrap();
        let ia = Ia::open(device, "loopback0", "0", IaOptions::default()).unwrap();
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(64, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let lmr = ia.lmr_create(&pz, ia.alloc(8192).unwrap(), Privileges::ALL).unwrap();
        let ep = ia.ep_create(Some(&pz), Some(&dto), Some(&dto), Some(&conn), None).unwrap();
        Node { ia, pz, dto, conn, lmr, ep }
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

    fn conn(&self) -> ConnectionKind {
        match self.event(&self.conn).data {
            EventData::Connection { kind, ep, .. } => {
                assert_eq!(ep, self.ep.id());
                kind
            }
            other => panic!("{other:?}"),
        }
    }
}

fn connected() -> (Node, Node, Psp) {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create_any(&b.conn, PspFlags::Consumer).unwrap();
    let address = b.ia.query().unwrap().address;
    let options = ConnectOptions {
        private_data: b"hello",
        timeout: LONG,
        ..ConnectOptions::new((address, 0).into(), psp.conn_qual())
    };
    a.ep.connect(&options).unwrap();
    let cr = match b.event(&b.conn).data {
        EventData::ConnectionRequest { cr, .. } => b.ia.cr(cr).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(&*cr.query().unwrap().private_data, b"hello");
    cr.accept(Some(&b.ep), b"welcome").unwrap();
    match a.event(&a.conn).data {
        EventData::Connection { kind: ConnectionKind::Established, private_data, .. } => {
            assert_eq!(&*private_data, b"welcome")
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(b.conn(), ConnectionKind::Established);
    (a, b, psp)
}

#[test]
fn messages_reads_and_writes() {
    let (a, b, _psp) = connected();
    a.lmr.memory().write(0, b"ping");
    b.ep.post_recv(&[b.lmr.triplet(0, 64)], 7, CompletionFlags::empty()).unwrap();
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 8, CompletionFlags::empty()).unwrap();
    let recv = b.dto();
    assert_eq!((recv.cookie, recv.status, recv.length), (7, DtoStatus::Success, 4));
    assert_eq!(recv.operation, DtoOperation::Receive);
    let send = a.dto();
    assert_eq!((send.cookie, send.status, send.operation), (8, DtoStatus::Success, DtoOperation::Send));
    let mut got = [0; 4];
    b.lmr.memory().read(0, &mut got);
    assert_eq!(&got, b"ping");

    let remote = b.lmr.remote_triplet(4096, 4);
    a.ep.post_rdma_write(&[a.lmr.triplet(0, 4)], 9, remote, CompletionFlags::SUPPRESS).unwrap();
    a.ep.post_rdma_read(&[a.lmr.triplet(100, 4)], 10, remote, CompletionFlags::empty()).unwrap();
    let read = a.dto();
    assert_eq!((read.cookie, read.operation, read.length), (10, DtoOperation::RdmaRead, 4));
    a.lmr.memory().read(100, &mut got);
    assert_eq!(&got, b"ping");
}

#[test]
fn disconnect_flushes_in_order_and_both_sides_can_connect_again() {
    let (a, b, psp) = connected();
    for cookie in 0..3 {
        a.ep.post_recv(&[a.lmr.triplet(0, 8)], cookie, CompletionFlags::empty()).unwrap();
        b.ep.post_recv(&[b.lmr.triplet(0, 8)], cookie, CompletionFlags::empty()).unwrap();
    }
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    for side in [&a, &b] {
        assert_eq!(side.conn(), ConnectionKind::Disconnected);
        for cookie in 0..3 {
            let dto = side.dto();
            assert_eq!((dto.cookie, dto.status), (cookie, DtoStatus::Flushed));
        }
        assert_eq!(side.ep.state(), EpState::Disconnected);
        assert_eq!(side.dto.dequeue().unwrap_err().kind(), ReturnType::QueueEmpty);
        side.ep.reset().unwrap();
    }
    let address = b.ia.query().unwrap().address;
    a.ep.connect(&ConnectOptions::new((address, 0).into(), psp.conn_qual())).unwrap();
    let cr = match b.event(&b.conn).data {
        EventData::ConnectionRequest { cr, .. } => b.ia.cr(cr).unwrap(),
        other => panic!("{other:?}"),
    };
    cr.reject(b"no").unwrap();
    assert_eq!(a.conn(), ConnectionKind::PeerRejected);
}

#[test]
fn a_graceful_disconnect_waits_for_requests() {
    let (a, b, _psp) = connected();
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 1, CompletionFlags::empty()).unwrap();
    a.ep.disconnect(CloseFlags::Graceful).unwrap();
    assert_eq!(a.ep.state(), EpState::DisconnectPending);
    let late = a.ep.post_send(&[a.lmr.triplet(0, 4)], 2, CompletionFlags::empty());
    assert_eq!(late.unwrap_err().kind(), ReturnType::InvalidState);
    b.ep.post_recv(&[b.lmr.triplet(0, 8)], 3, CompletionFlags::empty()).unwrap();
    assert_eq!(b.dto().status, DtoStatus::Success);
    assert_eq!(a.conn(), ConnectionKind::Disconnected);
    assert_eq!(a.dto().status, DtoStatus::Success);
    assert_eq!(b.conn(), ConnectionKind::Disconnected);
}

#[test]
fn what_is_in_use_cannot_be_freed() {
    let side = Node::new();
    assert_eq!(side.pz.free().unwrap_err().kind(), ReturnType::InvalidState);
    assert_eq!(side.dto.free().unwrap_err().kind(), ReturnType::InvalidState);
    assert_eq!(side.ia.close(CloseFlags::Graceful).unwrap_err().kind(), ReturnType::InvalidState);
    side.ep.free().unwrap();
    assert_eq!(side.ep.free().unwrap_err().kind(), ReturnType::InvalidHandle);
    side.lmr.free().unwrap();
    side.dto.free().unwrap();
    side.conn.free().unwrap();
    side.pz.free().unwrap();
    side.ia.close(CloseFlags::Graceful).unwrap();
    assert_eq!(side.ia.pz_create().unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn a_blocked_waiter_is_thrown_out_by_an_abrupt_close() {
    let side = Node::new();
    let evd = side.dto.clone();
    let waiter = std::thread::spawn(move || evd.wait(Timeout::INFINITE, 1).unwrap_err().error.kind());
    std::thread::sleep(Duration::from_millis(50));
    side.ia.close(CloseFlags::Abrupt).unwrap();
    assert_eq!(waiter.join().unwrap(), ReturnType::Abort);
}

#[test]
fn a_wait_times_out_no_earlier_than_asked() {
    let side = Node::new();
    let start = std::time::Instant::now();
    let error = side.dto.wait(Timeout::from_millis(50), 1).unwrap_err();
    assert_eq!((error.error.kind(), error.nmore), (ReturnType::TimeoutExpired, 0));
    assert!(start.elapsed() >= Duration::from_millis(50));
}
