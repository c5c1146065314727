//! Completion queues, and the channels on which they report.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use rdma_sys::verbs::*;

use super::common::{give_back, last, never_blocks, number, shareable};
use super::context::Context;

shareable!(CompletionChannel, Cq);

/// A descriptor on which completion queues report.
pub(crate) struct CompletionChannel {
    context: Arc<Context>,
    ptr: NonNull<ibv_comp_channel>,
}

impl CompletionChannel {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<CompletionChannel> {
        // SAFETY: the caller's `Arc` keeps the context open for the call.
        let ptr = unsafe { (context.lib.verbs.ibv_create_comp_channel)(context.ptr.as_ptr()) };
        let channel =
            CompletionChannel { context: context.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? };
        never_blocks(channel.fd())?;
        Ok(channel)
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: `self` owns the object until its drop.
        unsafe { self.ptr.as_ref().fd }
    }

    pub(crate) fn borrow(&self) -> BorrowedFd<'_> {
        // SAFETY: `self` owns the channel, which has the descriptor open; the borrow ends before `self` does.
        unsafe { BorrowedFd::borrow_raw(self.fd()) }
    }

    /// Takes all reports.
    pub(crate) fn drain(&self) {
        let verbs = &self.context.lib.verbs;
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: `self` owns the channel until its drop, and its descriptor does not block. The library keeps the queue
        // that it reports until the report is acknowledged.
        unsafe {
            while (verbs.ibv_get_cq_event)(self.ptr.as_ptr(), &raw mut cq, &raw mut user) == 0 {
                (verbs.ibv_ack_cq_events)(cq, 1);
            }
        }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        let destroy = self.context.lib.verbs.ibv_destroy_comp_channel;
        // SAFETY: its one queue owns it and is destroyed first.
        give_back(self.context.guard, "a completion channel", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

/// A completion queue, with a channel of its own.
pub(crate) struct Cq {
    pub(crate) channel: CompletionChannel,
    pub(super) ptr: NonNull<ibv_cq>,
}

impl Cq {
    pub(crate) fn new(context: &Arc<Context>, depth: u32, user: u64) -> io::Result<Cq> {
        let channel = CompletionChannel::new(context)?;
        let create = context.lib.verbs.ibv_create_cq;
        let user = user as *mut c_void;
        // SAFETY: `channel` keeps the context open and is passed along with it.
        let ptr = unsafe { create(context.ptr.as_ptr(), depth as c_int, user, channel.ptr.as_ptr(), 0) };
        Ok(Cq { channel, ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    /// How many completions it holds.
    pub(crate) fn depth(&self) -> u32 {
        // SAFETY: `self` owns the queue until its drop; `cqe` is changed by `resize` alone, whose callers hold the queue's lock.
        unsafe { self.ptr.as_ref().cqe as u32 }
    }

    pub(crate) fn resize(&self, depth: u32) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        number(unsafe { (self.channel.context.lib.verbs.ibv_resize_cq)(self.ptr.as_ptr(), depth as c_int) })
    }

    /// Takes completions; the result is how many of `out` were filled. A negative result means that the device is gone; its
    /// own events report that.
    #[inline]
    pub(crate) fn poll(&self, out: &mut [std::mem::MaybeUninit<ibv_wc>]) -> c_int {
        // SAFETY: `self` owns the object until its drop; the count is the room of `out`.
        unsafe { ibv_poll_cq(self.ptr.as_ptr(), out.len() as c_int, out.as_mut_ptr().cast()) }
    }

    /// Has the next completion reported on the channel.
    pub(crate) fn request_report(&self) {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        unsafe { ibv_req_notify_cq(self.ptr.as_ptr(), 0) };
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        let context = &self.channel.context;
        if !context.guard.forked() {
            self.channel.drain();
        }
        // SAFETY: each queue pair holds an `Arc` of its queues, so none is left; `drain` acknowledged all reports.
        give_back(context.guard, "a completion queue", || unsafe {
            (context.lib.verbs.ibv_destroy_cq)(self.ptr.as_ptr())
        });
    }
}
