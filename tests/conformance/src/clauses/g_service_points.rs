//! G. Public service points and connection requests.

use dat_types::EpCreator;

use super::prelude::*;

clauses! {
    199 "a qualifier that is taken: CONN_QUAL_IN_USE" => taken;
    200 "a dispatcher without the CR flag: INVALID_HANDLE" => wrong_evd;
    202 "endpoints by the provider, which makes none: MODEL_NOT_SUPPORTED" => creator_never;
    203 "endpoints by the consumer, where the provider always makes them: MODEL_NOT_SUPPORTED" => creator_always;
    204 "endpoints by the provider: TENTATIVE, without zone and dispatchers" => provider_made;
    205 "more requests than the dispatcher holds: NON_PEER_REJECTED for the surplus" => surplus;
    206 "several requests: one each, and it keeps listening" => several;
    207 "two qualifiers chosen by the provider: distinct, at least 1024, both reachable" => chosen;
    208 "the service point is freed while a request waits: it can be accepted all the same" => freed_with_request;
    209 "a freed service point: NON_PEER_REJECTED" => freed;
    210 "a query shows what it was created with" => query;
    219 "endpoints by the consumer: the request holds none" => no_endpoint;
    220 "accept: COMPLETION_PENDING, then CONNECTED, ESTABLISHED without data" => accept;
    221 "the request holds an endpoint and one is named: INVALID_HANDLE, nothing changes" => one_too_many;
    222 "the request holds none and none is named: INVALID_HANDLE" => none_named;
    223 "the endpoint named is not UNCONNECTED: INVALID_STATE, the request stays" => wrong_state;
    224 "private data of an accept arrives whole" => accept_data;
    225 "one byte too many with an accept: INVALID_PARAMETER, the request stays" => accept_too_much;
    226 "the active side gave up: accept succeeds, then ACCEPT_COMPLETION_ERROR" => too_late;
    227 "after an accept the request is no handle" => request_gone;
    228 "reject: at once, the request is gone, the peer is told" => reject;
    229 "private data of a reject arrives" => reject_data;
    230 "after a reject the endpoint the provider made is no handle" => reject_frees;
}

fn taken(t: &Bench) -> Outcome {
    let a = t.side()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let result = a.ia.psp_create(psp.conn_qual(), &a.crs, PspFlags::Consumer);
    t.refused("the same again", result, ReturnType::ConnQualInUse)?;
    psp.free()?;
    // Not at once: a process that is being started meanwhile holds a copy of the listener's descriptor for a moment.
    t.until("a service point where one was freed", || {
        Ok(a.ia.psp_create(psp.conn_qual(), &a.crs, PspFlags::Consumer).is_ok())
    })
}

fn wrong_evd(t: &Bench) -> Outcome {
    let a = t.side()?;
    let result = a.ia.psp_create_any(&a.conn, PspFlags::Consumer);
    t.refused("a dispatcher without the flag", result, ReturnType::InvalidHandle)
}

fn creator_never(t: &Bench) -> Outcome {
    let a = t.side()?;
    if a.ia.provider_query()?.ep_creator != EpCreator::Never {
        return not_supported("this provider makes endpoints when asked");
    }
    let result = a.ia.psp_create_any(&a.crs, PspFlags::Provider);
    t.refused("a service point", result, ReturnType::ModelNotSupported)
}

fn creator_always(t: &Bench) -> Outcome {
    let a = t.side()?;
    if a.ia.provider_query()?.ep_creator != EpCreator::Always {
        return not_supported("this provider leaves endpoints to the consumer");
    }
    let result = a.ia.psp_create_any(&a.crs, PspFlags::Consumer);
    t.refused("a service point", result, ReturnType::ModelNotSupported)
}

fn provider_made(t: &Bench) -> Outcome {
    let (_asked, ep) = t.tentative()?;
    let param = ep.query()?;
    same("state", param.state, EpState::TentativeConnectionPending)?;
    let nothing = param.pz.is_none()
        && param.recv_evd.is_none()
        && param.request_evd.is_none()
        && param.connect_evd.is_none();
    holds(nothing, "it has a zone or dispatchers already")
}

