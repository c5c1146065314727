//! The calls that are inline functions in C: each jumps through its object's table. A table or entry that is not there
//! is answered with `-ENOSYS`, as the headers' own checks do.
//!
//! # Safety
//! For all of them: the objects were opened by libfabric and are not closed; structures are filled as its manual pages
//! demand; what the manual page says of threads is kept. Memory of an operation stays valid until it completed.
#![allow(clippy::missing_safety_doc, reason = "the module says it for all")]
#![allow(missing_docs, reason = "libfabric's own names; its manual pages say what they mean")]

use std::ffi::{c_char, c_int, c_void};

use libc::ssize_t;

use crate::consts::{FI_ENABLE, FI_GET_RAW_MR, FI_GETWAIT};
use crate::data::*;
use crate::fid::{fi_addr_t, fid};
use crate::objects::*;

const NO_SUCH: c_int = -libc::ENOSYS;

/// Jumps through `$table.$entry`.
macro_rules! jump {
    ($table:expr, $entry:ident ( $($arg:expr),* $(,)? )) => {{
        let table = $table;
        // SAFETY: the object is open, so its table is readable; a null table is answered like a missing entry.
        match unsafe { table.as_ref() }.and_then(|table| table.$entry) {
            // SAFETY: the caller's promise about the arguments.
            Some(function) => unsafe { function($($arg),*) },
            None => NO_SUCH as _,
        }
    }};
}

/// The table of an open object.
macro_rules! of {
    ($object:expr, $table:ident) => {{
        // SAFETY: the object is open.
        unsafe { (*$object).$table }
    }};
}

#[inline]
pub unsafe fn fi_close(object: *mut fid) -> c_int {
    jump!(of!(object, ops), close(object))
}

#[inline]
pub unsafe fn fi_bind(object: *mut fid, to: *mut fid, flags: u64) -> c_int {
    jump!(of!(object, ops), bind(object, to, flags))
}

#[inline]
pub unsafe fn fi_control(object: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    jump!(of!(object, ops), control(object, command, arg))
}

/// The descriptors of a queue that was opened with `FI_WAIT_POLLFD`: as many as there is room for, or their number and
/// `-FI_ETOOSMALL`.
#[inline]
pub unsafe fn fi_wait_pollfds(object: *mut fid, fds: &mut fi_wait_pollfd) -> c_int {
    // SAFETY: the command writes as many descriptors as the structure says there is room for.
    unsafe { fi_control(object, FI_GETWAIT, (fds as *mut fi_wait_pollfd).cast()) }
}

/// The descriptor of an event or completion queue that was opened with `FI_WAIT_FD`.
#[inline]
pub unsafe fn fi_wait_fd(object: *mut fid, fd: &mut c_int) -> c_int {
    // SAFETY: the command writes a descriptor.
    unsafe { fi_control(object, FI_GETWAIT, (fd as *mut c_int).cast()) }
}

#[inline]
pub unsafe fn fi_enable(ep: *mut fid_ep) -> c_int {
    // SAFETY: the command has no argument; every object begins with a `fid`.
    unsafe { fi_control(ep.cast(), FI_ENABLE, std::ptr::null_mut()) }
}

#[inline]
pub unsafe fn fi_mr_raw_attr(mr: *mut fid_mr, attr: &mut fi_mr_raw_attr) -> c_int {
    // SAFETY: the command reads and fills this structure.
    unsafe { fi_control(mr.cast(), FI_GET_RAW_MR, (attr as *mut fi_mr_raw_attr).cast()) }
}

#[inline]
pub unsafe fn fi_domain(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    jump!(of!(fabric, ops), domain(fabric, info, out, context))
}

#[inline]
pub unsafe fn fi_passive_ep(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    jump!(of!(fabric, ops), passive_ep(fabric, info, out, context))
}

#[inline]
pub unsafe fn fi_eq_open(
    fabric: *mut fid_fabric,
    attr: *mut fi_eq_attr,
    out: *mut *mut fid_eq,
    context: *mut c_void,
) -> c_int {
    jump!(of!(fabric, ops), eq_open(fabric, attr, out, context))
}

#[inline]
pub unsafe fn fi_trywait(fabric: *mut fid_fabric, objects: *mut *mut fid, count: c_int) -> c_int {
    jump!(of!(fabric, ops), trywait(fabric, objects, count))
}

#[inline]
pub unsafe fn fi_cq_open(
    domain: *mut fid_domain,
    attr: *mut fi_cq_attr,
    out: *mut *mut fid_cq,
    context: *mut c_void,
) -> c_int {
    jump!(of!(domain, ops), cq_open(domain, attr, out, context))
}

#[inline]
pub unsafe fn fi_av_open(
    domain: *mut fid_domain,
    attr: *mut fi_av_attr,
    out: *mut *mut fid_av,
    context: *mut c_void,
) -> c_int {
    jump!(of!(domain, ops), av_open(domain, attr, out, context))
}

#[inline]
pub unsafe fn fi_endpoint(
    domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    jump!(of!(domain, ops), endpoint(domain, info, out, context))
}

#[inline]
pub unsafe fn fi_query_atomic(
    domain: *mut fid_domain,
    datatype: u32,
    op: u32,
    attr: *mut fi_atomic_attr,
    flags: u64,
) -> c_int {
    jump!(of!(domain, ops), query_atomic(domain, datatype, op, attr, flags))
}

