//! The functions of libibverbs that make, ask and free objects.
//!
//! # Safety
//! All of them have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::collections::VecDeque;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use rdma_sys::verbs::*;

use crate::common::{Object, event_fd, take};
use crate::data::{break_down, forget_completions, poll_cq, post_recv, post_send, req_notify_cq};
use crate::world::{DmaBuf, Pair, Queue, Region, SEGMENTS, fail, lock};

/// The one device: its address is all there is of it.
static DEVICE: u64 = 0;

const WORK: c_int = 1 << 16;

pub fn device() -> *mut ibv_device {
    (&raw const DEVICE).cast_mut().cast()
}

/// A context; the caller frees it.
pub fn context() -> *mut ibv_context {
    let mut made = Box::new(MaybeUninit::<ibv_context>::zeroed());
    let context = made.as_mut_ptr();
    // SAFETY: zeroed memory of its size; the functions, which must not be null, are set here.
    unsafe {
        (*context).device = device();
        (&raw mut (*context).ops.poll_cq).write(poll_cq);
        (&raw mut (*context).ops.req_notify_cq).write(req_notify_cq);
        (&raw mut (*context).ops.post_send).write(post_send);
        (&raw mut (*context).ops.post_recv).write(post_recv);
        (*context).cmd_fd = -1;
        (*context).async_fd = event_fd();
        (*context).num_comp_vectors = 1;
    }
    Box::into_raw(made).cast()
}

/// An object whose fields are zero.
unsafe fn zeroed<T>() -> T {
    // SAFETY: the caller's: all-zero is a value of `T`.
    unsafe { std::mem::zeroed() }
}

