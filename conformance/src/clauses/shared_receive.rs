//! Shared receive queues, endpoints that use them, and watermarks.

use dat_engine::Srq;
use dat_types::{AsyncReason, SrqAttr};

use crate::clauses::prelude::*;

clauses! {
    191 "Another zone than the queue's, where the provider does not allow it: INVALID_PARAMETER" => [Srqs] other_zone;
    192 "An endpoint with a shared queue takes no receives of its own: INVALID_STATE" => [Srqs] own_receives;
    193 "max_request_dtos is a lower bound, the rest is exact" => [Srqs] attributes;
    194 "Disconnected, reset and connected again, the queue still feeds the endpoint" => [Srqs] reconnected;
    195 "More receives than the soft mark: one event, not again until it is set again" => soft_mark;
    196 "More receives than the hard mark: BROKEN" => hard_mark;
    197 "Marks that are off: no event" => marks_off;
    198 "The receives held are never more than their span" => recv_query;
    321 "A new queue: OPERATIONAL, at least as large as requested, empty" => [Srqs] create;
    322 "Posted, used, dequeued: the counts of available and outstanding receives" => [Srqs] counts;
    323 "Two endpoints share a queue: each completion at the endpoint that used the receive" => [Srqs] shared;
    324 "A full queue: INSUFFICIENT_RESOURCES" => [Srqs] full;
    325 "A receive in a region of another zone: PROTECTION_VIOLATION" => [Srqs] foreign_region;
    326 "A low watermark above the receives available: one event at once" => [Srqs] low_at_once;
    327 "A low watermark passed by use: exactly one event" => [Srqs] low_by_use;
    328 "A low watermark above the queue: INVALID_PARAMETER" => [Srqs] low_too_high;
    329 "A resize below the outstanding receives: INVALID_STATE, unchanged" => [Srqs] shrink;
    330 "A resize below the low watermark: INVALID_STATE" => [Srqs] shrink_below_mark;
    331 "A queue in use cannot be freed; after its endpoint it can" => [Srqs] free_used;
    332 "An endpoint disconnects: the receives left in the queue stay" => [Srqs] left_in_queue;
}

fn attr(max_recv_dtos: u32) -> SrqAttr {
    SrqAttr { max_recv_dtos, max_recv_iov: 2, low_watermark: 0 }
}

/// A side whose endpoint takes its receives out of a shared queue.
fn side(t: &TestContext, depth: u32) -> Result<(LocalEnd, Srq), Stop> {
    let mut a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &attr(depth))?;
    a.ep.free()?;
    a.ep = sharing(&a, &srq, &a.conn)?;
    Ok((a, srq))
}

fn sharing(a: &LocalEnd, srq: &Srq, conn: &Evd) -> Result<Ep, Stop> {
    let attr = AttrSpec::default().over(&a.ia)?;
    let (recv, request) = (Some(&a.recv), Some(&a.request));
    Ok(a.ia.ep_create_with_srq(Some(&a.pz), recv, request, Some(conn), srq, &attr)?)
}

fn post(a: &LocalEnd, srq: &Srq, cookies: std::ops::Range<u64>) -> Outcome {
    cookies.into_iter().try_for_each(|cookie| Ok(srq.post_recv(&[a.lmr.triplet(64 * cookie, 64)], cookie)?))
}

/// What is available and what is outstanding.
fn counted(srq: &Srq, want: (u32, u32)) -> Outcome {
    let param = srq.query()?;
    ensure_eq("receives (available, outstanding)", (param.available, param.outstanding), want)
}

fn other_zone(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &attr(8))?;
    let other = a.ia.pz_create()?;
    let spec = AttrSpec::default().over(&a.ia)?;
    let made =
        a.ia.ep_create_with_srq(Some(&other), Some(&a.recv), Some(&a.request), Some(&a.conn), &srq, &spec);
    match a.ia.provider_query()?.srq_ep_pz_difference_supported {
        false => t.refused("another zone", made, ReturnType::InvalidParameter),
        // Then the queue's zone holds for receives.
        true => {
            let (b, ep) = (t.remote()?, made?);
            srq.post_recv(&[a.lmr.triplet(0, 64)], 1)?;
            ep.connect(&a.towards(&b))?;
            b.accept(&b.request()?, b"")?;
            a.expect_event(ConnectionKind::Established)?;
            b.expect_event(ConnectionKind::Established)?;
            b.send(0, 8, 2)?;
            a.completes(&a.recv, 1, DtoStatus::Success).map(|_| ())
        }
    }
}

fn own_receives(t: &TestContext) -> Outcome {
    let (a, _srq) = side(t, 8)?;
    let result = a.ep.post_recv(&[a.lmr.triplet(0, 64)], 1, PLAIN);
    t.refused("a receive of its own", result, ReturnType::InvalidState)
}

