//! Memory regions.

use dat_engine::Memory;
use dat_types::{Privileges, Subtype};

use crate::abi::*;
use crate::code::{Outcome, UNSUPPORTED, check_query, ensure, parameter, put_if};
use crate::handle;
use crate::object::{Lmr, Made, Pz, find, find_ia};

const VIRTUAL: u32 = 0;
const LAST_TYPE: u32 = 2;

#[allow(clippy::too_many_arguments, reason = "the call has as many")]
pub unsafe fn create(
    ia: Handle,
    mem_type: u32,
    region: RegionDescription,
    length: u64,
    pz: Handle,
    privileges: u32,
    va_type: u32,
    out: *mut Handle,
    lmr_context: *mut u32,
    rmr_context: *mut u32,
    size: *mut u64,
    address: *mut u64,
) -> Outcome {
    let ia = find_ia(ia)?;
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    ensure(mem_type <= LAST_TYPE, parameter(Subtype::Arg2))?;
    let privileges = Privileges::from_bits(privileges).ok_or(parameter(Subtype::Arg6))?;
    ensure(va_type <= 1, parameter(Subtype::Arg7))?;
    ensure(!out.is_null(), parameter(Subtype::Arg8))?;
    ensure(mem_type == VIRTUAL && va_type == 0, UNSUPPORTED)?;
    // SAFETY: the consumer keeps registered memory mapped until it frees the region, and does not touch what an
    // outstanding transfer writes; the public API demands both of it.
    let memory = unsafe { Memory::foreign(region.first as u64, length, None) };
    // The reference lets every region be sent from, and programs of the field do so without asking for the right.
    let engine = ia.engine.lmr_create(&pz.engine, memory, privileges | Privileges::LOCAL_READ)?;
    let (local, remote) = (engine.context(), engine.rmr_context());
    let (at, registered) = (engine.memory().addr(), engine.memory().len());
    let made = Made { mem_type, privileges, region: [region.first as usize, region.second as usize], length, va_type };
    let handle = ia.adopt(engine.id(), Lmr { ia: ia.clone(), engine, made })?;
    // SAFETY: the first is not null; all are null or valid.
    unsafe {
        out.write(handle);
        put_if(lmr_context, local);
        put_if(rmr_context, remote);
        put_if(size, registered);
        put_if(address, at);
    }
    Ok(())
}

pub unsafe fn query(lmr: Handle, mask: u32, out: *mut LmrParam) -> Outcome {
    let lmr = find::<Lmr>(lmr, Subtype::HandleLmr)?;
    let wanted = check_query(mask.into(), 0x7FF, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = lmr.engine.query()?;
    if wanted {
        let [first, second] = lmr.made.region.map(|word| word as Handle);
        let value = LmrParam {
            ia_handle: lmr.ia.handle(),
            mem_type: lmr.made.mem_type,
            region_desc: RegionDescription { first, second },
            length: lmr.made.length,
            pz_handle: handle::of(param.pz.id()),
            mem_priv: lmr.made.privileges.bits(),
            va_type: lmr.made.va_type,
            lmr_context: param.lmr_context,
            rmr_context: param.rmr_context,
            registered_size: param.memory.len(),
            registered_address: param.memory.addr(),
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let lmr = find::<Lmr>(handle, Subtype::HandleLmr)?;
    lmr.engine.free()?;
    lmr.ia.disown::<Lmr>(handle);
    Ok(())
}

pub unsafe fn sync_rdma_read(ia: Handle, segments: *const LmrTriplet, count: u64) -> Outcome {
    // SAFETY: null or valid for `count` triplets.
    unsafe { sync(ia, segments, count) }
}

pub unsafe fn sync_rdma_write(ia: Handle, segments: *const LmrTriplet, count: u64) -> Outcome {
    // SAFETY: null or valid for `count` triplets.
    unsafe { sync(ia, segments, count) }
}

unsafe fn sync(ia: Handle, segments: *const LmrTriplet, count: u64) -> Outcome {
    let _ia = find_ia(ia)?;
    ensure(count == 0 || !segments.is_null(), parameter(Subtype::Arg2))
}
