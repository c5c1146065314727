//! Protection zones.

use dat_types::Subtype;

use crate::abi::*;
use crate::code::{Outcome, check_query, ensure, parameter, put};
use crate::object::{Pz, find, find_ia};

pub unsafe fn create(ia: Handle, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    ensure(!out.is_null(), parameter(Subtype::Arg2))?;
    let engine = ia.engine.pz_create()?;
    let handle = ia.adopt(engine.id(), Pz { ia: ia.clone(), engine })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg2, handle) }
}

pub unsafe fn query(pz: Handle, mask: u32, out: *mut PzParam) -> Outcome {
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    let wanted = check_query(mask.into(), 1, Subtype::Arg2, out, Subtype::Arg3)?;
    pz.engine.ia()?;
    if wanted {
        // SAFETY: not null, valid.
        unsafe { out.write(PzParam { ia_handle: pz.ia.handle() }) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let pz = find::<Pz>(handle, Subtype::HandlePz)?;
    pz.engine.free()?;
    pz.ia.disown::<Pz>(handle);
    Ok(())
}
