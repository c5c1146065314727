//! Objects, and the tables of functions they carry. Entries that this project never calls are [`Unused`].
#![allow(missing_docs, reason = "libfabric's own names; its manual pages describe them")]

use std::ffi::{c_char, c_int, c_void};

use libc::{iovec, ssize_t};

use crate::data::*;
use crate::fid::{Unused, fi_addr_t, fid};

#[repr(C)]
#[derive(Debug)]
pub struct fid_fabric {
    pub fid: fid,
    pub ops: *mut fi_ops_fabric,
    pub api_version: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *mut fi_ops_eq,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *mut fi_ops_cq,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_ep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
    pub msg: *mut fi_ops_msg,
    pub rma: *mut fi_ops_rma,
    pub tagged: *mut fi_ops_tagged,
    pub atomic: *mut fi_ops_atomic,
    pub collective: *mut c_void,
}

#[repr(C)]
#[derive(Debug)]
pub struct fid_pep {
    pub fid: fid,
    pub ops: *mut fi_ops_ep,
    pub cm: *mut fi_ops_cm,
}

macro_rules! table {
    ($name:ident { $($field:ident: $type:ty),* $(,)? }) => {
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            pub size: usize,
            $(pub $field: $type,)*
        }
    };
}

table!(fi_ops_fabric {
    domain: Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int>,
    passive_ep:
        Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_pep, *mut c_void) -> c_int>,
    eq_open:
        Option<unsafe extern "C" fn(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int>,
    wait_open: Unused,
    trywait: Option<unsafe extern "C" fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int>,
    domain2: Unused,
});

table!(fi_ops_domain {
    av_open:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int>,
    cq_open:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int>,
    endpoint:
        Option<unsafe extern "C" fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int>,
    scalable_ep: Unused,
    cntr_open: Unused,
    poll_open: Unused,
    stx_ctx: Unused,
    srx_ctx: Unused,
    query_atomic: Option<unsafe extern "C" fn(*mut fid_domain, u32, u32, *mut fi_atomic_attr, u64) -> c_int>,
    query_collective: Unused,
    endpoint2: Unused,
});

table!(fi_ops_mr {
    reg: Option<
        unsafe extern "C" fn(
            *mut fid,
            *const c_void,
            usize,
            u64,
            u64,
            u64,
            u64,
            *mut *mut fid_mr,
            *mut c_void,
        ) -> c_int,
    >,
    regv: Unused,
    regattr: Unused,
});

table!(fi_ops_av {
    insert:
        Option<unsafe extern "C" fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int>,
    insertsvc: Unused,
    insertsym: Unused,
    remove: Option<unsafe extern "C" fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int>,
    lookup: Unused,
    straddr: Unused,
    av_set: Unused,
});

table!(fi_ops_eq {
    read: Option<unsafe extern "C" fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> ssize_t>,
    readerr: Option<unsafe extern "C" fn(*mut fid_eq, *mut fi_eq_err_entry, u64) -> ssize_t>,
    write: Unused,
    sread: Unused,
    strerror: Option<
        unsafe extern "C" fn(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    >,
});

table!(fi_ops_cq {
    read: Option<unsafe extern "C" fn(*mut fid_cq, *mut c_void, usize) -> ssize_t>,
    readfrom: Unused,
    readerr: Option<unsafe extern "C" fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t>,
    sread: Unused,
    sreadfrom: Unused,
    signal: Unused,
    strerror: Option<
        unsafe extern "C" fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
    >,
});

table!(fi_ops_ep {
    cancel: Option<unsafe extern "C" fn(*mut fid, *mut c_void) -> ssize_t>,
    getopt: Option<unsafe extern "C" fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int>,
    setopt: Unused,
    tx_ctx: Unused,
    rx_ctx: Unused,
    rx_size_left: Unused,
    tx_size_left: Unused,
});

table!(fi_ops_cm {
    setname: Unused,
    getname: Option<unsafe extern "C" fn(*mut fid, *mut c_void, *mut usize) -> c_int>,
    getpeer: Unused,
    connect: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int>,
    listen: Option<unsafe extern "C" fn(*mut fid_pep) -> c_int>,
    accept: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize) -> c_int>,
    reject: Option<unsafe extern "C" fn(*mut fid_pep, *mut fid, *const c_void, usize) -> c_int>,
    shutdown: Option<unsafe extern "C" fn(*mut fid_ep, u64) -> c_int>,
    join: Unused,
});

table!(fi_ops_msg {
    recv: Unused,
    recvv: Unused,
    recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t>,
    send: Unused,
    sendv: Unused,
    sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t>,
    inject: Unused,
    senddata: Unused,
    injectdata: Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> ssize_t>,
});

table!(fi_ops_tagged {
    recv: Unused,
    recvv: Unused,
    recvmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t>,
    send: Unused,
    sendv: Unused,
    sendmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t>,
    inject: Unused,
    senddata: Unused,
    injectdata:
        Option<unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> ssize_t>,
});

table!(fi_ops_rma {
    read: Unused,
    readv: Unused,
    readmsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>,
    write: Unused,
    writev: Unused,
    writemsg: Option<unsafe extern "C" fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t>,
    inject: Unused,
    writedata: Unused,
    injectdata: Option<
        unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> ssize_t,
    >,
});

/// Arguments of `compwritemsg`, as the headers have them.
type CompareWrite = unsafe extern "C" fn(
    *mut fid_ep,
    *const fi_msg_atomic,
    *const fi_ioc,
    *mut *mut c_void,
    usize,
    *mut fi_ioc,
    *mut *mut c_void,
    usize,
    u64,
) -> ssize_t;

table!(fi_ops_atomic {
    write: Unused,
    writev: Unused,
    writemsg: Unused,
    inject: Unused,
    readwrite: Unused,
    readwritev: Unused,
    readwritemsg: Option<
        unsafe extern "C" fn(
            *mut fid_ep,
            *const fi_msg_atomic,
            *mut fi_ioc,
            *mut *mut c_void,
            usize,
            u64,
        ) -> ssize_t,
    >,
    compwrite: Unused,
    compwritev: Unused,
    compwritemsg: Option<CompareWrite>,
    writevalid: Unused,
    readwritevalid: Unused,
    compwritevalid: Unused,
});

/// What an `iovec` is here.
pub type Iovec = iovec;
