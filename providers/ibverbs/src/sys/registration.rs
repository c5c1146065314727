//! Registrations of memory, and windows on them.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dat_plugin::host::ForkGuard;
use rdma_sys::verbs::*;

use super::common::{give_back, last, number, shareable};
use super::context::Pd;

shareable!(Registration, Window);

/// A registration.
pub(crate) struct Registration {
    pd: Arc<Pd>,
    pub(super) ptr: NonNull<ibv_mr>,
}

impl Registration {
    /// Registers memory.
    ///
    /// # Safety
    /// The range stays valid until the result was dropped.
    pub(crate) unsafe fn new(pd: &Arc<Pd>, addr: u64, len: u64, access: c_int) -> io::Result<Registration> {
        let reg = pd.context.lib.verbs.ibv_reg_mr;
        // SAFETY: the caller keeps the range valid until the result is dropped.
        let ptr = unsafe { reg(pd.ptr.as_ptr(), addr as *mut c_void, len as usize, access) };
        Ok(Registration { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    /// Registers memory of another device, which holds it by itself until the registration ends.
    pub(crate) fn of_dmabuf(
        pd: &Arc<Pd>,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        addr: u64,
        access: c_int,
    ) -> io::Result<Registration> {
        let verbs = &pd.context.lib.verbs;
        let reg = verbs.ibv_reg_dmabuf_mr.ok_or_else(|| io::Error::from(io::ErrorKind::Unsupported))?;
        // SAFETY: the result holds the domain; the kernel takes a reference of its own to the memory.
        let ptr = unsafe { reg(pd.ptr.as_ptr(), offset, len as usize, addr, dmabuf.as_raw_fd(), access) };
        Ok(Registration { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)? })
    }

    pub(crate) fn keys(&self) -> (u32, u32) {
        // SAFETY: `self` owns the registration until its drop.
        unsafe { (self.ptr.as_ref().lkey, self.ptr.as_ref().rkey) }
    }

    /// Ends the registration; gives it back when a window is still bound to it.
    pub(crate) fn end(self) -> Result<(), (io::Error, Registration)> {
        if self.pd.context.guard.forked() {
            return Ok(());
        }
        // SAFETY: `self` owns the registration and is forgotten when the call succeeded.
        match number(unsafe { (self.pd.context.lib.verbs.ibv_dereg_mr)(self.ptr.as_ptr()) }) {
            Ok(()) => {
                // The registration is gone, its domain is not.
                // SAFETY: `forget` below keeps the field from being dropped again; the rest of `self` is never used again.
                drop(unsafe { std::ptr::read(&raw const self.pd) });
                std::mem::forget(self);
                Ok(())
            }
            Err(error) => Err((error, self)),
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let dereg = self.pd.context.lib.verbs.ibv_dereg_mr;
        // SAFETY: `new` or `of_dmabuf` registered it; `end` forgets `self` when it succeeded.
        give_back(self.pd.context.guard, "a registration", || unsafe { dereg(self.ptr.as_ptr()) });
    }
}

/// A memory window of type 1.
pub(crate) struct Window {
    pd: Arc<Pd>,
    pub(super) ptr: NonNull<ibv_mw>,
    /// Binding the window to this with a length of 0 unbinds it: some drivers take no null there.
    pub(super) nothing: Registration,
    pub(super) page: Page,
}

/// A page of this process to register. A child made by fork does not have registered memory mapped, so it must not give
/// the page back to the allocator, which would write to it.
pub(crate) struct Page {
    bytes: ManuallyDrop<Box<Aligned>>,
    guard: ForkGuard,
}

#[repr(align(4096))]
struct Aligned(#[allow(dead_code, reason = "the device knows its address")] [u8; 4096]);

impl Page {
    pub(crate) fn new(guard: ForkGuard) -> Page {
        Page { bytes: ManuallyDrop::new(Box::new(Aligned([0; 4096]))), guard }
    }

    pub(crate) fn address(&self) -> u64 {
        &raw const **self.bytes as u64
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        if !self.guard.forked() {
            // SAFETY: dropped here alone, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.bytes) };
        }
    }
}

impl Window {
    pub(crate) fn new(pd: &Arc<Pd>) -> io::Result<Window> {
        let page = Page::new(pd.context.guard);
        let access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
        // SAFETY: the page is dropped after the registration, being the later field.
        let nothing = unsafe { Registration::new(pd, page.address(), 4096, access)? };
        // SAFETY: the caller's `Arc` keeps the domain for the call.
        let ptr = unsafe { ibv_alloc_mw(pd.ptr.as_ptr(), IBV_MW_TYPE_1) };
        Ok(Window { pd: pd.clone(), ptr: NonNull::new(ptr).ok_or_else(last)?, nothing, page })
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: `new` made the object; nothing else frees it.
        give_back(self.pd.context.guard, "a window", || unsafe { ibv_dealloc_mw(self.ptr.as_ptr()) });
    }
}
