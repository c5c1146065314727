//! What all objects begin with, and the table of functions that all objects have.
#![allow(missing_docs, reason = "libfabric's own names; its manual pages describe them")]

use std::ffi::{c_int, c_void};

/// A function that this project never calls.
pub type Unused = Option<unsafe extern "C" fn()>;

pub type fi_addr_t = u64;

/// The start of every object.
#[repr(C)]
#[derive(Debug)]
pub struct fid {
    pub fclass: usize,
    pub context: *mut c_void,
    pub ops: *mut fi_ops,
}

#[repr(C)]
#[derive(Debug)]
pub struct fi_ops {
    pub size: usize,
    pub close: Option<unsafe extern "C" fn(*mut fid) -> c_int>,
    pub bind: Option<unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int>,
    pub control: Option<unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int>,
    pub ops_open: Unused,
    pub tostr: Unused,
    pub ops_set: Unused,
}
