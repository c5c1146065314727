//! Event dispatchers.

use dat_types::{AsyncReason, EvdState, EventData};

use crate::clauses::prelude::*;
use crate::os;

clauses! {
    233 "A length of 0 or less: INVALID_PARAMETER" => bad_qlen;
    234 "A length above the adapter's limit: INSUFFICIENT_RESOURCES" => qlen_limit;
    235 "No flags or undefined ones: INVALID_PARAMETER" => bad_flags;
    236 "Streams the provider does not merge: INVALID_PARAMETER" => merging;
    237 "A new dispatcher has the length requested, is enabled and waitable" => new_evd;
    238 "A threshold of 0, -1, or above the length: INVALID_PARAMETER" => bad_threshold;
    239 "Threshold 3 and three events: the first event, and 2 more" => threshold;
    240 "Threshold 3, two events, 50 ms: TIMEOUT_EXPIRED, not earlier, 2 queued" => threshold_timeout;
    241 "Time limit 0 and no event: TIMEOUT_EXPIRED at once" => poll;
    242 "While a thread waits, a second wait or a dequeue: INVALID_STATE" => owned;
    243 "A threshold of 2 with consumer-controlled notification: INVALID_STATE" => threshold_refused;
    244 "The adapter closes abruptly during a wait: ABORT" => aborted;
    245 "A signal during a wait: INTERRUPTED_CALL, or the wait goes on if it is signal-safe" => interrupted;
    246 "Made unwaitable: the waiter and later ones get INVALID_STATE, dequeue works" => unwaitable;
    247 "Made waitable again: a wait works" => waitable;
    248 "A dequeue from an empty dispatcher: QUEUE_EMPTY" => empty;
    249 "Several threads dequeue: each event exactly once" => each_once;
    250 "Events of one stream are dequeued in order" => in_order;
    251 "A software event carries the consumer's pointer" => software;
    252 "A software event that does not fit: QUEUE_FULL, no event on the async dispatcher" => software_full;
    253 "A software event on a dispatcher without the flag: INVALID_PARAMETER" => software_refused;
    254 "A resize below the number queued: INVALID_STATE, all events readable" => shrink;
    255 "A resize to a larger length keeps the order" => grow;
    256 "A dispatcher that an endpoint or service point feeds cannot be freed" => free_fed;
    257 "A dispatcher a thread waits on cannot be freed" => free_waited;
    271 "More completions than fit: EVD_OVERFLOW names the dispatcher, the endpoint breaks" => overflow;
    374 "The end of a connection has a place on its dispatcher, also when that is full" => full_at_the_end;
    376 "An ESTABLISHED that does not fit: EVD_OVERFLOW, the connection ends without an event" => full_at_the_start;
}

/// A dispatcher of software events with values from 0.
fn filled(a: &LocalEnd, qlen: i32, n: u64) -> Result<Evd, Stop> {
    let evd = a.ia.evd_create(qlen, EvdFlags::SOFTWARE)?;
    for value in 0..n {
        evd.post_se(value)?;
    }
    Ok(evd)
}

fn value(data: &EventData) -> Result<u64, Stop> {
    match data {
        EventData::Software(value) => Ok(*value),
        other => fail(format!("an event that is no software event: {other:?}")),
    }
}

/// Runs `meanwhile` while a thread waits on `evd`; gives how the wait ended.
fn waited_meanwhile(
    t: &TestContext,
    evd: &Evd,
    meanwhile: impl FnOnce() -> Outcome,
) -> Result<Result<u64, dat_engine::WaitError>, Stop> {
    let long = Timeout::from(t.long());
    let (waited, ()) = t.while_waiting(|| evd.wait(long, 1), meanwhile)?;
    Ok(match waited {
        Ok((event, _)) => Ok(value(&event.data)?),
        Err(error) => Err(error),
    })
}

fn bad_qlen(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    for qlen in [0, -1, i32::MIN] {
        t.refused(
            &format!("{qlen} events"),
            ia.evd_create(qlen, EvdFlags::DTO),
            ReturnType::InvalidParameter,
        )?;
    }
    Ok(())
}

fn qlen_limit(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    let most = ia.query()?.max_evd_qlen;
    match i32::try_from(most).ok().and_then(|most| most.checked_add(1)) {
        Some(qlen) => {
            let result = ia.evd_create(qlen, EvdFlags::DTO);
            t.refused(&format!("{qlen} events"), result, ReturnType::InsufficientResources)
        }
        None => not_applicable(format!("the limit, {most}, is the largest length that can be requested")),
    }
}

