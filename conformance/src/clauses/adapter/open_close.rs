//! Interface adapters, return codes, handles.

use dat_engine::IaOptions;
use dat_types::ReturnCode;

use crate::clauses::prelude::*;

clauses! {
    333 "A new adapter has an async dispatcher of the length requested" => open;
    340 "A graceful close with objects left: INVALID_STATE" => graceful_refused;
    341 "A graceful close with no objects left succeeds" => graceful;
    342 "An abrupt close succeeds with objects of every kind and state" => abrupt;
    344 "Attributes of adapter and provider are consistent" => attributes;
    348 "Every return type and subtype has a text, an undefined code has none" => names;
    369 "Freeing an object twice: INVALID_HANDLE" => freed_twice;
    370 "Objects of two adapters in one call: INVALID_HANDLE" => mixed;
    372 "Every error of a run has the error class, a known type and a known subtype" => codes;
}

fn open(t: &TestContext) -> Outcome {
    for qlen in [1, 300] {
        let ia = t.subject.open_with(IaOptions { async_evd_min_qlen: qlen, ..IaOptions::default() })?;
        let param = ia.async_evd().query()?;
        ensure(param.qlen >= qlen as u32, format!("{} events instead of {qlen}", param.qlen))?;
        ensure_eq("flags", param.flags, EvdFlags::ASYNC)?;
    }
    let device = t.subject.device()?;
    let options = IaOptions { async_evd_min_qlen: 0, ..IaOptions::default() };
    let result = dat_engine::Ia::open(device, "x", "0", options);
    t.refused("a queue of 0", result, ReturnType::InvalidParameter)?;
    let device = t.subject.device()?;
    let Some(beyond) = device.attr().max_queue_depth.checked_add(1).and_then(|len| i32::try_from(len).ok())
    else {
        // No number is beyond what it has.
        return Ok(());
    };
    let options = IaOptions { async_evd_min_qlen: beyond, ..IaOptions::default() };
    let result = dat_engine::Ia::open(device, "x", "0", options);
    t.refused("a longer queue than there is", result, ReturnType::InsufficientResources)
}

fn graceful_refused(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    t.refused("graceful", a.ia.close(CloseFlags::Graceful), ReturnType::InvalidState)?;
    join(&a, &b)?;
    b.post_recv(0, 64, 1)?;
    a.send(0, 8, 2)?;
    a.completes(&a.request, 2, DtoStatus::Success).map(|_| ())
}

fn graceful(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.ep.free()?;
    a.lmr.free()?;
    for evd in [&a.recv, &a.request, &a.conn, &a.crs] {
        evd.free()?;
    }
    a.pz.free()?;
    a.ia.close(CloseFlags::Graceful)?;
    t.refused("a later call", a.ia.query(), ReturnType::InvalidHandle)?;
    t.refused("a second close", a.ia.close(CloseFlags::Abrupt), ReturnType::InvalidHandle)
}

