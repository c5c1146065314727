//! Memory regions.

use dat_engine::{Memory, Region};
use dat_types::{LmrCookie, Privileges, Subtype, VaType};

use crate::abi::*;
use crate::code::{Outcome, check_query, ensure, parameter, put_if};
use crate::handle;
use crate::object::{Lmr, Made, Pz, find, find_ia};

const OF_LMR: u32 = 1;
const SHARED: u32 = 2;

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
    ensure(mem_type <= SHARED, parameter(Subtype::Arg2))?;
    let original = match mem_type {
        OF_LMR => Some(find::<Lmr>(region.first, Subtype::HandleLmr)?),
        _ => None,
    };
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    let asked = Privileges::from_bits(privileges).ok_or(parameter(Subtype::Arg6))?;
    let va = VaType::from_raw(va_type).ok_or(parameter(Subtype::Arg7))?;
    ensure(!out.is_null(), parameter(Subtype::Arg8))?;
    // SAFETY: the consumer keeps registered memory mapped until it frees the region, and does not touch what an
    // outstanding transfer writes; the public API demands both of it.
    let memory = || unsafe { Memory::foreign(region.first as u64, length, None) };
    let source = match (mem_type, &original) {
        (OF_LMR, Some(original)) => Region::Lmr(&original.engine),
        (SHARED, _) => {
            ensure(!region.second.is_null(), parameter(Subtype::Arg3))?;
            // SAFETY: not null, so a cookie of 40 bytes; of any alignment.
            Region::Shared(memory(), LmrCookie(unsafe { region.second.cast::<[u8; 40]>().read_unaligned() }))
        }
        _ => Region::Virtual(memory()),
    };
    // The reference lets every region be sent from, and programs of the field do so without asking for the right.
    let engine = ia.engine.lmr_create_from(source, &pz.engine, asked | Privileges::LOCAL_READ, va)?;
    let (local, remote) = (engine.context(), engine.rmr_context());
    let (at, registered) = (engine.memory().addr(), engine.memory().len());
    let made = Made { mem_type, privileges: asked, region: [region.first as usize, region.second as usize] };
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
            length: param.memory.len(),
            pz_handle: handle::of(param.pz.id()),
            mem_priv: lmr.made.privileges.bits(),
            va_type: param.va_type as u32,
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
    let ia = find_ia(ia)?;
    // SAFETY: null or valid for `count` triplets.
    Ok(ia.engine.lmr_sync_rdma_read(unsafe { slice(segments, count)? })?)
}

pub unsafe fn sync_rdma_write(ia: Handle, segments: *const LmrTriplet, count: u64) -> Outcome {
    let ia = find_ia(ia)?;
    // SAFETY: null or valid for `count` triplets.
    Ok(ia.engine.lmr_sync_rdma_write(unsafe { slice(segments, count)? })?)
}

unsafe fn slice<'a>(segments: *const LmrTriplet, count: u64) -> Outcome<&'a [LmrTriplet]> {
    if count == 0 {
        return Ok(&[]);
    }
    ensure(!segments.is_null() && segments.is_aligned(), parameter(Subtype::Arg2))?;
    let most = isize::MAX as usize / size_of::<LmrTriplet>();
    let count = usize::try_from(count).ok().filter(|count| *count <= most).ok_or(parameter(Subtype::Arg3))?;
    // SAFETY: not null, aligned, no longer than memory, and valid for `count` by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(segments, count) })
}
