//! Layers between the engine and a provider: an open device seen as a provider's own ([`Below`]), and a provider's
//! device made an open one ([`Device::of`]). What lies between the two wraps the tables of a plugin, and neither the
//! plugin nor the engine knows.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr::null;
use std::sync::Arc;

use super::device::{Device, Listener};
use super::object::{Object, call, open, sentence};
use super::queue::Queue;
use super::tables::Tables;
use crate::abi::{
    Access, AtomicRequest, BindRequest, Block, ChannelAttr, Completion, DeviceAttr, Event, Keys, RecvRequest,
    RejectReason, Request, SrqAttr, Status,
};
use crate::export::{Export, hand_out};
use crate::ops::{Ctx, RawConnect};
use crate::provider::{self, Config, ConnectParam, Failure, Probe, Provider, ProviderInfo};

/// An open device, with the methods of a provider's. Everything is passed on as it comes.
#[derive(Clone, Debug)]
pub struct Below(Device);

/// A channel of [`Below`]; closed on drop.
pub struct BelowChannel {
    object: Object,
    // Dropped after the object: the plugin may use them until the channel is closed.
    device: Device,
    _queues: [Option<Arc<BelowQueue>>; 2],
    _srq: Option<Arc<BelowSrq>>,
}

/// A queue of [`Below`]; closed on drop.
#[derive(Debug)]
pub struct BelowQueue(Queue);

/// A listener of [`Below`]; closed on drop.
#[derive(Debug)]
pub struct BelowListener(Listener);

/// A shared receive queue of [`Below`]; closed on drop.
pub struct BelowSrq {
    object: Object,
    device: Device,
}

impl Device {
    /// A device that is implemented in this process, as the engine sees one of a plugin.
    pub fn of<D: provider::Device>(device: Arc<D>) -> Result<Device, Failure> {
        Device::open(Tables::of_module(&Export::<Made<D>>::module()), hand_out(device))
    }
}

impl Below {
    /// What is below a layer.
    ///
    /// ```compile_fail,E0133
    /// # fn example(device: dat_plugin::host::Device) {
    /// let below = dat_plugin::host::Below::new(device); // could register any address for peers to write to
    /// # }
    /// ```
    ///
    /// # Safety
    /// `register`, `register_dmabuf` and `post` of the result take plain addresses and keys, and believe them. They are
    /// called only with what the host gave the layer above in the same call: then the host has checked the range, and
    /// [`super::Memory`] keeps it.
    pub unsafe fn new(device: Device) -> Below {
        Below(device)
    }

    /// As [`provider::Device::event_fd`].
    pub fn borrowed_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.event_fd()
    }

    fn ctx(&self) -> Ctx {
        self.0.0.object.ctx
    }

    fn open_channel_over(
        &self,
        attr: &ChannelAttr,
        queues: [Option<&Arc<BelowQueue>>; 2],
        srq: Option<&Arc<BelowSrq>>,
    ) -> Result<Arc<BelowChannel>, Failure> {
        let ops = self.0.0.tables.device;
        let attr = &attr.shown_to(self.0.attr().caps);
        let [send, recv] = queues.map(|queue| queue.map_or(null(), |queue| queue.0.ctx()));
        let of_srq = srq.map_or(null(), |srq| srq.object.ctx);
        // SAFETY: the plugin's own objects, alive in the arguments; places for the answer and the sentence.
        let ctx = open("channel", |out, m| unsafe {
            (ops.open_channel)(self.ctx(), attr, send, recv, of_srq, out, m)
        })?;
        Ok(Arc::new(BelowChannel {
            object: Object { ctx, close: self.0.0.tables.channel.close },
            device: self.0.clone(),
            _queues: queues.map(|queue| queue.cloned()),
            _srq: srq.cloned(),
        }))
    }
}

impl BelowQueue {
    /// As [`provider::Queue::fd`].
    pub fn borrowed_fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }
}

impl provider::Device for Below {
    type Channel = BelowChannel;
    type Queue = BelowQueue;
    type Listener = BelowListener;
    type Srq = BelowSrq;

