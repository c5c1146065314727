//! A datagram endpoint with receives for frames: the device's main endpoint, or one at a listener's address.

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

use crate::endpoint::context::{Context, Role};
use crate::endpoint::name::address_of;
use crate::fabric::Fabric;
use crate::fabric::cq::Cq;
use crate::fabric::fd_scan::set_cloexec;
use crate::fabric::info::Info;
use crate::memory::{MemoryRegion, Regions};
use crate::status::{self, Errno};
use crate::wire::datagram::FRAME;

/// Tag of frames; messages have others.
pub const FRAME_TAG: u64 = 0;

/// A datagram endpoint with receives for frames.
///
/// A listener's endpoint can be closed before the device, so it has its own completion queue. ofi_rxm leaves an endpoint
/// in the wait object of its queue, so a queue must not outlive an endpoint that was bound to it.
pub struct Port {
    pub id: u32,
    pub ep: *mut fid_ep,
    /// Its own queue, or [`Cq::none`] for an endpoint that uses the device's. `None` once closed. The lock is held while
    /// the queue is read, and while it is closed.
    pub own: Mutex<Option<Cq>>,
    wait: Option<RawFd>,
    pub info: Info,
    pub user: u64,
    pub port: AtomicU64,
    pub frames: Box<[Slot]>,
    pub mr: Option<MemoryRegion>,
    /// Receives that libfabric did not take back yet; tried again by [`Port::post_again`].
    unposted: Mutex<Vec<u32>>,
    /// Tests: how many posts fail.
    #[cfg(test)]
    pub failing_posts: AtomicU64,
    _fabric: Arc<Fabric>,
}

// SAFETY: the endpoint is thread-safe (FI_THREAD_SAFE). libfabric owns a slot's bytes while the slot is posted; after
// that, the one thread that holds the lock for reading completions owns them.
unsafe impl Send for Port {}
// SAFETY: shared use is the same as above: calls are thread-safe, and each slot has one owner at a time.
unsafe impl Sync for Port {}

/// Memory of a frame, and the context of its operation.
pub struct Slot {
    pub context: Context,
    pub bytes: UnsafeCell<[u8; FRAME]>,
}

// SAFETY: libfabric owns the bytes of a posted slot. Otherwise the holder of one lock owns them: the outbox's for slots to
// send, the one for reading completions for slots to receive.
unsafe impl Sync for Slot {}

/// A context's index holds the port's number above this bit, and the frame's below.
pub const PORT_SHIFT: u32 = 8;

pub fn slots(count: u32, role: Role, id: u32) -> Box<[Slot]> {
    let slot = |index| Slot {
        context: Context::new(role, id << PORT_SHIFT | index),
        bytes: UnsafeCell::new([0; FRAME]),
    };
    (0..count).map(slot).collect()
}

pub fn registered(
    fabric: &Arc<Fabric>,
    regions: &Regions,
    slots: &[Slot],
) -> Result<Option<MemoryRegion>, Failure> {
    if fabric.limits.mr_mode & FI_MR_LOCAL == 0 {
        return Ok(None);
    }
    let len = std::mem::size_of_val(slots) as u64;
    let key = if fabric.limits.mr_mode & FI_MR_PROV_KEY != 0 {
        0
    } else {
        regions.secret(fabric.limits.mr_key_size)
    };
    MemoryRegion::new(fabric, slots.as_ptr() as u64, len, FI_SEND | FI_RECV, key, ptr::null_mut())
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
        let own = if id == 0 { Cq::none() } else { Cq::open(&fabric.domain(), 256)? };
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
            unposted: Mutex::default(),
            #[cfg(test)]
            failing_posts: AtomicU64::new(0),
            _fabric: fabric.clone(),
        };
        // SAFETY: domain, address vector and queue are open: `fabric` and `own` hold them. If a later step fails, `port`
        // closes the endpoint.
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
            set_cloexec(at);
        }
        let port = Arc::new(port);
        for index in 0..count {
            port.post(index)
                .map_err(|errno| status::failure(fabric.library, "receives for frames", errno.into()))?;
        }
        Ok(port)
    }

    /// Posts a receive again after its frame was read. A receive that libfabric refuses is kept and tried again.
    ///
    /// Returns `false` if it is kept for later.
    pub fn repost(&self, index: u32) -> bool {
        let open = self.own.lock();
        if open.is_some()
            && let Err(errno) = self.post(index)
        {
            tracing::warn!(errno, "libfabric does not take a receive for frames back; it is tried again");
            self.unposted.lock().push(index);
            return false;
        }
        true
    }

    /// Receives that wait to be posted again.
    #[cfg(test)]
    pub fn unposted(&self) -> usize {
        self.unposted.lock().len()
    }

    /// Tries again to post the receives that libfabric did not take back. Whether some are left.
    pub fn post_again(&self) -> bool {
        if self.unposted.lock().is_empty() {
            return false;
        }
        let open = self.own.lock();
        let mut unposted = self.unposted.lock();
        if open.is_none() {
            unposted.clear();
        }
        while let Some(index) = unposted.last().copied() {
            if self.post(index).is_err() {
                break;
            }
            unposted.pop();
        }
        !unposted.is_empty()
    }

    /// Gives libfabric a receive for a frame.
    pub fn post(&self, index: u32) -> Result<(), Errno> {
        let Some(slot) = self.frames.get(index as usize) else { return Err(-libc::EINVAL) };
        let iov = Iovec { iov_base: slot.bytes.get().cast(), iov_len: FRAME };
        let mut desc = [self.mr.as_ref().map_or(ptr::null_mut(), MemoryRegion::descriptor)];
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
        #[cfg(test)]
        if self.failing_posts.load(Ordering::Relaxed) > 0 {
            self.failing_posts.fetch_sub(1, Ordering::Relaxed);
            return Err(-libc::EAGAIN);
        }
        // SAFETY: the slot lives as long as this value, which closes the endpoint before it frees the slots.
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
        // SAFETY: this value opened the endpoint, and takes `own` only once. Readers of the queue hold the same lock and
        // check `own` first.
        let result = if self.ep.is_null() { 0 } else { unsafe { fi_close(self.ep.cast()) } };
        if result != 0 {
            tracing::warn!(result, "cannot close a datagram endpoint");
        }
        drop(cq);
    }

    /// The wait descriptor of its own queue.
    pub fn wait(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open until the queue is closed. A stale number reaches only epoll, which refuses it.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Takes one completion of its own queue: the index of the frame, and its length or error.
    pub fn take_one(&self) -> Option<(u32, Result<usize, Errno>)> {
        let own = self.own.lock();
        let cq = own.as_ref().filter(|own| !own.cq.is_null())?.cq;
        let mut entry = MaybeUninit::<fi_cq_tagged_entry>::uninit();
        // SAFETY: `own` is locked, so the queue is open; there is room for one entry of its format. Contexts in it are those
        // of this port's frames, which live as long as the port.
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
