//! Consumer notification objects.

use std::ffi::c_int;

use crate::abi::*;
use crate::code::{NOT_IMPLEMENTED, Outcome};

pub unsafe fn create(_ia: Handle, _agent: Agent, _out: *mut Handle) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn modify_agent(_cno: Handle, _agent: Agent) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn query(_cno: Handle, _mask: u32, _out: *mut CnoParam) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn free(_cno: Handle) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn wait(_cno: Handle, _timeout: u32, _evd: *mut Handle) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn fd_create(_ia: Handle, _fd: *mut c_int, _out: *mut Handle) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
pub unsafe fn trigger(_cno: Handle, _evd: *mut Handle) -> Outcome {
    Err(NOT_IMPLEMENTED)
}
