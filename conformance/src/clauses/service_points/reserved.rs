//! Reserved service points, and handoff of requests.

use crate::clauses::prelude::*;

clauses! {
    21 "An endpoint can connect, accept, and be reserved" => all_uses;
    114 "RESERVED: disconnect is refused" => disconnect_reserved;
    115 "PASSIVE_CONNECTION_PENDING: disconnect is refused" => disconnect_passive;
    143 "RESERVED or PASSIVE_CONNECTION_PENDING: the protection zone does not change" => zone;
    188 "A reserved service point is freed, then its endpoint: both succeed" => free_both;
    189 "A request is rejected, then its endpoint freed: both succeed" => reject_and_free;
    211 "An UNCONNECTED endpoint becomes RESERVED" => reserve;
    212 "Reserving an endpoint in another state: INVALID_STATE" => wrong_state;
    213 "Reserving on a qualifier in use: CONN_QUAL_IN_USE, the endpoint stays UNCONNECTED" => taken;
    214 "The first request: PASSIVE_CONNECTION_PENDING; the event names no service point, the CR names the endpoint" => first;
    215 "A second request: NON_PEER_REJECTED" => second;
    216 "A rejected request leaves the endpoint UNCONNECTED and usable; the peer gets PEER_REJECTED" => rejected;
    217 "Freed before a request arrived: the endpoint is UNCONNECTED" => freed;
    218 "Freed after its request arrived: success once; the request can be accepted" => freed_late;
    231 "Handoff: a new request with the same private data at the other service point; the old one ends" => hand_over;
    232 "Handoff to a qualifier without a listener: INVALID_PARAMETER, the request stays" => to_nobody;
}

/// A request from B for A's reserved endpoint.
fn passive(t: &TestContext) -> Result<(PendingRequest, dat_engine::Rsp), Stop> {
    let (a, b) = t.ends()?;
    // Kept, so that the service point of a request is always there.
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let rsp = a.reserve()?;
    b.connect_to(&a.ia, rsp.conn_qual(), b"reserved", t.long().as_millis() as u64)?;
    let cr = a.cr()?;
    a.is_in(EpState::PassiveConnectionPending)?;
    Ok((PendingRequest { a, b, psp, cr }, rsp))
}

fn all_uses(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    join(&a, &b)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.ep.reset()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    b.reset()?;
    b.connect_to(&a.ia, psp.conn_qual(), b"", t.long().as_millis() as u64)?;
    a.cr()?.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.ep.reset()?;
    a.reserve()?;
    a.is_in(EpState::Reserved)
}

fn disconnect_refused(t: &TestContext, a: &LocalEnd, state: EpState) -> Outcome {
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", a.ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    a.is_in(state)
}

fn disconnect_reserved(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.reserve()?;
    disconnect_refused(t, &a, EpState::Reserved)
}

fn disconnect_passive(t: &TestContext) -> Outcome {
    let (PendingRequest { a, .. }, _rsp) = passive(t)?;
    disconnect_refused(t, &a, EpState::PassiveConnectionPending)
}

fn zone(t: &TestContext) -> Outcome {
    let refused = |a: &LocalEnd, state: EpState| {
        let new = EpModify { pz: Some(a.ia.pz_create()?), ..EpModify::default() };
        t.refused("modify", a.ep.modify(EpMask::PZ_HANDLE, &new), ReturnType::InvalidState)?;
        ensure_eq("zone", a.ep.query()?.pz.map(|pz| pz.id()), Some(a.pz.id()))?;
        a.is_in(state)
    };
    let a = t.local()?;
    a.reserve()?;
    refused(&a, EpState::Reserved)?;
    let (PendingRequest { a, .. }, _rsp) = passive(t)?;
    refused(&a, EpState::PassiveConnectionPending)
}

fn free_both(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let rsp = a.reserve()?;
    t.refused("freeing the endpoint first", a.ep.free(), ReturnType::InvalidState)?;
    rsp.free()?;
    Ok(a.ep.free()?)
}

fn reject_and_free(t: &TestContext) -> Outcome {
    let (PendingRequest { a, cr, b, .. }, _rsp) = passive(t)?;
    t.refused("freeing the endpoint first", a.ep.free(), ReturnType::InvalidState)?;
    cr.reject(b"")?;
    a.ep.free()?;
    b.expect_event(ConnectionKind::PeerRejected)
}

fn reserve(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.post_recvs(2)?;
    let rsp = a.reserve()?;
    a.is_in(EpState::Reserved)?;
    let param = rsp.query()?;
    ensure_eq("endpoint", param.ep.map(|ep| ep.id()), Some(a.ep.id()))?;
    ensure_eq("dispatcher", param.evd.id(), a.crs.id())?;
    ensure_eq("qualifier", param.conn_qual, rsp.conn_qual())?;
    ensure(!a.ep.status()?.recv_idle, "the receives posted before are gone")
}

