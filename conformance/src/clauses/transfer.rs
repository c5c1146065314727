//! Data transfer: sends, receives, RDMA writes and reads.

use crate::clauses::prelude::*;

clauses! {
    272 "A send when neither CONNECTED nor DISCONNECTED: INVALID_STATE" => send_states;
    273 "A send of 0 segments: the receive completes with length 0" => empty_send;
    274 "A send of one segment too many: INVALID_PARAMETER" => too_many_segments;
    275 "A send longer than max_message_size: INVALID_PARAMETER, no message is sent" => too_long;
    276 "max_request_dtos outstanding: INSUFFICIENT_RESOURCES; after a completion, success" => requests_full;
    277 "The same cookie twice: both completions carry it" => same_cookie;
    278 "A segment of length 0 is skipped with any address and context" => empty_segment;
    279 "A segment beyond its region: INVALID_PARAMETER" => beyond_region;
    280 "Sending from a region without LOCAL_READ: PRIVILEGES_VIOLATION" => no_local_read;
    281 "SUPPRESS: no completion on success" => suppress;
    282 "UNSIGNALLED on an endpoint without it: INVALID_PARAMETER" => unsignalled_refused;
    283 "SOLICITED_WAIT: only a solicited message wakes the receiver's waiter" => solicited;
    284 "Three segments into two: bytes in order, filled from the front" => gather_scatter;
    285 "A message longer than the receive: LOCAL_LENGTH, BROKEN" => receive_too_short;
    286 "DISCONNECTED: a receive is flushed at once" => recv_when_disconnected;
    287 "Receiving into a region without LOCAL_WRITE: PRIVILEGES_VIOLATION" => no_local_write;
    288 "A write into a shorter remote segment: LENGTH_ERROR" => write_too_long;
    289 "A write, then a send: the data is there when the receive completes" => write_then_send;
    290 "A write without REMOTE_WRITE: REMOTE_ACCESS, both ends break" => write_forbidden;
    291 "A read into shorter local segments: LENGTH_ERROR" => read_too_long;
    292 "A read: the data, and the remote segment's length" => read;
    293 "A read, then a fenced write to its source: the read has the old bytes" => fenced;
    294 "SOLICITED_WAIT on a read: INVALID_PARAMETER" => read_solicited;
    297 "1000 sends complete in order with their cookies" => thousand;
    298 "One request fails among many: its completion, then flushes, then BROKEN" => one_fails;
}

fn send_states(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let post = |ep: &Ep| ep.post_send(&[a.lmr.triplet(0, 8)], 1, PLAIN);
    t.refused("UNCONNECTED", post(&a.ep), ReturnType::InvalidState)?;
    a.connect(&b)?;
    t.refused("ACTIVE_CONNECTION_PENDING", post(&a.ep), ReturnType::InvalidState)?;
    let (pending, ep) = t.tentative()?;
    let result = ep.post_send(&[], 1, PLAIN);
    t.refused("TENTATIVE_CONNECTION_PENDING", result, ReturnType::InvalidState)?;
    drop(pending);
    let (a, _b) = t.draining(8)?;
    let result = a.ep.post_send(&[a.lmr.triplet(0, 8)], 1, PLAIN);
    t.refused("DISCONNECT_PENDING", result, ReturnType::InvalidState)
}

fn empty_send(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, 64, 5)?;
    a.ep.post_send(&[], 6, PLAIN)?;
    let dto = b.receives(5, DtoStatus::Success)?;
    ensure_eq("length", dto.length, 0)?;
    a.completes(&a.request, 6, DtoStatus::Success).map(|_| ())
}

fn too_many_segments(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let most = a.ep.query()?.attr.max_request_iov as usize;
    let iov = vec![a.lmr.triplet(0, 8); most + 1];
    t.refused("a send", a.ep.post_send(&iov, 1, PLAIN), ReturnType::InvalidParameter)?;
    a.is_in(EpState::Connected)
}