    fn attr(&self) -> DeviceAttr {
        *self.0.attr()
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<BelowQueue>, Failure> {
        self.0.open_queue(depth).map(|queue| Arc::new(BelowQueue(queue)))
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<BelowQueue>>,
        recv: Option<&Arc<BelowQueue>>,
    ) -> Result<Arc<BelowChannel>, Failure> {
        self.open_channel_over(attr, [send, recv], None)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<BelowQueue>>,
        recv: Option<&Arc<BelowQueue>>,
        srq: &Arc<BelowSrq>,
    ) -> Result<Arc<BelowChannel>, Failure> {
        self.open_channel_over(attr, [send, recv], Some(srq))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<BelowSrq>, Failure> {
        let ops = self.0.0.tables.device;
        // SAFETY: the plugin's own object, places for the answer and the sentence.
        let ctx = open("shared receive queue", |out, m| unsafe { (ops.open_srq)(self.ctx(), attr, out, m) })?;
        let object = Object { ctx, close: self.0.0.tables.srq.close };
        Ok(Arc::new(BelowSrq { object, device: self.0.clone() }))
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<BelowListener>, Failure> {
        self.0.listen(port, user).map(|listener| Arc::new(BelowListener(listener)))
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        let ops = self.0.0.tables.device;
        // SAFETY: the plugin's own object; the range is what a layer was asked to register, by a caller who made the
        // promise of `Memory`.
        call(Keys::default(), |out, m| unsafe {
            (ops.register)(self.ctx(), addr, len, access, domain, out, m)
        })
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        addr: u64,
        access: Access,
        domain: u32,
    ) -> Result<Keys, Failure> {
        let (ops, fd) = (self.0.0.tables.device, dmabuf.as_raw_fd());
        // SAFETY: as in `register`; the descriptor is borrowed for the call.
        call(Keys::default(), |out, m| unsafe {
            (ops.register_dmabuf)(self.ctx(), fd, offset, len, addr, access, domain, out, m)
        })
    }

    fn deregister(&self, keys: Keys) -> Status {
        self.0.deregister(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        let ops = self.0.0.tables.device;
        // SAFETY: the plugin's own object, places for the answer and the sentence.
        call(Block::default(), |out, m| unsafe { (ops.alloc)(self.ctx(), len, out, m) })
    }

    fn free(&self, block: Block) -> Status {
        self.0.free(block)
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let ops = self.0.0.tables.device;
        // SAFETY: the plugin's own object, places for the answer and the sentence.
        call(0, |out, m| unsafe { (ops.open_window)(self.ctx(), domain, out, m) })
    }

    fn close_window(&self, window: u64) -> Status {
        self.0.close_window(window)
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        self.0.reject(request, reason, data)
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.0.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.0.event_fd().map_or(-1, |fd| fd.as_raw_fd())
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn close(&self) {}
}

// In the next two blocks the SAFETY is the same: the plugin's own object, and requests as a layer was handed them by
// the host, whose segments live until the layer's own call returned.

impl provider::Channel for BelowChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let raw = RawConnect {
            addr: param.addr,
            port: param.port,
            data: param.data.as_ptr(),
            data_len: param.data.len() as u32,
            qos: param.qos,
        };
        // SAFETY: see above.
        call((), |_, m| unsafe { (self.device.0.tables.channel.connect)(self.object.ctx, &raw, m) })
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let ops = self.device.0.tables.channel;
        // SAFETY: see above.
        call((), |_, m| unsafe { (ops.accept)(self.object.ctx, request, data.as_ptr(), data.len(), m) })
    }

    fn disconnect(&self) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.disconnect)(self.object.ctx) }
    }

    fn post(&self, request: &Request) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.post)(self.object.ctx, request) }
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.post_recv)(self.object.ctx, request) }
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.post_atomic)(self.object.ctx, request) }
    }

    fn settle(&self) {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.settle)(self.object.ctx) }
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let mut rkey = 0;
        // SAFETY: see above, and a place for the answer.
        let status = unsafe { (self.device.0.tables.channel.bind)(self.object.ctx, request, &raw mut rkey) };
        if status.0 < 0 { Err(status) } else { Ok(rkey) }
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        let (ops, mut posted) = (self.device.0.tables.channel, 0);
        // SAFETY: see above, and a place for the answer.
        let status =
            unsafe { (ops.post_list)(self.object.ctx, requests.as_ptr(), requests.len(), &raw mut posted) };
        (posted.min(requests.len()), status)
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        let (ops, mut posted) = (self.device.0.tables.channel, 0);
        // SAFETY: see above, and a place for the answer.
        let status = unsafe {
            (ops.post_recv_list)(self.object.ctx, requests.as_ptr(), requests.len(), &raw mut posted)
        };
        (posted.min(requests.len()), status)
    }

    fn local_port(&self) -> u64 {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.channel.local_port)(self.object.ctx) }
    }

    fn describe(&self) -> String {
        // SAFETY: see above, and a place for the sentence.
        sentence(|m| unsafe { (self.device.0.tables.channel.describe)(self.object.ctx, m) })
    }

    fn close(&self) {}
}

impl provider::Srq for BelowSrq {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.srq.post_recv)(self.object.ctx, request) }
    }

    fn arm(&self, limit: u32) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.srq.arm)(self.object.ctx, limit) }
    }

    fn resize(&self, depth: u32) -> Status {
        // SAFETY: see above.
        unsafe { (self.device.0.tables.srq.resize)(self.object.ctx, depth) }
    }

    fn close(&self) {}
}

impl provider::Queue for BelowQueue {
    fn poll(&self, out: &mut [Completion]) -> usize {
        self.0.poll(out)
    }

    fn arm(&self) -> bool {
        self.0.arm()
    }

    fn disarm(&self) {
        self.0.disarm();
    }

    fn fd(&self) -> RawFd {
        self.0.fd().map_or(-1, |fd| fd.as_raw_fd())
    }

    fn close(&self) {}
}

impl provider::Listener for BelowListener {
    fn port(&self) -> u64 {
        self.0.port()
    }

    fn close(&self) {}
}

/// The provider of a device that was made in this process; it is never asked to open one.
pub(super) struct Made<D>(PhantomData<fn() -> D>);

impl<D: provider::Device> Provider for Made<D> {
    type Device = D;

    const INFO: ProviderInfo = ProviderInfo { name: "layer", version: "", description: "" };

    fn open(_config: &Config) -> Result<Arc<D>, Failure> {
        Err(Failure::new(Status::NOT_SUPPORTED, "a layer's device is made over another one, not opened"))
    }

    fn probe(_config: &Config) -> Vec<Probe> {
        Vec::new()
    }
}
