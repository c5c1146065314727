//! `dat_ep_modify`: the parameters that may change in each state. Two of the four states that allow most are tested:
//! UNCONNECTED and TENTATIVE_CONNECTION_PENDING, which need no reserved service point.

use crate::clauses::prelude::*;

clauses! {
    141 "UNCONNECTED: the protection zone changes" => pz_unconnected;
    142 "TENTATIVE_CONNECTION_PENDING: the protection zone changes" => pz_tentative;
    144 "The protection zone does not change while connecting, connected or disconnected" => pz_elsewhere;
    146 "The receive dispatcher changes before a connection" => recv_evd;
    147 "The request dispatcher changes before a connection" => request_evd;
    148 "The connect dispatcher changes before a connection; later events arrive on the new one" => connect_evd;
    149 "Dispatchers do not change while connecting, connected or disconnected" => evds_elsewhere;
    150 "The service type may be set before a connection, not later" => service_type;
    151 "max_message_size changes before a connection, not later" => message_size;
    152 "max_rdma_size changes before a connection, not later" => rdma_size;
    153 "The quality of service changes before a connection, not later" => qos;
    157 "Request completion flags change before a connection" => request_flags;
    160 "max_recv_dtos changes before a connection, and that many receives fit; not later" => recv_dtos;
    161 "max_request_dtos changes before a connection, not later" => request_dtos;
    162 "max_recv_iov changes before a connection, not later" => recv_iov;
    163 "max_request_iov changes before a connection, not later" => request_iov;
    164 "max_rdma_read_in changes before a connection, not later" => reads_in;
    165 "max_rdma_read_out changes before a connection, not later" => reads_out;
    175 "A provider-made endpoint that is configured and accepted: ESTABLISHED" => tentative_to_established;
}

/// A tentative endpoint, made complete with A's zone and dispatchers.
fn equipped(t: &TestContext) -> Result<(PendingRequest, Ep), Stop> {
    let (pending, ep) = t.tentative()?;
    let a = &pending.a;
    let new = EpModify {
        pz: Some(a.pz.clone()),
        recv_evd: Some(a.recv.clone()),
        request_evd: Some(a.request.clone()),
        connect_evd: Some(a.conn.clone()),
        attr: AttrSpec::default().over(&a.ia)?,
        ..EpModify::default()
    };
    let mask = EpMask::PZ_HANDLE
        | EpMask::RECV_EVD_HANDLE
        | EpMask::REQUEST_EVD_HANDLE
        | EpMask::CONNECT_EVD_HANDLE
        | EpMask::MAX_RECV_DTOS
        | EpMask::MAX_REQUEST_DTOS
        | EpMask::MAX_RECV_IOV
        | EpMask::MAX_REQUEST_IOV;
    ep.modify(mask, &new)?;
    Ok((pending, ep))
}

