//! The trait of a layer, and the device that passes calls through one.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use dat_plugin::host::{Below, BelowChannel, BelowListener, BelowQueue, BelowSrq, Device as HostDevice};
use dat_plugin::{
    Access, AtomicRequest, BindRequest, Block, Channel, ChannelAttr, Completion, ConnectParam, Device,
    DeviceAttr, Event, Failure, Keys, Listener, Opcode, Queue, RecvRequest, RejectReason, Request, Srq,
    SrqAttr, Status,
};

use crate::by_user::{ByUser, UserMap, read, write};
pub use crate::calls::{Control, Direction, Kind, Moment, Outcome, Post};

/// A layer: what it does around the calls that go through it. Calls that it does not override are passed on.
///
/// Threads and time are those of the plugin interface: `post` and `poll` are hot.
pub trait Layer: Send + Sync + Sized + 'static {
    /// What it keeps for a channel.
    type Channel: Send + Sync + 'static;
    /// What it keeps for a queue.
    type Queue: Send + Sync + 'static;

    /// Its name, as in `plugins.toml`.
    const NAME: &'static str;

    /// A queue was opened below.
    fn queue(&self, below: &Arc<BelowQueue>) -> Result<Self::Queue, Failure>;

    /// A channel was opened below.
    fn channel(
        &self,
        attr: &ChannelAttr,
        below: &Arc<BelowChannel>,
        queues: [Option<&Arc<QueueOver<Self>>>; 2],
    ) -> Self::Channel;

    /// A channel is closed.
    fn closed(&self, channel: &Self::Channel) {
        let _ = channel;
    }

    /// A control call, with the channel it is of.
    fn control<T: Outcome>(
        &self,
        channel: Option<&Self::Channel>,
        call: &Control<'_>,
        next: impl FnOnce() -> T,
    ) -> T {
        let _ = (channel, call);
        next()
    }

    /// A post: to a channel, or without one to a shared receive queue.
    fn post<T: Outcome>(&self, channel: Option<&Self::Channel>, post: &Post, next: impl FnOnce() -> T) -> T {
        let _ = (channel, post);
        next()
    }

    /// A completion is handed to the engine, taken from below at `taken`.
    fn completed(
        &self,
        channel: &Self::Channel,
        direction: Direction,
        completion: &Completion,
        taken: &mut Moment,
    ) {
        let _ = (channel, direction, completion, taken);
    }

    /// An event is handed to the engine; `channel` is the one it is about, if it is about one.
    fn event(&self, channel: Option<&Self::Channel>, event: &Event) {
        let _ = (channel, event);
    }

    /// As [`Queue::poll`].
    fn poll(&self, queue: &QueueOver<Self>, out: &mut [Completion]) -> usize {
        let count = queue.below.poll(out);
        if count > 0 {
            let (feeders, mut taken) = (queue.feeders(), Moment::default());
            for completion in &out[..count] {
                if let Some((channel, direction)) = feeders.get(&completion.user) {
                    self.completed(channel, *direction, completion, &mut taken);
                }
            }
        }
        count
    }

    /// As [`Queue::arm`].
    fn arm(&self, queue: &QueueOver<Self>) -> bool {
        queue.below.arm()
    }

    /// As [`Queue::disarm`].
    fn disarm(&self, queue: &QueueOver<Self>) {
        queue.below.disarm();
    }

    /// As [`Queue::fd`].
    fn queue_fd(&self, queue: &QueueOver<Self>) -> RawFd {
        queue.below.fd()
    }

    /// As [`Device::poll_events`].
    fn poll_events(&self, over: &Over<Self>, out: &mut [Event]) -> usize {
        let count = over.below.poll_events(out);
        for event in &out[..count] {
            self.event(over.channel_of(event).as_deref(), event);
        }
        count
    }

    /// As [`Device::event_fd`].
    fn event_fd(&self, below: &Below) -> RawFd {
        below.event_fd()
    }
}

/// A device with a layer over it.
#[allow(unsafe_code, reason = "the only place of the crate that makes a `Below`")]
pub(crate) fn over<L: Layer>(device: HostDevice, layer: L) -> Result<HostDevice, Failure> {
    HostDevice::of(Arc::new(Over {
        layer: Arc::new(layer),
        // SAFETY: `Over` passes on what the host called it with, and nothing else reaches `below`.
        below: unsafe { Below::new(device) },
        channels: Arc::default(),
    }))
}

/// A device seen through layer `L`.
pub struct Over<L: Layer> {
    layer: Arc<L>,
    pub(crate) below: Below,
    /// By the number that comes back in events.
    channels: Arc<ByUser<Arc<L::Channel>>>,
}

/// A channel seen through layer `L`.
pub struct ChannelOver<L: Layer> {
    layer: Arc<L>,
    below: Arc<BelowChannel>,
    own: Arc<L::Channel>,
    attr: ChannelAttr,
    channels: Arc<ByUser<Arc<L::Channel>>>,
    queues: [Option<Arc<QueueOver<L>>>; 2],
}

