//! `dat_ep_modify`: every parameter in every state, and all or nothing.

mod support;

use dat_engine::{Ep, EpMask, EpModify};
use dat_types::{
    AsyncReason, Comm, CompletionFlags, ConnectionKind, EpAttr, EpState, EventData, PspFlags, Qos,
    ReturnType, ServiceType,
};
use support::{LONG, Node};

/// One endpoint in each state, with all that keeps it there.
struct States {
    eps: Vec<(EpState, Ep)>,
    b: Node,
    _others: Vec<Node>,
}

fn states() -> States {
    let (a, b) = (Node::new(), Node::new());
    let psp = b.ia.psp_create(7301, &b.conn, PspFlags::Consumer).unwrap();
    let mut eps = vec![(EpState::Unconnected, b.another())];
    let reserved = b.another();
    b.ia.rsp_create(7302, Some(&reserved.ep), &b.conn).unwrap();
    eps.push((EpState::Reserved, reserved));
    let passive = b.another();
    b.ia.rsp_create(7303, Some(&passive.ep), &passive.conn).unwrap();
    let asks = a.another();
    asks.connect(7303);
    passive.request();
    eps.push((EpState::PassiveConnectionPending, passive));
    b.ia.psp_create(7304, &b.conn, PspFlags::Provider).unwrap();
    let asks_too = a.another();
    asks_too.connect(7304);
    let tentative = b.request().0.query().unwrap().local_ep.unwrap();
    let active = b.another();
    active.connect(7301);
    b.request();
    eps.push((EpState::ActiveConnectionPending, active));
    let up = b.another();
    a.connect(7301);
    b.request().0.accept(Some(&up.ep), b"").unwrap();
    assert_eq!((a.conn(), up.conn()), (ConnectionKind::Established, ConnectionKind::Established));
    eps.push((EpState::Connected, up));
    let gone = b.another();
    gone.connect(9999);
    assert_eq!(gone.conn(), ConnectionKind::NonPeerRejected);
    eps.push((EpState::Disconnected, gone));
    psp.free().unwrap();
    let mut list: Vec<_> = eps.iter().map(|(state, side)| (*state, side.ep.clone())).collect();
    list.push((EpState::TentativeConnectionPending, tentative));
    for (state, ep) in &list {
        assert_eq!(ep.state(), *state);
    }
    let mut others: Vec<Node> = eps.into_iter().map(|(_, side)| side).collect();
    others.extend([a, asks, asks_too]);
    States { eps: list, b, _others: others }
}

const NEVER: [EpMask; 7] = [
    EpMask::IA_HANDLE,
    EpMask::EP_STATE,
    EpMask::LOCAL_IA_ADDRESS,
    EpMask::LOCAL_PORT_QUAL,
    EpMask::REMOTE_IA_ADDRESS,
    EpMask::REMOTE_PORT_QUAL,
    EpMask::SRQ_HANDLE,
];
const ATTRIBUTES: [EpMask; 14] = [
    EpMask::CONNECT_EVD_HANDLE,
    EpMask::SERVICE_TYPE,
    EpMask::MAX_MESSAGE_SIZE,
    EpMask::MAX_RDMA_SIZE,
    EpMask::QOS,
    EpMask::RECV_COMPLETION_FLAGS,
    EpMask::REQUEST_COMPLETION_FLAGS,
    EpMask::MAX_RECV_IOV,
    EpMask::MAX_RDMA_READ_IN,
    EpMask::MAX_RDMA_READ_OUT,
    EpMask::MAX_RDMA_READ_IOV,
    EpMask::MAX_RDMA_WRITE_IOV,
    EpMask::RECV_EVD_HANDLE,
    EpMask::REQUEST_EVD_HANDLE,
];

#[test]
fn every_parameter_in_every_state() {
    let all = states();
    for (state, ep) in &all.eps {
        let now = ep.query().unwrap();
        let new = EpModify {
            pz: Some(all.b.pz.clone()),
            recv_evd: now.recv_evd.clone(),
            request_evd: now.request_evd.clone(),
            connect_evd: now.connect_evd.clone(),
            comm: Comm::default(),
            attr: now.attr.clone(),
        };
        let outcome = |mask: EpMask| ep.modify(mask, &new).map_err(|error| error.kind());
        assert_eq!(outcome(EpMask::empty()), Ok(()), "{state}");
        let undefined = EpMask::from_bits_retain(1 << 40);
        assert_eq!(outcome(undefined), Err(ReturnType::InvalidParameter), "{state}");
        for mask in NEVER {
            assert_eq!(outcome(mask), Err(ReturnType::InvalidParameter), "{mask:?} in {state}");
        }
        let early = [
            EpState::Unconnected,
            EpState::Reserved,
            EpState::PassiveConnectionPending,
            EpState::TentativeConnectionPending,
        ];
        let expect = |allowed: bool| if allowed { Ok(()) } else { Err(ReturnType::InvalidState) };
        for mask in ATTRIBUTES {
            assert_eq!(outcome(mask), expect(early.contains(state)), "{mask:?} in {state}");
        }
        let unconnected = *state == EpState::Unconnected;
        let tentative = *state == EpState::TentativeConnectionPending;
        assert_eq!(outcome(EpMask::PZ_HANDLE), expect(unconnected || tentative), "zone in {state}");
        for mask in [EpMask::TRANSPORT_SPECIFIC, EpMask::PROVIDER_SPECIFIC, EpMask::COMM] {
            assert_eq!(outcome(mask), expect(unconnected), "{mask:?} in {state}");
        }
        assert_eq!(outcome(EpMask::SRQ_SOFT_HW), Ok(()), "{state}");
        // An allowed and a refused attribute in one call: neither changes.
        assert_eq!(outcome(EpMask::SRQ_SOFT_HW | EpMask::EP_STATE), Err(ReturnType::InvalidParameter));
        assert_eq!(ep.state(), *state);
    }
}

