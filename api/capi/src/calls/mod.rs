//! The calls, one file for each kind of object. Each checks what C programs may get wrong, in the specification's order, and
//! hands the rest to the engine.
//!
//! # Safety
//! All are unsafe for one reason: pointers are null or valid, as the public headers say.
#![allow(clippy::missing_safety_doc, reason = "the module's documentation has it")]

pub mod cno;
pub mod context;
pub mod cr;
pub mod csp;
pub mod ep;
pub mod evd;
pub mod extension;
pub mod ia;
pub mod lmr;
pub mod post;
pub mod psp;
pub mod pz;
pub mod rmr;
pub mod rsp;
pub mod srq;

use std::ffi::c_void;

use dat_types::Subtype;

use crate::abi::Count;
use crate::code::{Outcome, parameter};

/// Private data: `size` bytes at `data`, which is not looked at when there are none.
///
/// # Safety
/// `data` is null or valid for `size` bytes as long as `'a`.
unsafe fn private_data<'a>(
    size: Count,
    data: *const c_void,
    size_at: Subtype,
    data_at: Subtype,
) -> Outcome<&'a [u8]> {
    let size = usize::try_from(size).map_err(|_| parameter(size_at))?;
    if size == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(parameter(data_at));
    }
    // SAFETY: not null, and valid by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), size) })
}
