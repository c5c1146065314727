//! Memory windows (RMR), and the operations that use them.

use dat_engine::Rmr;
use dat_types::ObjectId;

use crate::clauses::prelude::*;
use crate::peer::Posted;

clauses! {
    25 "The completion of a bind arrives on the request dispatcher" => [Windows] completes_there;
    127 "A bind outstanding at an abrupt disconnect completes, with success or FLUSHED" => [Windows] outstanding;
    295 "An RDMA read into a local window delivers the data" => [Windows] read_into;
    296 "A send with invalidate: the receive names the window, its context is dead" => [SendInvalidate] invalidate;
    305 "A region with a bound window cannot be freed" => [Windows] region_in_use;
    308 "Bind: a new context, a completion with success, a peer can use it" => [Windows] bind;
    309 "Bound again: the old context gives REMOTE_ACCESS" => [Windows] rebind;
    310 "Bound with length 0: no access, the region can be freed" => [Windows] unbind;
    311 "Remote rights without the local right of the region: PRIVILEGES_VIOLATION" => [Windows] rights;
    312 "Zones that differ: PROTECTION_VIOLATION" => [Windows] zones;
    313 "A range outside the region: INVALID_PARAMETER" => [Windows] range;
    314 "A bind on an UNCONNECTED endpoint: INVALID_STATE" => [Windows] unconnected;
    315 "A bind on a DISCONNECTED endpoint: success, then a FLUSHED completion" => [Windows] disconnected;
    316 "A bind, then a send of the new context: the peer can use it" => [Windows] bind_and_send;
    317 "Freeing a bound window succeeds, and the region can be freed" => [Windows] free_bound;
    318 "A query of an unbound window gives adapter and zone" => [Windows] query;
    367 "A window for one endpoint is refused at another endpoint: REMOTE_ACCESS" => [Windows] scope;
}

const WRITE: Privileges = Privileges::REMOTE_WRITE;

/// A window of A's over part of its region, bound on its endpoint; the triplet with which B reaches it.
fn window(a: &LocalEnd, offset: u64, len: u32, rights: Privileges) -> Result<(Rmr, RmrTriplet), Stop> {
    let rmr = a.ia.rmr_create(&a.pz)?;
    let target = bind_to(a, &rmr, offset, len, rights, 900)?;
    a.bound(900, DtoStatus::Success)?;
    Ok((rmr, target))
}

fn bind_to(
    a: &LocalEnd,
    rmr: &Rmr,
    offset: u64,
    len: u32,
    rights: Privileges,
    cookie: u64,
) -> Result<RmrTriplet, Stop> {
    let address = a.lmr.memory().addr() + offset;
    let context = rmr.bind(Some(&a.lmr), address, len, rights, &a.ep, cookie, PLAIN)?;
    Ok(RmrTriplet { address, length: len, context })
}

/// B's access fails and breaks the connection at both ends.
fn denied(a: &LocalEnd, b: &RemoteEnd, target: RmrTriplet) -> Outcome {
    b.write(8, 66, target)?;
    b.completes(66, DtoStatus::RemoteAccess)?;
    b.expect_event(ConnectionKind::Broken)?;
    a.expect_event(ConnectionKind::Broken)
}

fn completes_there(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let (rmr, _) = window(&a, 0, 64, WRITE)?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")?;
    // Without the flag on the request dispatcher the completion would have no place.
    let plain = a.ia.evd_create(16, EvdFlags::DTO)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&plain), Some(&a.conn), Some(&attr))?;
    let (b, address) = (t.remote()?, a.lmr.memory().addr());
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    let result = rmr.bind(Some(&a.lmr), address, 64, WRITE, &ep, 1, PLAIN);
    t.refused("a dispatcher without the bind flag", result, ReturnType::InvalidState)
}

fn outstanding(t: &TestContext) -> Outcome {
    // Behind sends that cannot finish.
    let (a, _b) = t.stalled(4, PLAIN)?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    bind_to(&a, &rmr, 0, 64, WRITE, 50)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    for _ in 0..4 {
        a.dto(&a.request)?;
    }
    match a.event(&a.request, "the completion of the bind")?.data {
        dat_types::EventData::RmrBind { cookie, status, rmr: id } => {
            ensure_eq("cookie and window", (cookie, id), (50, rmr.id()))?;
            ensure(
                [DtoStatus::Success, DtoStatus::Flushed].contains(&status),
                format!("it ended with {status:?}"),
            )
        }
        other => fail(format!("an event that is no bind completion: {other:?}")),
    }
}

