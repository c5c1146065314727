//! C. `dat_ep_dup_connect`.

use super::prelude::*;

clauses! {
    78 "ACTIVE_CONNECTION_PENDING; the request arrives where the first one did" => asks_again;
    79 "both requests: the same address and qualifier, different ports" => requests;
    80 "the peer accepts: ESTABLISHED for the new endpoint, nothing for the example" => accepted;
    81 "an example whose request was handed over: the new request reaches the same peer" => handed_over;
    82 "the example's connect flags apply" => flags;
    83 "the example in any state but CONNECTED: INVALID_STATE" => example_states;
    84 "the endpoint in any state but UNCONNECTED: INVALID_STATE" => own_states;
    85 "either endpoint freed: INVALID_HANDLE" => freed;
    86 "a time-out of 0: INVALID_PARAMETER" => no_time;
    87 "private data that is too long: INVALID_PARAMETER" => too_much_data;
    88 "the request carries its own private data" => own_data;
    89 "a quality of service that is not offered: MODEL_NOT_SUPPORTED, nothing happens" => qos_missing;
    90 "a quality of service the peer does not offer: NON_PEER_REJECTED" => qos_refused;
    91 "the service point is gone, or its dispatcher full: NON_PEER_REJECTED" => nobody;
    92 "the peer rejects: PEER_REJECTED" => rejected;
    93 "the peer has gone silent: UNREACHABLE, or TIMED_OUT" => silent;
    94 "the time is up: TIMED_OUT" => times_out;
    95 "an example that was connected passively: INVALID_STATE" => passive;
    96 "the local ports differ" => ports;
    97 "read credits set explicitly are kept" => credits;
    98 "no resources: INSUFFICIENT_RESOURCES, UNCONNECTED" => [Faults] no_resources;
}

/// Repeats the connection of A's endpoint with another one.
fn dup(a: &Side, ep: &Ep, timeout: Timeout, data: &[u8]) -> dat_types::Result<()> {
    ep.dup_connect(&a.ep, timeout, data, Qos::BEST_EFFORT)
}

fn plain(t: &Bench, a: &Side, ep: &Ep) -> Outcome {
    Ok(dup(a, ep, Timeout::from(t.long()), b"")?)
}

fn asks_again(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    same("state", ep.state(), EpState::ActiveConnectionPending)?;
    same("qualifier of the request", b.request()?.conn_qual, b.port)
}

fn requests(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    let first = b.request()?;
    b.accept(&first, b"")?;
    a.told(ConnectionKind::Established)?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let second = b.request()?;
    let ip = |address: Option<std::net::SocketAddr>| address.map(|address| address.ip());
    same("addresses", ip(second.remote), ip(first.remote))?;
    same("qualifiers", second.conn_qual, first.conn_qual)?;
    holds(second.remote_port != first.remote_port, "both requests come from the same port")
}

fn accepted(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let other = t.remote()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.told_on(&conn, ConnectionKind::Established)?;
    other.told(ConnectionKind::Established)?;
    same("state", ep.state(), EpState::Connected)?;
    a.quiet(&a.conn, "the example's connect dispatcher")?;
    a.is_in(EpState::Connected)?;
    other.post_recv(0, 64, 1)?;
    ep.post_send(&[a.lmr.triplet(0, 8)], 2, PLAIN)?;
    other.receives(1, DtoStatus::Success).map(|_| ())
}