/// A queue seen through layer `L`.
pub struct QueueOver<L: Layer> {
    layer: Arc<L>,
    pub(crate) below: Arc<BelowQueue>,
    pub(crate) own: L::Queue,
    feeders: ByUser<Feeder<L>>,
}

/// A listener seen through a layer, which does nothing with it.
pub struct ListenerOver(Arc<BelowListener>);

/// A shared receive queue seen through layer `L`.
pub struct SrqOver<L: Layer> {
    layer: Arc<L>,
    below: Arc<BelowSrq>,
}

/// The channel and direction of the completions that carry a number.
pub type Feeder<L> = (Arc<<L as Layer>::Channel>, Direction);

impl<L: Layer> Over<L> {
    /// The channel an event is about.
    pub(crate) fn channel_of(&self, event: &Event) -> Option<Arc<L::Channel>> {
        use dat_plugin::EventKind as K;
        let of_device = [K::REQUEST, K::DEVICE_LOST, K::SRQ_LIMIT, K::PORT_DOWN, K::PORT_UP];
        if of_device.contains(&event.kind) {
            return None;
        }
        read(&self.channels).get(&event.user).cloned()
    }

    fn over_channel(
        &self,
        attr: &ChannelAttr,
        queues: [Option<&Arc<QueueOver<L>>>; 2],
        open: impl FnOnce([Option<&Arc<BelowQueue>>; 2]) -> Result<Arc<BelowChannel>, Failure>,
    ) -> Result<Arc<ChannelOver<L>>, Failure> {
        let call = Control::OpenChannel { attr };
        let lower = queues.map(|queue| queue.map(|queue| &queue.below));
        let below = self.layer.control(None, &call, || open(lower))?;
        let own = Arc::new(self.layer.channel(attr, &below, queues));
        write(&self.channels).insert(attr.user, own.clone());
        let users = [(attr.send_user, Direction::Send), (attr.recv_user, Direction::Recv)];
        for (queue, (user, direction)) in queues.iter().zip(users) {
            if let Some(queue) = queue {
                write(&queue.feeders).insert(user, (own.clone(), direction));
            }
        }
        Ok(Arc::new(ChannelOver {
            layer: self.layer.clone(),
            below,
            own,
            attr: *attr,
            channels: self.channels.clone(),
            queues: queues.map(|queue| queue.cloned()),
        }))
    }
}

impl<L: Layer> Device for Over<L> {
    type Channel = ChannelOver<L>;
    type Queue = QueueOver<L>;
    type Listener = ListenerOver;
    type Srq = SrqOver<L>;