/// Runs `check` on A's endpoint in each state that forbids most changes.
fn busy_states(t: &TestContext, check: impl Fn(&LocalEnd, EpState) -> Outcome) -> Outcome {
    let (a, b) = t.ends()?;
    let there = |state| {
        a.is_in(state)?;
        check(&a, state)?;
        a.is_in(state)
    };
    a.connect(&b)?;
    there(EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    there(EpState::Connected)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    there(EpState::Disconnected)?;
    // Not applicable where a provider completes sends by itself: then this state does not last.
    let (a, _b) = t.draining(8)?;
    check(&a, EpState::DisconnectPending)
}

fn changed(ep: &Ep, change: fn(&mut EpAttr)) -> Result<EpModify, Stop> {
    let mut attr = ep.query()?.attr;
    change(&mut attr);
    Ok(EpModify { attr, ..EpModify::default() })
}

/// The attribute changes when UNCONNECTED and when TENTATIVE, and in no busy state.
fn attribute(t: &TestContext, mask: EpMask, change: fn(&mut EpAttr)) -> Outcome {
    let a = t.local()?;
    let (pending, tentative) = equipped(t)?;
    for ep in [&a.ep, &tentative] {
        let new = changed(ep, change)?;
        ep.modify(mask, &new)?;
        ensure_eq(&format!("attributes when {}", ep.state()), ep.query()?.attr, new.attr)?;
    }
    drop(pending);
    busy_states(t, |a, state| {
        let before = a.ep.query()?.attr;
        let result = a.ep.modify(mask, &changed(&a.ep, change)?);
        t.refused(&format!("{mask:?} when {state}"), result, ReturnType::InvalidState)?;
        ensure_eq("attributes", a.ep.query()?.attr, before)
    })
}

fn pz_unconnected(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let pz = a.ia.pz_create()?;
    a.ep.modify(EpMask::PZ_HANDLE, &EpModify { pz: Some(pz.clone()), ..EpModify::default() })?;
    ensure_eq("zone", a.ep.query()?.pz.map(|pz| pz.id()), Some(pz.id()))
}

fn pz_tentative(t: &TestContext) -> Outcome {
    let (pending, ep) = t.tentative()?;
    let new = EpModify { pz: Some(pending.a.pz.clone()), ..EpModify::default() };
    ep.modify(EpMask::PZ_HANDLE, &new)?;
    ensure_eq("zone", ep.query()?.pz.map(|pz| pz.id()), Some(pending.a.pz.id()))
}

fn pz_elsewhere(t: &TestContext) -> Outcome {
    busy_states(t, |a, state| {
        let new = EpModify { pz: Some(a.ia.pz_create()?), ..EpModify::default() };
        let result = a.ep.modify(EpMask::PZ_HANDLE, &new);
        t.refused(&format!("zone when {state}"), result, ReturnType::InvalidState)
    })
}

/// All three dispatchers replaced by one.
fn everywhere(evd: &Evd) -> EpModify {
    EpModify {
        recv_evd: Some(evd.clone()),
        request_evd: Some(evd.clone()),
        connect_evd: Some(evd.clone()),
        ..EpModify::default()
    }
}

fn evd_changes(
    t: &TestContext,
    mask: EpMask,
    shown: fn(&Ep) -> Result<Option<Evd>, dat_types::Error>,
) -> Outcome {
    let flags = EvdFlags::DTO | EvdFlags::CONNECTION;
    let a = t.local()?;
    let evd = a.ia.evd_create(32, flags)?;
    a.ep.modify(mask, &everywhere(&evd))?;
    ensure_eq("dispatcher when UNCONNECTED", shown(&a.ep)?.map(|evd| evd.id()), Some(evd.id()))?;
    let (pending, ep) = equipped(t)?;
    let evd = pending.a.ia.evd_create(32, flags)?;
    ep.modify(mask, &everywhere(&evd))?;
    ensure_eq("dispatcher when TENTATIVE", shown(&ep)?.map(|evd| evd.id()), Some(evd.id()))
}

fn recv_evd(t: &TestContext) -> Outcome {
    evd_changes(t, EpMask::RECV_EVD_HANDLE, |ep| Ok(ep.query()?.recv_evd))?;
    // It takes effect: completions arrive there.
    let (a, b) = t.ends()?;
    let evd = a.ia.evd_create(32, EvdFlags::DTO)?;
    a.ep.modify(EpMask::RECV_EVD_HANDLE, &everywhere(&evd))?;
    a.post_recvs(1)?;
    join(&a, &b)?;
    b.send(0, 8, 1)?;
    a.completes(&evd, 0, DtoStatus::Success)?;
    a.expect_no_event(&a.recv, "the dispatcher that was replaced")
}

fn request_evd(t: &TestContext) -> Outcome {
    evd_changes(t, EpMask::REQUEST_EVD_HANDLE, |ep| Ok(ep.query()?.request_evd))?;
    let (a, b) = t.ends()?;
    let evd = a.ia.evd_create(32, EvdFlags::DTO)?;
    a.ep.modify(EpMask::REQUEST_EVD_HANDLE, &everywhere(&evd))?;
    join(&a, &b)?;
    b.post_recv(0, 64, 1)?;
    a.send(0, 8, 5)?;
    a.completes(&evd, 5, DtoStatus::Success)?;
    a.expect_no_event(&a.request, "the dispatcher that was replaced")
}

fn connect_evd(t: &TestContext) -> Outcome {
    evd_changes(t, EpMask::CONNECT_EVD_HANDLE, |ep| Ok(ep.query()?.connect_evd))?;
    let (a, b) = t.ends()?;
    let evd = a.ia.evd_create(32, EvdFlags::CONNECTION)?;
    a.ep.modify(EpMask::CONNECT_EVD_HANDLE, &everywhere(&evd))?;
    a.connect(&b)?;
    b.accept(&b.request()?, b"")?;
    a.event(&evd, "ESTABLISHED on the new dispatcher")?;
    a.is_in(EpState::Connected)?;
    a.expect_no_event(&a.conn, "the dispatcher that was replaced")
}

fn evds_elsewhere(t: &TestContext) -> Outcome {
    busy_states(t, |a, state| {
        let evd = a.ia.evd_create(32, EvdFlags::DTO | EvdFlags::CONNECTION)?;
        for mask in [EpMask::RECV_EVD_HANDLE, EpMask::REQUEST_EVD_HANDLE, EpMask::CONNECT_EVD_HANDLE] {
            let result = a.ep.modify(mask, &everywhere(&evd));
            t.refused(&format!("{mask:?} when {state}"), result, ReturnType::InvalidState)?;
        }
        Ok(())
    })
}

fn service_type(t: &TestContext) -> Outcome {
    attribute(t, EpMask::SERVICE_TYPE, |attr| attr.service_type = ServiceType::RC)
}

fn message_size(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_MESSAGE_SIZE, |attr| attr.max_message_size = 2222)
}