#[inline]
#[allow(clippy::too_many_arguments, reason = "the C interface")]
pub unsafe fn fi_mr_reg(
    domain: *mut fid_domain,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    requested_key: u64,
    flags: u64,
    out: *mut *mut fid_mr,
    context: *mut c_void,
) -> c_int {
    jump!(of!(domain, mr), reg(domain.cast(), buf, len, access, offset, requested_key, flags, out, context))
}

#[inline]
pub unsafe fn fi_av_insert(
    av: *mut fid_av,
    addr: *const c_void,
    count: usize,
    out: *mut fi_addr_t,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    jump!(of!(av, ops), insert(av, addr, count, out, flags, context))
}

#[inline]
pub unsafe fn fi_av_remove(av: *mut fid_av, addr: *mut fi_addr_t, count: usize, flags: u64) -> c_int {
    jump!(of!(av, ops), remove(av, addr, count, flags))
}

#[inline]
pub unsafe fn fi_eq_read(
    eq: *mut fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> ssize_t {
    jump!(of!(eq, ops), read(eq, event, buf, len, flags))
}

#[inline]
pub unsafe fn fi_eq_readerr(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> ssize_t {
    jump!(of!(eq, ops), readerr(eq, buf, flags))
}

#[inline]
pub unsafe fn fi_cq_read(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> ssize_t {
    jump!(of!(cq, ops), read(cq, buf, count))
}

#[inline]
pub unsafe fn fi_cq_readerr(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> ssize_t {
    jump!(of!(cq, ops), readerr(cq, buf, flags))
}

/// The provider's words for an error of the queue, or null.
#[inline]
pub unsafe fn fi_cq_strerror(
    cq: *mut fid_cq,
    prov_errno: c_int,
    err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    let table = of!(cq, ops);
    // SAFETY: the object is open.
    match unsafe { table.as_ref() }.and_then(|table| table.strerror) {
        // SAFETY: the caller's promise about the arguments.
        Some(function) => unsafe { function(cq, prov_errno, err_data, buf, len) },
        None => std::ptr::null(),
    }
}

#[inline]
pub unsafe fn fi_cancel(ep: *mut fid_ep, context: *mut c_void) -> ssize_t {
    jump!(of!(ep, ops), cancel(ep.cast(), context))
}

/// For an endpoint or a passive endpoint: both begin alike.
#[inline]
pub unsafe fn fi_getopt(
    ep: *mut fid_ep,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    jump!(of!(ep, ops), getopt(ep.cast(), level, name, value, len))
}

/// For an endpoint or a passive endpoint: both begin alike.
#[inline]
pub unsafe fn fi_getname(ep: *mut fid_ep, addr: *mut c_void, len: *mut usize) -> c_int {
    jump!(of!(ep, cm), getname(ep.cast(), addr, len))
}

#[inline]
pub unsafe fn fi_connect(ep: *mut fid_ep, addr: *const c_void, param: *const c_void, len: usize) -> c_int {
    jump!(of!(ep, cm), connect(ep, addr, param, len))
}

#[inline]
pub unsafe fn fi_listen(pep: *mut fid_pep) -> c_int {
    jump!(of!(pep, cm), listen(pep))
}

#[inline]
pub unsafe fn fi_accept(ep: *mut fid_ep, param: *const c_void, len: usize) -> c_int {
    jump!(of!(ep, cm), accept(ep, param, len))
}

#[inline]
pub unsafe fn fi_reject(pep: *mut fid_pep, handle: *mut fid, param: *const c_void, len: usize) -> c_int {
    jump!(of!(pep, cm), reject(pep, handle, param, len))
}

#[inline]
pub unsafe fn fi_shutdown(ep: *mut fid_ep, flags: u64) -> c_int {
    jump!(of!(ep, cm), shutdown(ep, flags))
}

#[inline]
pub unsafe fn fi_recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t {
    jump!(of!(ep, msg), recvmsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t {
    jump!(of!(ep, msg), sendmsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_trecvmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> ssize_t {
    jump!(of!(ep, tagged), recvmsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_tsendmsg(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> ssize_t {
    jump!(of!(ep, tagged), sendmsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
) -> ssize_t {
    jump!(of!(ep, msg), injectdata(ep, buf, len, data, dest))
}

#[inline]
pub unsafe fn fi_tinjectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
    tag: u64,
) -> ssize_t {
    jump!(of!(ep, tagged), injectdata(ep, buf, len, data, dest, tag))
}

#[inline]
pub unsafe fn fi_readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t {
    jump!(of!(ep, rma), readmsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t {
    jump!(of!(ep, rma), writemsg(ep, msg, flags))
}

#[inline]
pub unsafe fn fi_inject_writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest: fi_addr_t,
    addr: u64,
    key: u64,
) -> ssize_t {
    jump!(of!(ep, rma), injectdata(ep, buf, len, data, dest, addr, key))
}

#[inline]
pub unsafe fn fi_fetch_atomicmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    result: *mut fi_ioc,
    result_desc: *mut *mut c_void,
    flags: u64,
) -> ssize_t {
    jump!(of!(ep, atomic), readwritemsg(ep, msg, result, result_desc, 1, flags))
}

#[inline]
pub unsafe fn fi_compare_atomicmsg(
    ep: *mut fid_ep,
    msg: *const fi_msg_atomic,
    compare: *const fi_ioc,
    compare_desc: *mut *mut c_void,
    result: *mut fi_ioc,
    result_desc: *mut *mut c_void,
    flags: u64,
) -> ssize_t {
    jump!(of!(ep, atomic), compwritemsg(ep, msg, compare, compare_desc, 1, result, result_desc, 1, flags))
}
