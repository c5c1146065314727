//! D. `dat_ep_disconnect` in every state but CONNECTED.

use super::prelude::*;

clauses! {
    108 "DISCONNECT_PENDING: requests are refused" => pending_refuses_requests;
    109 "DISCONNECT_PENDING: a receive is accepted" => pending_takes_recv;
    110 "DISCONNECT_PENDING: graceful again has no effect, one DISCONNECTED in total" => pending_graceful_again;
    111 "DISCONNECT_PENDING: abrupt does not wait, the rest is flushed, one DISCONNECTED" => pending_abrupt;
    112 "DISCONNECTED: success without an event" => disconnected;
    113 "UNCONNECTED: refused, receives posted before are kept" => unconnected;
    116 "TENTATIVE_CONNECTION_PENDING: refused" => tentative;
    117 "ACTIVE_CONNECTION_PENDING, graceful: DISCONNECTED at once, receives flushed" => active_graceful;
    118 "ACTIVE_CONNECTION_PENDING, abrupt: the same" => active_abrupt;
    119 "COMPLETION_PENDING: DISCONNECTED, receives flushed" => completion_pending;
    120 "an attempt is given up, the peer accepts later: ACCEPT_COMPLETION_ERROR there, nothing here" => given_up;
}

fn pending_refuses_requests(t: &Bench) -> Outcome {
    let (a, b) = t.draining(8)?;
    let local = [a.lmr.triplet(0, 16)];
    let remote = b.target(0, 16);
    t.refused("send", a.ep.post_send(&local, 1, PLAIN), ReturnType::InvalidState)?;
    t.refused("write", a.ep.post_rdma_write(&local, 1, remote, PLAIN), ReturnType::InvalidState)?;
    t.refused("read", a.ep.post_rdma_read(&local, 1, remote, PLAIN), ReturnType::InvalidState)
}

fn pending_takes_recv(t: &Bench) -> Outcome {
    let (a, b) = t.draining(8)?;
    a.post_recvs(1)?;
    unstall(&b, 8)?;
    a.told(ConnectionKind::Disconnected)?;
    a.recvs_flushed(1)
}

fn pending_graceful_again(t: &Bench) -> Outcome {
    let (a, b) = t.draining(8)?;
    a.ep.disconnect(CloseFlags::Graceful)?;
    a.is_in(EpState::DisconnectPending)?;
    unstall(&b, 8)?;
    a.told(ConnectionKind::Disconnected)?;
    for cookie in 0..8 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
    }
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn pending_abrupt(t: &Bench) -> Outcome {
    let (a, _b) = t.draining(8)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.reaches(EpState::Disconnected)?;
    a.told(ConnectionKind::Disconnected)?;
    let last = a.dtos(&a.request, 8)?.pop().map(|dto| dto.status);
    same("status of the last request", last, Some(DtoStatus::Flushed))?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn disconnected(t: &Bench) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.ep.disconnect(CloseFlags::Graceful)?;
    a.is_in(EpState::Disconnected)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn unconnected(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.post_recvs(1)?;
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", a.ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    a.is_in(EpState::Unconnected)?;
    join(&a, &b)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success).map(|_| ())
}

fn tentative(t: &Bench) -> Outcome {
    let (_asked, ep) = t.tentative()?;
    for flags in [CloseFlags::Abrupt, CloseFlags::Graceful] {
        t.refused("disconnect", ep.disconnect(flags), ReturnType::InvalidState)?;
    }
    same("state", ep.state(), EpState::TentativeConnectionPending)
}

fn active(t: &Bench, flags: CloseFlags) -> Outcome {
    let (a, b) = t.sides()?;
    a.post_recvs(3)?;
    a.connect(&b)?;
    a.is_in(EpState::ActiveConnectionPending)?;
    a.ep.disconnect(flags)?;
    a.is_in(EpState::Disconnected)?;
    a.told(ConnectionKind::Disconnected)?;
    a.recvs_flushed(3)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}

fn active_graceful(t: &Bench) -> Outcome {
    active(t, CloseFlags::Graceful)
}

fn active_abrupt(t: &Bench) -> Outcome {
    active(t, CloseFlags::Abrupt)
}

fn completion_pending(t: &Bench) -> Outcome {
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
            return not_supported("an accepted connection is up before it can be disconnected");
        }
    }
    Ok(())
}

/// `false`: the connection was up already.
fn caught_pending(t: &Bench, flags: CloseFlags) -> Result<bool, Stop> {
    let Asked { a, b, cr, .. } = t.asked(PspFlags::Consumer, b"")?;
    a.post_recvs(2)?;
    cr.accept(Some(&a.ep), b"")?;
    a.ep.disconnect(flags)?;
    let (kind, _) = a.connection()?;
    if kind == ConnectionKind::Established {
        return Ok(false);
    }
    same("connection event at A", kind, ConnectionKind::Disconnected)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(2)?;
    a.quiet(&a.conn, "A's connect dispatcher")?;
    let (kind, _) = b.connection()?;
    if kind == ConnectionKind::Established {
        // The peer was told before it was taken back; then it is told of the end.
        let (end, _) = b.connection()?;
        let ends = [ConnectionKind::Disconnected, ConnectionKind::Broken];
        holds(ends.contains(&end), format!("B's connection ended with {end:?}"))?;
    }
    Ok(true)
}

fn given_up(t: &Bench) -> Outcome {
    let (a, b) = t.sides()?;
    a.connect(&b)?;
    let request = b.request()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.told(ConnectionKind::Disconnected)?;
    b.accept(&request, b"")?;
    b.told(ConnectionKind::AcceptCompletionError)?;
    b.is_in(EpState::Disconnected)?;
    a.quiet(&a.conn, "A's connect dispatcher")
}
