//! What all objects have, and async dispatchers shared between adapters.

use dat_engine::{AsyncEvd, Ia, IaOptions};
use dat_types::HandleType;

use crate::clauses::prelude::*;

clauses! {
    337 "The async dispatcher of one open serves a second open" => shared_async;
    338 "A dispatcher for other streams is refused at open: INVALID_HANDLE" => wrong_async;
    343 "An async dispatcher supplied at open survives the close" => async_outlives;
    346 "Every object keeps a 64-bit context, 0 at first" => contexts;
    347 "Every handle shows its type; a freed handle: INVALID_HANDLE" => kinds;
}

fn open_with(t: &TestContext, async_evd: AsyncEvd) -> Result<dat_types::Result<Ia>, Stop> {
    let (device, name) = (t.subject.device()?, &t.subject.config.ia_name);
    Ok(Ia::open_with(device, name, t.subject.plugin.version(), IaOptions::default(), async_evd))
}

fn shared_async(t: &TestContext) -> Outcome {
    let first = t.ia()?;
    let evd = first.async_evd();
    let second = open_with(t, AsyncEvd::Shared(evd.clone()))??;
    ensure_eq("async dispatcher of the second", second.async_evd().id(), evd.id())?;
    let third = open_with(t, AsyncEvd::Exists)??;
    ensure(third.pz_create().is_ok(), "an adapter whose async dispatcher is elsewhere does not work")?;
    t.refused("freeing it while adapters use it", evd.free(), ReturnType::InvalidState)
}

fn wrong_async(t: &TestContext) -> Outcome {
    let first = t.ia()?;
    let evd = first.evd_create(16, EvdFlags::DTO)?;
    let refused = |what, evd: Evd| {
        let result = open_with(t, AsyncEvd::Shared(evd))?;
        t.refused(what, result.map(|_| ()), ReturnType::InvalidHandle)
    };
    refused("one for completions", evd)?;
    let gone = first.async_evd();
    drop(first);
    refused("one of an adapter that was closed", gone)
}

fn async_outlives(t: &TestContext) -> Outcome {
    let first = t.ia()?;
    let evd = first.async_evd();
    for flags in [CloseFlags::Graceful, CloseFlags::Abrupt] {
        let second = open_with(t, AsyncEvd::Shared(evd.clone()))??;
        second.close(flags)?;
        evd.query()?;
        let result = evd.wait(t.millis(1), 1).map(|_| ());
        t.refused("a look at it", result, ReturnType::TimeoutExpired)?;
    }
    first.close(CloseFlags::Graceful)?;
    t.refused("after its own adapter closed", evd.query().map(|_| ()), ReturnType::InvalidHandle)
}

macro_rules! keeps_context {
    ($($what:literal: $object:expr),* $(,)?) => {
        $(
            ensure_eq(concat!("context of a new ", $what), $object.consumer_context()?, 0)?;
            for value in [u64::MAX, 0x0123_4567_89AB_CDEF, 0] {
                $object.set_consumer_context(value)?;
                ensure_eq(concat!("context of a ", $what), $object.consumer_context()?, value)?;
            }
        )*
    };
}

fn contexts(t: &TestContext) -> Outcome {
    let PendingRequest { a, b: _b, psp, cr } = t.pending_request(PspFlags::Consumer, b"")?;
    let (rsp, cno) = (a.reserve()?, a.ia.cno_create(None)?);
    keeps_context! {
        "adapter": a.ia, "zone": a.pz, "region": a.lmr, "endpoint": a.ep, "dispatcher": a.recv,
        "public service point": psp, "reserved service point": rsp, "request": cr, "notification object": cno,
    }
    if let Ok(csp) = crate::clauses::service_points::common::listen(&a) {
        keeps_context! { "common service point": csp }
    }
    if t.subject.caps().contains(dat_plugin::Caps::WINDOWS) {
        let rmr = a.ia.rmr_create(&a.pz)?;
        keeps_context! { "window": rmr }
    }
    if t.subject.caps().contains(dat_plugin::Caps::SRQ) {
        let attr = dat_types::SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
        let srq = a.ia.srq_create(&a.pz, &attr)?;
        keeps_context! { "shared queue": srq }
    }
    cno.free()?;
    t.refused("the context of what is gone", cno.consumer_context(), ReturnType::InvalidHandle)
}

fn kinds(t: &TestContext) -> Outcome {
    let PendingRequest { a, b: _b, psp, cr } = t.pending_request(PspFlags::Consumer, b"")?;
    let (rsp, cno) = (a.reserve()?, a.ia.cno_create(None)?);
    let seen = [
        (a.ia.handle_type()?, HandleType::Ia),
        (a.pz.handle_type()?, HandleType::Pz),
        (a.lmr.handle_type()?, HandleType::Lmr),
        (a.ep.handle_type()?, HandleType::Ep),
        (a.recv.handle_type()?, HandleType::Evd),
        (psp.handle_type()?, HandleType::Psp),
        (rsp.handle_type()?, HandleType::Rsp),
        (cr.handle_type()?, HandleType::Cr),
        (cno.handle_type()?, HandleType::Cno),
    ];
    for (got, want) in seen {
        ensure_eq("kind", got, want)?;
    }
    cr.reject(b"")?;
    rsp.free()?;
    psp.free()?;
    cno.free()?;
    a.ep.free()?;
    a.lmr.free()?;
    let gone = [
        ("request", cr.handle_type()),
        ("reserved service point", rsp.handle_type()),
        ("public service point", psp.handle_type()),
        ("notification object", cno.handle_type()),
        ("endpoint", a.ep.handle_type()),
        ("region", a.lmr.handle_type()),
    ];
    gone.into_iter().try_for_each(|(what, kind)| t.refused(what, kind, ReturnType::InvalidHandle))
}
