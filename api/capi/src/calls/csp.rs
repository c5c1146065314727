//! Common service points, addressed as sockets are.

use std::sync::Arc;

use dat_types::Subtype;

use crate::abi::*;
use crate::address::{self, Stored};
use crate::code::{Outcome, check_query, ensure, parameter, put};
use crate::handle;
use crate::object::{Csp, CspKept, Evd, find, find_ia};

pub unsafe fn create(
    ia: Handle,
    comm: *const Comm,
    address: Address,
    evd: Handle,
    out: *mut Handle,
) -> Outcome {
    let ia = find_ia(ia)?;
    let evd = find::<Evd>(evd, Subtype::HandleEvdCr)?;
    // SAFETY: null or valid.
    let comm = *unsafe { comm.as_ref() }.ok_or(parameter(Subtype::Arg2))?;
    // SAFETY: null or a socket address.
    let address = unsafe { address::read(address, Subtype::Arg3)? };
    ensure(!out.is_null(), parameter(Subtype::Arg5))?;
    let asked = dat_types::Comm { domain: comm.domain, kind: comm.kind, protocol: comm.protocol };
    let engine = ia.engine.csp_create(asked, address, &evd.engine)?;
    let address = engine.query()?.address;
    let kept = Arc::new(CspKept { comm, address: Stored::new(address) });
    let handle = ia.adopt(engine.id(), Csp { ia: ia.clone(), engine, kept })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg5, handle) }
}

pub unsafe fn query(csp: Handle, mask: u32, out: *mut CspParam) -> Outcome {
    let csp = find::<Csp>(csp, Subtype::HandleCsp)?;
    let wanted = check_query(mask.into(), 0xF, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = csp.engine.query()?;
    if wanted {
        let value = CspParam {
            ia_handle: csp.ia.handle(),
            comm: &csp.kept.comm,
            address_ptr: csp.kept.address.pointer(),
            evd_handle: handle::of(param.evd.id()),
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let csp = find::<Csp>(handle, Subtype::HandleCsp)?;
    csp.engine.free()?;
    csp.ia.disown::<Csp>(handle);
    Ok(())
}
