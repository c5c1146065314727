//! Public service points and connection requests.

use dat_engine::Psp;
use dat_types::EpCreator;

use crate::clauses::prelude::*;

clauses! {
    199 "A qualifier in use: CONN_QUAL_IN_USE" => taken;
    200 "A service point on a dispatcher without the CR flag: INVALID_HANDLE" => wrong_evd;
    202 "Endpoints by a provider that makes none: MODEL_NOT_SUPPORTED" => creator_never;
    203 "Endpoints by the consumer where the provider always makes them: MODEL_NOT_SUPPORTED" => creator_always;
    204 "A provider-made endpoint is TENTATIVE, without zone and dispatchers" => provider_made;
    205 "More requests than the dispatcher holds: NON_PEER_REJECTED for the surplus" => surplus;
    206 "Several requests: one CR each, and the service point keeps listening" => several;
    207 "Two qualifiers chosen by the provider: distinct, at least 1024, both reachable" => chosen;
    208 "A service point is freed while a request is pending: the request can be accepted" => freed_with_request;
    209 "Connecting to a freed service point: NON_PEER_REJECTED" => freed;
    210 "A query shows the values of create" => query;
    219 "A request at a service point with flag CONSUMER holds no endpoint" => no_endpoint;
    220 "Accept: COMPLETION_PENDING, then CONNECTED; ESTABLISHED without private data" => accept;
    221 "The request holds an endpoint and one is named: INVALID_HANDLE, no change" => one_too_many;
    222 "The request holds no endpoint and none is named: INVALID_HANDLE" => none_named;
    223 "The named endpoint is not UNCONNECTED: INVALID_STATE, the request stays" => wrong_state;
    224 "Private data of an accept arrives whole" => accept_data;
    225 "One byte too many with an accept: INVALID_PARAMETER, the request stays" => accept_too_much;
    226 "The active side is gone before the accept: the accept succeeds, then ACCEPT_COMPLETION_ERROR" => too_late;
    227 "After an accept the request's handle is invalid" => request_gone;
    228 "Reject: synchronous, the request ends, the peer gets PEER_REJECTED" => reject;
    229 "Private data of a reject arrives" => reject_data;
    230 "After a reject the provider-made endpoint's handle is invalid" => reject_frees;
    377 "Qualifiers have 64 bits, and each listener gets the requests for its own" => long_qualifiers;
}

fn taken(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let result = a.ia.psp_create(psp.conn_qual(), &a.crs, PspFlags::Consumer);
    t.refused("the same again", result, ReturnType::ConnQualInUse)?;
    psp.free()?;
    // Not at once: a process that is being started meanwhile holds a copy of the listener's descriptor for a moment.
    t.until("a service point where one was freed", || {
        Ok(a.ia.psp_create(psp.conn_qual(), &a.crs, PspFlags::Consumer).is_ok())
    })
}

fn wrong_evd(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let result = a.ia.psp_create_any(&a.conn, PspFlags::Consumer);
    t.refused("a dispatcher without the flag", result, ReturnType::InvalidHandle)
}

fn creator_never(t: &TestContext) -> Outcome {
    let a = t.local()?;
    if a.ia.provider_query()?.ep_creator != EpCreator::Never {
        return not_applicable("this provider makes endpoints on request");
    }
    let result = a.ia.psp_create_any(&a.crs, PspFlags::Provider);
    t.refused("a service point", result, ReturnType::ModelNotSupported)
}

fn creator_always(t: &TestContext) -> Outcome {
    let a = t.local()?;
    if a.ia.provider_query()?.ep_creator != EpCreator::Always {
        return not_applicable("this provider leaves endpoints to the consumer");
    }
    let result = a.ia.psp_create_any(&a.crs, PspFlags::Consumer);
    t.refused("a service point", result, ReturnType::ModelNotSupported)
}

fn provider_made(t: &TestContext) -> Outcome {
    let (_pending, ep) = t.tentative()?;
    let param = ep.query()?;
    ensure_eq("state", param.state, EpState::TentativeConnectionPending)?;
    let nothing = param.pz.is_none()
        && param.recv_evd.is_none()
        && param.request_evd.is_none()
        && param.connect_evd.is_none();
    ensure(nothing, "it has a zone or dispatchers already")
}

fn surplus(t: &TestContext) -> Outcome {
    const ROOM: i32 = 3;
    let a = t.local()?;
    let b = RemoteEnd::with_backlog(t.peer()?, &AttrSpec::default(), ROOM)?;
    let mut eps = Vec::new();
    for _ in 0..2 * ROOM {
        let ep = a.another_ep()?;
        ep.connect(&a.towards(&b))?;
        eps.push(ep);
    }
    for _ in 0..ROOM {
        a.expect_event(ConnectionKind::NonPeerRejected)?;
    }
    a.expect_no_event(&a.conn, "A's connect dispatcher")?;
    let waiting = eps.iter().filter(|ep| ep.state() == EpState::ActiveConnectionPending).count();
    ensure_eq("attempts that wait", waiting, ROOM as usize)
}

