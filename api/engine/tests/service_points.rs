//! Service points of all kinds, requests handed off, and connects that repeat one another.

mod support;

use dat_engine::ConnectOptions;
use dat_types::{
    Comm, ConnectionKind, EpState, EvdFlags, EventData, HandleType, PspFlags, Qos, ReturnType, Subtype,
};
use support::{LONG, Node};

#[test]
fn a_reserved_service_point_takes_one_request_for_its_endpoint() {
    let (a, b) = (Node::new(), Node::new());
    let rsp = b.ia.rsp_create(7001, Some(&b.ep), &b.conn).unwrap();
    assert_eq!(b.ep.state(), EpState::Reserved);
    assert_eq!(b.ep.free().unwrap_err().subtype(), Subtype::EpReserved);
    let again = b.ia.rsp_create(7002, Some(&b.ep), &b.conn).unwrap_err();
    assert_eq!((again.kind(), again.subtype()), (ReturnType::InvalidState, Subtype::EpReserved));
    assert_eq!(rsp.query().unwrap().ep.unwrap().id(), b.ep.id());

    a.connect(7001);
    let (cr, point) = b.request();
    assert_eq!((point, b.ep.state()), (None, EpState::PassiveConnectionPending));
    assert_eq!(cr.query().unwrap().local_ep.unwrap().id(), b.ep.id());
    assert_eq!(b.ep.query().unwrap().local_port_qual, 7001);
    assert_eq!(rsp.query().unwrap_err().kind(), ReturnType::InvalidHandle);
    // The qualifier is free again by now.
    b.ia.psp_create(7001, &b.conn, PspFlags::Consumer).unwrap().free().unwrap();

    cr.reject(b"no").unwrap();
    assert_eq!((a.conn(), b.ep.state()), (ConnectionKind::PeerRejected, EpState::Unconnected));
    rsp.free().unwrap();
    assert_eq!(rsp.free().unwrap_err().kind(), ReturnType::InvalidHandle);

    a.ep.reset().unwrap();
    let rsp = b.ia.rsp_create(7001, Some(&b.ep), &b.conn).unwrap();
    a.connect(7001);
    b.request().0.accept(None, b"").unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Established, ConnectionKind::Established));
    rsp.free().unwrap();
    // No service point listens any more.
    let late = a.another();
    late.connect(7001);
    assert_eq!(late.conn(), ConnectionKind::NonPeerRejected);
}

#[test]
fn freeing_a_reserved_service_point_frees_its_endpoint_and_failing_leaves_it() {
    let side = Node::new();
    let psp = side.ia.psp_create(7003, &side.conn, PspFlags::Consumer).unwrap();
    let taken = side.ia.rsp_create(7003, Some(&side.ep), &side.conn).unwrap_err();
    assert_eq!((taken.kind(), side.ep.state()), (ReturnType::ConnQualInUse, EpState::Unconnected));
    psp.free().unwrap();
    let rsp = side.ia.rsp_create(7003, Some(&side.ep), &side.conn).unwrap();
    rsp.free().unwrap();
    assert_eq!(
        (side.ep.state(), rsp.free().unwrap_err().kind()),
        (EpState::Unconnected, ReturnType::InvalidHandle)
    );
    side.conn_only_free();
}

#[test]
fn a_full_backlog_leaves_a_reserved_service_point_waiting() {
    let (a, b) = (Node::new(), Node::new());
    let crs = b.ia.evd_create(1, EvdFlags::CR | EvdFlags::SOFTWARE).unwrap();
    let rsp = b.ia.rsp_create(7004, Some(&b.ep), &crs).unwrap();
    crs.post_se(1).unwrap();
    a.connect(7004);
    assert_eq!((a.conn(), b.ep.state()), (ConnectionKind::NonPeerRejected, EpState::Reserved));
    crs.dequeue().unwrap();
    a.ep.reset().unwrap();
    a.connect(7004);
    assert!(matches!(crs.wait(LONG, 1).unwrap().0.data, EventData::ConnectionRequest { .. }));
    assert_eq!(b.ep.state(), EpState::PassiveConnectionPending);
    rsp.free().unwrap();
}

