//! Memory regions and protection zones.

use dat_engine::{Lmr, Memory, Origin, Region};
use dat_types::{LmrCookie, VaType};

use crate::clauses::prelude::*;
use crate::os;

clauses! {
    299 "All rights: both contexts, and a range that covers the request" => create;
    300 "No remote right: no context for peers" => no_remote_right;
    301 "A length of 0 or an undefined right: INVALID_PARAMETER" => bad_values;
    302 "A region over another region's memory, in another zone: it works there and outlives the first" => over;
    303 "Shared memory with one cookie in two processes: both see the same bytes" => shared;
    304 "Zero-based addresses without support: MODEL_NOT_SUPPORTED" => zero_based;
    306 "A peer uses a freed region: REMOTE_ACCESS, the connection breaks" => freed_remote;
    307 "A zone in use cannot be freed" => zone_in_use;
    375 "Memory of the adapter has the length requested, and peers reach exactly that" => exact_length;
    319 "Synchronising a range outside its region: INVALID_PARAMETER" => sync_outside;
    320 "Synchronising ranges of two regions in two zones: success" => sync_two;
}

fn create(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for memory in [a.ia.alloc(10_000)?, Memory::heap(10_000)] {
        let (addr, len) = (memory.addr(), memory.len());
        let lmr = a.ia.lmr_create(&a.pz, memory, Privileges::ALL)?;
        let param = lmr.query()?;
        ensure(param.lmr_context != 0 && param.rmr_context != 0, "a context is 0")?;
        let covered = param.memory.addr() <= addr && addr + len <= param.memory.addr() + param.memory.len();
        ensure(covered, format!("{:?} does not cover {len} bytes at {addr:#x}", param.memory))?;
        ensure_eq("zone", param.pz.id(), a.pz.id())?;
        ensure_eq("rights", param.privileges, Privileges::ALL)?;
    }
    Ok(())
}

fn no_remote_right(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for rights in
        [Privileges::empty(), Privileges::LOCAL_READ, Privileges::LOCAL_READ | Privileges::LOCAL_WRITE]
    {
        let lmr = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, rights)?;
        ensure_eq(&format!("context for peers with {rights:?}"), lmr.rmr_context(), 0)?;
    }
    Ok(())
}

