//! Shared receive queues.

use dat_types::Subtype;

use super::post::{NO_COPIES, segments};
use crate::abi::*;
use crate::code::{Outcome, check_query, ensure, parameter, put};
use crate::handle;
use crate::object::{Pz, Srq, find, find_ia};

/// `DAT_SRQ_STATE_OPERATIONAL`: a queue is that from its creation to its end.
const OPERATIONAL: u32 = 1;

pub unsafe fn create(ia: Handle, pz: Handle, attr: *const SrqAttr, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    let pz = find::<Pz>(pz, Subtype::HandlePz)?;
    // SAFETY: null or valid.
    let attr = unsafe { attr.as_ref() }.ok_or(parameter(Subtype::Arg3))?;
    ensure(!out.is_null(), parameter(Subtype::Arg4))?;
    let count = |value: Count| u32::try_from(value).map_err(|_| parameter(Subtype::Arg3));
    let attr = dat_types::SrqAttr {
        max_recv_dtos: count(attr.max_recv_dtos)?,
        max_recv_iov: count(attr.max_recv_iov)?,
        low_watermark: count(attr.low_watermark)?,
    };
    let engine = ia.engine.srq_create(&pz.engine, &attr)?;
    let handle = ia.adopt(engine.id(), Srq { ia: ia.clone(), engine })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg4, handle) }
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let srq = find::<Srq>(handle, Subtype::HandleSrq)?;
    srq.engine.free()?;
    srq.ia.disown::<Srq>(handle);
    Ok(())
}

/// Hot, as a post to an endpoint is.
#[inline]
pub unsafe fn post_recv(srq: Handle, count: Count, iov: *const LmrTriplet, cookie: Context) -> Outcome {
    let guard = handle::epoch::enter();
    let srq = handle::get::<Srq>(&guard, srq).ok_or(crate::code::handle(Subtype::HandleSrq))?;
    let mut copies = NO_COPIES;
    // SAFETY: null or valid for `count` triplets.
    let iov = unsafe { segments(count, iov, &mut copies)? };
    Ok(srq.engine.post_recv(iov, cookie)?)
}

pub unsafe fn query(srq: Handle, mask: u32, out: *mut SrqParam) -> Outcome {
    let srq = find::<Srq>(srq, Subtype::HandleSrq)?;
    let wanted = check_query(mask.into(), 0xFF, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = srq.engine.query()?;
    if wanted {
        let value = SrqParam {
            ia_handle: srq.ia.handle(),
            srq_state: OPERATIONAL,
            pz_handle: handle::of(param.pz.id()),
            max_recv_dtos: param.attr.max_recv_dtos as Count,
            max_recv_iov: param.attr.max_recv_iov as Count,
            low_watermark: param.attr.low_watermark as Count,
            available_dto_count: param.available as Count,
            outstanding_dto_count: param.outstanding as Count,
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn resize(srq: Handle, size: Count) -> Outcome {
    let srq = find::<Srq>(srq, Subtype::HandleSrq)?;
    let size = u32::try_from(size).map_err(|_| parameter(Subtype::Arg2))?;
    Ok(srq.engine.resize(size)?)
}

pub unsafe fn set_low_watermark(srq: Handle, mark: Count) -> Outcome {
    let srq = find::<Srq>(srq, Subtype::HandleSrq)?;
    let mark = u32::try_from(mark).map_err(|_| parameter(Subtype::Arg2))?;
    Ok(srq.engine.set_low_watermark(mark)?)
}