fn rdma_size(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_RDMA_SIZE, |attr| attr.max_rdma_size = 3333)
}

fn qos(t: &TestContext) -> Outcome {
    attribute(t, EpMask::QOS, |attr| attr.qos = Qos::BEST_EFFORT)
}

fn request_flags(t: &TestContext) -> Outcome {
    for flags in [CompletionFlags::UNSIGNALLED, CompletionFlags::EVD_THRESHOLD] {
        let a = t.local()?;
        // A's own endpoint must not disagree with the tentative one, so that has dispatchers to itself.
        let (pending, tentative) = equipped(t)?;
        pending.a.ep.free()?;
        for ep in [&a.ep, &tentative] {
            let attr = EpAttr { request_completion_flags: flags, ..ep.query()?.attr };
            ep.modify(EpMask::REQUEST_COMPLETION_FLAGS, &EpModify { attr, ..EpModify::default() })?;
            ensure_eq("request attribute", ep.query()?.attr.request_completion_flags, flags)?;
        }
    }
    Ok(())
}

fn recv_dtos(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_RECV_DTOS, |attr| attr.max_recv_dtos = 40)?;
    let a = t.local()?;
    let new = changed(&a.ep, |attr| attr.max_recv_dtos = 40)?;
    a.ep.modify(EpMask::MAX_RECV_DTOS, &new)?;
    a.post_recvs(40)?;
    let result = a.ep.post_recv(&[a.lmr.triplet(0, 8)], 40, PLAIN);
    t.refused("receive 41", result, ReturnType::InsufficientResources)
}

fn request_dtos(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_REQUEST_DTOS, |attr| attr.max_request_dtos = 33)
}

fn recv_iov(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_RECV_IOV, |attr| attr.max_recv_iov = 2)
}

fn request_iov(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_REQUEST_IOV, |attr| attr.max_request_iov = 2)
}

fn reads_in(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_RDMA_READ_IN, |attr| attr.max_rdma_read_in = 2)
}

fn reads_out(t: &TestContext) -> Outcome {
    attribute(t, EpMask::MAX_RDMA_READ_OUT, |attr| attr.max_rdma_read_out = 2)
}

fn tentative_to_established(t: &TestContext) -> Outcome {
    let (pending, ep) = equipped(t)?;
    let PendingRequest { a, b, cr, .. } = &pending;
    ep.post_recv(&[a.lmr.triplet(0, 64)], 5, PLAIN)?;
    cr.accept(None, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    ensure_eq("state", ep.state(), EpState::Connected)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 5, DtoStatus::Success).map(|_| ())
}