fn wrong_state(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let qual = a.free_qual()?;
    let refused = |ep: &Ep, state: EpState| {
        let result = a.ia.rsp_create(qual, Some(ep), &a.crs);
        t.refused(&format!("reserving one that is {state}"), result, ReturnType::InvalidState)?;
        ensure_eq("state", ep.state(), state)
    };
    a.connect(&b)?;
    refused(&a.ep, EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    refused(&a.ep, EpState::Connected)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    refused(&a.ep, EpState::Disconnected)?;
    a.ep.reset()?;
    a.reserve()?;
    refused(&a.ep, EpState::Reserved)
}

fn taken(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let result = a.ia.rsp_create(psp.conn_qual(), Some(&a.ep), &a.crs);
    t.refused("the qualifier of a public service point", result, ReturnType::ConnQualInUse)?;
    a.is_in(EpState::Unconnected)?;
    let rsp = a.reserve()?;
    let (other, _conn) = a.separate_ep()?;
    let result = a.ia.rsp_create(rsp.conn_qual(), Some(&other), &a.crs);
    t.refused("the qualifier of a reserved one", result, ReturnType::ConnQualInUse)?;
    ensure_eq("state", other.state(), EpState::Unconnected)
}

fn first(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let rsp = a.reserve()?;
    b.connect_to(&a.ia, rsp.conn_qual(), b"reserved", t.long().as_millis() as u64)?;
    let event = a.event(&a.crs, "a connection request at A")?;
    let dat_types::EventData::ConnectionRequest { service_point, conn_qual, cr } = event.data else {
        return fail(format!("an event that is no connection request: {:?}", event.data));
    };
    ensure_eq("service point of the event", service_point, None)?;
    ensure_eq("qualifier of the event", conn_qual, rsp.conn_qual())?;
    a.is_in(EpState::PassiveConnectionPending)?;
    let param = a.ia.cr(cr)?.query()?;
    ensure_eq("endpoint of the request", param.local_ep.map(|ep| ep.id()), Some(a.ep.id()))?;
    ensure_eq("private data", &param.private_data[..], b"reserved")?;
    a.ia.cr(cr)?.accept(None, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)
}

fn second(t: &TestContext) -> Outcome {
    let (PendingRequest { a, b, .. }, rsp) = passive(t)?;
    let other = t.remote()?;
    other.connect_to(&a.ia, rsp.conn_qual(), b"", t.long().as_millis() as u64)?;
    other.expect_event(ConnectionKind::NonPeerRejected)?;
    b.expect_no_event(b.conn, "the first one's connect dispatcher")
}

fn rejected(t: &TestContext) -> Outcome {
    let (PendingRequest { a, b, cr, .. }, _rsp) = passive(t)?;
    cr.reject(b"no")?;
    a.is_in(EpState::Unconnected)?;
    b.expect_event(ConnectionKind::PeerRejected)?;
    b.reset()?;
    join(&a, &b)
}

fn freed(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let rsp = a.reserve()?;
    rsp.free()?;
    a.is_in(EpState::Unconnected)?;
    t.refused("freeing it again", rsp.free(), ReturnType::InvalidHandle)?;
    join(&a, &b)
}

fn freed_late(t: &TestContext) -> Outcome {
    let (PendingRequest { a, b, cr, .. }, rsp) = passive(t)?;
    t.refused("a query", rsp.query(), ReturnType::InvalidHandle)?;
    rsp.free()?;
    t.refused("freeing it again", rsp.free(), ReturnType::InvalidHandle)?;
    cr.accept(None, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)
}

fn hand_over(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, psp, cr } = t.pending_request(PspFlags::Consumer, b"handed over")?;
    let other = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    cr.handoff(other.conn_qual())?;
    t.refused("the old request", cr.query(), ReturnType::InvalidHandle)?;
    let new = a.cr()?;
    ensure_eq("private data", &new.query()?.private_data[..], b"handed over")?;
    new.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;

    // A request that holds an endpoint releases it.
    let (reserved, _rsp) = passive(t)?;
    let to = reserved.psp.conn_qual();
    reserved.cr.handoff(to)?;
    reserved.a.is_in(EpState::Unconnected)?;
    ensure_eq("endpoint of the new request", reserved.a.cr()?.query()?.local_ep.map(|ep| ep.id()), None)?;
    Ok(psp.free()?)
}

fn to_nobody(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    t.refused("handoff to a free qualifier", cr.handoff(7), ReturnType::InvalidParameter)?;
    cr.accept(Some(&a.ep), b"")?;
    b.expect_event(ConnectionKind::Established)
}