fn too_long(t: &TestContext) -> Outcome {
    let attr = AttrSpec { message: Some(4096), ..AttrSpec::default() };
    let (a, b) = t.pair_with(&attr, &AttrSpec::default())?;
    b.post_recv(0, REGION as u32, 1)?;
    t.refused("a send", a.ep.post_send(&[a.lmr.triplet(0, 4097)], 1, PLAIN), ReturnType::InvalidParameter)?;
    b.expect_no_event(b.recv, "B's receive dispatcher")?;
    a.send(0, 4096, 2)?;
    ensure_eq("length of the next message", b.receives(1, DtoStatus::Success)?.length, 4096)
}

fn requests_full(t: &TestContext) -> Outcome {
    let attr = AttrSpec { requests: Some(4), ..AttrSpec::default() };
    let (a, b) = t.pair_with(&attr, &AttrSpec::default())?;
    let mut posted = 0;
    // A provider that buffers sends frees slots by itself. A queue that never fills proves nothing.
    let refusal = loop {
        match a.send(0, REGION as u32, posted) {
            Ok(()) => posted += 1,
            Err(_) => break a.ep.post_send(&[a.lmr.triplet(0, REGION as u32)], posted, PLAIN),
        }
        if posted > 256 {
            return not_applicable("the provider completes long sends before the peer takes them");
        }
    };
    ensure(posted >= 4, format!("only {posted} of 4 requests could be posted"))?;
    t.refused("one more", refusal, ReturnType::InsufficientResources)?;
    b.post_recv(0, REGION as u32, 0)?;
    a.completes(&a.request, 0, DtoStatus::Success)?;
    // Its slot is free as soon as its completion was generated, which taking it proves.
    t.until("a send after a completion was taken", || Ok(a.send(0, 16, posted).is_ok()))
}

fn same_cookie(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    for _ in 0..2 {
        b.post_recv(0, 64, u64::MAX)?;
        a.send(0, 8, 0xDEAD_BEEF_0000_0001)?;
    }
    for _ in 0..2 {
        a.completes(&a.request, 0xDEAD_BEEF_0000_0001, DtoStatus::Success)?;
        b.receives(u64::MAX, DtoStatus::Success)?;
    }
    Ok(())
}

fn empty_segment(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.lmr.memory().write(0, b"abcdef");
    let garbage = LmrTriplet { address: u64::MAX, length: 0, context: 0xFFFF_FFFF };
    b.post_recv(0, 64, 1)?;
    a.ep.post_send(&[garbage, a.lmr.triplet(0, 3), garbage, a.lmr.triplet(3, 3)], 2, PLAIN)?;
    ensure_eq("length", b.receives(1, DtoStatus::Success)?.length, 6)?;
    ensure_eq("bytes", b.load(0, 6)?, b"abcdef".to_vec())
}

fn beyond_region(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, REGION as u32, 1)?;
    let result = a.ep.post_send(&[a.lmr.triplet(REGION - 8, 16)], 1, PLAIN);
    t.refused("the post", result, ReturnType::InvalidParameter)
}

fn no_local_read(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, 64, 1)?;
    let lmr = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, Privileges::LOCAL_WRITE)?;
    let result = a.ep.post_send(&[lmr.triplet(0, 16)], 1, PLAIN);
    t.refused("the post", result, ReturnType::PrivilegesViolation)
}

fn suppress(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, 64, 1)?;
    b.post_recv(0, 64, 2)?;
    a.ep.post_send(&[a.lmr.triplet(0, 8)], 1, CompletionFlags::SUPPRESS)?;
    b.receives(1, DtoStatus::Success)?;
    a.expect_no_event(&a.request, "A's request dispatcher")?;
    a.send(0, 8, 2)?;
    a.completes(&a.request, 2, DtoStatus::Success)?;
    ensure_eq("all requests are done", a.ep.status()?.request_idle, true)
}

fn unsignalled_refused(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, 64, 1)?;
    let result = a.ep.post_send(&[a.lmr.triplet(0, 8)], 1, CompletionFlags::UNSIGNALLED);
    t.refused("a send", result, ReturnType::InvalidParameter)?;
    b.expect_no_event(b.recv, "B's receive dispatcher")
}