fn attributes(t: &TestContext) -> Outcome {
    let (a, _srq) = side(t, 8)?;
    let requested = AttrSpec::default().over(&a.ia)?;
    let now = a.ep.query()?.attr;
    ensure(now.max_request_dtos >= requested.max_request_dtos, format!("{} requests", now.max_request_dtos))?;
    let exact = |attr: &EpAttr| {
        (attr.max_message_size, attr.max_rdma_size, attr.max_rdma_read_in, attr.max_rdma_read_out, attr.qos)
    };
    ensure_eq("the other attributes", exact(&now), exact(&requested))
}

fn reconnected(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 8)?;
    let b = t.remote()?;
    post(&a, &srq, 0..2)?;
    for cookie in 0..2 {
        join(&a, &b)?;
        b.send(0, 8, 10)?;
        b.completes(10, DtoStatus::Success)?;
        a.completes(&a.recv, cookie, DtoStatus::Success)?;
        a.ep.disconnect(CloseFlags::Abrupt)?;
        a.expect_event(ConnectionKind::Disconnected)?;
        b.expect_event(ConnectionKind::Disconnected)?;
        a.ep.reset()?;
        b.reset()?;
    }
    Ok(())
}

/// Fails unless the provider has this watermark.
fn has_marks(a: &LocalEnd, bit: u32) -> Outcome {
    match a.ia.provider_query()?.srq_watermarks_supported & bit {
        0 => not_supported("the provider has no such watermark"),
        _ => Ok(()),
    }
}

fn soft_mark(t: &TestContext) -> Outcome {
    let a = t.local()?;
    has_marks(&a, 2)?;
    a.post_recvs(3)?;
    a.ep.set_watermark(Some(2), None)?;
    ensure_eq("event", a.async_event()?, (a.ep.id(), AsyncReason::EpSoftHighWatermark))?;
    a.post_recv(0, 64, 10)?;
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher")?;
    // Set again it is armed again; passed by a post this time.
    a.ep.set_watermark(Some(4), None)?;
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher, the mark not passed")?;
    a.post_recv(0, 64, 11)?;
    ensure_eq("second event", a.async_event()?, (a.ep.id(), AsyncReason::EpSoftHighWatermark))
}

fn hard_mark(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    has_marks(&a, 4)?;
    a.ep.set_watermark(None, Some(2))?;
    a.post_recvs(2)?;
    a.expect_no_event(&a.conn, "A's connect dispatcher")?;
    a.post_recv(128, 64, 2)?;
    a.breaks(&a.conn, BreakReason::HardWatermark)?;
    a.is_in(EpState::Disconnected)?;
    a.recvs_flushed(3)?;
    b.expect_event(ConnectionKind::Disconnected)
}

fn marks_off(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.set_watermark(Some(1), None)?;
    a.ep.set_watermark(None, None)?;
    a.post_recvs(8)?;
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher")?;
    a.is_in(EpState::Connected)
}

fn recv_query(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    for posted in 0..4u32 {
        let param = a.ep.recv_query()?;
        ensure_eq("receives held", param.nbufs_allocated, posted)?;
        ensure(param.nbufs_allocated <= param.bufs_alloc_span, format!("{param:?}"))?;
        a.post_recv(0, 64, posted.into())?;
    }
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::Success)?;
    ensure_eq("receives held after a message", a.ep.recv_query()?.nbufs_allocated, 3)
}

fn create(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &attr(10))?;
    let param = srq.query()?;
    ensure(param.attr.max_recv_dtos >= 10 && param.attr.max_recv_iov >= 2, format!("{:?}", param.attr))?;
    ensure_eq("adapter and zone", (param.ia, param.pz.id()), (a.ia.id(), a.pz.id()))?;
    counted(&srq, (0, 0))?;
    for (what, bad) in [
        ("no receives", SrqAttr { max_recv_dtos: 0, ..attr(10) }),
        ("no segments", SrqAttr { max_recv_iov: 0, ..attr(10) }),
        ("too many receives", attr(u32::MAX)),
        ("a low watermark", SrqAttr { low_watermark: 1, ..attr(10) }),
    ] {
        t.refused(what, a.ia.srq_create(&a.pz, &bad), ReturnType::InvalidParameter)?;
    }
    t.refused("a zone in use", a.pz.free(), ReturnType::InvalidState)
}

fn counts(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    let b = t.remote()?;
    join(&a, &b)?;
    post(&a, &srq, 0..3)?;
    counted(&srq, (3, 3))?;
    b.send(0, 8, 1)?;
    b.completes(1, DtoStatus::Success)?;
    t.until("the message to be seen by a query", || Ok(srq.query()?.available == 2))?;
    counted(&srq, (2, 3))?;
    a.completes(&a.recv, 0, DtoStatus::Success)?;
    counted(&srq, (2, 2))
}

