//! `dat_ep_connect`: how attempts end.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};

use crate::clauses::prelude::*;

clauses! {
    39 "Connecting: ACTIVE_CONNECTION_PENDING before the peer answers" => pending;
    48 "Without a time limit an attempt lasts until it is answered" => infinite;
    49 "A time limit: TIMED_OUT, not earlier, DISCONNECTED" => times_out;
    50 "A quality of service that is not offered: MODEL_NOT_SUPPORTED, no event, UNCONNECTED" => qos_missing;
    51 "A quality of service the peer does not offer: NON_PEER_REJECTED" => qos_refused;
    52 "No listener on the qualifier: NON_PEER_REJECTED" => nobody_listens;
    53 "The peer's request dispatcher is full: NON_PEER_REJECTED" => backlog_full;
    54 "The peer goes away during set-up: NON_PEER_REJECTED" => peer_vanishes;
    55 "The peer rejects: PEER_REJECTED" => rejected;
    56 "The peer accepts: one ESTABLISHED, CONNECTED" => accepted;
    57 "When ESTABLISHED is dequeued the state is CONNECTED already" => state_first;
    58 "An unreachable host: INVALID_ADDRESS, or UNREACHABLE" => unreachable;
    61 "A freed endpoint cannot connect: INVALID_HANDLE" => freed;
    62 "Connect in any state but UNCONNECTED: INVALID_STATE, no change" => wrong_states;
    63 "Connect without protection zone or connect dispatcher: INVALID_STATE" => not_ready;
    68 "Posted receives are flushed in order when the attempt fails" => recvs_flushed;
    69 "Posted receives take the first messages" => recvs_used;
    74 "Connect without resources: INSUFFICIENT_RESOURCES, UNCONNECTED" => [Faults] no_resources;
    75 "After a failure no second terminal event comes" => one_event;
    76 "After a failure and a reset the endpoint connects" => reset_and_again;
    77 "A silent peer and a short time limit: TIMED_OUT" => silent_peer;
    373 "Several connections to one dispatcher: all beginnings come before the ends that follow them" => beginnings_first;
}

/// The suite has no listener here: service points get qualifiers of at least 1024.
const NOBODY: u64 = 7;

fn pending(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    a.is_in(EpState::ActiveConnectionPending)?;
    b.request().map(|_| ())
}

fn infinite(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions::new(b.address, b.port))?;
    a.quiet_for(&a.conn, "A's connect dispatcher", t.scaled(Duration::from_secs(3)))?;
    a.is_in(EpState::ActiveConnectionPending)
}

