//! An open interface adapter, and its listeners.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null;
use std::sync::Arc;

use super::load::Tables;
use super::{Channel, Memory, Object, Queue, Registration, Srq, Window, call, sentence};
use crate::ops::Message;
use crate::provider::Failure;
use crate::wire::{Access, Block, ChannelAttr, DeviceAttr, Event, Keys, RejectReason, SrqAttr, Status};

/// An open interface adapter. Cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Device(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) object: Object,
    pub(super) tables: Tables,
    attr: DeviceAttr,
}

impl Device {
    pub(super) fn open(tables: Tables, object: crate::ops::Ctx) -> Result<Device, Failure> {
        let object = Object { ctx: object, close: tables.device.close };
        // SAFETY: the plugin's own object and a place for its answer.
        let attr = call(DeviceAttr::default(), |out, _| unsafe { (tables.device.attr)(object.ctx, out) })?;
        if attr.max_private_data as usize > crate::MAX_PRIVATE_DATA || attr.max_segments == 0 {
            let message =
                "the provider's attributes make no sense: max_private_data above 512, or no segments";
            return Err(Failure::new(Status::INVALID, message));
        }
        Ok(Device(Arc::new(Inner { object, tables, attr })))
    }

    /// What it can do.
    pub fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    /// Opens a queue.
    pub fn open_queue(&self, depth: u32) -> Result<Queue, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: the plugin's own object, a place for its answer and one for its sentence.
        let ctx = call(null(), |out, m| unsafe { (ops.open_queue)(self.0.object.ctx, depth, out, m) })?;
        Ok(Queue::new(self.clone(), ctx))
    }

    /// Opens a channel, with receives of its own or out of `srq`.
    pub fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<Queue>>,
        recv: Option<&Arc<Queue>>,
        srq: Option<&Arc<Srq>>,
    ) -> Result<Channel, Failure> {
        let ops = self.0.tables.device;
        let ctx_of = |queue: Option<&Arc<Queue>>| queue.map_or(null(), |queue| queue.ctx());
        let srq_ctx = srq.map_or(null(), |srq| srq.ctx());
        // SAFETY: as above; queues of the same device are alive in the arguments.
        let ctx = call(null(), |out, m| unsafe {
            (ops.open_channel)(self.0.object.ctx, attr, ctx_of(send), ctx_of(recv), srq_ctx, out, m)
        })?;
        Ok(Channel::new(self.clone(), ctx, [send.cloned(), recv.cloned()], srq.cloned()))
    }

    /// Opens a shared receive queue.
    pub fn open_srq(&self, attr: &SrqAttr) -> Result<Srq, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: as above.
        let ctx = call(null(), |out, m| unsafe { (ops.open_srq)(self.0.object.ctx, attr, out, m) })?;
        Ok(Srq::new(self.clone(), ctx))
    }

    /// Opens a memory window.
    pub fn open_window(&self, domain: u32) -> Result<Window, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: as above.
        let id = call(0, |out, m| unsafe { (ops.open_window)(self.0.object.ctx, domain, out, m) })?;
        Ok(Window::new(self.clone(), id))
    }

    pub(super) fn close_window(&self, window: u64) -> Status {
        // SAFETY: a window the plugin gave out, once.
        unsafe { (self.0.tables.device.close_window)(self.0.object.ctx, window) }
    }

    /// Listens.
    pub fn listen(&self, port: u64, user: u64) -> Result<Listener, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: as above.
        let ctx = call(null(), |out, m| unsafe { (ops.listen)(self.0.object.ctx, port, user, out, m) })?;
        let object = Object { ctx, close: self.0.tables.listener.close };
        Ok(Listener { object, device: self.clone() })
    }

    /// Registers memory.
    pub fn register(&self, memory: Memory, access: Access, domain: u32) -> Result<Registration, Failure> {
        let (ops, ctx) = (self.0.tables.device, self.0.object.ctx);
        let (addr, len) = (memory.addr(), memory.len());
        let keys = match memory.dmabuf() {
            // SAFETY: as above; `Memory` carries the promise that the range may be accessed.
            None => call(Keys::default(), |out: *mut Keys, m: *mut Message| unsafe {
                (ops.register)(ctx, addr, len, access, domain, out, m)
            })?,
            // SAFETY: as above; `memory` keeps the descriptor open.
            Some((fd, offset)) => call(Keys::default(), |out: *mut Keys, m: *mut Message| unsafe {
                (ops.register_dmabuf)(ctx, fd.as_raw_fd(), offset, len, addr, access, domain, out, m)
            })?,
        };
        Ok(Registration::new(self.clone(), memory, access, domain, keys))
    }

    pub(super) fn deregister(&self, keys: Keys) -> Status {
        // SAFETY: keys the plugin gave out, once.
        unsafe { (self.0.tables.device.deregister)(self.0.object.ctx, keys) }
    }

    /// Allocates memory that peers reach in the fastest way.
    pub fn alloc(&self, len: u64) -> Result<Memory, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: as above.
        let block = call(Block::default(), |out, m| unsafe { (ops.alloc)(self.0.object.ctx, len, out, m) })?;
        Ok(Memory::block(self.clone(), block))
    }

    pub(super) fn free(&self, block: Block) -> Status {
        // SAFETY: a block the plugin gave out, once; every registration in it keeps it alive.
        unsafe { (self.0.tables.device.free)(self.0.object.ctx, block) }
    }

    /// Refuses a connection request.
    pub fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let ops = self.0.tables.device;
        // SAFETY: the plugin's own object; the bytes live for the call.
        unsafe { (ops.reject)(self.0.object.ctx, request, reason, data.as_ptr(), data.len()) }
    }

    /// Takes events.
    pub fn poll_events(&self, out: &mut [Event]) -> usize {
        let ops = self.0.tables.device;
        // SAFETY: initialised places for the plugin's answers.
        let n = unsafe { (ops.poll_events)(self.0.object.ctx, out.as_mut_ptr(), out.len()) };
        n.min(out.len())
    }

    /// Readable when [`Device::poll_events`] has something to do.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the plugin's own object.
        borrow(unsafe { (self.0.tables.device.event_fd)(self.0.object.ctx) })
    }

    /// What the device is made of, for people.
    pub fn describe(&self) -> String {
        // SAFETY: the plugin's own object and a place for its sentence.
        sentence(|m| unsafe { (self.0.tables.device.describe)(self.0.object.ctx, m) })
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("attr", &self.0.attr).finish_non_exhaustive()
    }
}

/// A descriptor of a plugin's, borrowed for as long as its object lives.
pub(super) fn borrow<'a>(fd: RawFd) -> Option<BorrowedFd<'a>> {
    // SAFETY: the contract: the descriptor stays open as long as the object that gave it, which `'a` is tied to by
    // the signatures of the callers.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A port being listened on; dropping it stops that.
pub struct Listener {
    object: Object,
    device: Device,
}

impl Listener {
    /// The port.
    pub fn port(&self) -> u64 {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.listener.port)(self.object.ctx) }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("port", &self.port()).finish()
    }
}