fn bad_flags(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    for flags in [0, 0x2, 0x800, 0x820] {
        let result = ia.evd_create(8, EvdFlags::from_bits_retain(flags));
        t.refused(&format!("flags {flags:#x}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn merging(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    let matrix = ia.provider_query()?.evd_stream_merging_supported;
    let mut forbidden = 0;
    for (i, row) in matrix.iter().enumerate() {
        for (j, allowed) in row.iter().enumerate() {
            if !allowed {
                forbidden += 1;
                let result = ia.evd_create(8, EvdFlags::STREAMS[i] | EvdFlags::STREAMS[j]);
                t.refused(&format!("streams {i} and {j}"), result, ReturnType::InvalidParameter)?;
            }
        }
    }
    match forbidden {
        0 => not_applicable("the provider merges all streams, so there is nothing to refuse"),
        _ => Ok(()),
    }
}

fn new_evd(t: &TestContext) -> Outcome {
    let ia = t.ia()?;
    for qlen in [1, 7, 1000] {
        let param = ia.evd_create(qlen, EvdFlags::DTO | EvdFlags::CONNECTION)?.query()?;
        ensure(param.qlen >= qlen as u32, format!("{} events instead of {qlen}", param.qlen))?;
        let want = EvdState::ENABLED | EvdState::WAITABLE | EvdState::CONFIG_THRESHOLD;
        ensure_eq("state", param.state, want)?;
    }
    Ok(())
}

fn bad_threshold(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 4, 1)?;
    let qlen = evd.query()?.qlen as i32;
    for threshold in [0, -1, qlen + 1] {
        let result = evd.wait(Timeout::ZERO, threshold);
        t.refused(&format!("threshold {threshold}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn threshold(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 3)?;
    let (event, nmore) = evd.wait(Timeout::from(t.long()), 3)?;
    ensure_eq("first event and how many more", (value(&event.data)?, nmore), (0, 2))
}

fn threshold_timeout(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 2)?;
    let start = Instant::now();
    match evd.wait(Timeout::from_millis(50), 3) {
        Ok((event, _)) => return fail(format!("an event before the threshold: {event:?}")),
        Err(error) => {
            ensure_eq("events queued", error.nmore, 2)?;
            t.refused("the wait", Err::<(), _>(error), ReturnType::TimeoutExpired)?;
        }
    }
    ensure(start.elapsed() >= Duration::from_millis(50), "it timed out too early")?;
    for want in 0..2 {
        ensure_eq("event", value(&evd.dequeue()?.data)?, want)?;
    }
    Ok(())
}

fn poll(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let start = Instant::now();
    let Err(error) = a.recv.wait(Timeout::ZERO, 1) else { return fail("an event out of nothing") };
    ensure_eq("events queued", error.nmore, 0)?;
    t.refused("the wait", Err::<(), _>(error), ReturnType::TimeoutExpired)?;
    ensure(start.elapsed() < t.scaled(Duration::from_millis(500)), "a poll took 500 ms")
}

fn owned(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 0)?;
    let waited = waited_meanwhile(t, &evd, || {
        t.refused("a second wait", evd.wait(Timeout::ZERO, 1), ReturnType::InvalidState)?;
        t.refused("a dequeue", evd.dequeue(), ReturnType::InvalidState)?;
        Ok(evd.post_se(7)?)
    })?;
    ensure_eq("what the waiter got", waited?, 7)
}

fn threshold_refused(t: &TestContext) -> Outcome {
    for flags in [CompletionFlags::UNSIGNALLED, CompletionFlags::SOLICITED_WAIT] {
        let a = t.local_with(&AttrSpec { recv_flags: flags.bits(), ..AttrSpec::default() })?;
        let result = a.recv.wait(Timeout::ZERO, 2);
        t.refused(&format!("threshold 2 with {flags:?}"), result, ReturnType::InvalidState)?;
    }
    Ok(())
}

fn aborted(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let waited = waited_meanwhile(t, &a.recv, || Ok(a.ia.close(CloseFlags::Abrupt)?))?;
    t.refused("the wait", waited, ReturnType::Abort)
}

fn interrupted(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 0)?;
    let signal_safe = a.ia.provider_query()?.is_signal_safe;
    // Shorter when it goes on, for then all of it is waited.
    let time = if signal_safe { t.millis(200) } else { Timeout::from(t.long()) };
    let waits = evd.clone();
    let waiter = std::thread::spawn(move || waits.wait(time, 1).map(|_| ()));
    t.pause();
    // Again and again: a signal that comes before the thread sleeps interrupts nothing.
    while !waiter.is_finished() {
        os::interrupt(&waiter);
        std::thread::sleep(Duration::from_millis(5));
    }
    let waited = waiter.join().map_err(|_| Stop::Failed("the waiter panicked".into()))?;
    let want = if signal_safe { ReturnType::TimeoutExpired } else { ReturnType::InterruptedCall };
    t.refused("the wait", waited, want)?;
    // It is as good as before.
    evd.post_se(4)?;
    ensure_eq("value", value(&evd.wait(Timeout::from(t.long()), 1)?.0.data)?, 4)
}

fn unwaitable(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 0)?;
    let waited = waited_meanwhile(t, &evd, || Ok(evd.set_waitable(false)?))?;
    t.refused("the waiter", waited, ReturnType::InvalidState)?;
    t.refused("a later wait", evd.wait(Timeout::ZERO, 1), ReturnType::InvalidState)?;
    evd.post_se(3)?;
    ensure_eq("dequeued", value(&evd.dequeue()?.data)?, 3)?;
    ensure(evd.query()?.state.contains(EvdState::UNWAITABLE), "a query does not show UNWAITABLE")
}

fn waitable(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 1)?;
    evd.set_waitable(false)?;
    evd.set_waitable(true)?;
    ensure_eq("event", value(&evd.wait(Timeout::ZERO, 1)?.0.data)?, 0)?;
    ensure(evd.query()?.state.contains(EvdState::WAITABLE), "a query does not show WAITABLE")
}

