//! An open interface adapter, and its listeners.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::channel::Channel;
use super::inner::{Inner, borrow};
use super::memory::{Memory, Registration};
use super::object::{Object, call, faulty, open, sentence};
use super::queue::Queue;
use super::srq::Srq;
use super::tables::Tables;
use super::window::Window;
use crate::abi::{Access, Block, ChannelAttr, DeviceAttr, Event, Keys, RejectReason, SrqAttr, Status};
use crate::ops::Message;
use crate::provider::Failure;

/// An open interface adapter. Cheap to clone; the last clone closes it.
#[derive(Clone)]
pub struct Device(pub(super) Arc<Inner>);

impl Device {
    pub(super) fn open(tables: Tables, object: crate::ops::Ctx) -> Result<Device, Failure> {
        let object = Object { ctx: object, close: tables.device.close };
        // SAFETY: `object` is the plugin's device, just opened; `out` takes the answer.
        let attr = call(DeviceAttr::default(), |out, _| unsafe { (tables.device.attr)(object.ctx, out) })?;
        if attr.max_private_data as usize > crate::MAX_PRIVATE_DATA {
            let most = attr.max_private_data;
            return Err(faulty(format!("attribute max_private_data is {most}, more than 512")));
        }
        if attr.max_segments == 0 {
            return Err(faulty("attribute max_segments is 0".into()));
        }
        // SAFETY: `object` is the plugin's device, just opened.
        check_fd("the device's", unsafe { (tables.device.event_fd)(object.ctx) })?;
        Ok(Device(Arc::new(Inner { object, tables, attr, overran: AtomicBool::new(false) })))
    }

    /// What it can do.
    pub fn attr(&self) -> &DeviceAttr {
        &self.0.attr
    }

    /// Opens a queue.
    pub fn open_queue(&self, depth: u32) -> Result<Queue, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `out` and `m` take the answers.
        let ctx = open("queue", |out, m| unsafe { (ops.open_queue)(self.0.object.ctx, depth, out, m) })?;
        let queue = Queue::new(self.0.clone(), ctx);
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
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever. The arguments
        // keep the queues open, which are of this device.
        let ctx = open("channel", |out, m| unsafe {
            (ops.open_channel)(self.0.object.ctx, attr, ctx_of(send), ctx_of(recv), srq_ctx, out, m)
        })?;
        Ok(Channel::new(self.0.clone(), ctx, [send.cloned(), recv.cloned()], srq.cloned()))
    }

    /// Opens a shared receive queue.
    pub fn open_srq(&self, attr: &SrqAttr) -> Result<Srq, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `out` and `m` take the answers.
        let ctx = open("shared receive queue", |out, m| unsafe {
            (ops.open_srq)(self.0.object.ctx, attr, out, m)
        })?;
        Ok(Srq::new(self.0.clone(), ctx))
    }

    /// Opens a memory window.
    pub fn open_window(&self, domain: u32) -> Result<Window, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `out` and `m` take the answers.
        let id = call(0, |out, m| unsafe { (ops.open_window)(self.0.object.ctx, domain, out, m) })?;
        Ok(Window::new(self.0.clone(), id))
    }

    pub(super) fn close_window(&self, window: u64) -> Status {
        self.0.close_window(window)
    }

    /// Listens.
    pub fn listen(&self, port: u64, user: u64) -> Result<Listener, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `out` and `m` take the answers.
        let ctx = open("listener", |out, m| unsafe { (ops.listen)(self.0.object.ctx, port, user, out, m) })?;
        let object = Object { ctx, close: self.0.tables.listener.close };
        Ok(Listener { object, device: self.0.clone() })
    }

    /// Registers memory.
    pub fn register(&self, memory: Memory, access: Access, domain: u32) -> Result<Registration, Failure> {
        let (ops, ctx) = (self.0.tables.device, self.0.object.ctx);
        let (addr, len) = (memory.addr(), memory.len());
        let keys = match memory.dmabuf() {
            // SAFETY: `self` keeps the plugin's device open; the tables live for ever. Whoever
            // made the `Memory` promised that the range may be accessed.
            None => call(Keys::default(), |out: *mut Keys, m: *mut Message| unsafe {
                (ops.register)(ctx, addr, len, access, domain, out, m)
            })?,
            // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `memory`
            // keeps the descriptor open.
            Some((fd, offset)) => call(Keys::default(), |out: *mut Keys, m: *mut Message| unsafe {
                (ops.register_dmabuf)(ctx, fd.as_raw_fd(), offset, len, addr, access, domain, out, m)
            })?,
        };
        Ok(Registration::new(self.0.clone(), memory, access, domain, keys))
    }

    pub(super) fn deregister(&self, keys: Keys) -> Status {
        self.0.deregister(keys)
    }

    /// Allocates memory that peers reach in the fastest way.
    pub fn alloc(&self, len: u64) -> Result<Memory, Failure> {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `out` and `m` take the answers.
        let block = call(Block::default(), |out, m| unsafe { (ops.alloc)(self.0.object.ctx, len, out, m) })?;
        if block.addr == 0 || block.addr % 4096 != 0 || block.len < len {
            let Block { addr, len: given, .. } = block;
            return Err(faulty(format!("asked for {len} bytes, it allocated {given} at {addr:#x}")));
        }
        Ok(Memory::block(self.0.clone(), block, len))
    }

    pub(super) fn free(&self, block: Block) -> Status {
        self.0.free(block)
    }

    /// Refuses a connection request.
    pub fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `data` outlives the call.
        unsafe { (ops.reject)(self.0.object.ctx, request, reason, data.as_ptr(), data.len()) }
    }

    /// Takes events.
    pub fn poll_events(&self, out: &mut [Event]) -> usize {
        let ops = self.0.tables.device;
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever. All of `out` is
        // initialised, so what the plugin leaves alone is a value, too.
        let n = unsafe { (ops.poll_events)(self.0.object.ctx, out.as_mut_ptr(), out.len()) };
        if n > out.len() { self.0.overran("events", n, out.len()) } else { n }
    }

    /// Readable when [`Device::poll_events`] has something to do.
    pub fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever.
        borrow(unsafe { (self.0.tables.device.event_fd)(self.0.object.ctx) })
    }

    /// What the device is made of, for people.
    pub fn describe(&self) -> String {
        // SAFETY: `self` keeps the plugin's device open; the tables live for ever; `m` has room for the sentence.
        sentence(|m| unsafe { (self.0.tables.device.describe)(self.0.object.ctx, m) })
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Device").field("attr", &self.0.attr).finish_non_exhaustive()
    }
}

/// Fails unless a provider's descriptor is open, or -1 for none.
fn check_fd(whose: &str, fd: RawFd) -> Result<(), Failure> {
    // SAFETY: the call reads the flags of a descriptor, or fails on a number that is none.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(faulty(format!("{whose} descriptor is {fd}, which is not open: {error}")))
}

/// A port being listened on; dropping it stops that.
pub struct Listener {
    object: Object,
    device: Arc<Inner>,
}

impl Listener {
    /// The port.
    pub fn port(&self) -> u64 {
        // SAFETY: `object` keeps the plugin's listener open.
        unsafe { (self.device.tables.listener.port)(self.object.ctx) }
    }
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listener").field("port", &self.port()).finish()
    }
}
