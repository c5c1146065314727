//! J. Memory regions and protection zones.

use dat_engine::Memory;

use super::prelude::*;

clauses! {
    299 "all rights: both contexts, and the range asked for" => create;
    300 "no remote right: no context for peers" => no_remote_right;
    301 "a length of 0, an undefined right: INVALID_PARAMETER" => bad_values;
    306 "a freed region used by a peer: REMOTE_ACCESS, the connection breaks" => freed_remote;
    307 "a zone in use by an endpoint or region cannot be freed" => zone_in_use;
}

fn create(t: &Bench) -> Outcome {
    let a = t.side()?;
    for memory in [a.ia.alloc(10_000)?, Memory::heap(10_000)] {
        let (addr, len) = (memory.addr(), memory.len());
        let lmr = a.ia.lmr_create(&a.pz, memory, Privileges::ALL)?;
        let param = lmr.query()?;
        holds(param.lmr_context != 0 && param.rmr_context != 0, "a context is 0")?;
        let covered = param.memory.addr() <= addr && addr + len <= param.memory.addr() + param.memory.len();
        holds(covered, format!("{:?} does not cover {len} bytes at {addr:#x}", param.memory))?;
        same("zone", param.pz.id(), a.pz.id())?;
        same("rights", param.privileges, Privileges::ALL)?;
    }
    Ok(())
}

fn no_remote_right(t: &Bench) -> Outcome {
    let a = t.side()?;
    for rights in
        [Privileges::empty(), Privileges::LOCAL_READ, Privileges::LOCAL_READ | Privileges::LOCAL_WRITE]
    {
        let lmr = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, rights)?;
        same(&format!("context for peers with {rights:?}"), lmr.rmr_context(), 0)?;
    }
    Ok(())
}

fn bad_values(t: &Bench) -> Outcome {
    let a = t.side()?;
    let result = a.ia.lmr_create(&a.pz, Memory::heap(0), Privileges::ALL);
    t.refused("0 bytes", result, ReturnType::InvalidParameter)?;
    for bits in [0x04, 0x100, 0x8000_0000] {
        let result = a.ia.lmr_create(&a.pz, a.ia.alloc(4096)?, Privileges::from_bits_retain(bits));
        t.refused(&format!("rights {bits:#x}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn freed_remote(t: &Bench) -> Outcome {
    let (a, b) = t.pair()?;
    let region = b.region(Privileges::ALL, false)?;
    a.write(0, 16, 1, region.triplet(0, 16))?;
    a.completes(&a.request, 1, DtoStatus::Success)?;
    b.free(region.handle)?;
    a.write(0, 16, 2, region.triplet(0, 16))?;
    a.completes(&a.request, 2, DtoStatus::RemoteAccess)?;
    a.told(ConnectionKind::Broken)?;
    let (kind, _) = b.connection()?;
    let ends = [ConnectionKind::Broken, ConnectionKind::Disconnected];
    holds(ends.contains(&kind), format!("B's connection ended with {kind:?}"))
}

fn zone_in_use(t: &Bench) -> Outcome {
    let a = t.side()?;
    t.refused("used by an endpoint and a region", a.pz.free(), ReturnType::InvalidState)?;
    a.ep.free()?;
    t.refused("used by a region", a.pz.free(), ReturnType::InvalidState)?;
    a.lmr.free()?;
    Ok(a.pz.free()?)
}
