//! A datagram endpoint with receives for frames: the device's own, or one at a listener's address.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dat_plugin::Failure;
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::keeping_signals;
use libfabric_sys::ops::Iovec;
use libfabric_sys::types::*;
use parking_lot::Mutex;

use crate::connect::address_of;
use crate::cq::Cq;
use crate::endpoint::Errno;
use crate::fabric::Fabric;
use crate::frames::FRAME;
use crate::info::Info;
use crate::inherited::keep_from_children;
use crate::memory::{Mr, Regions};
use crate::status;
use crate::work::{Context, Role};

/// Tag of frames; messages have others.
pub const FRAME_TAG: u64 = 0;

/// An endpoint with receives for frames.
///
/// One that can be closed before the device has a completion queue of its own: a queue must not outlive an endpoint that
/// was bound to it, because ofi_rxm leaves what it bound in the queue's wait object.
pub struct Port {
    pub id: u32,
    pub ep: *mut fid_ep,
    /// A queue of its own, or one that stands for the device's; held while it is read and when it is closed, absent once
    /// closed.
    pub own: Mutex<Option<Cq>>,
    wait: Option<RawFd>,
    pub info: Info,
    pub user: u64,
    pub port: AtomicU64,
    pub frames: Box<[Slot]>,
    pub mr: Option<Mr>,
    _fabric: Arc<Fabric>,
}

// SAFETY: a thread-safe object; a slot's bytes belong to libfabric while it has them, and to the one thread that takes
// completions otherwise.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

/// Bytes of a frame, and what its operation is known by.
pub struct Slot {
    pub context: Context,
    pub bytes: UnsafeCell<[u8; FRAME]>,
}

/// Context numbers of a port's frames begin here.
pub const PORT_SHIFT: u32 = 8;

pub fn slots(count: u32, role: Role, id: u32) -> Box<[Slot]> {
    let slot = |index| Slot {
        context: Context::new(role, id << PORT_SHIFT | index),
        bytes: UnsafeCell::new([0; FRAME]),
    };
    (0..count).map(slot).collect()
}

pub fn registered(fabric: &Arc<Fabric>, regions: &Regions, slots: &[Slot]) -> Result<Option<Mr>, Failure> {
    if fabric.limits.mr_mode & FI_MR_LOCAL == 0 {
        return Ok(None);
    }
    let len = std::mem::size_of_val(slots) as u64;
    let key = if fabric.limits.mr_mode & FI_MR_PROV_KEY != 0 {
        0
    } else {
        regions.secret(fabric.limits.mr_key_size)
    };
    Mr::new(fabric, slots.as_ptr() as u64, len, FI_SEND | FI_RECV, key, ptr::null_mut())
        .map(Some)
        .map_err(|errno| status::failure(fabric.library, "fi_mr_reg of frames", errno.into()))
}

impl Port {
    pub fn open(
        fabric: &Arc<Fabric>,
        regions: &Regions,
        info: Info,
        (id, user, count): (u32, u64, u32),
    ) -> Result<Arc<Port>, Failure> {
        let frames = slots(count, Role::FrameIn, id);
        let mr = registered(fabric, regions, &frames)?;
        let own = if id == 0 { Cq::none() } else { Cq::open(fabric, 256)? };
        let cq = if id == 0 { fabric.far.cq } else { own.cq };
        let mut port = Port {
            id,
            ep: ptr::null_mut(),
            wait: own.wait_fd().map(|fd| fd.as_raw_fd()),
            own: Mutex::new(Some(own)),
            info,
            user,
            port: AtomicU64::new(0),
            frames,
            mr,
            _fabric: fabric.clone(),
        };
        // SAFETY: open objects; `port` closes the endpoint if a later step fails.
        unsafe {
            let made =
                keeping_signals(|| fi_endpoint(fabric.domain, port.info.head, &mut port.ep, ptr::null_mut()));
            fabric.check("fi_endpoint", made)?;
            fabric.check("an endpoint's address table", fi_bind(port.ep.cast(), fabric.av.cast(), 0))?;
            let bound = fi_bind(port.ep.cast(), cq.cast(), FI_SEND | FI_RECV);
            fabric.check("an endpoint's queue", bound)?;
            fabric.check("fi_enable", fi_enable(port.ep))?;
        }
        if let Some(at) = address_of(port.ep) {
            port.port.store(at.port().into(), Ordering::Relaxed);
            keep_from_children(at);
        }
        let port = Arc::new(port);
        for index in 0..count {
            port.post(index)
                .map_err(|errno| status::failure(fabric.library, "receives for frames", errno.into()))?;
        }
        Ok(port)
    }

    /// Gives libfabric a receive for a frame.
    pub fn post(&self, index: u32) -> Result<(), Errno> {
        let Some(slot) = self.frames.get(index as usize) else { return Err(-libc::EINVAL) };
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: FRAME };
        let mut desc = [self.mr.as_ref().map_or(ptr::null_mut(), Mr::descriptor)];
        let msg = fi_msg_tagged {
            msg_iov: &iov,
            desc: desc.as_mut_ptr(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            tag: FRAME_TAG,
            ignore: 0,
            context: slot.context.as_ptr(),
            data: 0,
        };
        // SAFETY: the slot lives as long as the endpoint, which this value closes first.
        match unsafe { fi_trecvmsg(self.ep, &msg, FI_COMPLETION) } {
            0 => Ok(()),
            error => Err(error as i32),
        }
    }
}

impl Port {
    /// Closes the endpoint and its queue, and with the endpoint its receives.
    pub fn close(&self) {
        let mut own = self.own.lock();
        let Some(cq) = own.take() else { return };
        // SAFETY: opened by this value, and nobody reads: that takes the lock and looks first.
        let result = if self.ep.is_null() { 0 } else { unsafe { fi_close(self.ep.cast()) } };
        if result != 0 {
            tracing::warn!(result, "closing a datagram endpoint");
        }
        drop(cq);
    }

    /// The descriptor of a queue of its own.
    pub fn wait(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open until closed; a stale number in an epoll set is no unsoundness.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Takes one completion of a queue of its own: the frame it is of, and how it ended.
    pub fn take_one(&self) -> Option<(u32, Result<usize, Errno>)> {
        let own = self.own.lock();
        let cq = own.as_ref().filter(|own| !own.cq.is_null())?.cq;
        let mut entry = MaybeUninit::<fi_cq_tagged_entry>::uninit();
        // SAFETY: an open queue, room for one entry of its format; contexts are this port's frames.
        unsafe {
            match fi_cq_read(cq, entry.as_mut_ptr().cast(), 1) {
                1 => {
                    let entry = entry.assume_init_ref();
                    Some((Context::from_ptr(entry.op_context).index, Ok(entry.len)))
                }
                error if error as i32 == -FI_EAVAIL => {
                    let mut room: cq_err_room = std::mem::zeroed();
                    if fi_cq_readerr(cq, &mut room.entry, 0) <= 0 || room.entry.op_context.is_null() {
                        return None;
                    }
                    Some((Context::from_ptr(room.entry.op_context).index, Err(room.entry.err)))
                }
                _ => None,
            }
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.close();
    }
}