fn shared(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 16)?;
    let [b, c] = [t.remote()?, t.remote()?];
    join(&a, &b)?;
    let conn = a.ia.evd_create(16, EvdFlags::CONNECTION)?;
    let other = sharing(&a, &srq, &conn)?;
    other.connect(&a.towards(&c))?;
    c.accept(&c.request()?, b"")?;
    a.expect_event_on(&conn, ConnectionKind::Established)?;
    c.expect_event(ConnectionKind::Established)?;
    post(&a, &srq, 0..8)?;
    let mut cookies = Vec::new();
    for round in 0..4u64 {
        for (from, ep) in [(&b, &a.ep), (&c, &other)] {
            from.send(0, 8, round)?;
            let dto = a.dto(&a.recv)?;
            ensure_eq("endpoint and status", (dto.ep, dto.status), (ep.id(), DtoStatus::Success))?;
            cookies.push(dto.cookie);
        }
    }
    cookies.sort_unstable();
    ensure_eq("cookies", cookies, (0..8).collect())
}

fn full(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &attr(4))?;
    let depth = srq.query()?.attr.max_recv_dtos;
    post(&a, &srq, 0..depth.into())?;
    let result = srq.post_recv(&[a.lmr.triplet(0, 64)], 99);
    t.refused("one more", result, ReturnType::InsufficientResources)?;
    let iov = vec![a.lmr.triplet(0, 8); srq.query()?.attr.max_recv_iov as usize + 1];
    let fresh = a.ia.srq_create(&a.pz, &attr(4))?;
    t.refused("one segment too many", fresh.post_recv(&iov, 1), ReturnType::InvalidParameter)
}

fn foreign_region(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &attr(4))?;
    let other = a.ia.pz_create()?;
    let lmr = a.ia.lmr_create(&other, a.ia.alloc(4096)?, Privileges::ALL)?;
    let result = srq.post_recv(&[lmr.triplet(0, 64)], 1);
    t.refused("a region of another zone", result, ReturnType::ProtectionViolation)?;
    counted(&srq, (0, 0))
}

fn low_event(a: &LocalEnd, srq: &Srq) -> Outcome {
    ensure_eq("event", a.async_event()?, (srq.id(), AsyncReason::SrqLowWatermark))
}

fn low_at_once(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    has_marks(&a, 1)?;
    post(&a, &srq, 0..5)?;
    srq.set_low_watermark(6)?;
    low_event(&a, &srq)?;
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher")
}

fn low_by_use(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    has_marks(&a, 1)?;
    let b = t.remote()?;
    join(&a, &b)?;
    post(&a, &srq, 0..5)?;
    srq.set_low_watermark(3)?;
    for cookie in 0..2 {
        b.send(0, 8, 1)?;
        a.completes(&a.recv, cookie, DtoStatus::Success)?;
    }
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher, the mark not passed")?;
    for cookie in 2..4 {
        b.send(0, 8, 1)?;
        a.completes(&a.recv, cookie, DtoStatus::Success)?;
    }
    low_event(&a, &srq)?;
    a.expect_no_event(&a.ia.async_evd(), "A's async dispatcher")
}

fn low_too_high(t: &TestContext) -> Outcome {
    let a = t.local()?;
    has_marks(&a, 1)?;
    let srq = a.ia.srq_create(&a.pz, &attr(10))?;
    let above = srq.query()?.attr.max_recv_dtos + 1;
    t.refused("above the queue", srq.set_low_watermark(above), ReturnType::InvalidParameter)
}

fn shrink(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    post(&a, &srq, 0..4)?;
    t.refused("below what is outstanding", srq.resize(3), ReturnType::InvalidState)?;
    ensure(srq.query()?.attr.max_recv_dtos >= 10, "it is smaller all the same")?;
    t.refused("to nothing", srq.resize(0), ReturnType::InvalidParameter)?;
    srq.resize(20)?;
    post(&a, &srq, 4..20)?;
    counted(&srq, (20, 20))
}

fn shrink_below_mark(t: &TestContext) -> Outcome {
    let a = t.local()?;
    has_marks(&a, 1)?;
    let srq = a.ia.srq_create(&a.pz, &attr(10))?;
    post(&a, &srq, 0..2)?;
    srq.set_low_watermark(5)?;
    t.refused("below the mark", srq.resize(4), ReturnType::InvalidState)
}

fn free_used(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    post(&a, &srq, 0..2)?;
    t.refused("in use", srq.free(), ReturnType::InvalidState)?;
    a.ep.free()?;
    srq.free()?;
    t.refused("a second time", srq.free(), ReturnType::InvalidHandle)?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")
}

fn left_in_queue(t: &TestContext) -> Outcome {
    let (a, srq) = side(t, 10)?;
    let b = t.remote()?;
    join(&a, &b)?;
    post(&a, &srq, 0..4)?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.expect_no_event(&a.recv, "A's receive dispatcher")?;
    counted(&srq, (4, 4))
}
