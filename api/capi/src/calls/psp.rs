//! Public service points.

use dat_types::{PspFlags, Subtype};

use crate::abi::*;
use crate::code::{Outcome, check_query, ensure, parameter, put};
use crate::handle;
use crate::object::{Evd, Psp, find, find_ia};

pub unsafe fn create(ia: Handle, conn_qual: u64, evd: Handle, flags: u32, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    let evd = find::<Evd>(evd, Subtype::HandleEvdCr)?;
    let flags = PspFlags::from_raw(flags).ok_or(parameter(Subtype::Arg4))?;
    ensure(!out.is_null(), parameter(Subtype::Arg5))?;
    let engine = ia.engine.psp_create(conn_qual, &evd.engine, flags)?;
    let handle = ia.adopt(engine.id(), Psp { ia: ia.clone(), engine })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg5, handle) }
}

pub unsafe fn create_any(
    ia: Handle,
    conn_qual: *mut u64,
    evd: Handle,
    flags: u32,
    out: *mut Handle,
) -> Outcome {
    let ia = find_ia(ia)?;
    let evd = find::<Evd>(evd, Subtype::HandleEvdCr)?;
    ensure(!conn_qual.is_null(), parameter(Subtype::Arg2))?;
    let flags = PspFlags::from_raw(flags).ok_or(parameter(Subtype::Arg4))?;
    ensure(!out.is_null(), parameter(Subtype::Arg5))?;
    let engine = ia.engine.psp_create_any(&evd.engine, flags)?;
    let found = engine.conn_qual();
    let handle = ia.adopt(engine.id(), Psp { ia: ia.clone(), engine })?;
    // SAFETY: neither is null, both valid.
    unsafe {
        put(conn_qual, Subtype::Arg2, found)?;
        put(out, Subtype::Arg5, handle)
    }
}

pub unsafe fn query(psp: Handle, mask: u32, out: *mut PspParam) -> Outcome {
    let psp = find::<Psp>(psp, Subtype::HandlePsp)?;
    let wanted = check_query(mask.into(), 0xF, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = psp.engine.query()?;
    if wanted {
        let value = PspParam {
            ia_handle: psp.ia.handle(),
            conn_qual: param.conn_qual,
            evd_handle: handle::of(param.evd.id()),
            psp_flags: param.flags as u32,
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let psp = find::<Psp>(handle, Subtype::HandlePsp)?;
    psp.engine.free()?;
    psp.ia.disown::<Psp>(handle);
    Ok(())
}
