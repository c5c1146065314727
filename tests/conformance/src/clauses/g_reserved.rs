//! G. Reserved service points, and requests handed over.

use super::prelude::*;

clauses! {
    21 "an endpoint can connect, accept, and be reserved" => all_uses;
    114 "RESERVED: disconnect is refused" => disconnect_reserved;
    115 "PASSIVE_CONNECTION_PENDING: disconnect is refused" => disconnect_passive;
    143 "RESERVED or PASSIVE_CONNECTION_PENDING: another zone is refused" => zone;
    188 "a reserved service point is freed, then its endpoint" => free_both;
    189 "a request is rejected, then its endpoint freed" => reject_and_free;
    211 "an UNCONNECTED endpoint becomes RESERVED" => reserve;
    212 "an endpoint in another state: INVALID_STATE" => wrong_state;
    213 "a qualifier that is taken: CONN_QUAL_IN_USE, the endpoint stays UNCONNECTED" => taken;
    214 "the first request: PASSIVE_CONNECTION_PENDING; the event names no service point, the request the endpoint" => first;
    215 "a second request: NON_PEER_REJECTED" => second;
    216 "the request is rejected: UNCONNECTED and usable again, the peer is told" => rejected;
    217 "freed before a request came: UNCONNECTED" => freed;
    218 "freed after its request came: success once, the request can be accepted" => freed_late;
    231 "a request is handed over: a new one there with the same private data, the old one is gone" => hand_over;
    232 "handed over to nobody: INVALID_PARAMETER, the request stays" => to_nobody;
}

/// A request from B for A's reserved endpoint.
fn passive(t: &Bench) -> Result<(Asked, dat_engine::Rsp), Stop> {
    let (a, b) = t.sides()?;
    // Kept, so that the service point of a request is always there.
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let rsp = a.reserve()?;
    b.connect_to(&a, rsp.conn_qual(), b"reserved", t.long().as_millis() as u64)?;
    let cr = a.cr()?;
    a.is_in(EpState::PassiveConnectionPending)?;
    Ok((Asked { a, b, psp, cr }, rsp))
}

fn all_uses(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    join(&a, &b)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    a.ep.reset()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    b.told(ConnectionKind::Disconnected)?;
    b.reset()?;
    b.connect_to(&a, psp.conn_qual(), b"", t.long().as_millis() as u64)?;
    a.cr()?.accept(Some(&a.ep), b"")?;
    a.told(ConnectionKind::Established)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    a.ep.reset()?;
    a.reserve()?;
    a.is_in(EpState::Reserved)
}

fn disconnect_refused(t: &Bench, a: &Side, state: EpState) -> Outcome {
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", a.ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    a.is_in(state)
}

fn disconnect_reserved(t: &Bench) -> Outcome {
    let a = t.side()?;
    a.reserve()?;
    disconnect_refused(t, &a, EpState::Reserved)
}

fn disconnect_passive(t: &Bench) -> Outcome {
    let (Asked { a, .. }, _rsp) = passive(t)?;
    disconnect_refused(t, &a, EpState::PassiveConnectionPending)
}

fn zone(t: &Bench) -> Outcome {
    let refused = |a: &Side, state: EpState| {
        let new = EpModify { pz: Some(a.ia.pz_create()?), ..EpModify::default() };
        t.refused("modify", a.ep.modify(EpMask::PZ_HANDLE, &new), ReturnType::InvalidState)?;
        same("zone", a.ep.query()?.pz.map(|pz| pz.id()), Some(a.pz.id()))?;
        a.is_in(state)
    };
    let a = t.side()?;
    a.reserve()?;
    refused(&a, EpState::Reserved)?;
    let (Asked { a, .. }, _rsp) = passive(t)?;
    refused(&a, EpState::PassiveConnectionPending)
}

fn free_both(t: &Bench) -> Outcome {
    let a = t.side()?;
    let rsp = a.reserve()?;
    t.refused("freeing the endpoint first", a.ep.free(), ReturnType::InvalidState)?;
    rsp.free()?;
    Ok(a.ep.free()?)
}

fn reject_and_free(t: &Bench) -> Outcome {
    let (Asked { a, cr, b, .. }, _rsp) = passive(t)?;
    t.refused("freeing the endpoint first", a.ep.free(), ReturnType::InvalidState)?;
    cr.reject(b"")?;
    a.ep.free()?;
    b.told(ConnectionKind::PeerRejected)
}

fn reserve(t: &Bench) -> Outcome {
    let a = t.side()?;
    a.post_recvs(2)?;
    let rsp = a.reserve()?;
    a.is_in(EpState::Reserved)?;
    let param = rsp.query()?;
    same("endpoint", param.ep.map(|ep| ep.id()), Some(a.ep.id()))?;
    same("dispatcher", param.evd.id(), a.crs.id())?;
    same("qualifier", param.conn_qual, rsp.conn_qual())?;
    holds(!a.ep.status()?.recv_idle, "the receives posted before are gone")
}