#[test]
fn values_are_all_taken_or_none() {
    let side = Node::new();
    let before = side.ep.query().unwrap();
    let limits = side.ia.query().unwrap();
    let good = EpAttr { max_recv_dtos: 33, max_request_dtos: 34, ..before.attr.clone() };
    let bad = [
        (EpMask::SERVICE_TYPE, EpAttr { service_type: ServiceType::UD, ..good.clone() }),
        (EpMask::QOS, EpAttr { qos: Qos::PREMIUM, ..good.clone() }),
        (EpMask::MAX_RECV_IOV, EpAttr { max_recv_iov: limits.max_iov_segments_per_dto + 1, ..good.clone() }),
        (EpMask::MAX_MESSAGE_SIZE, EpAttr { max_message_size: limits.max_message_size + 1, ..good.clone() }),
        (
            EpMask::RECV_COMPLETION_FLAGS,
            EpAttr { recv_completion_flags: CompletionFlags::SUPPRESS, ..good.clone() },
        ),
        // The two directions share a dispatcher (K-7).
        (
            EpMask::REQUEST_COMPLETION_FLAGS,
            EpAttr { request_completion_flags: CompletionFlags::UNSIGNALLED, ..good.clone() },
        ),
        (
            EpMask::TRANSPORT_SPECIFIC,
            EpAttr { transport_specific: vec![("single_threaded".into(), "yes".into())], ..good.clone() },
        ),
        (
            EpMask::PROVIDER_SPECIFIC,
            EpAttr { provider_specific: vec![("x".into(), "y".into())], ..good.clone() },
        ),
    ];
    for (mask, attr) in bad {
        let mask = mask | EpMask::MAX_RECV_DTOS | EpMask::MAX_REQUEST_DTOS;
        let error = side.ep.modify(mask, &EpModify { attr, ..EpModify::default() }).unwrap_err();
        assert_eq!(error.kind(), ReturnType::InvalidParameter, "{mask:?}");
        assert_eq!(side.ep.query().unwrap().attr, before.attr);
    }
    // A bad handle inside is a bad parameter.
    let other = Node::new();
    let freed = side.ia.pz_create().unwrap();
    freed.free().unwrap();
    for pz in [other.pz.clone(), freed] {
        let new = EpModify { pz: Some(pz), ..EpModify::default() };
        assert_eq!(side.ep.modify(EpMask::PZ_HANDLE, &new).unwrap_err().kind(), ReturnType::InvalidParameter);
    }
    let new = EpModify { recv_evd: Some(side.conn.clone()), ..EpModify::default() };
    assert_eq!(
        side.ep.modify(EpMask::RECV_EVD_HANDLE, &new).unwrap_err().kind(),
        ReturnType::InvalidParameter
    );
    let new = EpModify { attr: good, ..EpModify::default() };
    side.ep.modify(EpMask::MAX_RECV_DTOS | EpMask::MAX_REQUEST_DTOS, &new).unwrap();
    let attr = side.ep.query().unwrap().attr;
    assert_eq!((attr.max_recv_dtos, attr.max_request_dtos), (33, 34));
    side.ep.free().unwrap();
    assert_eq!(side.ep.modify(EpMask::empty(), &new).unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn references_move_with_the_parameters() {
    let side = Node::new();
    let pz = side.ia.pz_create().unwrap();
    let dto = side.ia.evd_create(64, dat_types::EvdFlags::DTO).unwrap();
    let new = EpModify {
        pz: Some(pz.clone()),
        recv_evd: Some(dto.clone()),
        request_evd: Some(dto.clone()),
        ..EpModify::default()
    };
    side.lmr.free().unwrap();
    let mask = EpMask::PZ_HANDLE | EpMask::RECV_EVD_HANDLE | EpMask::REQUEST_EVD_HANDLE;
    side.ep.modify(mask, &new).unwrap();
    side.pz.free().unwrap();
    side.dto.free().unwrap();
    for in_use in [pz.free(), dto.free()] {
        assert_eq!(in_use.unwrap_err().kind(), ReturnType::InvalidState);
    }
    // Without a dispatcher only what posts nothing is consistent.
    let none = EpModify { attr: EpAttr { max_recv_dtos: 0, ..EpAttr::default() }, ..EpModify::default() };
    let alone = side.ep.modify(EpMask::RECV_EVD_HANDLE, &none).unwrap_err();
    assert_eq!(alone.kind(), ReturnType::InvalidParameter);
    side.ep.modify(EpMask::RECV_EVD_HANDLE | EpMask::MAX_RECV_DTOS, &none).unwrap();
    side.ep.free().unwrap();
    pz.free().unwrap();
    dto.free().unwrap();
}

#[test]
fn an_endpoint_made_for_a_request_needs_its_handles_only() {
    let (a, b) = (Node::new(), Node::new());
    b.ia.psp_create(7310, &b.conn, PspFlags::Provider).unwrap();
    a.connect(7310);
    let (cr, _) = b.request();
    let ep = cr.query().unwrap().local_ep.unwrap();
    let new = EpModify {
        pz: Some(b.pz.clone()),
        recv_evd: Some(b.dto.clone()),
        request_evd: Some(b.dto.clone()),
        connect_evd: Some(b.conn.clone()),
        ..EpModify::default()
    };
    let mask =
        EpMask::PZ_HANDLE | EpMask::RECV_EVD_HANDLE | EpMask::REQUEST_EVD_HANDLE | EpMask::CONNECT_EVD_HANDLE;
    ep.modify(mask, &new).unwrap();
    let attr = ep.query().unwrap().attr;
    assert!(attr.max_recv_dtos > 0 && attr.max_request_dtos > 0 && attr.max_request_iov > 0);
    ep.post_recv(&[b.lmr.triplet(0, 8)], 1, CompletionFlags::empty()).unwrap();
    cr.accept(None, b"").unwrap();
    assert_eq!(a.conn(), ConnectionKind::Established);
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 2, CompletionFlags::empty()).unwrap();
    assert_eq!((b.dto().cookie, ep.state()), (1, EpState::Connected));
}

#[test]
fn a_communicator_is_judged_when_it_is_used() {
    let side = Node::new();
    let strange = Comm { domain: 27, ..Comm::default() };
    side.ep.modify(EpMask::COMM, &EpModify { comm: strange, ..EpModify::default() }).unwrap();
    assert_eq!(side.ep.query().unwrap().comm, strange);
    let error = side.ep.common_connect("127.0.0.1:7311".parse().unwrap(), LONG, b"").unwrap_err();
    assert_eq!((error.kind(), side.ep.state()), (ReturnType::CommNotSupported, EpState::Unconnected));
}

#[test]
fn the_soft_high_watermark_is_an_attribute_too() {
    let side = Node::new();
    let new = EpModify { attr: EpAttr { srq_soft_hw: 1, ..EpAttr::default() }, ..EpModify::default() };
    side.ep.modify(EpMask::SRQ_SOFT_HW, &new).unwrap();
    for cookie in 0..3 {
        side.ep.post_recv(&[side.lmr.triplet(0, 8)], cookie, CompletionFlags::empty()).unwrap();
    }
    let evd = side.ia.async_evd();
    match evd.wait(LONG, 1).unwrap().0.data {
        EventData::Async { object, reason } => {
            assert_eq!((object, reason), (side.ep.id(), AsyncReason::EpSoftHighWatermark))
        }
        other => panic!("{other:?}"),
    }
    assert!(evd.poll().unwrap().is_none(), "once");
}

/// An error of a named attribute is explained in words.
#[test]
fn named_attributes_that_are_refused_are_named() {
    let side = Node::new();
    let set = |pairs: &[(&str, &str)], provider: bool| {
        let list: Vec<_> = pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let mut attr = side.ep.query().unwrap().attr;
        let mask = match provider {
            true => EpMask::PROVIDER_SPECIFIC,
            false => EpMask::TRANSPORT_SPECIFIC,
        };
        *(if provider { &mut attr.provider_specific } else { &mut attr.transport_specific }) = list;
        let result = side.ep.modify(mask, &EpModify { attr, ..EpModify::default() });
        result.map_err(|error| (error.kind(), error.message().unwrap_or_default().to_owned()))
    };
    let cases = [
        (vec![("colour", "red")], false, r#"transport attribute "colour" = "red" is not known"#),
        (vec![("single_threaded", "1")], false, r#"it is "true" or "false""#),
        (vec![("single_threaded", "true"), ("single_threaded", "false")], false, "twice"),
        (vec![("single_threaded", "true"), ("colour", "red")], false, "\"colour\""),
        (vec![("single_threaded", "true")], true, r#"provider attribute "single_threaded""#),
    ];
    for (pairs, provider, words) in cases {
        let (kind, message) = set(&pairs, provider).unwrap_err();
        assert_eq!(kind, ReturnType::InvalidParameter, "{pairs:?}");
        assert!(message.contains(words), "{pairs:?}: {message}");
    }
    set(&[("single_threaded", "true")], false).unwrap();
    assert!(side.ep.query().unwrap().attr.is_single_threaded());
}
