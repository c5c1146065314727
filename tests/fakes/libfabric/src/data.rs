//! Endpoints and the data path: what the inline functions of the headers reach through an endpoint's tables.
//!
//! # Safety
//! All of the functions in tables have the promises of their manual pages: pointers are of this library's making, and live;
//! memory of an operation is as long as its vectors say until it completed.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::null_mut;

use libc::{iovec, ssize_t};
use libfabric_sys::consts::*;
use libfabric_sys::ops::{fi_ops, fi_ops_ep, fi_ops_msg, fi_ops_rma};
use libfabric_sys::types::*;

use crate::connect::CALLS;
use crate::endpoint::{Bound, Endpoint, INVALID, Mark, OK, Request};
use crate::head::{basics, class, head};
use crate::world::lock;

static ENDPOINT_FID: fi_ops = basics(close, Some(bind), Some(control));
static OPTIONS: fi_ops_ep = fi_ops_ep {
    size: size_of::<fi_ops_ep>(),
    cancel: Some(cancel),
    getopt: None,
    setopt: None,
    tx_ctx: None,
    rx_ctx: None,
    rx_size_left: None,
    tx_size_left: None,
};
static MESSAGES: fi_ops_msg = fi_ops_msg {
    size: size_of::<fi_ops_msg>(),
    recv: entry(recv as Recv),
    recvv: None,
    recvmsg: Some(recvmsg),
    send: entry(send as Send),
    sendv: None,
    sendmsg: Some(sendmsg),
    inject: entry(inject as Inject),
    senddata: entry(senddata as SendData),
    injectdata: entry(injectdata as InjectData),
};
static MEMORY: fi_ops_rma = fi_ops_rma {
    size: size_of::<fi_ops_rma>(),
    read: None,
    readv: None,
    readmsg: Some(readmsg),
    write: None,
    writev: None,
    writemsg: Some(writemsg),
    inject: None,
    writedata: None,
    injectdata: Some(inject_writedata),
};

type Recv =
    unsafe extern "C" fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> ssize_t;
type Send =
    unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> ssize_t;
type SendData = unsafe extern "C" fn(
    *mut fid_ep,
    *const c_void,
    usize,
    *mut c_void,
    u64,
    fi_addr_t,
    *mut c_void,
) -> ssize_t;
type Inject = unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> ssize_t;
type InjectData = unsafe extern "C" fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> ssize_t;

/// A function as its place in a table wants it, which has no type where the project never calls it.
const fn entry<Function: Copy, Place: Copy>(function: Function) -> Place {
    assert!(size_of::<Function>() == size_of::<Place>());
    // SAFETY: a function pointer, or one that may be null; the other is the same. It is called as the header says.
    unsafe { std::mem::transmute_copy(&function) }
}

pub unsafe extern "C" fn open_endpoint(
    _domain: *mut fid_domain,
    info: *mut fi_info,
    out: *mut *mut fid_ep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an entry of this library's, and the caller's pointer. Its handle is an unanswered request, if any.
    unsafe {
        let base = fid_ep {
            fid: head(class::ENDPOINT, context, &ENDPOINT_FID),
            ops: (&raw const OPTIONS).cast_mut(),
            cm: (&raw const CALLS).cast_mut(),
            msg: (&raw const MESSAGES).cast_mut(),
            rma: (&raw const MEMORY).cast_mut(),
            tagged: null_mut(),
            atomic: null_mut(),
            collective: null_mut(),
        };
        let mut world = lock();
        let Some(port) = world.take_port(0) else { return -libc::EADDRINUSE };
        let request = (*info).handle;
        let asked_by = if request.is_null() { null_mut() } else { (*request.cast::<Request>()).from };
        if !request.is_null() {
            libfabric_sys::inline::fi_close(request);
        }
        let limit = (*(*info).rx_attr).size;
        let unbound = Bound { queue: null_mut(), selective: false };
        *out = Box::into_raw(Box::new(Endpoint {
            base,
            events: null_mut(),
            port,
            peer: asked_by,
            connected: false,
            asked: null_mut(),
            sends: unbound,
            recvs: unbound,
            flags: (*(*info).tx_attr).op_flags,
            posted: VecDeque::with_capacity(limit),
            limit,
            waiting: VecDeque::new(),
        }))
        .cast();
        if let Some(asking) = asked_by.as_mut() {
            // So that it takes itself out when it goes before the answer.
            asking.peer = (*out).cast();
        }
    }
    0
}

unsafe extern "C" fn close(ep: *mut fid) -> c_int {
    let mut world = lock();
    // SAFETY: made above; no pointer to it is left.
    unsafe {
        let mut it = Box::from_raw(ep.cast::<Endpoint>());
        it.hang_up();
        if let Some(peer) = it.peer.as_mut() {
            peer.peer = null_mut();
        }
        if let Some(request) = it.asked.as_mut() {
            request.from = null_mut();
        }
        if let Some(events) = it.events.as_mut() {
            events.forget(ep);
        }
        world.free_port(it.port);
    }
    0
}

