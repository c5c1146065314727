//! Reserved service points.

use dat_types::Subtype;

use crate::abi::*;
use crate::code::{Outcome, check_query, ensure, parameter, put};
use crate::handle;
use crate::object::{Ep, Evd, Rsp, find, find_ia, find_or_null};

pub unsafe fn create(ia: Handle, conn_qual: u64, ep: Handle, evd: Handle, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    let ep = find_or_null::<Ep>(ep, Subtype::HandleEp)?;
    let evd = find::<Evd>(evd, Subtype::HandleEvdCr)?;
    ensure(!out.is_null(), parameter(Subtype::Arg5))?;
    // Held over both: its request may come at once.
    let mut reserved = ia.reserved.lock();
    let engine = ia.engine.rsp_create(conn_qual, ep.as_ref().map(|ep| &ep.engine), &evd.engine)?;
    let handle = ia.adopt(engine.id(), Rsp { ia: ia.clone(), engine })?;
    reserved.insert(conn_qual, handle.into());
    drop(reserved);
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg5, handle) }
}

pub unsafe fn query(rsp: Handle, mask: u32, out: *mut RspParam) -> Outcome {
    let rsp = find::<Rsp>(rsp, Subtype::HandleRsp)?;
    let wanted = check_query(mask.into(), 0xF, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = rsp.engine.query()?;
    if wanted {
        let value = RspParam {
            ia_handle: rsp.ia.handle(),
            conn_qual: param.conn_qual,
            evd_handle: handle::of(param.evd.id()),
            ep_handle: param.ep.map_or(NULL, |ep| handle::of(ep.id())),
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let rsp = find::<Rsp>(handle, Subtype::HandleRsp)?;
    rsp.engine.free()?;
    rsp.ia.reserved.lock().retain(|_, known| known.0 != handle as usize);
    rsp.ia.disown::<Rsp>(handle);
    Ok(())
}