fn solicited(t: &TestContext) -> Outcome {
    let attr = AttrSpec { recv_flags: CompletionFlags::SOLICITED_WAIT.bits(), ..AttrSpec::default() };
    let (a, b) = t.pair_with(&attr, &AttrSpec::default())?;
    a.post_recvs(2)?;
    let long = Timeout::from(t.long());
    let ready = std::sync::Barrier::new(2);
    let waited = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            ready.wait();
            a.recv.wait(long, 1)
        });
        ready.wait();
        t.pause();
        b.send(0, 8, 1)?;
        t.pause();
        ensure(!waiter.is_finished(), "the waiter unblocked for a message that was not solicited")?;
        b.send_with(0, 8, 2, CompletionFlags::SOLICITED_WAIT)?;
        waiter.join().map_err(|_| Stop::Failed("the waiter panicked".into()))
    })?;
    let (event, nmore) = waited?;
    let dat_types::EventData::Dto(dto) = event.data else { return fail("no completion") };
    ensure_eq("first completion's cookie, and how many more", (dto.cookie, nmore), (0, 1))
}

fn gather_scatter(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.lmr.memory().write(0, b"one");
    a.lmr.memory().write(100, b"twotwo");
    a.lmr.memory().write(200, b"three");
    b.store(0, &[b'.'; 64])?;
    b.post_recv_iov(&[(0, 10), (32, 10)], 1)?;
    a.ep.post_send(&[a.lmr.triplet(0, 3), a.lmr.triplet(100, 6), a.lmr.triplet(200, 5)], 1, PLAIN)?;
    ensure_eq("length", b.receives(1, DtoStatus::Success)?.length, 14)?;
    ensure_eq("the first segment, full, and what follows it", b.load(0, 12)?, b"onetwotwot..".to_vec())?;
    ensure_eq("the second segment, in part", b.load(32, 10)?, b"hree......".to_vec())
}

fn receive_too_short(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.post_recv(0, 16, 3)?;
    b.send(0, 17, 4)?;
    a.completes(&a.recv, 3, DtoStatus::LocalLength)?;
    a.breaks(&a.conn, BreakReason::Operation(DtoStatus::LocalLength))?;
    a.is_in(EpState::Disconnected)?;
    b.completes(4, DtoStatus::RemoteResponder)?;
    b.expect_event(ConnectionKind::Broken)
}

fn recv_when_disconnected(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    a.post_recv(0, 16, 9)?;
    let dto = a.completes(&a.recv, 9, DtoStatus::Flushed)?;
    ensure_eq("operation", dto.operation, DtoOperation::Receive)
}

fn no_local_write(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let lmr = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, Privileges::LOCAL_READ)?;
    let result = a.ep.post_recv(&[lmr.triplet(0, 16)], 1, PLAIN);
    t.refused("the post", result, ReturnType::PrivilegesViolation)
}

fn write_too_long(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let result = a.ep.post_rdma_write(&[a.lmr.triplet(0, 17)], 1, b.target(0, 16), PLAIN);
    t.refused("a write", result, ReturnType::LengthError)?;
    a.is_in(EpState::Connected)
}

fn write_then_send(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    // Longer than any buffering a provider may do in between.
    let data: Vec<u8> = (0..32_768u32).map(|i| (i % 251) as u8).collect();
    a.lmr.memory().write(0, &data);
    b.post_recv(60_000, 64, 1)?;
    a.write(0, 32_768, 1, b.target(1024, 32_768))?;
    a.send(0, 8, 2)?;
    ensure_eq("length", b.receives(1, DtoStatus::Success)?.length, 8)?;
    ensure(b.load(1024, 32_768)? == data, "the written bytes are not all there when the receive completes")?;
    b.expect_no_event(b.recv, "B's receive dispatcher: a write completes nothing there")?;
    let write = a.completes(&a.request, 1, DtoStatus::Success)?;
    ensure_eq(
        "the write's (operation, length)",
        (write.operation, write.length),
        (DtoOperation::RdmaWrite, 32_768),
    )?;
    a.completes(&a.request, 2, DtoStatus::Success).map(|_| ())
}

fn write_forbidden(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let region =
        b.region(Privileges::LOCAL_READ | Privileges::LOCAL_WRITE | Privileges::REMOTE_READ, false)?;
    a.write(0, 16, 1, region.triplet(0, 16))?;
    a.completes(&a.request, 1, DtoStatus::RemoteAccess)?;
    a.breaks(&a.conn, BreakReason::Operation(DtoStatus::RemoteAccess))?;
    a.is_in(EpState::Disconnected)?;
    b.expect_event(ConnectionKind::Broken)
}