fn empty(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for evd in [&a.recv, &a.request, &a.conn, &a.crs, &a.ia.async_evd()] {
        t.refused("dequeue", evd.dequeue(), ReturnType::QueueEmpty)?;
    }
    Ok(())
}

fn each_once(t: &TestContext) -> Outcome {
    const N: u64 = 2000;
    let a = t.local()?;
    let evd = filled(&a, N as i32, N)?;
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut got = Vec::new();
                    while let Ok(event) = evd.dequeue() {
                        got.push(value(&event.data));
                    }
                    got
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect::<Result<Vec<_>, _>>()
    })?;
    all.sort_unstable();
    ensure(
        all == (0..N).collect::<Vec<_>>(),
        format!("{} events came out, some twice or none of some", all.len()),
    )
}

fn in_order(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 100, 100)?;
    for want in 0..100 {
        ensure_eq("event", value(&evd.dequeue()?.data)?, want)?;
    }
    Ok(())
}

fn software(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 4, 0)?;
    evd.post_se(0xFFFF_0000_1234_5678)?;
    let event = evd.wait(Timeout::from(t.long()), 1)?.0;
    ensure_eq("event number", event.number(), 0x10001)?;
    ensure_eq("dispatcher", event.evd, evd.id())?;
    ensure_eq("value", value(&event.data)?, 0xFFFF_0000_1234_5678)
}

fn software_full(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 4, 0)?;
    for value in 0..u64::from(evd.query()?.qlen) {
        evd.post_se(value)?;
    }
    t.refused("one more", evd.post_se(99), ReturnType::QueueFull)?;
    a.expect_no_event(&a.ia.async_evd(), "the async dispatcher")?;
    ensure_eq("the first event", value(&evd.dequeue()?.data)?, 0)?;
    Ok(evd.post_se(99)?)
}

