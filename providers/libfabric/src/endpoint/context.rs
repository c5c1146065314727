//! What libfabric is given with each operation and hands back with its completion.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;

use dat_plugin::Segment;
use libfabric_sys::types::fi_context2;

/// A span of local memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seg {
    pub addr: u64,
    pub len: u32,
    pub lkey: u32,
}

impl From<&Seg> for Seg {
    fn from(seg: &Seg) -> Seg {
        *seg
    }
}

impl From<&Segment> for Seg {
    fn from(segment: &Segment) -> Seg {
        Seg { addr: segment.addr(), len: segment.len(), lkey: segment.lkey() }
    }
}

/// What kind of operation a context is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Request,
    Recv,
    /// A received or sent frame: a channel's if the context has an owner, else the device's.
    FrameIn,
    FrameOut,
}

/// The context of an operation. It begins with the memory that some fabrics use themselves (`FI_CONTEXT2`).
#[repr(C)]
pub struct Context {
    room: UnsafeCell<fi_context2>,
    /// The channel that the context is part of, or null. Typed by the layer that sets and reads it.
    owner: *const c_void,
    pub role: Role,
    pub index: u32,
}

// SAFETY: only libfabric touches `room`; the other fields are set before the context is shared and never change then.
unsafe impl Send for Context {}
// SAFETY: shared references read fields that no longer change; `room` is libfabric's alone.
unsafe impl Sync for Context {}

impl Context {
    pub fn new(role: Role, index: u32) -> Context {
        let room = UnsafeCell::new(fi_context2 { internal: [ptr::null_mut(); 8] });
        Context { room, owner: ptr::null(), role, index }
    }

    /// Sets the object whose operation it is. All owners in one device have the same type.
    pub fn set_owner(&mut self, owner: *const c_void) {
        self.owner = owner;
    }

    /// The object set by [`Context::set_owner`], or null.
    pub fn owner(&self) -> *const c_void {
        self.owner
    }

    pub fn as_ptr(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// The context that a completion hands back.
    ///
    /// # Safety
    /// `pointer` came from [`Context::as_ptr`], and the context still lives. Channels and the device's frames keep their
    /// contexts until libfabric has handed back every operation, or the completion queue is closed.
    pub unsafe fn from_ptr<'a>(pointer: *const c_void) -> &'a Context {
        // SAFETY: the caller promises a pointer of `as_ptr` to a context that lives.
        unsafe { &*pointer.cast() }
    }
}
