//! `dat_ep_disconnect` of a connected endpoint: what completes, what is flushed, what is reported.

use crate::clauses::prelude::*;

clauses! {
    99 "Abrupt with no work outstanding: one DISCONNECTED, state DISCONNECTED" => abrupt_idle;
    100 "Graceful with no work outstanding: DISCONNECTED, state DISCONNECTED" => graceful_idle;
    101 "The default flag is abrupt" => default_is_abrupt;
    103 "A freed endpoint cannot disconnect: INVALID_HANDLE" => freed;
    104 "Abrupt: every outstanding request and receive completes, with success or FLUSHED" => all_complete;
    105 "Abrupt: in each direction no success follows a failure" => no_success_after_failure;
    106 "Graceful: all outstanding requests succeed, then DISCONNECTED" => graceful_completes;
    107 "Graceful with a slow peer: DISCONNECT_PENDING meanwhile" => pending_meanwhile;
    121 "One dispatcher for all streams: successful completions come before DISCONNECTED" => shared_dispatcher;
    122 "The peer's endpoint gets DISCONNECTED too, and its receives are flushed" => peer_sees_it;
    123 "Both sides disconnect at once: exactly one DISCONNECTED each" => both_at_once;
    124 "The passive side can disconnect like the active side" => passive_side;
    125 "A suppressed request that did not succeed is reported as FLUSHED" => suppressed_is_flushed;
    126 "Receives are flushed in the order they were posted" => flush_order;
    128 "DISCONNECTED: a send is accepted and flushed at once" => post_when_disconnected;
}

fn idle(t: &TestContext, flags: CloseFlags) -> Outcome {
    let (a, b) = t.pair()?;
    a.ep.disconnect(flags)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn abrupt_idle(t: &TestContext) -> Outcome {
    idle(t, CloseFlags::Abrupt)
}

fn graceful_idle(t: &TestContext) -> Outcome {
    idle(t, CloseFlags::Graceful)
}

fn default_is_abrupt(t: &TestContext) -> Outcome {
    ensure_eq("flag of value 0", CloseFlags::from_raw(0), Some(CloseFlags::default()))?;
    let (a, _b) = t.stalled(8, PLAIN)?;
    // A graceful one would wait for ever: the peer takes nothing.
    a.ep.disconnect(CloseFlags::default())?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)
}

fn freed(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.ep.free()?;
    t.refused("abrupt", a.ep.disconnect(CloseFlags::Abrupt), ReturnType::InvalidHandle)?;
    t.refused("graceful", a.ep.disconnect(CloseFlags::Graceful), ReturnType::InvalidHandle)
}

/// Statuses of 8 stalled sends and 5 receives after an abrupt disconnect.
fn cut_off(t: &TestContext) -> Result<[Vec<DtoStatus>; 2], Stop> {
    let (a, _b) = t.stalled(8, PLAIN)?;
    a.post_recvs(5)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    let statuses =
        |evd: &Evd, n| Ok::<_, Stop>(a.dtos(evd, n)?.iter().map(|dto| dto.status).collect::<Vec<_>>());
    let both = [statuses(&a.request, 8)?, statuses(&a.recv, 5)?];
    a.expect_no_event(&a.request, "A's request dispatcher")?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")?;
    Ok(both)
}

fn all_complete(t: &TestContext) -> Outcome {
    let known = [DtoStatus::Success, DtoStatus::Flushed];
    let [requests, recvs] = cut_off(t)?;
    ensure(
        requests.iter().chain(&recvs).all(|status| known.contains(status)),
        format!("requests {requests:?}, receives {recvs:?}: something else than success and flushed"),
    )
}

fn no_success_after_failure(t: &TestContext) -> Outcome {
    for statuses in cut_off(t)? {
        let failed = statuses.iter().position(|status| *status != DtoStatus::Success);
        let succeeded = statuses.iter().rposition(|status| *status == DtoStatus::Success);
        let ordered = match (succeeded, failed) {
            (Some(last), Some(first)) => last < first,
            _ => true,
        };
        ensure(ordered, format!("a success follows a failure: {statuses:?}"))?;
    }
    Ok(())
}