fn surplus(t: &Bench) -> Outcome {
    const ROOM: i32 = 3;
    let a = t.side()?;
    let b = RemoteSide::with_backlog(t.peer()?, &AttrSpec::default(), ROOM)?;
    let mut eps = Vec::new();
    for _ in 0..2 * ROOM {
        let ep = a.another_ep()?;
        ep.connect(&a.towards(&b))?;
        eps.push(ep);
    }
    for _ in 0..ROOM {
        a.told(ConnectionKind::NonPeerRejected)?;
    }
    a.quiet(&a.conn, "A's connect dispatcher")?;
    let waiting = eps.iter().filter(|ep| ep.state() == EpState::ActiveConnectionPending).count();
    same("attempts that wait", waiting, ROOM as usize)
}

fn several(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let eps = [a.another_ep()?, a.another_ep()?, a.another_ep()?];
    let mut asked = Vec::new();
    for ep in &eps {
        ep.connect(&a.towards(&b))?;
        asked.push(ep.query()?.local_port_qual);
    }
    let mut seen = Vec::new();
    for _ in &eps {
        let request = b.request()?;
        seen.push(request.remote_port);
        b.reject(&request, b"")?;
        a.told(ConnectionKind::PeerRejected)?;
    }
    asked.sort_unstable();
    seen.sort_unstable();
    same("ports of the requests", seen, asked)?;
    b.quiet(b.crs, "B's dispatcher of requests")?;
    join(&a, &b)
}

