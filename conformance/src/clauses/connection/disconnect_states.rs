//! `dat_ep_disconnect` in every state but CONNECTED.

use crate::clauses::prelude::*;

clauses! {
    108 "DISCONNECT_PENDING: requests are refused" => pending_refuses_requests;
    109 "DISCONNECT_PENDING: a receive is accepted" => pending_takes_recv;
    110 "DISCONNECT_PENDING: a second graceful disconnect has no effect; one DISCONNECTED in total" => pending_graceful_again;
    111 "DISCONNECT_PENDING: abrupt does not wait; the rest is flushed; one DISCONNECTED" => pending_abrupt;
    112 "DISCONNECTED: disconnect succeeds without an event" => disconnected;
    113 "UNCONNECTED: disconnect is refused, posted receives are kept" => unconnected;
    116 "TENTATIVE_CONNECTION_PENDING: disconnect is refused" => tentative;
    117 "ACTIVE_CONNECTION_PENDING, graceful: DISCONNECTED at once, receives flushed" => active_graceful;
    118 "ACTIVE_CONNECTION_PENDING, abrupt: the same" => active_abrupt;
    119 "COMPLETION_PENDING: DISCONNECTED at once, receives flushed" => completion_pending;
    120 "An attempt ends, the peer accepts later: ACCEPT_COMPLETION_ERROR there, no ESTABLISHED here" => given_up;
}

fn pending_refuses_requests(t: &TestContext) -> Outcome {
    let (a, b) = t.draining(8)?;
    let local = [a.lmr.triplet(0, 16)];
    let remote = b.target(0, 16);
    t.refused("send", a.ep.post_send(&local, 1, PLAIN), ReturnType::InvalidState)?;
    t.refused("write", a.ep.post_rdma_write(&local, 1, remote, PLAIN), ReturnType::InvalidState)?;
    t.refused("read", a.ep.post_rdma_read(&local, 1, remote, PLAIN), ReturnType::InvalidState)
}

fn pending_takes_recv(t: &TestContext) -> Outcome {
    let (a, b) = t.draining(8)?;
    a.post_recvs(1)?;
    take_stalled(&b, 8)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.recvs_flushed(1)
}

fn pending_graceful_again(t: &TestContext) -> Outcome {
    let (a, b) = t.draining(8)?;
    a.ep.disconnect(CloseFlags::Graceful)?;
    a.is_in(EpState::DisconnectPending)?;
    take_stalled(&b, 8)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    for cookie in 0..8 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
    }
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn pending_abrupt(t: &TestContext) -> Outcome {
    let (a, _b) = t.draining(8)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.reaches(EpState::Disconnected)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    let last = a.dtos(&a.request, 8)?.pop().map(|dto| dto.status);
    ensure_eq("status of the last request", last, Some(DtoStatus::Flushed))?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn disconnected(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.ep.disconnect(CloseFlags::Graceful)?;
    a.is_in(EpState::Disconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn unconnected(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.post_recvs(1)?;
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", a.ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    a.is_in(EpState::Unconnected)?;
    join(&a, &b)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success).map(|_| ())
}

fn tentative(t: &TestContext) -> Outcome {
    let (_pending, ep) = t.tentative()?;
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    ensure_eq("state", ep.state(), EpState::TentativeConnectionPending)
}

fn active(t: &TestContext, flags: CloseFlags) -> Outcome {
    let (a, b) = t.ends()?;
    a.post_recvs(3)?;
    a.connect(&b)?;
    a.is_in(EpState::ActiveConnectionPending)?;
    a.ep.disconnect(flags)?;
    a.is_in(EpState::Disconnected)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.recvs_flushed(3)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}

fn active_graceful(t: &TestContext) -> Outcome {
    active(t, CloseFlags::Graceful)
}

fn active_abrupt(t: &TestContext) -> Outcome {
    active(t, CloseFlags::Abrupt)
}

fn completion_pending(t: &TestContext) -> Outcome {
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        let mut caught = false;
        // The state lasts as long as the transport needs; a fast one has to be caught in it.
        for _ in 0..20 {
            if caught_pending(t, flags)? {
                caught = true;
                break;
            }
        }
        if !caught {
            return not_applicable("an accepted connection is up before it can be disconnected");
        }
    }
    Ok(())
}

/// `false`: the connection was up already.
fn caught_pending(t: &TestContext, flags: CloseFlags) -> Result<bool, Stop> {
    let PendingRequest { a, b, cr, .. } = t.pending_request(PspFlags::Consumer, b"")?;
    a.post_recvs(2)?;
    cr.accept(Some(&a.ep), b"")?;
    a.ep.disconnect(flags)?;
    let (kind, _) = a.connection()?;
    if kind == ConnectionKind::Established {
        return Ok(false);
    }
    ensure_eq("connection event at A", kind, ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(2)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")?;
    let (kind, _) = b.connection()?;
    if kind == ConnectionKind::Established {
        // The request arrived before it was withdrawn. Then the end follows.
        let (end, _) = b.connection()?;
        let ends = [ConnectionKind::Disconnected, ConnectionKind::Broken];
        ensure(ends.contains(&end), format!("B's connection ended with {end:?}"))?;
    }
    Ok(true)
}

fn given_up(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.connect(&b)?;
    let request = b.request()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    b.accept(&request, b"")?;
    b.expect_event(ConnectionKind::AcceptCompletionError)?;
    b.is_in(EpState::Disconnected)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")
}