fn handed_over(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let other = t.remote()?;
    a.connect(&b)?;
    b.hand_over(&b.request()?, other.port)?;
    other.accept(&other.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    b.accept(&b.request()?, b"")?;
    a.told_on(&conn, ConnectionKind::Established)
}

fn flags(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions { flags: ConnectFlags::MULTIPATH_REQUESTED, ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    let other = t.remote()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.told_on(&conn, ConnectionKind::Established)?;
    same("states", ep.state(), a.ep.state())
}

fn example_states(t: &Bench) -> Outcome {
    let refused = |a: &Side, state: EpState| {
        let (ep, _conn) = a.separate_ep()?;
        a.is_in(state)?;
        let result = dup(a, &ep, Timeout::from(t.long()), b"");
        t.refused(&format!("an example that is {state}"), result, ReturnType::InvalidState)?;
        same("state", ep.state(), EpState::Unconnected)?;
        a.is_in(state)
    };
    let (a, b) = t.sides()?;
    refused(&a, EpState::Unconnected)?;
    a.connect(&b)?;
    refused(&a, EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    refused(&a, EpState::Disconnected)?;
    let (draining, _b) = t.draining(8)?;
    refused(&draining, EpState::DisconnectPending)?;
    let reserved = t.side()?;
    reserved.reserve()?;
    refused(&reserved, EpState::Reserved)
}

fn own_states(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let result = dup(&a, &ep, Timeout::INFINITE, b"");
    t.refused("ACTIVE_CONNECTION_PENDING", result, ReturnType::InvalidState)?;
    ep.disconnect(CloseFlags::Abrupt)?;
    same("state", ep.state(), EpState::Disconnected)?;
    t.refused("DISCONNECTED", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    t.refused("itself", dup(&a, &a.ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    b.is_in(EpState::Connected)
}

fn freed(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    ep.free()?;
    t.refused("a freed endpoint", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidHandle)?;
    let (ep, _conn) = a.separate_ep()?;
    a.ep.free()?;
    t.refused("a freed example", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidHandle)
}

fn no_time(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    let result = dup(&a, &ep, Timeout::from(Duration::ZERO), b"");
    t.refused("a time-out of 0", result, ReturnType::InvalidParameter)?;
    same("state", ep.state(), EpState::Unconnected)
}

fn too_much_data(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    let data = vec![0; a.ia.provider_query()?.max_private_data_size as usize + 1];
    t.refused("one byte too many", dup(&a, &ep, Timeout::INFINITE, &data), ReturnType::InvalidParameter)?;
    same("state", ep.state(), EpState::Unconnected)
}

fn own_data(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions { private_data: b"first", ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    let (ep, _conn) = a.separate_ep()?;
    dup(&a, &ep, Timeout::from(t.long()), b"second!")?;
    same("private data", b.request()?.data, b"second!".to_vec())
}

const ALL_QOS: [Qos; 4] = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];

fn qos_missing(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    let offered = a.ia.provider_query()?.qos_supported.0;
    let Some(qos) = ALL_QOS.into_iter().find(|qos| offered & qos.0 == 0) else {
        return not_supported("the provider offers every quality of service");
    };
    let (ep, conn) = a.separate_ep()?;
    let result = ep.dup_connect(&a.ep, Timeout::from(t.long()), b"", qos);
    t.refused("dup_connect", result, ReturnType::ModelNotSupported)?;
    same("state", ep.state(), EpState::Unconnected)?;
    a.quiet(&conn, "the new endpoint's connect dispatcher")
}

fn qos_refused(t: &Bench) -> Outcome {
    let (a, b) = (super::b_connect::generous_side(t)?, t.remote()?);
    join(&a, &b)?;
    let qos = super::b_connect::qos_only_here(&a, &b)?;
    let (ep, conn) = a.separate_ep()?;
    ep.dup_connect(&a.ep, Timeout::from(t.long()), b"", qos)?;
    a.told_on(&conn, ConnectionKind::NonPeerRejected)?;
    same("state", ep.state(), EpState::Disconnected)
}

fn nobody(t: &Bench) -> Outcome {
    let a = t.side()?;
    let b = RemoteSide::with_backlog(t.peer()?, &AttrSpec::default(), 1)?;
    join(&a, &b)?;
    let (waits, _) = a.separate_ep()?;
    plain(t, &a, &waits)?;
    // The first one is the only one that fits; which of the others comes second does not matter.
    t.pause();
    let fails = |what: &str| {
        let (ep, conn) = a.separate_ep()?;
        plain(t, &a, &ep)?;
        a.told_on(&conn, ConnectionKind::NonPeerRejected)?;
        same(what, ep.state(), EpState::Disconnected)
    };
    fails("state, with a full dispatcher")?;
    b.free(b.psp)?;
    fails("state, without a service point")
}

fn rejected(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    b.reject(&b.request()?, b"")?;
    a.told_on(&conn, ConnectionKind::PeerRejected)?;
    same("state", ep.state(), EpState::Disconnected)
}

fn silent(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    if !b.peer.freeze()? {
        return not_supported("the peer is an adapter of this process, which cannot be stopped");
    }
    let (ep, conn) = a.separate_ep()?;
    dup(&a, &ep, t.millis(150), b"")?;
    match a.event(&conn, "a connection event at A")?.data {
        dat_types::EventData::Connection {
            kind: ConnectionKind::Unreachable | ConnectionKind::TimedOut,
            ..
        } => same("state", ep.state(), EpState::Disconnected),
        other => fail(format!("{other:?} instead of UNREACHABLE or TIMED_OUT")),
    }
}

fn times_out(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, conn) = a.separate_ep()?;
    let (timeout, start) = (t.millis(100), Instant::now());
    dup(&a, &ep, timeout, b"")?;
    a.told_on(&conn, ConnectionKind::TimedOut)?;
    let took = start.elapsed();
    holds(Some(took) >= timeout.duration(), format!("timed out after {took:?}, earlier than {timeout:?}"))?;
    same("state", ep.state(), EpState::Disconnected)?;
    b.request().map(|_| ())
}

fn passive(t: &Bench) -> Outcome {
    let (a, _b) = t.pair_from_b()?;
    let (ep, _conn) = a.separate_ep()?;
    t.refused("dup_connect", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    same("state", ep.state(), EpState::Unconnected)?;
    a.is_in(EpState::Connected)
}

fn ports(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let (first, second) = (a.ep.query()?.local_port_qual, ep.query()?.local_port_qual);
    holds(second != 0 && second != first, format!("ports {first} and {second}"))?;
    same("port in the request", b.request()?.remote_port, second)
}

fn credits(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let other = t.remote()?;
    let conn = a.ia.evd_create(16, EvdFlags::CONNECTION)?;
    let attr = AttrSpec { reads_in: Some(1), reads_out: Some(1), ..AttrSpec::default() }.over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&conn), Some(&attr))?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.told_on(&conn, ConnectionKind::Established)?;
    let now = ep.query()?.attr;
    same("read credits (in, out)", (now.max_rdma_read_in, now.max_rdma_read_out), (1, 1))
}

fn no_resources(t: &Bench) -> Outcome {
    let b = t.remote()?;
    let a = Side::new(t.subject.open_faulty("second_connect")?, &AttrSpec::default(), t.kit.clone())?;
    join(&a, &b)?;
    let (ep, conn) = a.separate_ep()?;
    let result = dup(&a, &ep, Timeout::from(t.long()), b"");
    t.refused("dup_connect", result, ReturnType::InsufficientResources)?;
    same("state", ep.state(), EpState::Unconnected)?;
    a.quiet(&conn, "the new endpoint's connect dispatcher")?;
    a.is_in(EpState::Connected)
}
