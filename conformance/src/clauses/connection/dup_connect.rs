//! `dat_ep_dup_connect`.

use crate::clauses::prelude::*;

clauses! {
    78 "Duplicate connect: ACTIVE_CONNECTION_PENDING; the request arrives where the first one did" => asks_again;
    79 "Both requests: the same address and qualifier, different ports" => requests;
    80 "The peer accepts: ESTABLISHED for the new endpoint, no event for the model" => accepted;
    81 "A model whose request was handed off: the new request reaches the same peer" => handed_over;
    82 "The model's connect flags apply" => flags;
    83 "The model in any state but CONNECTED: INVALID_STATE" => example_states;
    84 "Duplicate connect of an endpoint in any state but UNCONNECTED: INVALID_STATE" => own_states;
    85 "Either endpoint freed: INVALID_HANDLE" => freed;
    86 "A time limit of 0 at duplicate connect: INVALID_PARAMETER" => no_time;
    87 "Private data that is too long: INVALID_PARAMETER" => too_much_data;
    88 "The duplicate request carries its own private data" => own_data;
    89 "Duplicate connect with a quality of service that is not offered: MODEL_NOT_SUPPORTED, no event" => qos_missing;
    90 "Duplicate connect with a quality of service the peer does not offer: NON_PEER_REJECTED" => qos_refused;
    91 "The service point is gone, or its dispatcher full: NON_PEER_REJECTED" => no_listener;
    92 "The peer rejects a duplicate: PEER_REJECTED" => rejected;
    93 "The peer's host is silent: UNREACHABLE, or TIMED_OUT" => silent;
    94 "The time limit of a duplicate is over: TIMED_OUT" => times_out;
    95 "A model that was connected passively: INVALID_STATE" => passive;
    96 "The local ports of model and duplicate differ" => ports;
    97 "Explicit read credits of a duplicate are kept" => credits;
    98 "Duplicate connect without resources: INSUFFICIENT_RESOURCES, UNCONNECTED" => [Faults] no_resources;
}

/// Repeats the connection of A's endpoint with another one.
fn dup(a: &LocalEnd, ep: &Ep, timeout: Timeout, data: &[u8]) -> dat_types::Result<()> {
    ep.dup_connect(&a.ep, timeout, data, Qos::BEST_EFFORT)
}

fn plain(t: &TestContext, a: &LocalEnd, ep: &Ep) -> Outcome {
    Ok(dup(a, ep, Timeout::from(t.long()), b"")?)
}

fn asks_again(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    ensure_eq("state", ep.state(), EpState::ActiveConnectionPending)?;
    ensure_eq("qualifier of the request", b.request()?.conn_qual, b.port)
}

fn requests(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let first = b.request()?;
    b.accept(&first, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let second = b.request()?;
    let ip = |address: Option<std::net::SocketAddr>| address.map(|address| address.ip());
    ensure_eq("addresses", ip(second.remote), ip(first.remote))?;
    ensure_eq("qualifiers", second.conn_qual, first.conn_qual)?;
    ensure(second.remote_port != first.remote_port, "both requests come from the same port")
}

fn accepted(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let other = t.remote()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::Established)?;
    other.expect_event(ConnectionKind::Established)?;
    ensure_eq("state", ep.state(), EpState::Connected)?;
    a.expect_no_event(&a.conn, "the example's connect dispatcher")?;
    a.is_in(EpState::Connected)?;
    other.post_recv(0, 64, 1)?;
    ep.post_send(&[a.lmr.triplet(0, 8)], 2, PLAIN)?;
    other.receives(1, DtoStatus::Success).map(|_| ())
}

fn handed_over(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let other = t.remote()?;
    a.connect(&b)?;
    b.hand_over(&b.request()?, other.port)?;
    other.accept(&other.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::Established)
}

fn flags(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions { flags: ConnectFlags::MULTIPATH_REQUESTED, ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let other = t.remote()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::Established)?;
    ensure_eq("states", ep.state(), a.ep.state())
}

fn example_states(t: &TestContext) -> Outcome {
    let refused = |a: &LocalEnd, state: EpState| {
        let (ep, _conn) = a.separate_ep()?;
        a.is_in(state)?;
        let result = dup(a, &ep, Timeout::from(t.long()), b"");
        t.refused(&format!("an example that is {state}"), result, ReturnType::InvalidState)?;
        ensure_eq("state", ep.state(), EpState::Unconnected)?;
        a.is_in(state)
    };
    let (a, b) = t.ends()?;
    refused(&a, EpState::Unconnected)?;
    a.connect(&b)?;
    refused(&a, EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    refused(&a, EpState::Disconnected)?;
    let (draining, _b) = t.draining(8)?;
    refused(&draining, EpState::DisconnectPending)?;
    let reserved = t.local()?;
    reserved.reserve()?;
    refused(&reserved, EpState::Reserved)
}

fn own_states(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let result = dup(&a, &ep, Timeout::INFINITE, b"");
    t.refused("ACTIVE_CONNECTION_PENDING", result, ReturnType::InvalidState)?;
    ep.disconnect(CloseFlags::Abrupt)?;
    ensure_eq("state", ep.state(), EpState::Disconnected)?;
    t.refused("DISCONNECTED", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    t.refused("itself", dup(&a, &a.ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    b.is_in(EpState::Connected)
}

fn freed(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    ep.free()?;
    t.refused("a freed endpoint", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidHandle)?;
    let (ep, _conn) = a.separate_ep()?;
    a.ep.free()?;
    t.refused("a freed example", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidHandle)
}

fn no_time(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    let result = dup(&a, &ep, Timeout::from(Duration::ZERO), b"");
    t.refused("a time-out of 0", result, ReturnType::InvalidParameter)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)
}

fn too_much_data(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    let data = vec![0; a.ia.provider_query()?.max_private_data_size as usize + 1];
    t.refused("one byte too many", dup(&a, &ep, Timeout::INFINITE, &data), ReturnType::InvalidParameter)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)
}

fn own_data(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions { private_data: b"first", ..a.towards(&b) })?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let (ep, _conn) = a.separate_ep()?;
    dup(&a, &ep, Timeout::from(t.long()), b"second!")?;
    ensure_eq("private data", b.request()?.data, b"second!".to_vec())
}

const ALL_QOS: [Qos; 4] = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];