fn bad_values(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let result = a.ia.lmr_create(&a.pz, Memory::heap(0), Privileges::ALL);
    t.refused("0 bytes", result, ReturnType::InvalidParameter)?;
    for bits in [0x04, 0x100, 0x8000_0000] {
        let result = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, Privileges::from_bits_retain(bits));
        t.refused(&format!("rights {bits:#x}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn freed_remote(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let region = b.region(Privileges::ALL, false)?;
    a.write(0, 16, 1, region.triplet(0, 16))?;
    a.completes(&a.request, 1, DtoStatus::Success)?;
    b.free(region.handle)?;
    a.write(0, 16, 2, region.triplet(0, 16))?;
    a.completes(&a.request, 2, DtoStatus::RemoteAccess)?;
    a.expect_event(ConnectionKind::Broken)?;
    b.expect_event(ConnectionKind::Broken)
}

fn exact_length(t: &TestContext) -> Outcome {
    const LEN: u64 = 513;
    for of_the_provider in [true, false] {
        let (a, b) = t.pair()?;
        let memory = if of_the_provider { a.ia.alloc(LEN)? } else { a.ia.heap(LEN as usize)? };
        let lmr = a.ia.lmr_create(&a.pz, memory, Privileges::ALL)?;
        ensure_eq("length of the region", lmr.query()?.memory.len(), LEN)?;
        b.write(8, 1, lmr.remote_triplet(LEN - 8, 8))?;
        b.completes(1, DtoStatus::Success)?;
        b.write(8, 2, lmr.remote_triplet(LEN - 7, 8))?;
        b.completes(2, DtoStatus::RemoteAccess)?;
        b.expect_event(ConnectionKind::Broken)?;
        a.breaks(&a.conn, BreakReason::Transport)?;
    }
    let a = t.local()?;
    t.refused("memory of 0 bytes", a.ia.alloc(0), ReturnType::InvalidParameter)
}

fn zone_in_use(t: &TestContext) -> Outcome {
    let a = t.local()?;
    t.refused("used by an endpoint and a region", a.pz.free(), ReturnType::InvalidState)?;
    a.ep.free()?;
    t.refused("used by a region", a.pz.free(), ReturnType::InvalidState)?;
    a.lmr.free()?;
    Ok(a.pz.free()?)
}

fn over(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let other = a.ia.pz_create()?;
    let first = a.ia.lmr_create(&other, a.ia.alloc(4096)?, Privileges::LOCAL_READ)?;
    let make = |of: &Lmr| a.ia.lmr_create_from(Region::Lmr(of), &a.pz, Privileges::ALL, VaType::Virtual);
    let second = make(&first)?;
    let param = second.query()?;
    ensure_eq("origin and zone", (param.origin, param.pz.id()), (Origin::Lmr(first.id()), a.pz.id()))?;
    ensure_eq("address", second.memory().addr(), first.memory().addr())?;
    ensure(second.context() != first.context(), "both have the same context")?;
    first.free()?;
    other.free()?;
    t.refused("a region over one that is gone", make(&first), ReturnType::InvalidHandle)?;
    b.store(0, b"over it")?;
    a.ep.post_recv(&[second.triplet(8, 64)], 1, PLAIN)?;
    b.send(0, 7, 2)?;
    a.completes(&a.recv, 1, DtoStatus::Success)?;
    let mut bytes = [0; 7];
    second.memory().read(8, &mut bytes);
    ensure_eq("bytes", &bytes, b"over it")
}

fn shared(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let folder = tempfile::tempdir().map_err(|error| Stop::Failed(format!("no folder: {error}")))?;
    let path = folder.path().join("shared");
    let memory =
        os::shared_memory(&path, 8192).map_err(|error| Stop::Failed(format!("no mapping: {error}")))?;
    let make = |memory, cookie: u8| {
        let region = Region::Shared(memory, LmrCookie([cookie; 40]));
        a.ia.lmr_create_from(region, &a.pz, Privileges::ALL, VaType::Virtual)
    };
    let here = match make(memory, 7) {
        Err(error) if error.kind() == ReturnType::ModelNotSupported => {
            return not_supported("the provider registers no shared memory");
        }
        made => made?,
    };
    let there = b.shared_region(&path, 8192, 7)?;
    here.memory().write(100, b"seen by both");
    ensure_eq("bytes at B", b.load_from(there.handle, 100, 12)?, b"seen by both".to_vec())?;
    // And it is memory as any other.
    a.ep.post_rdma_write(&[here.triplet(100, 4)], 1, there.triplet(4096, 4), PLAIN)?;
    a.completes(&a.request, 1, DtoStatus::Success)?;
    let mut bytes = [0; 4];
    here.memory().read(4096, &mut bytes);
    ensure_eq("bytes written by way of B", &bytes, b"seen")?;
    t.refused("memory that is not shared", make(Memory::heap(4096), 8), ReturnType::InvalidState)
}

fn zero_based(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let region = Region::Virtual(a.ia.alloc(4096)?);
    let made = a.ia.lmr_create_from(region, &a.pz, Privileges::ALL, VaType::ZeroBased);
    match a.ia.query()?.zb_supported {
        true => made.map(|_| ()).map_err(Stop::from),
        false => t.refused("zero-based addresses", made, ReturnType::ModelNotSupported),
    }
}

fn sync_outside(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let good = a.lmr.triplet(0, 64);
    for (what, bad) in [
        ("past the end", a.lmr.triplet(REGION - 32, 64)),
        ("an unknown context", LmrTriplet { context: good.context ^ 0x5555, ..good }),
    ] {
        t.refused(what, a.ia.lmr_sync_rdma_read(&[good, bad]), ReturnType::InvalidParameter)?;
        t.refused(what, a.ia.lmr_sync_rdma_write(&[bad, good]), ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn sync_two(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let other = a.ia.pz_create()?;
    let lmr = a.ia.lmr_create(&other, a.ia.alloc(4096)?, Privileges::ALL)?;
    let ranges = [a.lmr.triplet(10, 64), lmr.triplet(0, 4096), a.lmr.triplet(REGION, 0)];
    a.ia.lmr_sync_rdma_read(&ranges)?;
    a.ia.lmr_sync_rdma_write(&ranges)?;
    Ok(a.ia.lmr_sync_rdma_write(&[])?)
}