    fn attr(&self) -> DeviceAttr {
        self.below.attr()
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<QueueOver<L>>, Failure> {
        let call = Control::OpenQueue { depth };
        let below = self.layer.control(None, &call, || self.below.open_queue(depth))?;
        let own = self.layer.queue(&below)?;
        Ok(Arc::new(QueueOver { layer: self.layer.clone(), below, own, feeders: RwLock::default() }))
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<QueueOver<L>>>,
        recv: Option<&Arc<QueueOver<L>>>,
    ) -> Result<Arc<ChannelOver<L>>, Failure> {
        self.over_channel(attr, [send, recv], |[send, recv]| self.below.open_channel(attr, send, recv))
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<QueueOver<L>>>,
        recv: Option<&Arc<QueueOver<L>>>,
        srq: &Arc<SrqOver<L>>,
    ) -> Result<Arc<ChannelOver<L>>, Failure> {
        self.over_channel(attr, [send, recv], |[send, recv]| {
            self.below.open_channel_srq(attr, send, recv, &srq.below)
        })
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<SrqOver<L>>, Failure> {
        let below = self.layer.control(None, &Control::OpenSrq { attr }, || self.below.open_srq(attr))?;
        Ok(Arc::new(SrqOver { layer: self.layer.clone(), below }))
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<ListenerOver>, Failure> {
        let call = Control::Listen { port };
        let below = self.layer.control(None, &call, || self.below.listen(port, user))?;
        Ok(Arc::new(ListenerOver(below)))
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        let call = Control::Register { len, access, domain };
        self.layer.control(None, &call, || self.below.register(addr, len, access, domain))
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
        let call = Control::Register { len, access, domain };
        self.layer
            .control(None, &call, || self.below.register_dmabuf(dmabuf, offset, len, addr, access, domain))
    }

    fn deregister(&self, keys: Keys) -> Status {
        let call = Control::Deregister { lkey: keys.lkey };
        self.layer.control(None, &call, || self.below.deregister(keys))
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.layer.control(None, &Control::Alloc { len }, || self.below.alloc(len))
    }

    fn free(&self, block: Block) -> Status {
        self.layer.control(None, &Control::Free { block }, || self.below.free(block))
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.layer.control(None, &Control::OpenWindow { domain }, || self.below.open_window(domain))
    }

    fn close_window(&self, window: u64) -> Status {
        self.layer.control(None, &Control::CloseWindow { window }, || self.below.close_window(window))
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let call = Control::Reject { request, reason };
        self.layer.control(None, &call, || self.below.reject(request, reason, data))
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.layer.poll_events(self, out)
    }

    fn event_fd(&self) -> RawFd {
        self.layer.event_fd(&self.below)
    }

    fn describe(&self) -> String {
        format!("{} (through {})", self.below.describe(), L::NAME)
    }

    fn close(&self) {
        self.below.close();
    }
}

impl<L: Layer> ChannelOver<L> {
    fn control<T: Outcome>(&self, call: &Control<'_>, next: impl FnOnce() -> T) -> T {
        self.layer.control(Some(&self.own), call, next)
    }
}

impl<L: Layer> Channel for ChannelOver<L> {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let call = Control::Connect { peer: param.addr, port: param.port, private_data: param.data.len() };
        self.control(&call, || self.below.connect(param))
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let call = Control::Accept { request, private_data: data.len() };
        self.control(&call, || self.below.accept(request, data))
    }

    fn disconnect(&self) -> Status {
        self.control(&Control::Disconnect, || self.below.disconnect())
    }

    fn post(&self, request: &Request) -> Status {
        let post = Post {
            kind: Kind::Request(request.opcode),
            token: request.token,
            bytes: if request.opcode == Opcode::READ { request.remote_len.into() } else { request.total },
            segments: request.segments().len(),
            flags: request.flags.0,
        };
        self.layer.post(Some(&self.own), &post, || self.below.post(request))
    }

    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.layer.post(Some(&self.own), &recv(request), || self.below.post_recv(request))
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        let kind = Kind::Request(request.opcode);
        let post = Post { kind, token: request.token, bytes: 8, segments: 1, flags: request.flags.0 };
        self.layer.post(Some(&self.own), &post, || self.below.post_atomic(request))
    }

    fn settle(&self) {
        self.below.settle();
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        let bytes = request.range().map_or(0, |range| range.len().into());
        let segments = usize::from(bytes > 0);
        let post = Post { kind: Kind::Bind, token: request.token, bytes, segments, flags: request.flags.0 };
        self.layer.post(Some(&self.own), &post, || self.below.bind(request))
    }

    fn local_port(&self) -> u64 {
        self.below.local_port()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn close(&self) {
        self.control(&Control::CloseChannel, || {
            self.below.close();
            Status::OK
        });
        let forget = |map: &mut UserMap<Feeder<L>>, user| {
            if map.get(&user).is_some_and(|(channel, _)| Arc::ptr_eq(channel, &self.own)) {
                map.remove(&user);
            }
        };
        for (queue, user) in self.queues.iter().zip([self.attr.send_user, self.attr.recv_user]) {
            if let Some(queue) = queue {
                forget(&mut write(&queue.feeders), user);
            }
        }
        let mut channels = write(&self.channels);
        if channels.get(&self.attr.user).is_some_and(|channel| Arc::ptr_eq(channel, &self.own)) {
            channels.remove(&self.attr.user);
        }
        drop(channels);
        self.layer.closed(&self.own);
    }
}

fn recv(request: &RecvRequest) -> Post {
    let segments = request.segments().len();
    Post { kind: Kind::Recv, token: request.token, bytes: request.total, segments, flags: request.flags.0 }
}

impl<L: Layer> QueueOver<L> {
    /// Channels and directions that complete to this queue, by the number in their completions.
    pub(crate) fn feeders(&self) -> RwLockReadGuard<'_, UserMap<Feeder<L>>> {
        read(&self.feeders)
    }
}

impl<L: Layer> Queue for QueueOver<L> {
    fn poll(&self, out: &mut [Completion]) -> usize {
        self.layer.poll(self, out)
    }

    fn arm(&self) -> bool {
        self.layer.arm(self)
    }

    fn disarm(&self) {
        self.layer.disarm(self);
    }

    fn fd(&self) -> RawFd {
        self.layer.queue_fd(self)
    }

    fn close(&self) {
        self.below.close();
    }
}

impl<L: Layer> Srq for SrqOver<L> {
    fn post_recv(&self, request: &RecvRequest) -> Status {
        self.layer.post(None, &recv(request), || self.below.post_recv(request))
    }

    fn arm(&self, limit: u32) -> Status {
        self.layer.control(None, &Control::ArmSrq { limit }, || self.below.arm(limit))
    }

    fn resize(&self, depth: u32) -> Status {
        self.layer.control(None, &Control::ResizeSrq { depth }, || self.below.resize(depth))
    }

    fn close(&self) {
        self.below.close();
    }
}

impl Listener for ListenerOver {
    fn port(&self) -> u64 {
        self.0.port()
    }

    fn close(&self) {
        self.0.close();
    }
}
