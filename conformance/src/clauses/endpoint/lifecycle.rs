//! Endpoints: query, status, reset, free.

use crate::clauses::prelude::*;

clauses! {
    176 "A query shows the peer's address and port in every state that defines them" => remote_known;
    178 "One receive posted: receives not idle, requests idle" => idle_flags;
    180 "Reset when UNCONNECTED: success, posted receives still work" => reset_unconnected;
    181 "Reset when DISCONNECTED: UNCONNECTED, connects again" => reset_disconnected;
    182 "Reset in any other state: INVALID_STATE" => reset_refused;
    183 "Markers posted and taken before a reset: no completion is lost" => markers;
    184 "Free while a service point or request holds the endpoint: INVALID_STATE" => free_tentative;
    185 "Free when CONNECTED: success, the peer sees the end of the connection" => free_connected;
    186 "Free while connecting: success, the attempt ends" => free_connecting;
    187 "A freed endpoint: every call gives INVALID_HANDLE" => freed;
}

fn remote_known(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let shows = |when: &str| {
        let param = a.ep.query()?;
        let peer = (param.remote_address.map(|addr| addr.ip()), param.remote_port_qual);
        ensure_eq(&format!("peer (address, port) {when}"), peer, (Some(b.address.ip()), b.port))?;
        ensure(param.local_port_qual != 0, format!("no local port {when}"))
    };
    a.connect(&b)?;
    shows("while connecting")?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    shows("when connected")?;

    let PendingRequest { a, b: _b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    let request = cr.query()?;
    cr.accept(Some(&a.ep), b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let param = a.ep.query()?;
    ensure_eq(
        "peer (address, port) on the passive side",
        (param.remote_address.map(|addr| addr.ip()), param.remote_port_qual),
        (request.remote_address.map(|addr| addr.ip()), request.remote_port_qual),
    )?;

    let (pending, ep) = t.tentative()?;
    let (param, request) = (ep.query()?, pending.cr.query()?);
    ensure_eq("port of the peer when TENTATIVE", param.remote_port_qual, request.remote_port_qual)
}

fn idle_flags(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.post_recvs(1)?;
    let status = a.ep.status()?;
    ensure_eq("idle (receives, requests)", (status.recv_idle, status.request_idle), (false, true))
}

fn reset_unconnected(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.post_recvs(1)?;
    a.ep.reset()?;
    a.is_in(EpState::Unconnected)?;
    join(&a, &b)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success).map(|_| ())
}

fn reset_disconnected(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    for _ in 0..3 {
        a.ep.disconnect(CloseFlags::Abrupt)?;
        a.expect_event(ConnectionKind::Disconnected)?;
        b.expect_event(ConnectionKind::Disconnected)?;
        a.ep.reset()?;
        b.reset()?;
        a.is_in(EpState::Unconnected)?;
        join(&a, &b)?;
        b.post_recv(0, 64, 1)?;
        a.send(0, 8, 2)?;
        b.receives(1, DtoStatus::Success)?;
        a.completes(&a.request, 2, DtoStatus::Success)?;
    }
    Ok(())
}

fn reset_refused(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    t.refused("ACTIVE_CONNECTION_PENDING", a.ep.reset(), ReturnType::InvalidState)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    t.refused("CONNECTED", a.ep.reset(), ReturnType::InvalidState)?;
    a.is_in(EpState::Connected)?;
    let (_pending, ep) = t.tentative()?;
    t.refused("TENTATIVE_CONNECTION_PENDING", ep.reset(), ReturnType::InvalidState)?;
    let (a, _b) = t.draining(8)?;
    t.refused("DISCONNECT_PENDING", a.ep.reset(), ReturnType::InvalidState)?;
    a.is_in(EpState::DisconnectPending)
}

fn markers(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.post_recvs(3)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.post_recv(0, 8, 99)?;
    a.send(0, 8, 98)?;
    a.recvs_flushed(3)?;
    a.completes(&a.recv, 99, DtoStatus::Flushed)?;
    a.completes(&a.request, 98, DtoStatus::Flushed)?;
    a.ep.reset()?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")?;
    a.expect_no_event(&a.request, "A's request dispatcher")
}

fn free_tentative(t: &TestContext) -> Outcome {
    let (pending, ep) = t.tentative()?;
    t.refused("TENTATIVE_CONNECTION_PENDING", ep.free(), ReturnType::InvalidState)?;
    pending.cr.query()?;
    ensure_eq("state", ep.state(), EpState::TentativeConnectionPending)
}

fn free_connected(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.post_recvs(2)?;
    a.ep.free()?;
    b.expect_event(ConnectionKind::Disconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher: nothing is added after a free")?;
    a.expect_no_event(&a.recv, "A's receive dispatcher: nothing is added after a free")
}

fn free_connecting(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let request = b.request()?;
    a.ep.free()?;
    b.accept(&request, b"")?;
    b.expect_event(ConnectionKind::AcceptCompletionError)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn freed(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.ep.free()?;
    let ep = &a.ep;
    let gone = ReturnType::InvalidHandle;
    let local = [a.lmr.triplet(0, 8)];
    t.refused("free", ep.free(), gone)?;
    t.refused("query", ep.query(), gone)?;
    t.refused("status", ep.status(), gone)?;
    t.refused("reset", ep.reset(), gone)?;
    t.refused("modify", ep.modify(EpMask::empty(), &EpModify::default()), gone)?;
    t.refused("connect", ep.connect(&a.towards(&b)), gone)?;
    t.refused("disconnect", ep.disconnect(CloseFlags::Abrupt), gone)?;
    t.refused("post_recv", ep.post_recv(&local, 1, PLAIN), gone)?;
    t.refused("post_send", ep.post_send(&local, 1, PLAIN), gone)?;
    t.refused("post_rdma_write", ep.post_rdma_write(&local, 1, b.target(0, 8), PLAIN), gone)?;
    t.refused("post_rdma_read", ep.post_rdma_read(&local, 1, b.target(0, 8), PLAIN), gone)
}