#[test]
fn an_endpoint_made_for_a_request_lives_and_dies_with_it() {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create(7005, &b.conn, PspFlags::Provider).unwrap();
    for _ in 0..2 {
        a.connect(7005);
        let (cr, point) = b.request();
        assert_eq!(point, Some(psp.id()));
        let ep = cr.query().unwrap().local_ep.unwrap();
        let param = ep.query().unwrap();
        assert_eq!(param.state, EpState::TentativeConnectionPending);
        assert!(param.pz.is_none() && param.recv_evd.is_none() && param.connect_evd.is_none());
        assert_eq!(cr.accept(None, b"").unwrap_err().subtype(), Subtype::EpNotReady);
        cr.reject(b"").unwrap();
        assert_eq!(ep.status().unwrap_err().kind(), ReturnType::InvalidHandle);
        assert_eq!(a.conn(), ConnectionKind::PeerRejected);
        a.ep.reset().unwrap();
    }
    // The same for a reserved one without an endpoint.
    let rsp = b.ia.rsp_create(7006, None, &b.conn).unwrap();
    a.connect(7006);
    let (cr, _) = b.request();
    assert_eq!(cr.query().unwrap().local_ep.unwrap().state(), EpState::TentativeConnectionPending);
    rsp.free().unwrap();
}

#[test]
fn a_request_handed_off_arrives_anew() {
    let (a, b) = (Node::new(), Node::new());
    let first = b.ia.psp_create(7007, &b.conn, PspFlags::Provider).unwrap();
    let second = b.ia.psp_create(7008, &b.conn, PspFlags::Consumer).unwrap();
    a.connect(7007);
    let (cr, point) = b.request();
    assert_eq!(point, Some(first.id()));
    let made = cr.query().unwrap().local_ep.unwrap();
    assert_eq!(cr.handoff(9999).unwrap_err().kind(), ReturnType::InvalidParameter);
    cr.handoff(7008).unwrap();
    assert_eq!(cr.query().unwrap_err().kind(), ReturnType::InvalidHandle);
    assert_eq!(made.status().unwrap_err().kind(), ReturnType::InvalidHandle);
    let (cr, point) = b.request();
    let param = cr.query().unwrap();
    assert_eq!((point, param.conn_qual, &*param.private_data), (Some(second.id()), 7008, &b"hello"[..]));
    cr.accept(Some(&b.ep), b"").unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Established, ConnectionKind::Established));
}

#[test]
fn a_request_handed_off_to_a_full_dispatcher_stays() {
    let (a, b) = (Node::new(), Node::new());
    let full = b.ia.evd_create(1, EvdFlags::CR | EvdFlags::SOFTWARE).unwrap();
    full.post_se(1).unwrap();
    let _first = b.ia.psp_create(7009, &b.conn, PspFlags::Consumer).unwrap();
    let _second = b.ia.psp_create(7010, &full, PspFlags::Consumer).unwrap();
    a.connect(7009);
    let (cr, _) = b.request();
    assert_eq!(cr.handoff(7010).unwrap_err().kind(), ReturnType::InsufficientResources);
    cr.accept(Some(&b.ep), b"").unwrap();
    assert_eq!(a.conn(), ConnectionKind::Established);
}

#[test]
fn a_common_service_point_is_a_port() {
    let (a, b) = (Node::new(), Node::new());
    let ip = b.ia.query().unwrap().address;
    let comm = Comm::of(ip);
    let bad =
        |comm, address: &str| b.ia.csp_create(comm, address.parse().unwrap(), &b.conn).unwrap_err().kind();
    assert_eq!(bad(Comm { domain: 1, ..comm }, "127.0.0.1:7011"), ReturnType::CommNotSupported);
    assert_eq!(bad(comm, "224.0.0.1:7011"), ReturnType::InvalidAddress);
    assert_eq!(bad(comm, "[::1]:7011"), ReturnType::InvalidAddress);
    assert_eq!(bad(comm, "192.0.2.1:7011"), ReturnType::InvalidAddress);
    let csp = b.ia.csp_create(comm, (ip, 7011).into(), &b.conn).unwrap();
    assert_eq!(bad(comm, "0.0.0.0:7011"), ReturnType::PortInUse);
    let clash = b.ia.psp_create(7011, &b.conn, PspFlags::Consumer).unwrap_err();
    assert_eq!(clash.kind(), ReturnType::ConnQualInUse);
    assert_eq!(csp.query().unwrap().address, (ip, 7011).into());
    let free = b.ia.csp_create(comm, "0.0.0.0:0".parse().unwrap(), &b.conn).unwrap();
    assert!(free.query().unwrap().address.port() >= 1024);

    let nowhere = a.ep.common_connect((ip, 0).into(), LONG, b"hello").unwrap_err();
    assert_eq!(nowhere.kind(), ReturnType::InvalidAddress);
    a.ep.common_connect((ip, 7011).into(), LONG, b"hello").unwrap();
    let (cr, point) = b.request();
    assert_eq!(point, Some(csp.id()));
    csp.free().unwrap();
    assert_eq!(csp.query().unwrap_err().kind(), ReturnType::InvalidHandle);
    cr.accept(Some(&b.ep), b"").unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Established, ConnectionKind::Established));
}