fn several(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let eps = [a.another_ep()?, a.another_ep()?, a.another_ep()?];
    let mut ports = Vec::new();
    for ep in &eps {
        ep.connect(&a.towards(&b))?;
        ports.push(ep.query()?.local_port_qual);
    }
    let mut seen = Vec::new();
    for _ in &eps {
        let request = b.request()?;
        seen.push(request.remote_port);
        b.reject(&request, b"")?;
        a.expect_event(ConnectionKind::PeerRejected)?;
    }
    ports.sort_unstable();
    seen.sort_unstable();
    ensure_eq("ports of the requests", seen, ports)?;
    b.expect_no_event(b.crs, "B's dispatcher of requests")?;
    join(&a, &b)
}

fn chosen(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (first, second) = (t.remote()?, t.remote()?);
    ensure(first.port != second.port, format!("both are {}", first.port))?;
    ensure(first.port >= 1024 && second.port >= 1024, format!("{} and {}", first.port, second.port))?;
    join(&a, &second)?;
    let other = a.another_ep()?;
    other.connect(&a.towards(&first))?;
    first.accept(&first.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    if t.subject.injects_faults {
        let ia = t.subject.open_faulty("free_port")?;
        let crs = ia.evd_create(16, EvdFlags::CR)?;
        let result = ia.psp_create_any(&crs, PspFlags::Consumer);
        t.refused("with every qualifier taken", result, ReturnType::ConnQualUnavailable)?;
    }
    Ok(())
}

/// Those that differ by this have the same port on a fabric whose ports have 16 bits.
const SAME_PORT: u64 = 32_001;

fn long_qualifiers(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let fits_no_port = u64::from(u16::MAX) + 1;
    for lowest in [fits_no_port, 1 << 32, u64::MAX - SAME_PORT] {
        let (psp, conn_qual) = listener_from(&a, lowest)?;
        ensure_eq("qualifier of the service point", psp.conn_qual(), conn_qual)?;
        let other = if lowest == fits_no_port { conn_qual + SAME_PORT } else { conn_qual - SAME_PORT };
        b.connect_to(&a.ia, other, b"", t.long().as_millis() as u64)?;
        b.expect_event(ConnectionKind::NonPeerRejected)?;
        a.expect_no_event(&a.crs, "the dispatcher of requests")?;
        b.reset()?;
        b.connect_to(&a.ia, conn_qual, b"private", t.long().as_millis() as u64)?;
        let cr = a.cr()?;
        ensure_eq("private data", &cr.query()?.private_data[..], &b"private"[..])?;
        cr.reject(b"")?;
        b.expect_event(ConnectionKind::PeerRejected)?;
        b.reset()?;
        psp.free()?;
    }
    Ok(())
}

/// A service point on a free qualifier, and the qualifier.
fn listener_from(a: &LocalEnd, lowest: u64) -> Result<(Psp, u64), Stop> {
    // Any of them may be another program's.
    for conn_qual in lowest..lowest + 100 {
        match a.ia.psp_create(conn_qual, &a.crs, PspFlags::Consumer) {
            Err(error) if error.kind() == ReturnType::ConnQualInUse => {}
            result => return Ok((result?, conn_qual)),
        }
    }
    fail("a hundred qualifiers in a row are in use")
}

fn freed_with_request(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, psp, cr } = t.pending_request(PspFlags::Consumer, b"")?;
    psp.free()?;
    cr.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)
}

fn freed(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    b.free(b.psp)?;
    a.connect(&b)?;
    a.expect_event(ConnectionKind::NonPeerRejected)
}

fn query(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for flags in [PspFlags::Consumer, PspFlags::Provider] {
        let psp = a.ia.psp_create_any(&a.crs, flags)?;
        let param = psp.query()?;
        ensure_eq("adapter", param.ia, a.ia.id())?;
        ensure_eq("qualifier", param.conn_qual, psp.conn_qual())?;
        ensure_eq("dispatcher", param.evd.id(), a.crs.id())?;
        ensure_eq("flags", param.flags, flags)?;
    }
    Ok(())
}

fn no_endpoint(t: &TestContext) -> Outcome {
    let pending = t.pending_request(PspFlags::Consumer, b"")?;
    ensure(pending.cr.query()?.local_ep.is_none(), "the request holds an endpoint")
}

