//! B. `dat_ep_connect`: how attempts end.

use super::prelude::*;

clauses! {
    39 "connecting: ACTIVE_CONNECTION_PENDING before the peer answers" => pending;
    48 "without a time-out an attempt lasts until it is answered" => infinite;
    49 "a time-out: TIMED_OUT, not earlier, DISCONNECTED" => times_out;
    50 "a quality of service that is not offered: MODEL_NOT_SUPPORTED, nothing happens" => qos_missing;
    51 "a quality of service the peer does not offer: NON_PEER_REJECTED" => qos_refused;
    52 "nobody listens: NON_PEER_REJECTED" => nobody_listens;
    53 "the peer's dispatcher of requests is full: NON_PEER_REJECTED" => backlog_full;
    54 "the peer goes away during the set-up: NON_PEER_REJECTED" => peer_vanishes;
    55 "the peer rejects: PEER_REJECTED" => rejected;
    56 "the peer accepts: one ESTABLISHED, CONNECTED" => accepted;
    57 "when ESTABLISHED is dequeued, the state is CONNECTED already" => state_first;
    58 "an unreachable host: INVALID_ADDRESS, or UNREACHABLE" => unreachable;
    61 "a freed endpoint is no handle" => freed;
    62 "in any state but UNCONNECTED: INVALID_STATE, nothing changes" => wrong_states;
    63 "without protection zone or connect dispatcher: INVALID_STATE" => not_ready;
    68 "receives posted before are flushed in order when the attempt fails" => recvs_flushed;
    69 "receives posted before take the first message" => recvs_used;
    74 "no resources: INSUFFICIENT_RESOURCES, UNCONNECTED" => [Faults] no_resources;
    75 "after a failure no second event comes" => one_event;
    76 "after a failure and a reset it connects" => reset_and_again;
    77 "a silent peer and a short time-out: TIMED_OUT" => silent_peer;
}

/// Nobody of the suite listens here: service points get qualifiers of at least 1024.
const NOBODY: u64 = 7;

fn pending(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    a.is_in(EpState::ActiveConnectionPending)?;
    b.request().map(|_| ())
}

fn infinite(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions::new(b.address, b.port))?;
    a.quiet_for(&a.conn, "A's connect dispatcher", t.scaled(Duration::from_secs(3)))?;
    a.is_in(EpState::ActiveConnectionPending)
}

fn times_out(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let timeout = t.millis(120);
    let start = Instant::now();
    a.ep.connect(&ConnectOptions { timeout, ..a.towards(&b) })?;
    a.told(ConnectionKind::TimedOut)?;
    let took = start.elapsed();
    holds(Some(took) >= timeout.duration(), format!("timed out after {took:?}, earlier than {timeout:?}"))?;
    a.is_in(EpState::Disconnected)
}

fn qos_missing(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let offered = a.ia.provider_query()?.qos_supported.0;
    let all = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];
    let Some(qos) = all.into_iter().find(|qos| offered & qos.0 == 0) else {
        return not_supported("the provider offers every quality of service");
    };
    let result = a.ep.connect(&ConnectOptions { qos, ..a.towards(&b) });
    t.refused("connect", result, ReturnType::ModelNotSupported)?;
    a.is_in(EpState::Unconnected)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

/// A quality of service that A's adapter offers and B's does not.
pub(super) fn qos_only_here(a: &Side, b: &RemoteSide) -> Result<Qos, Stop> {
    let (here, there) = (a.ia.provider_query()?.qos_supported.0, b.qos()?);
    let all = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];
    match all.into_iter().find(|qos| here & qos.0 != 0 && there & qos.0 == 0) {
        Some(qos) => Ok(qos),
        None => not_supported("both adapters offer the same qualities of service"),
    }
}

/// A side whose adapter offers every quality of service, where a parameter can ask for that.
pub(super) fn generous_side(t: &Bench) -> Result<Side, Stop> {
    match t.subject.open_param("qos", "15") {
        Ok(ia) => Side::new(ia, &AttrSpec::default(), t.kit.clone()),
        Err(_) => t.side(),
    }
}

