//! Memory windows.

use dat_types::{CompletionFlags, Privileges, RmrScope, Subtype, VaType};

use crate::abi::*;
use crate::code::{Outcome, UNSUPPORTED, check_query, ensure, parameter, put, put_if};
use crate::handle;
use crate::object::{Ep, Lmr, Pz, Rmr, find, find_or_null};

pub unsafe fn create(pz: Handle, out: *mut Handle) -> Outcome {
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    ensure(!out.is_null(), parameter(Subtype::Arg2))?;
    let engine = pz.ia.engine.rmr_create(&pz.engine)?;
    // SAFETY: not null, valid.
    unsafe { made(pz, engine, out) }
}

pub unsafe fn create_for_ep(pz: Handle, out: *mut Handle) -> Outcome {
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    ensure(!out.is_null(), parameter(Subtype::Arg2))?;
    let engine = pz.ia.engine.rmr_create_for_ep(&pz.engine)?;
    // SAFETY: not null, valid.
    unsafe { made(pz, engine, out) }
}

unsafe fn made(pz: Pz, engine: dat_engine::Rmr, out: *mut Handle) -> Outcome {
    let handle = pz.ia.adopt(engine.id(), Rmr { ia: pz.ia.clone(), engine })?;
    // SAFETY: valid, says the caller.
    unsafe { put(out, Subtype::Arg2, handle) }
}

pub unsafe fn query(rmr: Handle, mask: u32, out: *mut RmrParam) -> Outcome {
    let rmr = find::<Rmr>(rmr, Subtype::HandleRmr)?;
    let wanted = check_query(mask.into(), 0x7F, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = rmr.engine.query()?;
    if wanted {
        let value = RmrParam {
            ia_handle: rmr.ia.handle(),
            pz_handle: handle::of(param.pz.id()),
            lmr_triplet: param.range.unwrap_or_default(),
            mem_priv: param.privileges.bits(),
            rmr_context: param.rmr_context,
            rmr_scope: RmrScope::Pz as u32,
            va_type: VaType::Virtual as u32,
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the call has as many")]
pub unsafe fn bind(
    rmr: Handle,
    lmr: Handle,
    triplet: *const LmrTriplet,
    privileges: u32,
    va_type: u32,
    ep: Handle,
    cookie: Context,
    flags: u32,
    out: *mut u32,
) -> Outcome {
    let rmr = find::<Rmr>(rmr, Subtype::HandleRmr)?;
    // SAFETY: null or valid.
    let triplet = *unsafe { triplet.as_ref() }.ok_or(parameter(Subtype::Arg3))?;
    // Without a length there is nothing to bind to, and nothing is looked at.
    let lmr = match triplet.length {
        0 => find_or_null::<Lmr>(lmr, Subtype::HandleLmr).unwrap_or(None),
        _ => Some(find::<Lmr>(lmr, Subtype::HandleLmr)?),
    };
    let privileges = Privileges::from_bits(privileges).ok_or(parameter(Subtype::Arg4))?;
    let va_type = VaType::from_raw(va_type).ok_or(parameter(Subtype::Arg5))?;
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let flags = CompletionFlags::from_bits(flags).ok_or(parameter(Subtype::Arg8))?;
    ensure(va_type == VaType::Virtual, UNSUPPORTED)?;
    let lmr = lmr.as_ref().map(|lmr| &lmr.engine);
    let context =
        rmr.engine.bind(lmr, triplet.address, triplet.length, privileges, &ep.engine, cookie, flags)?;
    // SAFETY: null or valid.
    unsafe { put_if(out, context) };
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let rmr = find::<Rmr>(handle, Subtype::HandleRmr)?;
    rmr.engine.free()?;
    rmr.ia.disown::<Rmr>(handle);
    Ok(())
}