fn abrupt(t: &TestContext) -> Outcome {
    let (pending, tentative) = t.tentative()?;
    let PendingRequest { a, b, psp, cr } = pending;
    // A's endpoint connects to a second service point of the peer's; others wait, idle, and are over.
    let other = t.remote()?;
    join(&a, &other)?;
    a.post_recvs(4)?;
    let connecting = a.another_ep()?;
    connecting.connect(&a.towards(&other))?;
    let over = a.another_ep()?;
    over.connect(&ConnectOptions { conn_qual: 7, ..a.towards(&other) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    let idle = a.another_ep()?;
    a.ia.close(CloseFlags::Abrupt)?;
    let gone = ReturnType::InvalidHandle;
    for ep in [&a.ep, &connecting, &over, &idle, &tentative] {
        t.refused("an endpoint", ep.query(), gone)?;
        t.refused("posting on it", ep.post_recv(&[], 1, PLAIN), gone)?;
    }
    for evd in [&a.recv, &a.request, &a.conn, &a.crs, &a.ia.async_evd()] {
        t.refused("a dispatcher", evd.query(), gone)?;
        t.refused("dequeueing from it", evd.dequeue(), gone)?;
    }
    t.refused("a region", a.lmr.query(), gone)?;
    t.refused("a zone", a.pz.ia(), gone)?;
    t.refused("a service point", psp.query(), gone)?;
    t.refused("a request", cr.query(), gone)?;
    t.refused("the adapter", a.ia.query(), gone)?;
    other.expect_event(ConnectionKind::Disconnected)?;
    b.expect_event(ConnectionKind::NonPeerRejected)
}

fn attributes(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    let (attr, provider) = (ia.query()?, ia.provider_query()?);
    let most = provider.max_private_data_size;
    ensure(most >= 64, format!("max_private_data_size is {most}, at least 64 are needed"))?;
    let alignment = provider.optimal_buffer_alignment;
    ensure(
        alignment > 0 && 256 % alignment == 0,
        format!("optimal_buffer_alignment {alignment} does not divide 256"),
    )?;
    let matrix = provider.evd_stream_merging_supported;
    for (i, row) in matrix.iter().enumerate() {
        ensure(row[i], format!("stream {i} does not merge with itself"))?;
        for (j, merges) in row.iter().enumerate() {
            ensure_eq(&format!("streams {i} and {j}, both ways"), *merges, matrix[j][i])?;
        }
    }
    for (name, value) in [
        ("max_eps", u64::from(attr.max_eps)),
        ("max_dto_per_ep", attr.max_dto_per_ep.into()),
        ("max_evds", attr.max_evds.into()),
        ("max_evd_qlen", attr.max_evd_qlen.into()),
        ("max_iov_segments_per_dto", attr.max_iov_segments_per_dto.into()),
        ("max_lmrs", attr.max_lmrs.into()),
        ("max_lmr_block_size", attr.max_lmr_block_size),
        ("max_pzs", attr.max_pzs.into()),
        ("max_message_size", attr.max_message_size),
        ("max_rdma_size", attr.max_rdma_size),
    ] {
        ensure(value > 0, format!("{name} is 0"))?;
    }
    Ok(())
}

fn names(_: &TestContext) -> Outcome {
    let types: Vec<u32> = (0..=0x17).chain([0x3FFF]).collect();
    let last = Subtype::ThreadSafetyNotFound as u32;
    let mut seen = std::collections::HashSet::new();
    for kind in types {
        for subtype in 0..=last {
            let code = ReturnCode(0x8000_0000 | kind << 16 | subtype);
            match code.names() {
                Some((major, minor)) => {
                    ensure(
                        !major.is_empty() && !minor.is_empty(),
                        format!("{:#x} has an empty name", code.0),
                    )?;
                    ensure(seen.insert((major, minor)), format!("{:#x} shares its names", code.0))?;
                }
                None => return fail(format!("{:#x} has no names", code.0)),
            }
        }
    }
    for undefined in [0x8018_0000, 0x8FFF_0000, 0x8001_0000 | (last + 1), 0x8001_FFFF] {
        ensure_eq(&format!("names of {undefined:#x}"), ReturnCode(undefined).names(), None)?;
    }
    Ok(())
}

fn freed_twice(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    let gone = ReturnType::InvalidHandle;
    psp.free()?;
    t.refused("a service point", psp.free(), gone)?;
    a.ep.free()?;
    t.refused("an endpoint", a.ep.free(), gone)?;
    a.lmr.free()?;
    t.refused("a region", a.lmr.free(), gone)?;
    t.refused("a query of it", a.lmr.query(), gone)?;
    for evd in [&a.recv, &a.request, &a.conn, &a.crs] {
        evd.free()?;
        t.refused("a dispatcher", evd.free(), gone)?;
        t.refused("waiting on it", evd.wait(Timeout::ZERO, 1), gone)?;
    }
    a.pz.free()?;
    t.refused("a zone", a.pz.free(), gone)?;
    t.refused("a query of it", a.pz.ia(), gone)?;
    a.ia.close(CloseFlags::Abrupt)?;
    t.refused("the adapter", a.ia.close(CloseFlags::Abrupt), gone)
}

fn mixed(t: &TestContext) -> Outcome {
    let (a, other) = (t.local()?, t.local()?);
    let attr = AttrSpec::default().over(&a.ia)?;
    let foreign = ReturnType::InvalidHandle;
    let result = a.ia.ep_create(Some(&other.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), Some(&attr));
    t.refused("an endpoint with a foreign zone", result, foreign)?;
    let result = a.ia.ep_create(Some(&a.pz), Some(&other.recv), Some(&a.request), Some(&a.conn), Some(&attr));
    t.refused("an endpoint with a foreign dispatcher", result, foreign)?;
    let result = a.ia.lmr_create(&other.pz, a.ia.alloc(4096)?, Privileges::ALL);
    t.refused("a region in a foreign zone", result, foreign)?;
    let result = a.ia.psp_create_any(&other.crs, PspFlags::Consumer);
    t.refused("a service point on a foreign dispatcher", result, foreign)?;
    let pending = t.pending_request(PspFlags::Consumer, b"")?;
    t.refused("accepting with a foreign endpoint", pending.cr.accept(Some(&other.ep), b""), foreign)?;
    pending.cr.query()?;
    other.is_in(EpState::Unconnected)
}

/// Runs last: looks at the codes of all clauses before it. So that it says something alone, too, it makes some itself.
fn codes(t: &TestContext) -> Outcome {
    let a = t.local()?;
    t.refused("a dequeue of nothing", a.recv.dequeue(), ReturnType::QueueEmpty)?;
    t.refused("a zone that is in use", a.pz.free(), ReturnType::InvalidState)?;
    for value in &t.codes.lock().codes {
        let code = ReturnCode(*value);
        ensure(value & 0xC000_0000 == 0x8000_0000, format!("{value:#x} is not of the error class"))?;
        ensure(code.kind().is_some(), format!("{value:#x} has no known type"))?;
        ensure(code.names().is_some(), format!("{value:#x} has no names"))?;
    }
    Ok(())
}
