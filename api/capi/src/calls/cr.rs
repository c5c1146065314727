//! Connection requests.

use std::ffi::c_void;

use dat_types::Subtype;

use super::private_data;
use crate::abi::*;
use crate::code::{Outcome, check_query};
use crate::object::{Cr, Ep, find, find_or_null};

pub unsafe fn query(cr: Handle, mask: u32, out: *mut CrParam) -> Outcome {
    let cr = find::<Cr>(cr, Subtype::HandleCr)?;
    let wanted = check_query(mask.into(), 0x1F, Subtype::Arg2, out, Subtype::Arg3)?;
    cr.engine.query()?;
    if wanted {
        let data = &cr.kept.private_data;
        let value = CrParam {
            remote_ia_address_ptr: cr.kept.address.pointer(),
            remote_port_qual: cr.kept.port,
            private_data_size: data.len() as Count,
            private_data: if data.is_empty() { std::ptr::null() } else { data.as_ptr().cast() },
            local_ep_handle: cr.kept.ep.0 as Handle,
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn accept(handle: Handle, ep: Handle, size: Count, data: *const c_void) -> Outcome {
    let cr = find::<Cr>(handle, Subtype::HandleCr)?;
    let ep = find_or_null::<Ep>(ep, Subtype::HandleEp)?;
    // SAFETY: null or valid for `size` bytes.
    let data = unsafe { private_data(size, data, Subtype::Arg3, Subtype::Arg4)? };
    cr.engine.accept(ep.as_ref().map(|ep| &ep.engine), data)?;
    cr.ia.disown::<Cr>(handle);
    Ok(())
}

pub unsafe fn reject(handle: Handle, size: Count, data: *const c_void) -> Outcome {
    let cr = find::<Cr>(handle, Subtype::HandleCr)?;
    // SAFETY: null or valid for `size` bytes.
    let data = unsafe { private_data(size, data, Subtype::Arg2, Subtype::Arg3)? };
    cr.engine.reject(data)?;
    let_go(&cr, handle);
    Ok(())
}

pub unsafe fn handoff(handle: Handle, conn_qual: u64) -> Outcome {
    let cr = find::<Cr>(handle, Subtype::HandleCr)?;
    cr.engine.handoff(conn_qual)?;
    let_go(&cr, handle);
    Ok(())
}

/// The request is gone, and with it an endpoint that was made for it.
fn let_go(cr: &Cr, handle: Handle) {
    let ep_handle = cr.kept.ep.0 as Handle;
    if let Ok(Some(ep)) = find_or_null::<Ep>(ep_handle, Subtype::HandleEp)
        && ep.engine.status().is_err()
    {
        cr.ia.disown::<Ep>(ep_handle);
    }
    cr.ia.disown::<Cr>(handle);
}