fn software_refused(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for evd in [&a.recv, &a.conn, &a.crs] {
        t.refused("post_se", evd.post_se(1), ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn shrink(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 5)?;
    t.refused("resize to 3", evd.resize(3), ReturnType::InvalidState)?;
    for want in 0..5 {
        ensure_eq("event", value(&evd.dequeue()?.data)?, want)?;
    }
    Ok(())
}

fn grow(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 5, 5)?;
    evd.resize(20)?;
    ensure(evd.query()?.qlen >= 20, "a query does not show the new size")?;
    for value in 5..20 {
        evd.post_se(value)?;
    }
    for want in 0..20 {
        ensure_eq("event", value(&evd.dequeue()?.data)?, want)?;
    }
    Ok(())
}

fn free_fed(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let psp = a.ia.psp_create_any(&a.crs, PspFlags::Consumer)?;
    for (what, evd) in
        [("receives", &a.recv), ("requests", &a.request), ("connections", &a.conn), ("a PSP", &a.crs)]
    {
        t.refused(&format!("the dispatcher of {what}"), evd.free(), ReturnType::InvalidState)?;
    }
    t.refused("the async dispatcher", a.ia.async_evd().free(), ReturnType::InvalidState)?;
    psp.free()?;
    Ok(a.crs.free()?)
}

fn free_waited(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let evd = filled(&a, 8, 0)?;
    let waited = waited_meanwhile(t, &evd, || {
        t.refused("free", evd.free(), ReturnType::InvalidState)?;
        Ok(evd.post_se(1)?)
    })?;
    ensure_eq("what the waiter got", waited?, 1)?;
    Ok(evd.free()?)
}

fn overflow(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let small = a.ia.evd_create(2, EvdFlags::DTO)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&small), Some(&a.conn), Some(&attr))?;
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    for cookie in 0..8 {
        b.post_recv(64 * cookie, 64, cookie)?;
    }
    for cookie in 0..8 {
        let result = ep.post_send(&[a.lmr.triplet(0, 8)], cookie, PLAIN);
        // Once the overflow is noticed the endpoint is DISCONNECTED, and a send has no room for its flush.
        if result.is_err() && ep.state() == EpState::Disconnected {
            t.refused("a send after the overflow", result, ReturnType::InsufficientResources)?;
            break;
        }
        result?;
    }
    match a.event(&a.ia.async_evd(), "EVD_OVERFLOW on the async dispatcher")?.data {
        EventData::Async { object, reason } => {
            ensure_eq("object and reason", (object, reason), (small.id(), AsyncReason::EvdOverflow))?
        }
        other => return fail(format!("{other:?}")),
    }
    a.breaks(&a.conn, BreakReason::Overflow(small.id()))?;
    ensure_eq("state", ep.state(), EpState::Disconnected)?;
    a.completes(&small, 0, DtoStatus::Success)?;
    a.completes(&small, 1, DtoStatus::Success)?;
    b.expect_event(ConnectionKind::Disconnected)
}

/// One dispatcher for everything, too small for the messages that come.
fn full_at_the_end(t: &TestContext) -> Outcome {
    const LENGTH: i32 = 4;
    let (a, b) = t.ends()?;
    let all = a.ia.evd_create(LENGTH, EvdFlags::DTO | EvdFlags::CONNECTION)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&all), Some(&all), Some(&all), Some(&attr))?;
    let messages = u64::from(all.query()?.qlen) + 4;
    for cookie in 0..messages {
        ep.post_recv(&[a.lmr.triplet(0, 64)], cookie, PLAIN)?;
    }
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.expect_event_on(&all, ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Established)?;
    for cookie in 0..messages {
        b.send(0, 8, cookie)?;
    }
    let lost = a.async_event()?;
    ensure_eq("object and reason", lost, (all.id(), AsyncReason::EvdOverflow))?;
    t.until("the endpoint to be DISCONNECTED", || Ok(ep.state() == EpState::Disconnected))?;
    for cookie in 0..messages - 4 {
        a.completes(&all, cookie, DtoStatus::Success)?;
    }
    a.breaks(&all, BreakReason::Overflow(all.id()))
}

/// A connect dispatcher that is full of refusals. The receives make a slow device take its time.
fn full_at_the_start(t: &TestContext) -> Outcome {
    const RECEIVES: u64 = 3;
    let (a, b) = t.ends()?;
    let conn = a.ia.evd_create(1, EvdFlags::CONNECTION)?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let endpoint = || a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&conn), Some(&attr));
    let refusals = conn.query()?.qlen;
    for _ in 0..refusals {
        let refused = endpoint()?;
        refused.connect(&ConnectOptions { conn_qual: a.free_qual()?, ..a.towards(&b) })?;
        t.until("a refused connect", || Ok(refused.state() == EpState::Disconnected))?;
    }
    let ep = endpoint()?;
    for cookie in 0..RECEIVES {
        ep.post_recv(&[a.lmr.triplet(64 * cookie, 64)], cookie, PLAIN)?;
    }
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    let lost = a.async_event()?;
    ensure_eq("object and reason", lost, (conn.id(), AsyncReason::EvdOverflow))?;
    t.until("the endpoint to be DISCONNECTED", || Ok(ep.state() == EpState::Disconnected))?;
    // From here on there is room. An end that is reported late would be seen.
    for _ in 0..refusals {
        a.expect_event_on(&conn, ConnectionKind::NonPeerRejected)?;
    }
    a.recvs_flushed(RECEIVES)?;
    b.expect_event(ConnectionKind::Established)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    a.expect_no_event(&conn, "a connection the consumer never learned of")?;
    a.expect_no_event(&a.ia.async_evd(), "the async dispatcher")
}
