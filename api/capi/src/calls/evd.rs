//! Event dispatchers.

use std::sync::Arc;

use dat_types::{EvdFlags, ReturnType, Subtype, Timeout};

use crate::abi::*;
use crate::code::{Code, Outcome, check_query, ensure, handle as bad_handle, parameter, put};
use crate::event::{self, event_number};
use crate::handle::{self, epoch};
use crate::object::{Cno, Evd, find, find_ia, find_or_null};

/// The extension flag of the headers: its events come by the data transfer stream here.
const EXTENSION: u32 = 0x200;

/// How the reference names a dispatcher that is none.
const WRONG: Subtype = Subtype::HandleEvdRequest;

/// `DAT_QUEUE_EMPTY` without the bit that says error: the reference answers so here, and programs of the field compare
/// the whole number.
const EMPTY: Code = Code((ReturnType::QueueEmpty as u32) << 16);

pub unsafe fn create(ia: Handle, qlen: Count, cno: Handle, flags: u32, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    let cno = find_or_null::<Cno>(cno, Subtype::HandleCno)?;
    ensure(!out.is_null(), parameter(Subtype::Arg5))?;
    let flags = EvdFlags::from_bits_retain(flags & !EXTENSION);
    let engine = ia.engine.evd_create_with_cno(qlen, cno.as_ref().map(|cno| &cno.engine), flags)?;
    let handle = ia.adopt(engine.id(), Evd { ia: ia.clone(), counters: Arc::default(), engine })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg5, handle) }
}

pub unsafe fn query(evd: Handle, mask: u32, out: *mut EvdParam) -> Outcome {
    let evd = find::<Evd>(evd, WRONG)?;
    let wanted = check_query(mask.into(), 0x1F, Subtype::Arg2, out, Subtype::Arg3)?;
    let param = evd.engine.query()?;
    if wanted {
        let value = EvdParam {
            ia_handle: evd.ia.handle(),
            evd_qlen: param.qlen.min(i32::MAX as u32) as Count,
            evd_state: param.state.bits(),
            cno_handle: param.cno.map_or(NULL, |cno| handle::of(cno.id())),
            evd_flags: param.flags.bits(),
        };
        // SAFETY: not null, valid.
        unsafe { out.write(value) };
    }
    Ok(())
}

pub unsafe fn modify_cno(evd: Handle, cno: Handle) -> Outcome {
    let evd = find::<Evd>(evd, WRONG)?;
    let cno = find_or_null::<Cno>(cno, Subtype::HandleCno)?;
    Ok(evd.engine.modify_cno(cno.as_ref().map(|cno| &cno.engine))?)
}

pub unsafe fn enable(evd: Handle) -> Outcome {
    Ok(find::<Evd>(evd, WRONG)?.engine.set_enabled(true)?)
}

pub unsafe fn disable(evd: Handle) -> Outcome {
    Ok(find::<Evd>(evd, WRONG)?.engine.set_enabled(false)?)
}

pub unsafe fn set_unwaitable(evd: Handle) -> Outcome {
    Ok(find::<Evd>(evd, WRONG)?.engine.set_waitable(false)?)
}

pub unsafe fn clear_unwaitable(evd: Handle) -> Outcome {
    Ok(find::<Evd>(evd, WRONG)?.engine.set_waitable(true)?)
}

/// Blocks, so it holds a reference of its own and is not inside while it does.
pub unsafe fn wait(
    handle: Handle,
    timeout: u32,
    threshold: Count,
    out: *mut Event,
    more: *mut Count,
) -> Outcome {
    let evd = find::<Evd>(handle, WRONG)?;
    ensure(!out.is_null(), parameter(Subtype::Arg4))?;
    ensure(!more.is_null(), parameter(Subtype::Arg5))?;
    match evd.engine.wait(Timeout(timeout), threshold) {
        Ok((event, queued)) => {
            // SAFETY: neither is null, both valid.
            unsafe {
                event::write(&evd, handle, event, out);
                more.write(queued as Count);
            }
            Ok(())
        }
        Err(error) => {
            // SAFETY: not null, valid.
            unsafe { more.write(error.nmore as Count) };
            Err(error.into())
        }
    }
}

/// The hot path of taking completions.
#[inline]
pub unsafe fn dequeue(handle: Handle, out: *mut Event) -> Outcome {
    let guard = epoch::enter();
    let Some(evd) = handle::get::<Evd>(&guard, handle) else { return Err(bad_handle(WRONG)) };
    ensure(!out.is_null(), parameter(Subtype::Arg2))?;
    let found = evd.engine.poll_as(
        |done| {
            // SAFETY: not null, valid.
            unsafe { event::write_transfer(handle, &done, out) };
            Ok(true)
        },
        |event| {
            let Some(event) = event else { return Ok(false) };
            // SAFETY: as above.
            unsafe { event::write(evd, handle, event, out) };
            Ok(true)
        },
    )?;
    if found { Ok(()) } else { Err(EMPTY) }
}

pub unsafe fn resize(evd: Handle, qlen: Count) -> Outcome {
    Ok(find::<Evd>(evd, WRONG)?.engine.resize(qlen)?)
}

pub unsafe fn post_se(evd: Handle, event: *const Event) -> Outcome {
    let evd = find::<Evd>(evd, WRONG)?;
    // SAFETY: null or valid.
    let event = unsafe { event.as_ref() }.ok_or(parameter(Subtype::Arg2))?;
    ensure(event.event_number == event_number::SOFTWARE, parameter(Subtype::Arg2))?;
    // SAFETY: a pointer's worth of bytes of a structure the caller filled in; any value is one.
    let value = unsafe { event.event_data.software };
    Ok(evd.engine.post_se(value as u64)?)
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let evd = find::<Evd>(handle, WRONG)?;
    evd.engine.free()?;
    evd.ia.disown::<Evd>(handle);
    Ok(())
}