#[test]
fn a_connect_repeated_asks_the_same_peer() {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create(7012, &b.conn, PspFlags::Consumer).unwrap();
    let dup = a.another();
    let early = dup.ep.dup_connect(&a.ep, LONG, b"", Qos::BEST_EFFORT).unwrap_err();
    assert_eq!((early.kind(), early.subtype()), (ReturnType::InvalidState, Subtype::EpUnconnected));
    a.connect(7012);
    let (first, _) = b.request();
    let asked = first.query().unwrap();
    first.accept(Some(&b.ep), b"").unwrap();
    assert_eq!((a.conn(), b.conn()), (ConnectionKind::Established, ConnectionKind::Established));

    assert_eq!(
        dup.ep.dup_connect(&a.ep, dat_types::Timeout::ZERO, b"", Qos::BEST_EFFORT).unwrap_err().kind(),
        ReturnType::InvalidParameter
    );
    assert_eq!(
        a.ep.dup_connect(&a.ep, LONG, b"", Qos::BEST_EFFORT).unwrap_err().kind(),
        ReturnType::InvalidState
    );
    let passive = b.another();
    let error = passive.ep.dup_connect(&b.ep, LONG, b"", Qos::BEST_EFFORT).unwrap_err();
    assert_eq!((error.kind(), error.subtype()), (ReturnType::InvalidState, Subtype::EpConnected));
    assert_eq!(
        dup.ep.dup_connect(&b.ep, LONG, b"", Qos::BEST_EFFORT).unwrap_err().kind(),
        ReturnType::InvalidHandle,
        "of another IA"
    );

    dup.ep.dup_connect(&a.ep, LONG, b"second", Qos::BEST_EFFORT).unwrap();
    assert_eq!(dup.ep.state(), EpState::ActiveConnectionPending);
    let (second, point) = b.request();
    let again = second.query().unwrap();
    assert_eq!((point, again.conn_qual, &*again.private_data), (Some(psp.id()), 7012, &b"second"[..]));
    assert_eq!(again.remote_address.map(|a| a.ip()), asked.remote_address.map(|a| a.ip()));
    assert_ne!(again.remote_port_qual, asked.remote_port_qual);
    second.accept(Some(&passive.ep), b"").unwrap();
    assert_eq!((dup.conn(), passive.conn()), (ConnectionKind::Established, ConnectionKind::Established));
    assert_eq!(a.ep.state(), EpState::Connected);
    assert!(a.conn.poll().unwrap().is_none());
}

#[test]
fn a_context_is_kept_with_every_kind_of_object() {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create(7013, &b.conn, PspFlags::Consumer).unwrap();
    let csp = b.ia.csp_create(Comm::default(), "0.0.0.0:7014".parse().unwrap(), &b.conn).unwrap();
    let rsp = b.ia.rsp_create(7015, None, &b.conn).unwrap();
    let cno = b.ia.cno_create(None).unwrap();
    a.connect(7013);
    let (cr, _) = b.request();
    macro_rules! check {
        ($($object:expr => $kind:ident),* $(,)?) => {$(
            assert_eq!($object.handle_type().unwrap(), HandleType::$kind);
            assert_eq!($object.consumer_context().unwrap(), 0);
            $object.set_consumer_context(u64::MAX).unwrap();
            $object.set_consumer_context(42).unwrap();
            assert_eq!($object.consumer_context().unwrap(), 42);
        )*};
    }
    check! {
        cr => Cr, b.ep => Ep, b.dto => Evd, b.ia => Ia, b.lmr => Lmr, psp => Psp, b.pz => Pz, rsp => Rsp, cno => Cno,
        csp => Csp, b.ia.async_evd() => Evd,
    }
    psp.free().unwrap();
    assert_eq!(psp.consumer_context().unwrap_err().kind(), ReturnType::InvalidHandle);
    assert_eq!(psp.handle_type().unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn a_closing_adapter_refuses_requests_nobody_decided() {
    let (a, b) = (Node::new(), Node::new());
    let _psp = b.ia.psp_create(7016, &b.conn, PspFlags::Consumer).unwrap();
    a.ep.connect(&ConnectOptions::new((b.ia.query().unwrap().address, 0).into(), 7016)).unwrap();
    let _cr = b.request();
    b.ia.close(dat_types::CloseFlags::Abrupt).unwrap();
    assert_eq!(a.conn(), ConnectionKind::NonPeerRejected);
}
