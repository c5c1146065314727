//! Queue pairs and shared receive queues.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_sys::verbs::*;

use super::common::{give_back, last, number, shareable};
use super::completion_queue::Cq;
use super::context::Pd;
use super::registration::{Registration, Window};

shareable!(SharedQueue, Qp);

/// A shared receive queue.
pub(crate) struct SharedQueue {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_srq>,
}

impl SharedQueue {
    pub(crate) fn new(pd: &Arc<Pd>, depth: u32, segments: u32, user: u64) -> io::Result<SharedQueue> {
        let attr = ibv_srq_attr { max_wr: depth, max_sge: segments, srq_limit: 0 };
        let mut init = ibv_srq_init_attr { srq_context: user as *mut c_void, attr };
        // SAFETY: the caller's `Arc` keeps the domain for the call.
        let ptr = unsafe { (pd.context.lib.verbs.ibv_create_srq)(pd.ptr.as_ptr(), &raw mut init) };
        Ok(SharedQueue { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    pub(crate) fn set_limit(&self, limit: u32) -> io::Result<()> {
        self.modify(ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit }, IBV_SRQ_LIMIT)
    }

    pub(crate) fn resize(&self, depth: u32) -> io::Result<()> {
        self.modify(ibv_srq_attr { max_wr: depth, max_sge: 0, srq_limit: 0 }, IBV_SRQ_MAX_WR)
    }

    fn modify(&self, mut attr: ibv_srq_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        number(unsafe { (self.pd.context.lib.verbs.ibv_modify_srq)(self.ptr.as_ptr(), &raw mut attr, mask) })
    }

    /// Posts one receive; the result is an error number.
    ///
    /// # Safety
    /// The segments are registered, and stay so until the receive completed.
    #[inline]
    pub(crate) unsafe fn post(&self, wr: &mut ibv_recv_wr) -> c_int {
        let mut bad = null_mut();
        // SAFETY: `self` owns the queue until its drop; the caller keeps the segments registered.
        unsafe { ibv_post_srq_recv(self.ptr.as_ptr(), wr, &raw mut bad) }
    }
}

impl Drop for SharedQueue {
    fn drop(&mut self) {
        let destroy = self.pd.context.lib.verbs.ibv_destroy_srq;
        // SAFETY: each queue pair holds an `Arc` of its shared queue, so none is left.
        give_back(self.pd.context.guard, "a shared queue", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// A queue pair.
pub(crate) struct Qp {
    pd: Arc<Pd>,
    ptr: NonNull<ibv_qp>,
    pub(crate) max_inline: u32,
    /// Destroyed after the queue pair that completes to them.
    _queues: [Arc<Cq>; 2],
    _srq: Option<Arc<SharedQueue>>,
}

/// What a queue pair is made of.
pub(crate) struct QpParts<'a> {
    pub(crate) send: &'a Arc<Cq>,
    pub(crate) recv: &'a Arc<Cq>,
    pub(crate) srq: Option<&'a Arc<SharedQueue>>,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) user: u64,
}

impl Qp {
    pub(crate) fn new(pd: &Arc<Pd>, parts: &QpParts<'_>) -> io::Result<Qp> {
        let mut init = ibv_qp_init_attr {
            qp_context: parts.user as *mut c_void,
            send_cq: parts.send.ptr.as_ptr(),
            recv_cq: parts.recv.ptr.as_ptr(),
            srq: parts.srq.map_or(null_mut(), |srq| srq.ptr.as_ptr()),
            cap: parts.cap,
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: the parts are objects of one device, which the result keeps alive.
        let ptr = unsafe { (pd.context.lib.verbs.ibv_create_qp)(pd.ptr.as_ptr(), &raw mut init) };
        let ptr = NonNull::new(ptr).ok_or_else(last)?;
        Ok(Qp {
            pd: pd.clone(),
            ptr,
            max_inline: init.cap.max_inline_data,
            _queues: [parts.send.clone(), parts.recv.clone()],
            _srq: parts.srq.cloned(),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        // SAFETY: `self` owns the object until its drop.
        unsafe { self.ptr.as_ref().qp_num }
    }

    pub(crate) fn modify(&self, attr: &mut ibv_qp_attr, mask: c_int) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        number(unsafe { (self.pd.context.lib.verbs.ibv_modify_qp)(self.ptr.as_ptr(), attr, mask) })
    }

    pub(crate) fn state(&self) -> io::Result<c_int> {
        let mut attr = blank_attr();
        // SAFETY: all-zero is a value of the structure; the call fills it.
        let mut init: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        let query = self.pd.context.lib.verbs.ibv_query_qp;
        // SAFETY: `self` owns the object; both structures take the answer.
        number(unsafe { query(self.ptr.as_ptr(), &raw mut attr, IBV_QP_STATE, &raw mut init) })?;
        Ok(attr.qp_state)
    }

    pub(crate) fn set_state(&self, state: c_int) -> io::Result<()> {
        let mut attr = blank_attr();
        attr.qp_state = state;
        self.modify(&mut attr, IBV_QP_STATE)
    }

    /// Posts requests; the result is an error number, and with it the first that was not taken is in `bad`.
    ///
    /// # Safety
    /// `wr` heads a list of requests that are written as far as their operations go. Segments are registered, and stay so
    /// until the requests completed or the queue pair was stopped.
    #[inline]
    pub(crate) unsafe fn post_send(&self, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
        // SAFETY: `self` owns the queue pair until its drop; the caller wrote the list and keeps the segments.
        unsafe { ibv_post_send(self.ptr.as_ptr(), wr, bad) }
    }

    /// # Safety
    /// As [`Qp::post_send`].
    #[inline]
    pub(crate) unsafe fn post_recv(&self, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int {
        // SAFETY: `self` owns the queue pair until its drop; the caller wrote the list and keeps the segments.
        unsafe { ibv_post_recv(self.ptr.as_ptr(), wr, bad) }
    }

    /// Posts the binding of `window`, or its end; the result is an error number, and the key.
    pub(crate) fn bind(
        &self,
        window: &Window,
        wr_id: u64,
        send_flags: u32,
        range: Option<(&Registration, u64, u64, c_int)>,
    ) -> (c_int, u32) {
        let (mr, addr, length, access) = range.unwrap_or((&window.nothing, window.page.address(), 0, 0));
        let bind_info =
            ibv_mw_bind_info { mr: mr.ptr.as_ptr(), addr, length, mw_access_flags: access as u32 };
        let mut bind = ibv_mw_bind { wr_id, send_flags, bind_info };
        // SAFETY: `self`, the window and the registration are borrowed for the call.
        unsafe {
            let code = ibv_bind_mw(self.ptr.as_ptr(), window.ptr.as_ptr(), &raw mut bind);
            (code, window.ptr.as_ref().rkey)
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        let destroy = self.pd.context.lib.verbs.ibv_destroy_qp;
        // SAFETY: posting borrows `self`, so no post is under way.
        give_back(self.pd.context.guard, "a queue pair", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// Attributes of a queue pair, none set.
pub(crate) fn blank_attr() -> ibv_qp_attr {
    // SAFETY: the structure has numbers and addresses of the network only, for which all-zero is a value.
    unsafe { std::mem::zeroed() }
}
