//! The library's own functions: what there is, copies of it, the way in.
//!
//! # Safety
//! All of them have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr::{null, null_mut};

use libfabric_sys::consts::*;
use libfabric_sys::types::*;

use crate::world::address;

/// The most segments of an operation. Few, so that a posted receive is copied by plain moves: the C library's copy takes
/// more or fewer instructions by where its ends lie.
pub const SEGMENTS: usize = 4;

const FABRIC: &CStr = c"double";
const ADDRESS: &CStr = c"127.0.0.1";

/// The interface this was written for.
pub const VERSION: u32 = libfabric_sys::consts::fi_version(1, 17);

const CAPS: u64 = FI_MSG
    | FI_RMA
    | FI_READ
    | FI_WRITE
    | FI_RECV
    | FI_SEND
    | FI_REMOTE_READ
    | FI_REMOTE_WRITE
    | FI_LOCAL_COMM
    | FI_REMOTE_COMM;

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_version() -> u32 {
    VERSION
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_strerror(errno: c_int) -> *const c_char {
    // SAFETY: any number is answered.
    unsafe { libc::strerror(errno) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_open(
    _version: u32,
    _name: *const c_char,
    _attr: *mut c_void,
    _len: usize,
    _flags: u64,
    _out: *mut *mut fid,
    _context: *mut c_void,
) -> c_int {
    -libc::ENOSYS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fi_getinfo(
    _version: u32,
    node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const fi_info,
    out: *mut *mut fi_info,
) -> c_int {
    // SAFETY: hints are null or have their attributes; strings end with 0.
    unsafe {
        let named_so = |name: *const c_char, wanted| name.is_null() || CStr::from_ptr(name) == wanted;
        let fits = hints.as_ref().is_none_or(|hints| {
            hints.caps & !CAPS == 0
                && hints.ep_attr.as_ref().is_none_or(|ep| matches!(ep.type_, 0 | FI_EP_MSG))
                && hints.fabric_attr.as_ref().is_none_or(|fabric| named_so(fabric.prov_name, FABRIC))
                && hints.domain_attr.as_ref().is_none_or(|domain| named_so(domain.name, FABRIC))
        });
        if !fits || !named_so(node, ADDRESS) {
            return -libc::ENODATA;
        }
        let info = fi_dupinfo(null());
        if info.is_null() {
            return -libc::ENOMEM;
        }
        fill(&mut *info);
        if let Some(tx) = hints.as_ref().and_then(|hints| hints.tx_attr.as_ref()) {
            (*(*info).tx_attr).op_flags = tx.op_flags;
        }
        *out = info;
    }
    0
}

/// What `tcp` offers, mostly.
unsafe fn fill(info: &mut fi_info) {
    // SAFETY: a new one, with all attributes; strings and addresses come from the C library, which frees them.
    unsafe {
        let (tx, rx) = (&mut *info.tx_attr, &mut *info.rx_attr);
        let (ep, domain) = (&mut *info.ep_attr, &mut *info.domain_attr);
        info.caps = CAPS;
        info.addr_format = FI_SOCKADDR_IN;
        info.src_addr = copied(&address(0)).cast();
        info.src_addrlen = size_of::<libc::sockaddr_in>();
        tx.caps = CAPS;
        rx.caps = CAPS;
        tx.msg_order = FI_ORDER_WAW | FI_ORDER_SAW | FI_ORDER_SAS;
        rx.msg_order = tx.msg_order;
        tx.inject_size = 128;
        (tx.size, rx.size) = (256, 256);
        (tx.iov_limit, rx.iov_limit) = (SEGMENTS, SEGMENTS);
        tx.rma_iov_limit = 1;
        ep.type_ = FI_EP_MSG;
        ep.max_msg_size = 1 << 31;
        (ep.tx_ctx_cnt, ep.rx_ctx_cnt) = (1, 1);
        domain.name = libc::strdup(FABRIC.as_ptr());
        domain.threading = FI_THREAD_SAFE;
        domain.control_progress = FI_PROGRESS_AUTO;
        domain.data_progress = FI_PROGRESS_AUTO;
        domain.resource_mgmt = FI_RM_ENABLED;
        domain.mr_key_size = 8;
        domain.cq_data_size = 8;
        (domain.cq_cnt, domain.ep_cnt) = (1 << 16, 1 << 16);
        domain.mr_iov_limit = 1;
        (*info.fabric_attr).name = libc::strdup(FABRIC.as_ptr());
        (*info.fabric_attr).prov_name = libc::strdup(FABRIC.as_ptr());
        (*info.fabric_attr).api_version = VERSION;
    }
}

/// What a listener learns about a requester: its own entry, the peer's address, the request.
pub unsafe fn of_request(listener: *const fi_info, peer_port: u16, handle: *mut fid) -> *mut fi_info {
    // SAFETY: the callers': the listener's entry lives.
    unsafe {
        let info = fi_dupinfo(listener);
        if let Some(info) = info.as_mut() {
            libc::free(info.dest_addr);
            info.dest_addr = copied(&address(peer_port)).cast();
            info.dest_addrlen = size_of::<libc::sockaddr_in>();
            info.handle = handle;
        }
        info
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_dupinfo(of: *const fi_info) -> *mut fi_info {
    // SAFETY: null or an entry; memory is the C library's, of the sizes copied. Zero is a value of every field.
    unsafe {
        let Some(from) = of.as_ref() else {
            let info = zeroed::<fi_info>();
            (*info).tx_attr = zeroed();
            (*info).rx_attr = zeroed();
            (*info).ep_attr = zeroed();
            (*info).domain_attr = zeroed();
            (*info).fabric_attr = zeroed();
            return info;
        };
        let info = copied(from);
        (*info).next = null_mut();
        (*info).nic = null_mut();
        (*info).src_addr = bytes(from.src_addr, from.src_addrlen);
        (*info).dest_addr = bytes(from.dest_addr, from.dest_addrlen);
        (*info).tx_attr = copied(from.tx_attr);
        (*info).rx_attr = copied(from.rx_attr);
        (*info).ep_attr = copied(from.ep_attr);
        (*info).domain_attr = copied(from.domain_attr);
        (*info).fabric_attr = copied(from.fabric_attr);
        if let Some(domain) = (*info).domain_attr.as_mut() {
            domain.name = string(domain.name);
        }
        if let Some(fabric) = (*info).fabric_attr.as_mut() {
            fabric.name = string(fabric.name);
            fabric.prov_name = string(fabric.prov_name);
        }
        info
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fi_freeinfo(mut info: *mut fi_info) {
    // SAFETY: made above, and as above.
    unsafe {
        while let Some(this) = info.as_mut() {
            let next = this.next;
            if let Some(domain) = this.domain_attr.as_mut() {
                libc::free(domain.name.cast());
            }
            if let Some(fabric) = this.fabric_attr.as_mut() {
                libc::free(fabric.name.cast());
                libc::free(fabric.prov_name.cast());
            }
            let parts: [*mut c_void; 8] = [
                this.tx_attr.cast(),
                this.rx_attr.cast(),
                this.ep_attr.cast(),
                this.domain_attr.cast(),
                this.fabric_attr.cast(),
                this.src_addr,
                this.dest_addr,
                info.cast(),
            ];
            parts.into_iter().for_each(|part| libc::free(part));
            info = next;
        }
    }
}

unsafe fn zeroed<T>() -> *mut T {
    // SAFETY: a plain call. Without memory there is no stand-in, and nothing to count.
    let made = unsafe { libc::calloc(1, size_of::<T>()) };
    assert!(!made.is_null(), "out of memory");
    made.cast()
}

unsafe fn copied<T>(from: *const T) -> *mut T {
    // SAFETY: the callers': null or a live `T`.
    unsafe { bytes(from.cast(), size_of::<T>()) }.cast()
}

unsafe fn bytes(from: *const c_void, len: usize) -> *mut c_void {
    if from.is_null() {
        return null_mut();
    }
    // SAFETY: the callers': `len` bytes.
    unsafe {
        let made = libc::malloc(len.max(1));
        assert!(!made.is_null(), "out of memory");
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), made.cast(), len);
        made
    }
}

unsafe fn string(from: *const c_char) -> *mut c_char {
    // SAFETY: the callers': null or ends with 0.
    if from.is_null() { null_mut() } else { unsafe { libc::strdup(from) } }
}
