//! Fabric, domain and registered memory.
//!
//! # Safety
//! All of the functions in tables have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::null_mut;

use libfabric_sys::ops::{fi_ops, fi_ops_domain, fi_ops_fabric, fi_ops_mr};
use libfabric_sys::types::*;

use crate::connect::open_passive;
use crate::data::open_endpoint;
use crate::head::{basics, class, head};
use crate::info::VERSION;
use crate::queues::{open_completions, open_events, try_wait};
use crate::world::lock;

static FABRIC_FID: fi_ops = basics(close_fabric, None, None);
static FABRIC: fi_ops_fabric = fi_ops_fabric {
    size: size_of::<fi_ops_fabric>(),
    domain: Some(open_domain),
    passive_ep: Some(open_passive),
    eq_open: Some(open_events),
    wait_open: None,
    trywait: Some(try_wait),
    domain2: None,
};

/// The fabric; a new handle for each call.
fn fabric(context: *mut c_void) -> *mut fid_fabric {
    let fid = head(class::FABRIC, context, &FABRIC_FID);
    Box::into_raw(Box::new(fid_fabric { fid, ops: (&raw const FABRIC).cast_mut(), api_version: VERSION }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_fabric(
    _attr: *mut fi_fabric_attr,
    out: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { *out = fabric(context) };
    0
}

unsafe extern "C" fn close_fabric(fabric: *mut fid) -> c_int {
    // SAFETY: made above.
    drop(unsafe { Box::from_raw(fabric.cast::<fid_fabric>()) });
    0
}

static DOMAIN_FID: fi_ops = basics(close_domain, None, None);
static DOMAIN: fi_ops_domain = fi_ops_domain {
    size: size_of::<fi_ops_domain>(),
    av_open: None,
    cq_open: Some(open_completions),
    endpoint: Some(open_endpoint),
    scalable_ep: None,
    cntr_open: None,
    poll_open: None,
    stx_ctx: None,
    srx_ctx: None,
    query_atomic: None,
    query_collective: None,
    endpoint2: None,
};
static MEMORY: fi_ops_mr =
    fi_ops_mr { size: size_of::<fi_ops_mr>(), reg: Some(register), regv: None, regattr: None };

unsafe extern "C" fn open_domain(
    _fabric: *mut fid_fabric,
    _info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let domain = fid_domain {
        fid: head(class::DOMAIN, context, &DOMAIN_FID),
        ops: (&raw const DOMAIN).cast_mut(),
        mr: (&raw const MEMORY).cast_mut(),
    };
    // SAFETY: the caller's pointer.
    unsafe { *out = Box::into_raw(Box::new(domain)) };
    0
}

unsafe extern "C" fn close_domain(domain: *mut fid) -> c_int {
    // SAFETY: made above; what was opened on it is gone.
    drop(unsafe { Box::from_raw(domain.cast::<fid_domain>()) });
    0
}

static REGION_FID: fi_ops = basics(close_region, None, None);

unsafe extern "C" fn register(
    _domain: *mut fid,
    buf: *const c_void,
    len: usize,
    _access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    if !lock().register(key, buf as u64, len as u64) {
        return -libfabric_sys::consts::FI_ENOKEY;
    }
    let region = fid_mr { fid: head(class::MEMORY, context, &REGION_FID), mem_desc: null_mut(), key };
    // SAFETY: the caller's pointer.
    unsafe { *out = Box::into_raw(Box::new(region)) };
    0
}

unsafe extern "C" fn close_region(region: *mut fid) -> c_int {
    // SAFETY: made above.
    let region = unsafe { Box::from_raw(region.cast::<fid_mr>()) };
    lock().deregister(region.key);
    0
}
