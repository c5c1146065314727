//! Building errors: short forms for the ones many calls share.

use dat_plugin::Failure;
use dat_types::{Error, ObjectId, ReturnType, Subtype};

use super::status_map;

/// `DAT_INVALID_PARAMETER` naming the argument by its position.
pub(crate) fn parameter(call: &'static str, position: Subtype, message: impl Into<String>) -> Error {
    Error::new(call, ReturnType::InvalidParameter, position, message)
}

/// `DAT_INVALID_STATE`.
pub(crate) fn state(call: &'static str, subtype: Subtype, message: impl Into<String>) -> Error {
    Error::new(call, ReturnType::InvalidState, subtype, message)
}

/// `DAT_INVALID_HANDLE` for an object that was freed.
pub(crate) fn freed(call: &'static str, subtype: Subtype, what: &str, id: ObjectId) -> Error {
    let message = format!("{what} {id} was freed; a handle is invalid from then on");
    Error::new(call, ReturnType::InvalidHandle, subtype, message)
}

/// `DAT_INVALID_HANDLE` for an object of another IA.
pub(crate) fn foreign(call: &'static str, subtype: Subtype, what: &str, id: ObjectId) -> Error {
    let message = format!("{what} {id} belongs to another IA; objects of one call must share their IA");
    Error::new(call, ReturnType::InvalidHandle, subtype, message)
}

/// `DAT_INVALID_STATE` in a child made by fork.
#[cold]
pub fn forked(call: &'static str) -> Error {
    let message =
        "this process is a fork of the one that opened the IA and cannot use it; open one of its own";
    Error::fixed(call, ReturnType::InvalidState, Subtype::HandleIa, message)
}

/// `DAT_INSUFFICIENT_RESOURCES`.
pub(crate) fn resources(call: &'static str, subtype: Subtype, message: impl Into<String>) -> Error {
    Error::new(call, ReturnType::InsufficientResources, subtype, message)
}

/// `DAT_MODEL_NOT_SUPPORTED`.
pub(crate) fn unsupported(call: &'static str, message: impl Into<String>) -> Error {
    Error::new(call, ReturnType::ModelNotSupported, Subtype::None, message)
}

/// A provider's failure as the DAT code that stands for it.
pub(crate) fn provider(call: &'static str, failure: Failure) -> Error {
    let (kind, subtype) = status_map::returned(failure.status);
    Error::new(call, kind, subtype, failure.message)
}