fn qos_missing(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let offered = a.ia.provider_query()?.qos_supported.0;
    let Some(qos) = ALL_QOS.into_iter().find(|qos| offered & qos.0 == 0) else {
        return not_applicable("the provider offers every quality of service");
    };
    let (ep, conn) = a.separate_ep()?;
    let result = ep.dup_connect(&a.ep, Timeout::from(t.long()), b"", qos);
    t.refused("dup_connect", result, ReturnType::ModelNotSupported)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)?;
    a.expect_no_event(&conn, "the new endpoint's connect dispatcher")
}

fn qos_refused(t: &TestContext) -> Outcome {
    let (a, b) = (super::connect::generous_side(t)?, t.remote()?);
    join(&a, &b)?;
    let qos = super::connect::qos_only_here(&a, &b)?;
    let (ep, conn) = a.separate_ep()?;
    ep.dup_connect(&a.ep, Timeout::from(t.long()), b"", qos)?;
    a.expect_event_on(&conn, ConnectionKind::NonPeerRejected)?;
    ensure_eq("state", ep.state(), EpState::Disconnected)
}

fn no_listener(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let b = RemoteEnd::with_backlog(t.peer()?, &AttrSpec::default(), 1)?;
    join(&a, &b)?;
    let (waits, _) = a.separate_ep()?;
    plain(t, &a, &waits)?;
    // Only the first fits. The order of the others does not matter.
    t.pause();
    let fails = |what: &str| {
        let (ep, conn) = a.separate_ep()?;
        plain(t, &a, &ep)?;
        a.expect_event_on(&conn, ConnectionKind::NonPeerRejected)?;
        ensure_eq(what, ep.state(), EpState::Disconnected)
    };
    fails("state, with a full dispatcher")?;
    b.free(b.psp)?;
    fails("state, without a service point")
}

fn rejected(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    b.reject(&b.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::PeerRejected)?;
    ensure_eq("state", ep.state(), EpState::Disconnected)
}

fn silent(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    if !b.peer.freeze()? {
        return not_applicable("the peer is an adapter of this process, which cannot be stopped");
    }
    let (ep, conn) = a.separate_ep()?;
    dup(&a, &ep, t.millis(150), b"")?;
    match a.event(&conn, "a connection event at A")?.data {
        dat_types::EventData::Connection {
            kind: ConnectionKind::Unreachable | ConnectionKind::TimedOut,
            ..
        } => ensure_eq("state", ep.state(), EpState::Disconnected),
        other => fail(format!("{other:?} instead of UNREACHABLE or TIMED_OUT")),
    }
}

fn times_out(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, conn) = a.separate_ep()?;
    let (timeout, start) = (t.millis(100), Instant::now());
    dup(&a, &ep, timeout, b"")?;
    a.expect_event_on(&conn, ConnectionKind::TimedOut)?;
    let took = start.elapsed();
    ensure(Some(took) >= timeout.duration(), format!("timed out after {took:?}, earlier than {timeout:?}"))?;
    ensure_eq("state", ep.state(), EpState::Disconnected)?;
    b.request().map(|_| ())
}

fn passive(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair_from_b()?;
    let (ep, _conn) = a.separate_ep()?;
    t.refused("dup_connect", dup(&a, &ep, Timeout::INFINITE, b""), ReturnType::InvalidState)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)?;
    a.is_in(EpState::Connected)
}

fn ports(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ep, _conn) = a.separate_ep()?;
    plain(t, &a, &ep)?;
    let (first, second) = (a.ep.query()?.local_port_qual, ep.query()?.local_port_qual);
    ensure(second != 0 && second != first, format!("ports {first} and {second}"))?;
    ensure_eq("port in the request", b.request()?.remote_port, second)
}

fn credits(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let other = t.remote()?;
    let conn = a.ia.evd_create(16, EvdFlags::CONNECTION)?;
    let attr = AttrSpec { reads_in: Some(1), reads_out: Some(1), ..AttrSpec::default() }.over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&conn), Some(&attr))?;
    plain(t, &a, &ep)?;
    other.accept(&b.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::Established)?;
    let now = ep.query()?.attr;
    ensure_eq("read credits (in, out)", (now.max_rdma_read_in, now.max_rdma_read_out), (1, 1))
}

fn no_resources(t: &TestContext) -> Outcome {
    let b = t.remote()?;
    let a = LocalEnd::new(t.subject.open_faulty("second_connect")?, &AttrSpec::default(), t.fixture.clone())?;
    join(&a, &b)?;
    let (ep, conn) = a.separate_ep()?;
    let result = dup(&a, &ep, Timeout::from(t.long()), b"");
    t.refused("dup_connect", result, ReturnType::InsufficientResources)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)?;
    a.expect_no_event(&conn, "the new endpoint's connect dispatcher")?;
    a.is_in(EpState::Connected)
}