/// Frees an object made with `Box::into_raw`.
unsafe fn free<T>(object: *mut T) -> c_int {
    // SAFETY: the caller's.
    drop(unsafe { Box::from_raw(object) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the caller's pointer.
    unsafe {
        if !count.is_null() {
            *count = 1;
        }
    }
    Box::into_raw(Box::new([device(), null_mut()])).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: made above.
    unsafe { free(list.cast::<[*mut ibv_device; 2]>()) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(_device: *mut ibv_device) -> *const c_char {
    c"double0".as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(_device: *mut ibv_device) -> *mut ibv_context {
    context()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    // SAFETY: made by `context`.
    unsafe {
        libc::close((*context).async_fd);
        free(context.cast::<MaybeUninit<ibv_context>>())
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(_context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the caller's pointer; numbers, for which zero is a value.
    unsafe {
        *attr = ibv_device_attr {
            max_mr_size: 1 << 40,
            max_qp: 1 << 16,
            max_qp_wr: WORK,
            max_sge: SEGMENTS as c_int,
            max_sge_rd: SEGMENTS as c_int,
            max_cq: 1 << 16,
            max_cqe: 1 << 22,
            max_mr: 1 << 16,
            max_pd: 1 << 16,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            phys_port_cnt: 1,
            ..zeroed()
        };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _context: *mut ibv_context,
    _port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        *attr = ibv_port_attr {
            state: IBV_PORT_ACTIVE,
            max_mtu: IBV_MTU_4096,
            active_mtu: IBV_MTU_4096,
            gid_tbl_len: 1,
            max_msg_sz: 1 << 31,
            link_layer: IBV_LINK_LAYER_ETHERNET,
            ..zeroed()
        };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(
    _context: *mut ibv_context,
    _port: u8,
    _index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    // SAFETY: the caller's pointer.
    unsafe { *gid = ibv_gid { raw: std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets() } };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ibv_context, _event: *mut ibv_async_event) -> c_int {
    // There never is one: this returns an error or blocks, as the descriptor does.
    // SAFETY: an open context.
    unsafe { take((*context).async_fd) };
    fail(libc::EAGAIN)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    Box::into_raw(Box::new(ibv_pd { context, handle: lock().number() }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: made above.
    unsafe { free(pd) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let mut world = lock();
    let key = world.number();
    let region = Region { addr: addr as u64, len: length as u64, domain: pd as usize, access };
    world.regions.insert(key, region);
    // SAFETY: the domain lives.
    let context = unsafe { (*pd).context };
    Box::into_raw(Box::new(ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new shared mapping; the offset is checked by the kernel.
    let mapped =
        unsafe { libc::mmap(null_mut(), length, protection, libc::MAP_SHARED, fd, offset as libc::off_t) };
    if mapped == libc::MAP_FAILED {
        return null_mut();
    }
    let mut world = lock();
    let key = world.number();
    world.regions.insert(key, Region { addr: iova, len: length as u64, domain: pd as usize, access });
    world.dmabufs.insert(key, DmaBuf { addr: iova, len: length as u64, mapped: mapped as u64 });
    // SAFETY: the domain lives.
    let context = unsafe { (*pd).context };
    let addr = iova as *mut c_void;
    Box::into_raw(Box::new(ibv_mr { context, pd, addr, length, handle: key, lkey: key, rkey: key }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: made above; the mapping of a dma-buf is its registration's alone.
    unsafe {
        let mut world = lock();
        world.regions.remove(&(*mr).rkey);
        if let Some(dmabuf) = world.dmabufs.remove(&(*mr).lkey) {
            libc::munmap(dmabuf.mapped as *mut c_void, dmabuf.len as usize);
        }
        free(mr)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    Box::into_raw(Box::new(ibv_comp_channel { context, fd: event_fd(), refcnt: 0 }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: made above.
    unsafe {
        libc::close((*channel).fd);
        free(channel)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    user: *mut c_void,
    channel: *mut ibv_comp_channel,
    _vector: c_int,
) -> *mut ibv_cq {
    // SAFETY: zero is a value of every field of the base.
    let base = ibv_cq { context, channel, cq_context: user, cqe, ..unsafe { zeroed() } };
    let done = VecDeque::with_capacity(cqe.max(1) as usize);
    Box::into_raw(Box::new(Queue { base, done, late: VecDeque::new(), armed: false })).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: made above.
    unsafe { free(cq.cast::<Queue>()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let world = lock();
    // SAFETY: the queue lives.
    unsafe {
        let queue = &mut *cq.cast::<Queue>();
        queue.base.cqe = cqe;
        queue.done.reserve((cqe.max(0) as usize).saturating_sub(queue.done.len()));
    }
    drop(world);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    user: *mut *mut c_void,
) -> c_int {
    // Which queue it was is not kept, so a report wakes its reader, and no more.
    // SAFETY: the channel lives, the pointers are the caller's.
    unsafe {
        *cq = null_mut();
        *user = null_mut();
        if take((*channel).fd) { 0 } else { fail(libc::EAGAIN) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(_cq: *mut ibv_cq, _count: c_uint) {}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(_pd: *mut ibv_pd, _init: *mut ibv_srq_init_attr) -> *mut ibv_srq {
    fail(libc::EOPNOTSUPP);
    null_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(_srq: *mut ibv_srq, _attr: *mut ibv_srq_attr, _mask: c_int) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(_srq: *mut ibv_srq, _attr: *mut ibv_srq_attr) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(_srq: *mut ibv_srq) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    let mut world = lock();
    let number = world.number();
    // SAFETY: the domain lives, the attributes are the caller's; zero is a value of every field of the base.
    let pair = unsafe {
        let base = ibv_qp {
            context: (*pd).context,
            qp_context: (*init).qp_context,
            pd,
            send_cq: (*init).send_cq,
            recv_cq: (*init).recv_cq,
            qp_num: number,
            qp_type: (*init).qp_type,
            ..zeroed()
        };
        let limit = (*init).cap.max_recv_wr as usize;
        let receives = VecDeque::with_capacity(limit);
        Box::into_raw(Box::new(Pair {
            base,
            peer: null_mut(),
            receives,
            receives_limit: limit,
            waiting: VecDeque::new(),
        }))
    };
    world.pairs.insert(number, Object(pair));
    pair.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int {
    let world = lock();
    // SAFETY: the pair lives, the attributes are the caller's.
    unsafe {
        let pair = qp.cast::<Pair>();
        if mask & IBV_QP_DEST_QPN != 0 {
            let Some(peer) = world.pairs.get(&(*attr).dest_qp_num) else { return libc::EINVAL };
            (*pair).peer = peer.0;
        }
        if mask & IBV_QP_STATE != 0 {
            match (*attr).qp_state {
                IBV_QPS_ERR => break_down(pair),
                IBV_QPS_RESET => {
                    forget_completions(pair);
                    (*pair).receives.clear();
                    (*pair).waiting.clear();
                    (*pair).base.state = IBV_QPS_RESET;
                }
                state => (*pair).base.state = state,
            }
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ibv_qp,
    attr: *mut ibv_qp_attr,
    _mask: c_int,
    _init: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the pair lives, the attributes are the caller's.
    unsafe { *attr = ibv_qp_attr { qp_state: (*qp).state, ..zeroed() } };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int {
    let mut world = lock();
    // SAFETY: made above; its peers forget it.
    unsafe {
        forget_completions(qp.cast());
        world.pairs.remove(&(*qp).qp_num);
        for other in world.pairs.values() {
            if (*other.0).peer == qp.cast() {
                (*other.0).peer = null_mut();
            }
        }
        free(qp.cast::<Pair>())
    }
}