unsafe extern "C" fn bind(ep: *mut fid, to: *mut fid, flags: u64) -> c_int {
    // SAFETY: open objects.
    unsafe {
        let ep = &mut *ep.cast::<Endpoint>();
        match (*to).fclass {
            class::EVENTS => ep.events = to.cast(),
            class::COMPLETIONS => {
                let bound = Bound { queue: to.cast(), selective: flags & FI_SELECTIVE_COMPLETION != 0 };
                if flags & FI_SEND != 0 {
                    ep.sends = bound;
                }
                if flags & FI_RECV != 0 {
                    ep.recvs = bound;
                }
            }
            _ => return -libc::EINVAL,
        }
    }
    0
}

unsafe extern "C" fn control(_ep: *mut fid, command: c_int, _arg: *mut c_void) -> c_int {
    if command == FI_ENABLE { 0 } else { -libc::ENOSYS }
}

unsafe extern "C" fn cancel(ep: *mut fid, context: *mut c_void) -> ssize_t {
    let _locked = lock();
    // SAFETY: an open endpoint.
    unsafe {
        let ep = &mut *ep.cast::<Endpoint>();
        let Some(at) = ep.posted.iter().position(|receive| receive.context == context) else {
            return -libc::ENOENT as ssize_t;
        };
        ep.posted.remove(at);
        ep.recvs.tell(context, 0, FI_RECV | FI_MSG, (0, 0, libc::ECANCELED));
    }
    OK
}

/// The vector of an operation, of no length or readable.
unsafe fn vector<'a>(first: *const iovec, count: usize) -> &'a [iovec] {
    // SAFETY: the callers'.
    if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first, count) } }
}

fn one(buf: *const c_void, len: usize) -> [iovec; 1] {
    [iovec { iov_base: buf.cast_mut(), iov_len: len }]
}

unsafe extern "C" fn recvmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t {
    let _locked = lock();
    // SAFETY: an open endpoint, a filled structure.
    unsafe {
        let msg = &*msg;
        (*ep.cast::<Endpoint>()).receive(vector(msg.msg_iov, msg.iov_count), msg.context, flags)
    }
}

unsafe extern "C" fn recv(
    ep: *mut fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    _from: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    let _locked = lock();
    // SAFETY: an open endpoint.
    unsafe {
        let ep = &mut *ep.cast::<Endpoint>();
        ep.receive(&one(buf, len), context, ep.flags)
    }
}

unsafe extern "C" fn sendmsg(ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> ssize_t {
    let _locked = lock();
    // SAFETY: an open endpoint, a filled structure.
    unsafe {
        let msg = &*msg;
        let mark = (flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let segments = vector(msg.msg_iov, msg.iov_count);
        (*ep.cast::<Endpoint>()).message(segments, mark, Some(msg.context), flags)
    }
}

/// The short calls: without a structure, as the endpoint's own flags say.
unsafe fn short(ep: *mut fid_ep, segment: [iovec; 1], mark: Mark, context: Option<*mut c_void>) -> ssize_t {
    let _locked = lock();
    // SAFETY: the callers'.
    unsafe {
        let ep = &mut *ep.cast::<Endpoint>();
        ep.message(&segment, mark, context, ep.flags)
    }
}

unsafe extern "C" fn send(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    _to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: an open endpoint; here and below.
    unsafe { short(ep, one(buf, len), None, Some(context)) }
}

unsafe extern "C" fn senddata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    _to: fi_addr_t,
    context: *mut c_void,
) -> ssize_t {
    // SAFETY: as above.
    unsafe { short(ep, one(buf, len), Some(data), Some(context)) }
}

unsafe extern "C" fn inject(ep: *mut fid_ep, buf: *const c_void, len: usize, _to: fi_addr_t) -> ssize_t {
    // SAFETY: as above.
    unsafe { short(ep, one(buf, len), None, None) }
}

unsafe extern "C" fn injectdata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    _to: fi_addr_t,
) -> ssize_t {
    // SAFETY: as above.
    unsafe { short(ep, one(buf, len), Some(data), None) }
}

unsafe extern "C" fn readmsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t {
    // SAFETY: an open endpoint, a filled structure; here and below.
    unsafe { rma(ep, &*msg, true, flags) }
}

unsafe extern "C" fn writemsg(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> ssize_t {
    // SAFETY: as above.
    unsafe { rma(ep, &*msg, false, flags) }
}

unsafe fn rma(ep: *mut fid_ep, msg: &fi_msg_rma, reads: bool, flags: u64) -> ssize_t {
    let world = lock();
    if msg.rma_iov_count != 1 {
        return INVALID;
    }
    // SAFETY: the callers'.
    unsafe {
        let mark = (!reads && flags & FI_REMOTE_CQ_DATA != 0).then_some(msg.data);
        let segments = vector(msg.msg_iov, msg.iov_count);
        let ep = &mut *ep.cast::<Endpoint>();
        ep.remote(&world, segments, &*msg.rma_iov, (reads, mark), (Some(msg.context), flags))
    }
}

unsafe extern "C" fn inject_writedata(
    ep: *mut fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    _to: fi_addr_t,
    addr: u64,
    key: u64,
) -> ssize_t {
    let world = lock();
    // SAFETY: an open endpoint.
    unsafe {
        let target = fi_rma_iov { addr, len, key };
        let ep = &mut *ep.cast::<Endpoint>();
        ep.remote(&world, &one(buf, len), &target, (false, Some(data)), (None, 0))
    }
}