fn qos_refused(t: &Bench) -> Outcome {
    let (a, b) = (generous_side(t)?, t.remote()?);
    let qos = qos_only_here(&a, &b)?;
    a.ep.connect(&ConnectOptions { qos, ..a.towards(&b) })?;
    a.told(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn nobody_listens(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.told(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn backlog_full(t: &Bench) -> Outcome {
    let a = t.side()?;
    let b = RemoteSide::with_backlog(t.peer()?, &AttrSpec::default(), 1)?;
    let others = [a.another_ep()?, a.another_ep()?];
    a.connect(&b)?;
    // The first one is the only one that fits; which of the others comes second does not matter.
    t.pause();
    for ep in &others {
        ep.connect(&a.towards(&b))?;
        a.told(ConnectionKind::NonPeerRejected)?;
        same("state of the refused endpoint", ep.state(), EpState::Disconnected)?;
    }
    a.is_in(EpState::ActiveConnectionPending)
}

fn peer_vanishes(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    b.request()?;
    b.peer.kill()?;
    a.told(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn rejected(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    b.reject(&b.request()?, b"")?;
    a.told(ConnectionKind::PeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn accepted(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    a.is_in(EpState::Connected)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn state_first(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    t.until("ESTABLISHED at A", || match a.conn.dequeue() {
        Ok(_) => a.is_in(EpState::Connected).map(|()| true),
        Err(_) => Ok(false),
    })
}

fn unreachable(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    // TEST-NET-1 of RFC 5737: nobody has it.
    let address = ([192, 0, 2, 1], 0).into();
    match a.ep.connect(&ConnectOptions { address, ..a.towards(&b) }) {
        Err(error) => {
            t.refused("connect", Err::<(), _>(error), ReturnType::InvalidAddress)?;
            a.is_in(EpState::Unconnected)
        }
        Ok(()) => {
            a.told(ConnectionKind::Unreachable)?;
            a.is_in(EpState::Disconnected)
        }
    }
}

fn freed(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.free()?;
    t.refused("connect", a.ep.connect(&a.towards(&b)), ReturnType::InvalidHandle)
}

fn wrong_states(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let refused = |state: EpState| {
        t.refused(&format!("connect when {state}"), a.ep.connect(&a.towards(&b)), ReturnType::InvalidState)?;
        a.is_in(state)
    };
    a.post_recvs(1)?;
    a.connect(&b)?;
    refused(EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.told(ConnectionKind::Established)?;
    b.told(ConnectionKind::Established)?;
    refused(EpState::Connected)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    refused(EpState::Disconnected)?;

    let (draining, peer) = t.draining(8)?;
    let result = draining.ep.connect(&draining.towards(&peer));
    t.refused("connect when DISCONNECT_PENDING", result, ReturnType::InvalidState)?;
    draining.is_in(EpState::DisconnectPending)?;

    let (asked, ep) = t.tentative()?;
    let options = asked.a.towards(&b);
    t.refused("connect when TENTATIVE", ep.connect(&options), ReturnType::InvalidState)?;
    same("state", ep.state(), EpState::TentativeConnectionPending)
}

fn not_ready(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let without_pz = a.ia.ep_create(None, Some(&a.recv), Some(&a.request), Some(&a.conn), Some(&attr))?;
    let without_evd = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), None, Some(&attr))?;
    for (what, ep) in [("without a zone", without_pz), ("without a connect dispatcher", without_evd)] {
        t.refused(what, ep.connect(&a.towards(&b)), ReturnType::InvalidState)?;
        same(what, ep.state(), EpState::Unconnected)?;
    }
    Ok(())
}

fn recvs_flushed(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let fails = |options: &ConnectOptions<'_>, kind, reject: bool| {
        a.post_recvs(4)?;
        a.ep.connect(options)?;
        if reject {
            b.reject(&b.request()?, b"")?;
        }
        a.told(kind)?;
        a.recvs_flushed(4)?;
        Ok::<_, Stop>(a.ep.reset()?)
    };
    fails(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) }, ConnectionKind::NonPeerRejected, false)?;
    fails(&a.towards(&b), ConnectionKind::PeerRejected, true)?;
    fails(&ConnectOptions { timeout: t.millis(50), ..a.towards(&b) }, ConnectionKind::TimedOut, false)
}

fn recvs_used(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.post_recvs(2)?;
    b.store(0, b"at once!")?;
    a.connect(&b)?;
    b.accept(&b.request()?, b"")?;
    b.told(ConnectionKind::Established)?;
    b.send(0, 8, 1)?;
    let dto = a.completes(&a.recv, 0, DtoStatus::Success)?;
    same("length", dto.length, 8)?;
    same("bytes", a.bytes(0, 8), b"at once!".to_vec())
}

fn no_resources(t: &Bench) -> Outcome {
    let b = t.remote()?;
    let a = Side::new(t.subject.open_faulty("connect")?, &AttrSpec::default(), t.kit.clone())?;
    a.post_recvs(1)?;
    t.refused("connect", a.ep.connect(&a.towards(&b)), ReturnType::InsufficientResources)?;
    a.is_in(EpState::Unconnected)?;
    a.quiet(&a.recv, "A's receive dispatcher")
}

fn one_event(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    let other = a.another_ep()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.told(ConnectionKind::NonPeerRejected)?;
    other.connect(&a.towards(&b))?;
    b.reject(&b.request()?, b"")?;
    a.told(ConnectionKind::PeerRejected)?;
    a.quiet_for(&a.conn, "A's connect dispatcher", t.scaled(Duration::from_secs(1)))
}

fn reset_and_again(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.told(ConnectionKind::NonPeerRejected)?;
    a.ep.reset()?;
    a.is_in(EpState::Unconnected)?;
    join(&a, &b)
}

fn silent_peer(t: &Bench) -> Outcome {
    let b = t.remote()?;
    let a = match b.peer.freeze()? {
        true => t.side()?,
        false if t.subject.injects_faults => {
            Side::new(t.subject.open_faulty("silent_connect")?, &AttrSpec::default(), t.kit.clone())?
        }
        false => return not_supported("the peer can neither be stopped nor made to be silent"),
    };
    a.ep.connect(&ConnectOptions { timeout: t.millis(150), ..a.towards(&b) })?;
    a.told(ConnectionKind::TimedOut)?;
    a.is_in(EpState::Disconnected)
}