fn chosen(t: &Bench) -> Outcome {
    let a = t.side()?;
    let (first, second) = (t.remote()?, t.remote()?);
    holds(first.port != second.port, format!("both are {}", first.port))?;
    holds(first.port >= 1024 && second.port >= 1024, format!("{} and {}", first.port, second.port))?;
    join(&a, &second)?;
    let other = a.another_ep()?;
    other.connect(&a.towards(&first))?;
    first.accept(&first.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    if t.subject.injects_faults {
        let ia = t.subject.open_faulty("free_port")?;
        let crs = ia.evd_create(16, EvdFlags::CR)?;
        let result = ia.psp_create_any(&crs, PspFlags::Consumer);
        t.refused("with every qualifier taken", result, ReturnType::ConnQualUnavailable)?;
    }
    Ok(())
}

fn freed_with_request(t: &Bench) -> Outcome {
    let Asked { a, b, psp, cr } = t.asked(PspFlags::Consumer, b"")?;
    psp.free()?;
    cr.accept(Some(&a.ep), b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)
}

fn freed(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    b.free(b.psp)?;
    a.connect(&b)?;
    a.told(ConnectionKind::NonPeerRejected)
}

fn query(t: &Bench) -> Outcome {
    let a = t.side()?;
    for flags in [PspFlags::Consumer, PspFlags::Provider] {
        let psp = a.ia.psp_create_any(&a.crs, flags)?;
        let param = psp.query()?;
        same("adapter", param.ia, a.ia.id())?;
        same("qualifier", param.conn_qual, psp.conn_qual())?;
        same("dispatcher", param.evd.id(), a.crs.id())?;
        same("flags", param.flags, flags)?;
    }
    Ok(())
}

fn no_endpoint(t: &Bench) -> Outcome {
    let asked = t.asked(PspFlags::Consumer, b"")?;
    holds(asked.cr.query()?.local_ep.is_none(), "the request holds an endpoint")
}

fn accept(t: &Bench) -> Outcome {
    let Asked { a, b, cr, .. } = t.asked(PspFlags::Consumer, b"from the active side")?;
    cr.accept(Some(&a.ep), b"")?;
    let state = a.ep.state();
    let allowed = [EpState::CompletionPending, EpState::Connected];
    holds(allowed.contains(&state), format!("state after the accept: {state}"))?;
    let (kind, data) = a.connection()?;
    same("connection event at A", kind, ConnectionKind::Established)?;
    same("private data of the passive side's event", data.len(), 0)?;
    a.is_in(EpState::Connected)?;
    b.told(ConnectionKind::Established)
}

fn one_too_many(t: &Bench) -> Outcome {
    let (asked, ep) = t.tentative()?;
    let result = asked.cr.accept(Some(&asked.a.ep), b"");
    t.refused("accept", result, ReturnType::InvalidHandle)?;
    asked.a.is_in(EpState::Unconnected)?;
    same("state of the request's endpoint", ep.state(), EpState::TentativeConnectionPending)?;
    asked.cr.query()?;
    Ok(())
}

fn none_named(t: &Bench) -> Outcome {
    let asked = t.asked(PspFlags::Consumer, b"")?;
    t.refused("accept", asked.cr.accept(None, b""), ReturnType::InvalidHandle)?;
    asked.cr.query()?;
    Ok(())
}

fn wrong_state(t: &Bench) -> Outcome {
    let Asked { a, b, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    let busy = a.another_ep()?;
    let other = t.remote()?;
    busy.connect(&a.towards(&other))?;
    t.refused("accept", cr.accept(Some(&busy), b""), ReturnType::InvalidState)?;
    same("state", busy.state(), EpState::ActiveConnectionPending)?;
    cr.accept(Some(&a.ep), b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)
}

fn accept_data(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    let data: Vec<u8> = (0..most).map(|i| (i * 13 + 5) as u8).collect();
    a.connect(&b)?;
    b.accept(&b.request()?, &data)?;
    let (kind, got) = a.connection()?;
    same("connection event at A", kind, ConnectionKind::Established)?;
    same("private data", got.to_vec(), data)
}

fn accept_too_much(t: &Bench) -> Outcome {
    let Asked { a, b, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    let data = vec![1; a.ia.provider_query()?.max_private_data_size as usize + 1];
    t.refused("accept", cr.accept(Some(&a.ep), &data), ReturnType::InvalidParameter)?;
    a.is_in(EpState::Unconnected)?;
    cr.accept(Some(&a.ep), b"")?;
    b.told(ConnectionKind::Established)
}

fn too_late(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    a.post_recvs(3)?;
    b.connect_to(&a, psp.conn_qual(), b"", t.scaled(Duration::from_millis(60)).as_millis() as u64)?;
    let cr = a.cr()?;
    b.told(ConnectionKind::TimedOut)?;
    cr.accept(Some(&a.ep), b"")?;
    a.told(ConnectionKind::AcceptCompletionError)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(3)
}

fn request_gone(t: &Bench) -> Outcome {
    let Asked { a, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    cr.accept(Some(&a.ep), b"")?;
    let other = a.another_ep()?;
    t.refused("accept", cr.accept(Some(&other), b""), ReturnType::InvalidHandle)?;
    t.refused("reject", cr.reject(b""), ReturnType::InvalidHandle)?;
    t.refused("query", cr.query(), ReturnType::InvalidHandle)?;
    same("state", other.state(), EpState::Unconnected)
}

fn reject(t: &Bench) -> Outcome {
    let Asked { a: _a, b, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    cr.reject(b"")?;
    t.refused("query", cr.query(), ReturnType::InvalidHandle)?;
    t.refused("a second reject", cr.reject(b""), ReturnType::InvalidHandle)?;
    b.told(ConnectionKind::PeerRejected)?;
    b.is_in(EpState::Disconnected)
}

fn reject_data(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let most = a.ia.provider_query()?.max_private_data_size as usize;
    let data: Vec<u8> = (0..most).map(|i| (i * 3 + 1) as u8).collect();
    a.connect(&b)?;
    b.reject(&b.request()?, &data)?;
    let (kind, got) = a.connection()?;
    same("connection event at A", kind, ConnectionKind::PeerRejected)?;
    same("private data", got.to_vec(), data)
}

fn reject_frees(t: &Bench) -> Outcome {
    let (asked, ep) = t.tentative()?;
    asked.cr.reject(b"")?;
    t.refused("query", ep.query(), ReturnType::InvalidHandle)?;
    t.refused("free", ep.free(), ReturnType::InvalidHandle)?;
    asked.b.told(ConnectionKind::PeerRejected)
}