fn times_out(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let timeout = t.millis(120);
    let start = Instant::now();
    a.ep.connect(&ConnectOptions { timeout, ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::TimedOut)?;
    let took = start.elapsed();
    ensure(Some(took) >= timeout.duration(), format!("timed out after {took:?}, earlier than {timeout:?}"))?;
    a.is_in(EpState::Disconnected)
}

fn qos_missing(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let offered = a.ia.provider_query()?.qos_supported.0;
    let all = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];
    let Some(qos) = all.into_iter().find(|qos| offered & qos.0 == 0) else {
        return not_applicable("the provider offers every quality of service");
    };
    let result = a.ep.connect(&ConnectOptions { qos, ..a.towards(&b) });
    t.refused("connect", result, ReturnType::ModelNotSupported)?;
    a.is_in(EpState::Unconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

/// A quality of service that A's adapter offers and B's does not.
pub(super) fn qos_only_here(a: &LocalEnd, b: &RemoteEnd) -> Result<Qos, Stop> {
    let (here, there) = (a.ia.provider_query()?.qos_supported.0, b.qos()?);
    let all = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];
    match all.into_iter().find(|qos| here & qos.0 != 0 && there & qos.0 == 0) {
        Some(qos) => Ok(qos),
        None => not_applicable("both adapters offer the same qualities of service"),
    }
}

/// A side whose adapter offers every quality of service, where a parameter can ask for that.
pub(super) fn generous_side(t: &TestContext) -> Result<LocalEnd, Stop> {
    match t.subject.open_param("qos", "15") {
        Ok(ia) => LocalEnd::new(ia, &AttrSpec::default(), t.fixture.clone()),
        Err(_) => t.local(),
    }
}

fn qos_refused(t: &TestContext) -> Outcome {
    let (a, b) = (generous_side(t)?, t.remote()?);
    let qos = qos_only_here(&a, &b)?;
    a.ep.connect(&ConnectOptions { qos, ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn nobody_listens(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn backlog_full(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let b = RemoteEnd::with_backlog(t.peer()?, &AttrSpec::default(), 1)?;
    let others = [a.another_ep()?, a.another_ep()?];
    a.connect(&b)?;
    // Only the first fits. The order of the others does not matter.
    t.pause();
    for ep in &others {
        ep.connect(&a.towards(&b))?;
        a.expect_event(ConnectionKind::NonPeerRejected)?;
        ensure_eq("state of the refused endpoint", ep.state(), EpState::Disconnected)?;
    }
    a.is_in(EpState::ActiveConnectionPending)
}

fn peer_vanishes(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    b.request()?;
    b.peer.kill()?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn rejected(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    b.reject(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::PeerRejected)?;
    a.is_in(EpState::Disconnected)
}

fn accepted(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.is_in(EpState::Connected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn state_first(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    t.until("ESTABLISHED at A", || match a.conn.dequeue() {
        Ok(_) => a.is_in(EpState::Connected).map(|()| true),
        Err(_) => Ok(false),
    })
}

fn unreachable(t: &TestContext) -> Outcome {
    // No host has these: TEST-NET-1 and TEST-NET-3 of RFC 5737, and the reserved block of RFC 1112.
    const NOBODYS: [[u8; 4]; 3] = [[192, 0, 2, 1], [203, 0, 113, 1], [240, 0, 0, 1]];
    let (a, b) = t.ends()?;
    // Some gateways answer for every address. A fabric over such a network finds a host there.
    let patience = t.millis(500).duration().unwrap_or_default();
    let silent = NOBODYS.into_iter().find(|host| !answers((*host, b.port as u16).into(), patience));
    match (silent, is_unreachable(&a, &b, t, silent.unwrap_or(NOBODYS[0]))) {
        (None, Err(Stop::Failed(_))) => not_applicable("this network answers for hosts that do not exist"),
        (_, outcome) => outcome,
    }
}

fn is_unreachable(a: &LocalEnd, b: &RemoteEnd, t: &TestContext, host: [u8; 4]) -> Outcome {
    let address = (host, 0).into();
    match a.ep.connect(&ConnectOptions { address, ..a.towards(b) }) {
        Err(error) => {
            t.refused("connect", Err::<(), _>(error), ReturnType::InvalidAddress)?;
            a.is_in(EpState::Unconnected)
        }
        Ok(()) => {
            a.expect_event(ConnectionKind::Unreachable)?;
            a.is_in(EpState::Disconnected)
        }
    }
}

/// Whether something on the network accepts or refuses connections to this address.
fn answers(address: SocketAddr, patience: Duration) -> bool {
    match TcpStream::connect_timeout(&address, patience) {
        Ok(_) => true,
        Err(error) => {
            matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset)
        }
    }
}

fn freed(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.free()?;
    t.refused("connect", a.ep.connect(&a.towards(&b)), ReturnType::InvalidHandle)
}

fn wrong_states(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let refused = |state: EpState| {
        t.refused(&format!("connect when {state}"), a.ep.connect(&a.towards(&b)), ReturnType::InvalidState)?;
        a.is_in(state)
    };
    a.post_recvs(1)?;
    a.connect(&b)?;
    refused(EpState::ActiveConnectionPending)?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    refused(EpState::Connected)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    refused(EpState::Disconnected)?;

    let (draining, peer) = t.draining(8)?;
    let result = draining.ep.connect(&draining.towards(&peer));
    t.refused("connect when DISCONNECT_PENDING", result, ReturnType::InvalidState)?;
    draining.is_in(EpState::DisconnectPending)?;

    let (pending, ep) = t.tentative()?;
    let options = pending.a.towards(&b);
    t.refused("connect when TENTATIVE", ep.connect(&options), ReturnType::InvalidState)?;
    ensure_eq("state", ep.state(), EpState::TentativeConnectionPending)
}

fn not_ready(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let without_pz = a.ia.ep_create(None, Some(&a.recv), Some(&a.request), Some(&a.conn), Some(&attr))?;
    let without_evd = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), None, Some(&attr))?;
    for (what, ep) in [("without a zone", without_pz), ("without a connect dispatcher", without_evd)] {
        t.refused(what, ep.connect(&a.towards(&b)), ReturnType::InvalidState)?;
        ensure_eq(what, ep.state(), EpState::Unconnected)?;
    }
    Ok(())
}

fn recvs_flushed(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let fails = |options: &ConnectOptions<'_>, kind, reject: bool| {
        a.post_recvs(4)?;
        a.ep.connect(options)?;
        if reject {
            b.reject(&b.request()?, b"")?;
        }
        a.expect_event(kind)?;
        a.recvs_flushed(4)?;
        Ok::<_, Stop>(a.ep.reset()?)
    };
    fails(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) }, ConnectionKind::NonPeerRejected, false)?;
    fails(&a.towards(&b), ConnectionKind::PeerRejected, true)?;
    fails(&ConnectOptions { timeout: t.millis(50), ..a.towards(&b) }, ConnectionKind::TimedOut, false)
}

fn recvs_used(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.post_recvs(2)?;
    b.store(0, b"at once!")?;
    a.connect(&b)?;
    b.accept(&b.request()?, b"")?;
    b.expect_event(ConnectionKind::Established)?;
    b.send(0, 8, 1)?;
    let dto = a.completes(&a.recv, 0, DtoStatus::Success)?;
    ensure_eq("length", dto.length, 8)?;
    ensure_eq("bytes", a.bytes(0, 8), b"at once!".to_vec())
}

fn no_resources(t: &TestContext) -> Outcome {
    let b = t.remote()?;
    let a = LocalEnd::new(t.subject.open_faulty("connect")?, &AttrSpec::default(), t.fixture.clone())?;
    a.post_recvs(1)?;
    t.refused("connect", a.ep.connect(&a.towards(&b)), ReturnType::InsufficientResources)?;
    a.is_in(EpState::Unconnected)?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")
}

fn one_event(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let other = a.another_ep()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    other.connect(&a.towards(&b))?;
    b.reject(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::PeerRejected)?;
    a.quiet_for(&a.conn, "A's connect dispatcher", t.scaled(Duration::from_secs(1)))
}

fn reset_and_again(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.ep.connect(&ConnectOptions { conn_qual: NOBODY, ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    a.ep.reset()?;
    a.is_in(EpState::Unconnected)?;
    join(&a, &b)
}

fn silent_peer(t: &TestContext) -> Outcome {
    let b = t.remote()?;
    let a = match b.peer.freeze()? {
        true => t.local()?,
        false if t.subject.injects_faults => {
            LocalEnd::new(t.subject.open_faulty("silent_connect")?, &AttrSpec::default(), t.fixture.clone())?
        }
        false => return not_applicable("the peer can neither be stopped nor made to be silent"),
    };
    a.ep.connect(&ConnectOptions { timeout: t.millis(150), ..a.towards(&b) })?;
    a.expect_event(ConnectionKind::TimedOut)?;
    a.is_in(EpState::Disconnected)
}

fn beginnings_first(t: &TestContext) -> Outcome {
    const CONNECTIONS: usize = 4;
    let a = t.local()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let (ep, b) = (a.another_ep()?, t.remote()?);
        b.connect_to(&a.ia, psp.conn_qual(), b"", t.long().as_millis() as u64)?;
        a.cr()?.accept(Some(&ep), b"")?;
        b.expect_event(ConnectionKind::Established)?;
        ends.push((ep, b));
    }
    // Every connection is up at the peer. A has not looked at its dispatcher yet.
    for (_, b) in &ends {
        b.disconnect(false)?;
    }
    for kind in [ConnectionKind::Established, ConnectionKind::Disconnected] {
        for _ in 0..CONNECTIONS {
            a.expect_event(kind)?;
        }
    }
    Ok(())
}