fn accept(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"from the active side")?;
    cr.accept(Some(&a.ep), b"")?;
    let state = a.ep.state();
    let allowed = [EpState::CompletionPending, EpState::Connected];
    ensure(allowed.contains(&state), format!("state after the accept: {state}"))?;
    let (kind, data) = a.connection()?;
    ensure_eq("connection event at A", kind, ConnectionKind::Established)?;
    ensure_eq("private data of the passive side's event", data.len(), 0)?;
    a.is_in(EpState::Connected)?;
    b.expect_event(ConnectionKind::Established)
}

fn one_too_many(t: &TestContext) -> Outcome {
    let (pending, ep) = t.tentative()?;
    let result = pending.cr.accept(Some(&pending.a.ep), b"");
    t.refused("accept", result, ReturnType::InvalidHandle)?;
    pending.a.is_in(EpState::Unconnected)?;
    ensure_eq("state of the request's endpoint", ep.state(), EpState::TentativeConnectionPending)?;
    pending.cr.query()?;
    Ok(())
}

fn none_named(t: &TestContext) -> Outcome {
    let pending = t.pending_request(PspFlags::Consumer, b"")?;
    t.refused("accept", pending.cr.accept(None, b""), ReturnType::InvalidHandle)?;
    pending.cr.query()?;
    Ok(())
}

fn wrong_state(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    let busy = a.another_ep()?;
    let other = t.remote()?;
    busy.connect(&a.towards(&other))?;
    t.refused("accept", cr.accept(Some(&busy), b""), ReturnType::InvalidState)?;
    ensure_eq("state", busy.state(), EpState::ActiveConnectionPending)?;
    cr.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)
}

fn accept_data(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    let data: Vec<u8> = (0..most).map(|i| (i * 13 + 5) as u8).collect();
    a.connect(&b)?;
    b.accept(&b.request()?, &data)?;
    let (kind, got) = a.connection()?;
    ensure_eq("connection event at A", kind, ConnectionKind::Established)?;
    ensure_eq("private data", got.to_vec(), data)
}

fn accept_too_much(t: &TestContext) -> Outcome {
    let PendingRequest { a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    let data = vec![1; a.ia.provider_query()?.max_private_data_size as usize + 1];
    t.refused("accept", cr.accept(Some(&a.ep), &data), ReturnType::InvalidParameter)?;
    a.is_in(EpState::Unconnected)?;
    cr.accept(Some(&a.ep), b"")?;
    b.expect_event(ConnectionKind::Established)
}

fn too_late(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    a.post_recvs(3)?;
    b.connect_to(&a.ia, psp.conn_qual(), b"", t.scaled(Duration::from_millis(60)).as_millis() as u64)?;
    let cr = a.cr()?;
    b.expect_event(ConnectionKind::TimedOut)?;
    cr.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::AcceptCompletionError)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(3)
}

fn request_gone(t: &TestContext) -> Outcome {
    let PendingRequest { a, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    cr.accept(Some(&a.ep), b"")?;
    let other = a.another_ep()?;
    t.refused("accept", cr.accept(Some(&other), b""), ReturnType::InvalidHandle)?;
    t.refused("reject", cr.reject(b""), ReturnType::InvalidHandle)?;
    t.refused("query", cr.query(), ReturnType::InvalidHandle)?;
    ensure_eq("state", other.state(), EpState::Unconnected)
}

fn reject(t: &TestContext) -> Outcome {
    let PendingRequest { a: _a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    cr.reject(b"")?;
    t.refused("query", cr.query(), ReturnType::InvalidHandle)?;
    t.refused("a second reject", cr.reject(b""), ReturnType::InvalidHandle)?;
    b.expect_event(ConnectionKind::PeerRejected)?;
    b.is_in(EpState::Disconnected)
}

fn reject_data(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    let data: Vec<u8> = (0..most).map(|i| (i * 3 + 1) as u8).collect();
    // A slow device keeps them for a while. The event waits for them, with its data.
    a.post_recvs(2)?;
    a.connect(&b)?;
    b.reject(&b.request()?, &data)?;
    let (kind, got) = a.connection()?;
    ensure_eq("connection event at A", kind, ConnectionKind::PeerRejected)?;
    ensure_eq("private data", got.to_vec(), data)?;
    a.recvs_flushed(2)
}

fn reject_frees(t: &TestContext) -> Outcome {
    let (pending, ep) = t.tentative()?;
    pending.cr.reject(b"")?;
    t.refused("query", ep.query(), ReturnType::InvalidHandle)?;
    t.refused("free", ep.free(), ReturnType::InvalidHandle)?;
    pending.b.expect_event(ConnectionKind::PeerRejected)
}
