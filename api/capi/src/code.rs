//! Return codes, and the wall that no panic passes.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dat_types::{Error, ReturnCode, ReturnType, Subtype};

use crate::abi::Return;

/// A `DAT_RETURN` that is no success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub Return);

/// What every call ends with.
pub type Outcome<T = ()> = Result<T, Code>;

impl From<Error> for Code {
    #[inline]
    fn from(error: Error) -> Code {
        Code(error.code().0)
    }
}

impl From<dat_engine::WaitError> for Code {
    fn from(wait: dat_engine::WaitError) -> Code {
        Code(wait.error.code().0)
    }
}

/// Any type and subtype.
#[inline]
pub const fn code(kind: ReturnType, subtype: Subtype) -> Code {
    Code(ReturnCode::error(kind, subtype).0)
}

/// `DAT_INVALID_HANDLE`.
#[inline]
pub const fn handle(subtype: Subtype) -> Code {
    code(ReturnType::InvalidHandle, subtype)
}

/// `DAT_INVALID_PARAMETER`.
#[inline]
pub const fn parameter(subtype: Subtype) -> Code {
    code(ReturnType::InvalidParameter, subtype)
}

/// `DAT_INSUFFICIENT_RESOURCES`: no place for another handle.
pub const NO_ROOM: Code = code(ReturnType::InsufficientResources, Subtype::ResourceMemory);

/// `DAT_NOT_IMPLEMENTED`.
pub const NOT_IMPLEMENTED: Code = code(ReturnType::NotImplemented, Subtype::None);

/// `DAT_MODEL_NOT_SUPPORTED`.
pub const UNSUPPORTED: Code = code(ReturnType::ModelNotSupported, Subtype::None);

/// Runs one call. A panic becomes `DAT_INTERNAL_ERROR`; the program goes on.
#[inline(always)]
pub fn guarded(call: impl FnOnce() -> Outcome) -> Return {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(code))) => code,
        Err(_) => ReturnCode::error(ReturnType::InternalError, Subtype::None).0,
    }
}

/// Writes to the caller's pointer, which must not be null; `position` names the argument.
///
/// # Safety
/// `to` is null or valid for a write of `T`.
#[inline]
pub unsafe fn put<T>(to: *mut T, position: Subtype, value: T) -> Outcome {
    if to.is_null() {
        return Err(parameter(position));
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// The same for what the caller may not want.
///
/// # Safety
/// As for [`put`].
#[inline]
pub unsafe fn put_if<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as in `put`.
        unsafe { to.write(value) };
    }
}

/// Whether a query may go on: known bits only, and room for the answer if bits are set (spec: common, R-6).
#[inline]
pub fn check_query<T>(
    mask: u64,
    known: u64,
    mask_at: Subtype,
    out: *const T,
    out_at: Subtype,
) -> Outcome<bool> {
    if mask & !known != 0 {
        return Err(parameter(mask_at));
    }
    if mask != 0 && out.is_null() {
        return Err(parameter(out_at));
    }
    Ok(!out.is_null())
}

/// `if` for `&&` chains of checks.
#[inline]
pub fn ensure(condition: bool, otherwise: Code) -> Outcome {
    if condition { Ok(()) } else { Err(otherwise) }
}