fn read_into(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (_rmr, sink) = window(&a, 4096, 64, WRITE)?;
    b.store(0, b"read into a window")?;
    match a.ep.post_rdma_read_to_rmr(RmrTriplet { length: 18, ..sink }, 3, b.target(0, 18), PLAIN) {
        Err(error) if error.kind() == ReturnType::ModelNotSupported => {
            return not_supported("the provider does not read into windows");
        }
        result => result?,
    }
    let dto = a.completes(&a.request, 3, DtoStatus::Success)?;
    ensure_eq("length", dto.length, 18)?;
    ensure_eq("bytes", a.bytes(4096, 18), b"read into a window".to_vec())?;
    let bad = RmrTriplet { context: sink.context ^ 0x55, ..sink };
    let result = a.ep.post_rdma_read_to_rmr(bad, 4, b.target(0, 18), PLAIN);
    t.refused("a sink that is no window", result, ReturnType::PrivilegesViolation)
}

fn invalidate(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (rmr, target) = window(&a, 0, 64, WRITE)?;
    a.post_recvs(1)?;
    b.write(8, 1, target)?;
    b.completes(1, DtoStatus::Success)?;
    b.post(0, 8, 2, PLAIN, Posted::SendInvalidate { context: target.context })?;
    let dto = a.completes(&a.recv, 0, DtoStatus::Success)?;
    ensure_eq("operation", dto.operation, DtoOperation::ReceiveWithInvalidate)?;
    ensure_eq("context of the receive", dto.invalidated(), Some(target.context))?;
    b.completes(2, DtoStatus::Success)?;
    ensure_eq("context of the window", rmr.query()?.rmr_context, 0)?;
    denied(&a, &b, target)
}

fn region_in_use(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let (rmr, _) = window(&a, 0, 64, WRITE)?;
    t.refused("a region with a window", a.lmr.free(), ReturnType::InvalidState)?;
    t.refused("a zone with a window", a.pz.free(), ReturnType::InvalidState)?;
    rmr.free()?;
    Ok(a.lmr.free()?)
}

fn bind(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let rights = Privileges::REMOTE_WRITE | Privileges::REMOTE_READ;
    let target = bind_to(&a, &rmr, 100, 64, rights, 7)?;
    ensure(target.context != 0, "the context is 0")?;
    a.bound(7, DtoStatus::Success)?;
    let param = rmr.query()?;
    ensure_eq("context of a query", param.rmr_context, target.context)?;
    ensure_eq(
        "range of a query",
        param.range.map(|range| (range.address, range.length)),
        Some((target.address, 64)),
    )?;
    ensure_eq("rights of a query", param.privileges, rights)?;
    b.store(0, b"through it")?;
    b.write(10, 1, RmrTriplet { length: 10, ..target })?;
    b.completes(1, DtoStatus::Success)?;
    ensure_eq("bytes", a.bytes(100, 10), b"through it".to_vec())?;
    // The window is all of it that can be reached.
    denied(&a, &b, RmrTriplet { address: target.address + 60, ..target })
}

fn rebind(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (rmr, old) = window(&a, 0, 64, WRITE)?;
    let new = bind_to(&a, &rmr, 1024, 64, WRITE, 2)?;
    a.bound(2, DtoStatus::Success)?;
    ensure(new.context != old.context, "the context is the old one")?;
    b.write(8, 1, new)?;
    b.completes(1, DtoStatus::Success)?;
    denied(&a, &b, old)
}

fn unbind(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (rmr, target) = window(&a, 0, 64, WRITE)?;
    rmr.bind(None, 0, 0, Privileges::empty(), &a.ep, 3, PLAIN)?;
    a.bound(3, DtoStatus::Success)?;
    ensure_eq("range", rmr.query()?.range, None)?;
    denied(&a, &b, target)?;
    Ok(a.lmr.free()?)
}

fn rights(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let lmr = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, Privileges::LOCAL_READ | Privileges::REMOTE_READ)?;
    let address = lmr.memory().addr();
    let result = rmr.bind(Some(&lmr), address, 64, WRITE, &a.ep, 1, PLAIN);
    t.refused("write access to what cannot be written", result, ReturnType::PrivilegesViolation)?;
    let result = rmr.bind(Some(&lmr), address, 64, Privileges::LOCAL_READ, &a.ep, 1, PLAIN);
    t.refused("only local rights", result, ReturnType::InvalidParameter)?;
    rmr.bind(Some(&lmr), address, 64, Privileges::REMOTE_READ, &a.ep, 1, PLAIN)?;
    a.bound(1, DtoStatus::Success)
}

