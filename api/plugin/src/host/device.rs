//! An open interface adapter, and its listeners.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::load::Tables;
use super::{Channel, Memory, Object, Queue, Registration, Srq, Window, call, faulty, open, sentence};
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
    /// It was told that the provider claims more than there was room for.
    overran: AtomicBool,
}

impl Device {
    pub(super) fn open(tables: Tables, object: crate::ops::Ctx) -> Result<Device, Failure> {
        let object = Object { ctx: object, close: tables.device.close };
        // SAFETY: the plugin's own object and a place for its answer.
        let attr = call(DeviceAttr::default(), |out, _| unsafe { (tables.device.attr)(object.ctx, out) })?;
        if attr.max_private_data as usize > crate::MAX_PRIVATE_DATA {
            let most = attr.max_private_data;
            return Err(faulty(format!("attribute max_private_data is {most}, more than 512")));
        }
        if attr.max_segments == 0 {
            return Err(faulty("attribute max_segments is 0".into()));
        }
        // SAFETY: the plugin's own object.
        check_fd("the device's", unsafe { (tables.device.event_fd)(object.ctx) })?;
        Ok(Device(Arc::new(Inner { object, tables, attr, overran: AtomicBool::new(false) })))
    }

    /// Whether calls go straight to `plugin`, with no layer between.
    pub fn is_directly_of(&self, plugin: &super::Plugin) -> bool {
        std::ptr::eq(self.0.tables.channel, plugin.tables().channel)
            && std::ptr::eq(self.0.tables.queue, plugin.tables().queue)
            && std::ptr::eq(self.0.tables.device, plugin.tables().device)
    }

    /// A provider gave more than there was room for, or claims so: nothing of it can be believed.
    #[cold]
    pub(super) fn overran(&self, what: &str, claimed: usize, room: usize) -> usize {
        if !self.0.overran.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "dat.plugin", claimed, room,
                "the provider breaks the plugin interface: it claims to have given more {what} than there was room \
                 for; none of them is taken, now and later"
            );
        }
        0
    }

    /// What it can do.
    pub fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    /// Opens a queue.
    pub fn open_queue(&self, depth: u32) -> Result<Queue, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: the plugin's own object, a place for its answer and one for its sentence.
        let ctx = open("queue", |out, m| unsafe { (ops.open_queue)(self.0.object.ctx, depth, out, m) })?;
        let queue = Queue::new(self.clone(), ctx);
        check_fd("a queue's", queue.raw_fd())?;
        Ok(queue)
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
        let attr = &attr.shown_to(self.0.attr.caps);
        let ctx_of = |queue: Option<&Arc<Queue>>| queue.map_or(null(), |queue| queue.ctx());
        let srq_ctx = srq.map_or(null(), |srq| srq.ctx());
        // SAFETY: as above; queues of the same device are alive in the arguments.
        let ctx = open("channel", |out, m| unsafe {
            (ops.open_channel)(self.0.object.ctx, attr, ctx_of(send), ctx_of(recv), srq_ctx, out, m)
        })?;
        Ok(Channel::new(self.clone(), ctx, [send.cloned(), recv.cloned()], srq.cloned()))
    }

    /// Opens a shared receive queue.
    pub fn open_srq(&self, attr: &SrqAttr) -> Result<Srq, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: as above.
        let ctx = open("shared receive queue", |out, m| unsafe {
            (ops.open_srq)(self.0.object.ctx, attr, out, m)
        })?;
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
        let ctx = open("listener", |out, m| unsafe { (ops.listen)(self.0.object.ctx, port, user, out, m) })?;
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
        if block.addr == 0 || block.addr % 4096 != 0 || block.len < len {
            let Block { addr, len: given, .. } = block;
            return Err(faulty(format!("asked for {len} bytes, it allocated {given} at {addr:#x}")));
        }
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
        if n > out.len() { self.overran("events", n, out.len()) } else { n }
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

/// Whether a provider's descriptor is one, or -1 for none.
fn check_fd(whose: &str, fd: RawFd) -> Result<(), Failure> {
    // SAFETY: reads the flags of whatever has this number, or fails.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(faulty(format!("{whose} descriptor is {fd}, which is not open: {error}")))
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