fn graceful_completes(t: &TestContext) -> Outcome {
    // The peer has receives but does not poll, and no thread here waits for the requests. They complete all the same.
    let (a, b) = t.pair()?;
    take_stalled(&b, 4)?;
    for cookie in 0..4 {
        a.send(0, 16, cookie)?;
    }
    a.ep.disconnect(CloseFlags::Graceful)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    for cookie in 0..4 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
    }
    let (a, b) = t.draining(8)?;
    take_stalled(&b, 8)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    for cookie in 0..8 {
        // Waiting is not needed any more: they came before the event.
        let event = a.request.dequeue()?;
        match event.data {
            dat_types::EventData::Dto(dto) => ensure_eq(
                "completion (cookie, status)",
                (dto.cookie, dto.status),
                (cookie, DtoStatus::Success),
            )?,
            other => return fail(format!("{other:?}")),
        }
    }
    a.is_in(EpState::Disconnected)?;
    for cookie in 0..8 {
        b.receives(cookie, DtoStatus::Success)?;
    }
    b.expect_event(ConnectionKind::Disconnected)
}

fn pending_meanwhile(t: &TestContext) -> Outcome {
    let (a, b) = t.draining(8)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")?;
    a.is_in(EpState::DisconnectPending)?;
    take_stalled(&b, 8)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)
}

fn shared_dispatcher(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let evd = a.ia.evd_create(128, EvdFlags::DTO | EvdFlags::CONNECTION)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&evd), Some(&evd), Some(&evd), Some(&attr))?;
    ep.connect(&a.towards(&b))?;
    let request = b.request()?;
    b.accept(&request, b"")?;
    b.expect_event(ConnectionKind::Established)?;
    a.event(&evd, "ESTABLISHED on the shared dispatcher")?;
    for cookie in 0..4 {
        ep.post_recv(&[a.lmr.triplet(0, 64)], 100 + cookie, PLAIN)?;
        b.post_recv(64 * cookie, 64, cookie)?;
        ep.post_send(&[a.lmr.triplet(0, 64)], cookie, PLAIN)?;
    }
    ep.disconnect(CloseFlags::Graceful)?;
    let mut successes = 0;
    let mut flushes = 0;
    loop {
        match a.event(&evd, "events up to DISCONNECTED on the shared dispatcher")?.data {
            dat_types::EventData::Dto(dto) if dto.status == DtoStatus::Success => successes += 1,
            dat_types::EventData::Dto(_) => flushes += 1,
            dat_types::EventData::Connection { kind, .. } => {
                ensure_eq("connection event", kind, ConnectionKind::Disconnected)?;
                break;
            }
            other => return fail(format!("{other:?}")),
        }
    }
    ensure_eq("sends that succeeded and receives flushed before DISCONNECTED", (successes, flushes), (4, 4))?;
    a.expect_no_event(&evd, "the shared dispatcher after DISCONNECTED")
}

fn peer_sees_it(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.post_recvs(3)?;
    b.disconnect(false)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(3)?;
    b.expect_event(ConnectionKind::Disconnected)
}

fn both_at_once(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (ours, theirs) = std::thread::scope(|scope| {
        let other = scope.spawn(|| b.disconnect(false));
        (a.ep.disconnect(CloseFlags::Abrupt), other.join())
    });
    ours?;
    theirs.map_err(|_| Stop::Failed("the thread that had B disconnect panicked".into()))??;
    a.expect_event(ConnectionKind::Disconnected)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")?;
    b.expect_no_event(b.conn, "B's connect dispatcher")
}

fn passive_side(t: &TestContext) -> Outcome {
    let (a, b) = t.pair_from_b()?;
    a.post_recvs(2)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.recvs_flushed(2)?;
    b.expect_event(ConnectionKind::Disconnected)
}

fn suppressed_is_flushed(t: &TestContext) -> Outcome {
    let (a, _b) = t.stalled(8, CompletionFlags::SUPPRESS)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    // Those that had succeeded say nothing; the rest is flushed to the last.
    let mut next = a.dto(&a.request)?;
    while next.cookie < 7 {
        ensure_eq("status of a suppressed send that is reported", next.status, DtoStatus::Flushed)?;
        let cookie = next.cookie;
        next = a.dto(&a.request)?;
        ensure_eq("cookie of the next flush", next.cookie, cookie + 1)?;
    }
    ensure_eq("the last flush (cookie, status)", (next.cookie, next.status), (7, DtoStatus::Flushed))
}

fn flush_order(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.post_recvs(16)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.recvs_flushed(16)
}

fn post_when_disconnected(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.send(0, 16, 77)?;
    let dto = a.completes(&a.request, 77, DtoStatus::Flushed)?;
    ensure_eq("operation", dto.operation, DtoOperation::Send)
}
