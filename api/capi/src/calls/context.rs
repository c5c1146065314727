//! What every handle has: the consumer's word, and a kind.

use dat_types::Subtype;

use crate::abi::*;
use crate::code::{Outcome, ensure, handle as bad_handle, put};
use crate::handle;

const BAD: crate::code::Code = bad_handle(Subtype::Handle1);

pub unsafe fn set(object: Handle, context: Context) -> Outcome {
    ensure(handle::set_context(handle::ia_address(object), context), BAD)
}

pub unsafe fn get(object: Handle, context: *mut Context) -> Outcome {
    let value = handle::context(handle::ia_address(object)).ok_or(BAD)?;
    // SAFETY: null or valid.
    unsafe { put(context, Subtype::Arg2, value) }
}

pub unsafe fn kind(object: Handle, kind: *mut u32) -> Outcome {
    let value = handle::kind(handle::ia_address(object)).ok_or(BAD)?;
    // SAFETY: null or valid.
    unsafe { put(kind, Subtype::Arg2, value as u32) }
}
