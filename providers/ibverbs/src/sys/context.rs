//! An open device and its protection domains.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use dat_plugin::host::ForkGuard;
use rdma_sys::verbs::*;
use rdma_sys::{Libraries, Verbs};

use super::common::{give_back, last, minus_one, number, shareable};

shareable!(Context, Pd);

/// An open device.
pub(crate) struct Context {
    pub(crate) lib: &'static Libraries,
    pub(super) ptr: NonNull<ibv_context>,
    pub(crate) guard: ForkGuard,
}

impl Context {
    /// Opens the device of this name.
    pub(crate) fn open(lib: &'static Libraries, name: &str) -> io::Result<Arc<Context>> {
        let verbs = &lib.verbs;
        let mut count = 0;
        // SAFETY: plain calls; the list is freed below, after the device was opened from it.
        unsafe {
            let list = (verbs.ibv_get_device_list)(&raw mut count);
            if list.is_null() {
                return Err(last());
            }
            let found =
                (0..count as usize).map(|i| *list.add(i)).find(|device| device_name(verbs, *device) == name);
            let opened = match found {
                None => Err(io::Error::from(io::ErrorKind::NotFound)),
                Some(device) => NonNull::new((verbs.ibv_open_device)(device)).ok_or_else(last),
            };
            (verbs.ibv_free_device_list)(list);
            opened.map(|ptr| Arc::new(Context { lib, ptr, guard: ForkGuard::new() }))
        }
    }

    pub(crate) fn attr(&self) -> io::Result<ibv_device_attr> {
        // SAFETY: all-zero is a value of the structure; the call fills it.
        unsafe {
            let mut attr = std::mem::zeroed();
            number((self.lib.verbs.ibv_query_device)(self.ptr.as_ptr(), &raw mut attr))?;
            Ok(attr)
        }
    }

    pub(crate) fn port(&self, port: u8) -> io::Result<ibv_port_attr> {
        // SAFETY: all-zero is a value of the structure; the call fills it. `self` keeps the context open.
        unsafe {
            let mut attr = std::mem::zeroed();
            number((self.lib.verbs.ibv_query_port)(self.ptr.as_ptr(), port, &raw mut attr))?;
            Ok(attr)
        }
    }

    pub(crate) fn async_fd(&self) -> RawFd {
        // SAFETY: `self` owns the context, open until its drop.
        unsafe { (*self.ptr.as_ptr()).async_fd }
    }

    /// The next asynchronous event, acknowledged; what it concerns is the number given when that was made.
    pub(crate) fn async_event(&self) -> io::Result<(c_int, u64)> {
        // SAFETY: all-zero is a value of the structure, the call fills it. The pointer in it is good until the event is
        // acknowledged: destroying its object waits for that.
        unsafe {
            let mut event: ibv_async_event = std::mem::zeroed();
            minus_one((self.lib.verbs.ibv_get_async_event)(self.ptr.as_ptr(), &raw mut event))?;
            let user = match event.event_type {
                IBV_EVENT_QP_FATAL
                | IBV_EVENT_QP_REQ_ERR
                | IBV_EVENT_QP_ACCESS_ERR
                | IBV_EVENT_COMM_EST
                | IBV_EVENT_SQ_DRAINED
                | IBV_EVENT_PATH_MIG
                | IBV_EVENT_PATH_MIG_ERR
                | IBV_EVENT_QP_LAST_WQE_REACHED => (*event.element.qp).qp_context as u64,
                IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => (*event.element.srq).srq_context as u64,
                IBV_EVENT_CQ_ERR => (*event.element.cq).cq_context as u64,
                _ => event.element.port_num as u64,
            };
            let kind = event.event_type;
            (self.lib.verbs.ibv_ack_async_event)(&raw mut event);
            Ok((kind, user))
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds its `Arc`, so this is the last use of it.
        give_back(self.guard, "a device", || unsafe { (self.lib.verbs.ibv_close_device)(self.ptr.as_ptr()) });
    }
}

/// A device's name.
///
/// # Safety
/// `device` is of a list that is not freed, or of an open context.
pub(crate) unsafe fn device_name(verbs: &Verbs, device: *mut ibv_device) -> String {
    // SAFETY: the caller keeps the device; the library gives a string that ends.
    unsafe { std::ffi::CStr::from_ptr((verbs.ibv_get_device_name)(device)) }.to_string_lossy().into_owned()
}

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) context: Arc<Context>,
    pub(super) ptr: NonNull<ibv_pd>,
}

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Arc<Pd>> {
        // SAFETY: the caller's `Arc` keeps the context open for the call.
        let ptr = unsafe { (context.lib.verbs.ibv_alloc_pd)(context.ptr.as_ptr()) };
        Ok(Arc::new(Pd { context: context.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? }))
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        let dealloc = self.context.lib.verbs.ibv_dealloc_pd;
        // SAFETY: everything made in the domain holds its `Arc`, so this is the last use of it.
        give_back(self.context.guard, "a protection domain", || unsafe { dealloc(self.ptr.as_ptr()) });
    }
}
