//! What all objects begin with.

use std::ffi::{c_int, c_void};
use std::mem::size_of;

use libfabric_sys::ops::fi_ops;
use libfabric_sys::types::fid;

/// Kinds of objects, as the headers number them.
pub mod class {
    pub const FABRIC: usize = 1;
    pub const DOMAIN: usize = 2;
    pub const ENDPOINT: usize = 3;
    pub const PASSIVE: usize = 9;
    pub const MEMORY: usize = 12;
    pub const EVENTS: usize = 13;
    pub const COMPLETIONS: usize = 14;
    pub const REQUEST: usize = 18;
}

type Close = unsafe extern "C" fn(*mut fid) -> c_int;
type Bind = unsafe extern "C" fn(*mut fid, *mut fid, u64) -> c_int;
type Control = unsafe extern "C" fn(*mut fid, c_int, *mut c_void) -> c_int;

/// The table every object has.
pub const fn basics(close: Close, bind: Option<Bind>, control: Option<Control>) -> fi_ops {
    fi_ops {
        size: size_of::<fi_ops>(),
        close: Some(close),
        bind,
        control,
        ops_open: None,
        tostr: None,
        ops_set: None,
    }
}

/// What every object begins with.
pub fn head(fclass: usize, context: *mut c_void, ops: &'static fi_ops) -> fid {
    fid { fclass, context, ops: std::ptr::from_ref(ops).cast_mut() }
}
