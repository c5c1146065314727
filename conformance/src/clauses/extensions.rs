//! Extensions: atomic operations, immediate data.

use dat_types::{EpCounter, EvdCounter, IaCounter};

use crate::clauses::prelude::*;
use crate::peer::Posted;

clauses! {
    355 "Fetch and add: the old value, and the word increased" => [Atomics] fetch_add;
    356 "Compare and swap, equal and unequal: swapped or not, the old value in both cases" => [Atomics] compare_swap;
    357 "A write with an immediate value: the value arrives, one receive is used, the data is written" => [Immediate] immediate;
    358 "An operation the provider lacks: NOT_IMPLEMENTED" => missing;
    360 "An atomic operation on memory without REMOTE_ATOMIC: REMOTE_ACCESS, the connection breaks" => [Atomics] no_right;
    361 "An extension operation on an UNCONNECTED endpoint: INVALID_STATE" => unconnected;
    362 "Counters read with a reset: the next reading begins at 0" => counters;
}

/// A word of B's that atomic operations may change.
fn word(b: &RemoteEnd, value: u64) -> Result<RmrTriplet, Stop> {
    let region = b.region(Privileges::ALL | Privileges::REMOTE_ATOMIC, false)?;
    b.store_in(region.handle, 64, &value.to_ne_bytes())?;
    Ok(region.triplet(64, 8))
}

fn local(a: &LocalEnd) -> Result<u64, Stop> {
    match a.bytes(0, 8).try_into() {
        Ok(bytes) => Ok(u64::from_ne_bytes(bytes)),
        Err(_) => fail("8 bytes are not 8 bytes"),
    }
}

fn before_is(a: &LocalEnd, cookie: u64, operation: DtoOperation, want: u64) -> Outcome {
    let dto = a.completes(&a.request, cookie, DtoStatus::Success)?;
    ensure_eq("operation and length", (dto.operation, dto.length), (operation, 8))?;
    ensure_eq("value before", local(a)?, want)
}

fn fetch_add(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let word = word(&b, 40)?;
    for (cookie, add, before) in [(1, 2, 40), (2, u64::MAX, 42), (3, 0, 41)] {
        a.ep.post_fetch_add(add, a.lmr.triplet(0, 8), cookie, word, PLAIN)?;
        before_is(&a, cookie, DtoOperation::FetchAdd, before)?;
    }
    Ok(())
}

fn compare_swap(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let word = word(&b, 7)?;
    for (cookie, compare, swap, before) in [(1, 7, 100, 7), (2, 7, 200, 100), (3, 100, 0, 100), (4, 1, 1, 0)]
    {
        a.ep.post_compare_swap(compare, swap, a.lmr.triplet(0, 8), cookie, word, PLAIN)?;
        before_is(&a, cookie, DtoOperation::CmpSwap, before)?;
    }
    Ok(())
}

fn immediate(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.lmr.memory().write(1024, b"with a value");
    b.post_recv(0, 64, 5)?;
    b.store(0, b"untouched")?;
    let value = 0xA1B2_C3D4;
    a.ep.post_rdma_write_immed(&[a.lmr.triplet(1024, 12)], 1, b.target(2048, 12), value, PLAIN)?;
    let dto = a.completes(&a.request, 1, DtoStatus::Success)?;
    ensure_eq("operation and length", (dto.operation, dto.length), (DtoOperation::RdmaWriteImmed, 12))?;
    let dto = b.receives(5, DtoStatus::Success)?;
    ensure_eq("operation and length at B", (dto.operation, dto.length), (DtoOperation::RecvImmed, 12))?;
    ensure_eq("value", dto.immediate(), Some(value))?;
    ensure_eq("bytes", b.load(2048, 12)?, b"with a value".to_vec())?;
    ensure_eq("the receive's own buffer", b.load(0, 9)?, b"untouched".to_vec())?;

    a.post_recvs(1)?;
    b.post(0, 9, 2, PLAIN, Posted::SendImmed { value: 99 })?;
    let dto = a.completes(&a.recv, 0, DtoStatus::Success)?;
    ensure_eq(
        "a message with a value",
        (dto.operation, dto.immediate()),
        (DtoOperation::RecvMsgImmed, Some(99)),
    )?;
    ensure_eq("its bytes", a.bytes(0, 9), b"untouched".to_vec())
}

fn missing(t: &TestContext) -> Outcome {
    use dat_plugin::Caps;
    let (a, b) = t.pair()?;
    let caps = t.subject.device()?.attr().caps;
    let (local, target) = (a.lmr.triplet(0, 8), b.target(0, 8));
    if !caps.contains(Caps::ATOMICS) {
        let result = a.ep.post_fetch_add(1, local, 1, target, PLAIN);
        return t.refused("fetch and add", result, ReturnType::NotImplemented);
    }
    if !caps.contains(Caps::IMMEDIATE) {
        let result = a.ep.post_rdma_write_immed(&[local], 1, target, 1, PLAIN);
        return t.refused("write with a value", result, ReturnType::NotImplemented);
    }
    not_applicable("the provider has every operation of the extension that the engine knows")
}

fn no_right(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    // All rights but this one.
    a.ep.post_fetch_add(1, a.lmr.triplet(0, 8), 1, b.target(0, 8), PLAIN)?;
    a.completes(&a.request, 1, DtoStatus::RemoteAccess)?;
    a.expect_event(ConnectionKind::Broken)?;
    b.expect_event(ConnectionKind::Broken)
}

fn unconnected(t: &TestContext) -> Outcome {
    use dat_plugin::Caps;
    let (a, b) = t.ends()?;
    let caps = t.subject.device()?.attr().caps;
    let (local, target) = (a.lmr.triplet(0, 8), b.target(0, 8));
    if caps.contains(Caps::ATOMICS) {
        let result = a.ep.post_fetch_add(1, local, 1, target, PLAIN);
        t.refused("fetch and add", result, ReturnType::InvalidState)?;
        let result = a.ep.post_compare_swap(1, 2, local, 1, target, PLAIN);
        return t.refused("compare and swap", result, ReturnType::InvalidState);
    }
    if caps.contains(Caps::IMMEDIATE) {
        let result = a.ep.post_rdma_write_immed(&[local], 1, target, 1, PLAIN);
        return t.refused("write with a value", result, ReturnType::InvalidState);
    }
    not_supported("the provider has no operation of the extension")
}

fn counters(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let posted = |reset| Ok::<_, Stop>(a.ep.counters(reset)?[EpCounter::PostSend as usize]);
    let sends = |count: u64| {
        (0..count).try_for_each(|cookie| {
            b.post_recv(0, 64, cookie)?;
            a.send(0, 8, cookie)?;
            a.completes(&a.request, cookie, DtoStatus::Success).map(|_| ())
        })
    };
    sends(3)?;
    ensure_eq("sends counted", posted(false)?, 3)?;
    ensure_eq("sends counted, read again", posted(true)?, 3)?;
    ensure_eq("after the reset", posted(false)?, 0)?;
    sends(2)?;
    ensure_eq("sends counted since", posted(false)?, 2)?;
    // Other objects have theirs.
    let created = a.ia.counters(true)?[IaCounter::EpCreate as usize];
    ensure(created >= 1, "no endpoint was counted")?;
    ensure_eq("endpoints after the reset", a.ia.counters(false)?[IaCounter::EpCreate as usize], 0)?;
    ensure_eq("lengths", a.request.counters(false)?.len(), EvdCounter::ALL.len())?;
    a.ep.free()?;
    t.refused("those of what is gone", a.ep.counters(false), ReturnType::InvalidHandle)
}