fn wrong_state(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let qual = a.free_qual()?;
    let refused = |ep: &Ep, state: EpState| {
        let result = a.ia.rsp_create(qual, Some(ep), &a.crs);
        t.refused(&format!("reserving one that is {state}"), result, ReturnType::InvalidState)?;
        same("state", ep.state(), state)
    };
    a.connect(&b)?;
    refused(&a.ep, EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    refused(&a.ep, EpState::Connected)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    refused(&a.ep, EpState::Disconnected)?;
    a.ep.reset()?;
    a.reserve()?;
    refused(&a.ep, EpState::Reserved)
}

fn taken(t: &Bench) -> Outcome {
    let a = t.side()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let result = a.ia.rsp_create(psp.conn_qual(), Some(&a.ep), &a.crs);
    t.refused("the qualifier of a public service point", result, ReturnType::ConnQualInUse)?;
    a.is_in(EpState::Unconnected)?;
    let rsp = a.reserve()?;
    let (other, _conn) = a.separate_ep()?;
    let result = a.ia.rsp_create(rsp.conn_qual(), Some(&other), &a.crs);
    t.refused("the qualifier of a reserved one", result, ReturnType::ConnQualInUse)?;
    same("state", other.state(), EpState::Unconnected)
}

fn first(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let rsp = a.reserve()?;
    b.connect_to(&a, rsp.conn_qual(), b"reserved", t.long().as_millis() as u64)?;
    let event = a.event(&a.crs, "a connection request at A")?;
    let dat_types::EventData::ConnectionRequest { service_point, conn_qual, cr } = event.data else {
        return fail(format!("an event that is no connection request: {:?}", event.data));
    };
    same("service point of the event", service_point, None)?;
    same("qualifier of the event", conn_qual, rsp.conn_qual())?;
    a.is_in(EpState::PassiveConnectionPending)?;
    let param = a.ia.cr(cr)?.query()?;
    same("endpoint of the request", param.local_ep.map(|ep| ep.id()), Some(a.ep.id()))?;
    same("private data", &param.private_data[..], b"reserved")?;
    a.ia.cr(cr)?.accept(None, b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)
}

fn second(t: &Bench) -> Outcome {
    let (Asked { a, b, .. }, rsp) = passive(t)?;
    let other = t.remote()?;
    other.connect_to(&a, rsp.conn_qual(), b"", t.long().as_millis() as u64)?;
    other.told(ConnectionKind::NonPeerRejected)?;
    b.quiet(b.conn, "the first one's connect dispatcher")
}

fn rejected(t: &Bench) -> Outcome {
    let (Asked { a, b, cr, .. }, _rsp) = passive(t)?;
    cr.reject(b"no")?;
    a.is_in(EpState::Unconnected)?;
    b.told(ConnectionKind::PeerRejected)?;
    b.reset()?;
    join(&a, &b)
}

fn freed(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let rsp = a.reserve()?;
    rsp.free()?;
    a.is_in(EpState::Unconnected)?;
    t.refused("freeing it again", rsp.free(), ReturnType::InvalidHandle)?;
    join(&a, &b)
}

fn freed_late(t: &Bench) -> Outcome {
    let (Asked { a, b, cr, .. }, rsp) = passive(t)?;
    t.refused("a query", rsp.query(), ReturnType::InvalidHandle)?;
    rsp.free()?;
    t.refused("freeing it again", rsp.free(), ReturnType::InvalidHandle)?;
    cr.accept(None, b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)
}

fn hand_over(t: &Bench) -> Outcome {
    let Asked { a, b, psp, cr } = t.asked(PspFlags::Consumer, b"handed over")?;
    let other = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    cr.handoff(other.conn_qual())?;
    t.refused("the old request", cr.query(), ReturnType::InvalidHandle)?;
    let new = a.cr()?;
    same("private data", &new.query()?.private_data[..], b"handed over")?;
    new.accept(Some(&a.ep), b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)?;

    // One that holds an endpoint lets it go.
    let (reserved, _rsp) = passive(t)?;
    let to = reserved.psp.conn_qual();
    reserved.cr.handoff(to)?;
    reserved.a.is_in(EpState::Unconnected)?;
    same("endpoint of the new request", reserved.a.cr()?.query()?.local_ep.map(|ep| ep.id()), None)?;
    Ok(psp.free()?)
}

fn to_nobody(t: &Bench) -> Outcome {
    let Asked { a, b, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    t.refused("handing over to nobody", cr.handoff(7), ReturnType::InvalidParameter)?;
    cr.accept(Some(&a.ep), b"")?;
    b.told(ConnectionKind::Established)
}