fn zones(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let address = a.lmr.memory().addr();
    let other = a.ia.pz_create()?;
    let rmr = a.ia.rmr_create(&other)?;
    let result = rmr.bind(Some(&a.lmr), address, 64, WRITE, &a.ep, 1, PLAIN);
    t.refused("a window of another zone", result, ReturnType::ProtectionViolation)?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let lmr = a.ia.lmr_create(&other, a.ia.alloc(4096)?, Privileges::ALL)?;
    let result = rmr.bind(Some(&lmr), lmr.memory().addr(), 64, WRITE, &a.ep, 1, PLAIN);
    t.refused("a region of another zone", result, ReturnType::ProtectionViolation)
}

fn range(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let start = a.lmr.memory().addr();
    for address in [start - 1, start + REGION - 32, start + REGION, u64::MAX - 16] {
        let result = rmr.bind(Some(&a.lmr), address, 64, WRITE, &a.ep, 1, PLAIN);
        t.refused(&format!("a range at {address:#x}"), result, ReturnType::InvalidParameter)?;
    }
    let result = rmr.bind(Some(&a.lmr), start, 64, WRITE, &a.ep, 1, CompletionFlags::SOLICITED_WAIT);
    t.refused("SOLICITED_WAIT", result, ReturnType::InvalidParameter)?;
    let result = rmr.bind(Some(&a.lmr), start, 64, WRITE, &a.ep, 1, CompletionFlags::UNSIGNALLED);
    t.refused("UNSIGNALLED without support", result, ReturnType::InvalidParameter)
}

fn unconnected(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let result = rmr.bind(Some(&a.lmr), a.lmr.memory().addr(), 64, WRITE, &a.ep, 1, PLAIN);
    t.refused("an UNCONNECTED endpoint", result, ReturnType::InvalidState)?;
    let result = rmr.bind(None, 0, 0, Privileges::empty(), &a.ep, 1, PLAIN);
    t.refused("unbinding there", result, ReturnType::InvalidState)
}

fn disconnected(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    rmr.bind(Some(&a.lmr), a.lmr.memory().addr(), 64, WRITE, &a.ep, 9, PLAIN)?;
    a.bound(9, DtoStatus::Flushed)
}

fn bind_and_send(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    for round in 0..50u64 {
        b.post_recv(512, 64, round)?;
        let target = bind_to(&a, &rmr, 1024, 64, WRITE, round)?;
        a.lmr.memory().write(0, &target.context.to_ne_bytes());
        a.send(0, 4, 1000 + round)?;
        b.receives(round, DtoStatus::Success)?;
        let bytes = b.load(512, 4)?;
        let context = u32::from_ne_bytes(bytes[..4].try_into().unwrap_or_default());
        ensure_eq("context in the message", context, target.context)?;
        b.write(8, round, RmrTriplet { context, ..target })?;
        b.completes(round, DtoStatus::Success)?;
        a.bound(round, DtoStatus::Success)?;
        a.completes(&a.request, 1000 + round, DtoStatus::Success)?;
    }
    Ok(())
}

fn free_bound(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let (rmr, target) = window(&a, 0, 64, WRITE)?;
    rmr.free()?;
    t.refused("freed again", rmr.free(), ReturnType::InvalidHandle)?;
    denied(&a, &b, target)?;
    Ok(a.lmr.free()?)
}

fn query(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let param = rmr.query()?;
    let ids: (ObjectId, ObjectId) = (param.ia, param.pz.id());
    ensure_eq("adapter and zone", ids, (a.ia.id(), a.pz.id()))?;
    ensure_eq("range", param.range, None)
}

fn scope(t: &TestContext) -> Outcome {
    let a = t.local()?;
    match a.ia.rmr_create_for_ep(&a.pz) {
        Err(error) => {
            t.refused("a window for one endpoint", Err::<(), _>(error), ReturnType::ModelNotSupported)
        }
        Ok(rmr) => {
            let (a, b) = t.pair()?;
            let other = t.remote()?;
            let (ep, conn) = a.separate_ep()?;
            ep.connect(&a.towards(&other))?;
            other.accept(&other.request()?, b"")?;
            a.expect_event_on(&conn, ConnectionKind::Established)?;
            let target = bind_to(&a, &rmr, 0, 64, WRITE, 1)?;
            a.bound(1, DtoStatus::Success)?;
            b.write(8, 1, target)?;
            b.completes(1, DtoStatus::Success)?;
            other.write(8, 2, target)?;
            other.completes(2, DtoStatus::RemoteAccess).map(|_| ())
        }
    }
}