fn read_too_long(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let result = a.ep.post_rdma_read(&[a.lmr.triplet(0, 15)], 1, b.target(0, 16), PLAIN);
    t.refused("a read", result, ReturnType::LengthError)?;
    a.is_in(EpState::Connected)
}

fn read(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.store(100, b"source")?;
    a.lmr.memory().write(0, &[b'.'; 16]);
    a.read(0, 16, 1, b.target(100, 6))?;
    let dto = a.completes(&a.request, 1, DtoStatus::Success)?;
    ensure_eq("operation and length", (dto.operation, dto.length), (DtoOperation::RdmaRead, 6))?;
    ensure_eq("bytes", a.bytes(0, 8), b"source..".to_vec())?;
    b.expect_no_event(b.recv, "B's receive dispatcher: a read completes nothing there")
}

fn fenced(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.store(0, &[b'o'; 16_384])?;
    a.lmr.memory().write(32_768, &[b'n'; 16_384]);
    a.read(0, 16_384, 1, b.target(0, 16_384))?;
    let local = [a.lmr.triplet(32_768, 16_384)];
    a.ep.post_rdma_write(&local, 2, b.target(0, 16_384), CompletionFlags::BARRIER_FENCE)?;
    a.completes(&a.request, 1, DtoStatus::Success)?;
    a.completes(&a.request, 2, DtoStatus::Success)?;
    let wrong = a.bytes(0, 16_384).into_iter().find(|byte| *byte != b'o');
    ensure_eq("a byte the read got that is not an old one (110 is a new one)", wrong, None)?;
    b.post_recv(60_000, 8, 1)?;
    a.send(0, 8, 3)?;
    b.receives(1, DtoStatus::Success)?;
    ensure(b.load(0, 16_384)? == vec![b'n'; 16_384], "the write did not arrive")
}

fn read_solicited(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let flags = CompletionFlags::SOLICITED_WAIT;
    let result = a.ep.post_rdma_read(&[a.lmr.triplet(0, 8)], 1, b.target(0, 8), flags);
    t.refused("a read", result, ReturnType::InvalidParameter)
}

fn thousand(t: &TestContext) -> Outcome {
    const WINDOW: u64 = 16;
    let (a, b) = t.pair()?;
    for cookie in 0..WINDOW {
        b.post_recv(64 * cookie, 8, cookie)?;
    }
    let mut posted = 0;
    for cookie in 0..1000 {
        while posted < 1000 && posted < cookie + WINDOW {
            a.lmr.memory().write(8 * (posted % WINDOW), &posted.to_le_bytes());
            a.send(8 * (posted % WINDOW), 8, posted)?;
            posted += 1;
        }
        b.receives(cookie, DtoStatus::Success)?;
        ensure_eq("message", b.load(64 * (cookie % WINDOW), 8)?, cookie.to_le_bytes().to_vec())?;
        b.post_recv(64 * (cookie % WINDOW), 8, cookie + WINDOW)?;
        a.completes(&a.request, cookie, DtoStatus::Success)?;
    }
    Ok(())
}

fn one_fails(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    for cookie in 0..6 {
        b.post_recv(64 * cookie, 64, cookie)?;
    }
    a.post_recvs(2)?;
    let nowhere = RmrTriplet { context: 0x7FFF_FF17, ..b.target(0, 16) };
    for cookie in 0..2 {
        a.send(0, 8, cookie)?;
    }
    a.write(0, 16, 2, nowhere)?;
    // The failure may be known before these are posted; then they are flushed all the same.
    for cookie in 3..6 {
        a.send(0, 8, cookie)?;
    }
    for cookie in 0..2 {
        a.completes(&a.request, cookie, DtoStatus::Success)?;
    }
    a.completes(&a.request, 2, DtoStatus::RemoteAccess)?;
    for cookie in 3..6 {
        a.completes(&a.request, cookie, DtoStatus::Flushed)?;
    }
    a.expect_event(ConnectionKind::Broken)?;
    a.recvs_flushed(2)?;
    a.expect_no_event(&a.request, "A's request dispatcher")
}
