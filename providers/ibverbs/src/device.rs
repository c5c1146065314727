//! The interface adapter: what all its objects share.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dat_kit::{EventFd, Timer};
use dat_plugin::{
    Access, Block, Caps, ChannelAttr, Config, Device, DeviceAttr, Event, Failure, Keys, RejectReason,
    SrqAttr, Status,
};
use rdma_sys::verbs::*;
use rustix::event::epoll;

use crate::channel::{Chan, IbChannel};
use crate::cm::{CmId, EventChannel};
use crate::connect::Request;
use crate::find::{self, cannot_open};
use crate::handles::{Context, never_blocks};
use crate::listener::{IbListener, Listening};
use crate::memory::Memory;
use crate::params::Params;
use crate::post::MAX_SEGMENTS;
use crate::private;
use crate::queue::{IbQueue, Que};
use crate::ring::MAX_WORK;
use crate::srq::{IbSrq, Shared};
use crate::work::Place;

/// An open interface adapter.
pub struct IbDevice(Arc<Dev>);

pub(crate) struct Dev {
    /// Bound to the device's address: hears when the device is taken away.
    pub(crate) anchor: Mutex<Option<CmId>>,
    sources: Mutex<HashMap<u64, Source>>,
    pub(crate) cm: Arc<EventChannel>,
    pub(crate) memory: Memory,
    pub(crate) context: Arc<Context>,
    pub(crate) params: Params,
    pub(crate) attr: ibv_device_attr,
    pub(crate) max_message: u64,
    link: &'static str,
    pub(crate) name: String,
    pub(crate) port: u8,
    pub(crate) address: SocketAddr,
    pub(crate) epoll: OwnedFd,
    pub(crate) bell: EventFd,
    pub(crate) timer: Timer,
    /// Events for the engine; those of a channel only as long as it is open.
    pub(crate) events: Mutex<VecDeque<(Option<Arc<Chan>>, Event)>>,
    /// Channels that met a failure, by token.
    pub(crate) faults: Mutex<Vec<u64>>,
    /// Channels the device has yet to give work back for.
    pub(crate) stopping: Mutex<Vec<Arc<Chan>>>,
    pub(crate) lost: AtomicBool,
    tokens: AtomicU64,
    channels: AtomicU32,
    queues: AtomicU32,
}

/// What the number of an event stands for.
pub(crate) enum Source {
    Listener(Listening),
    Request(Request),
    Channel(Arc<Chan>),
}

/// What the descriptors of the epoll set stand for.
pub(crate) const BELL: u64 = 0;
pub(crate) const TIMER: u64 = 1;
pub(crate) const CM: u64 = 2;
pub(crate) const ASYNC: u64 = 3;

/// How often channels are looked at for which the device has yet to give work back.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// The number of the anchor. Others count up from there.
pub(crate) const ANCHOR: u64 = 0;

impl IbDevice {
    pub(crate) fn open(config: &Config) -> Result<IbDevice, Failure> {
        let params = Params::parse(config)?;
        let named = |failure: Failure| {
            let message = format!("{}: {}", params.ia_name, failure.message);
            Failure::new(failure.status, message)
        };
        let lib = find::libraries().map_err(named)?;
        // For the locks of queues; a plugin has its own.
        dat_sync::prepare();
        if params.fork {
            // Has no effect once something was registered without it; then the program has seen to it, or never forks.
            // SAFETY: a plain call.
            unsafe { (lib.verbs.ibv_fork_init)() };
        }
        let found = find::find(lib, &params)?;
        let context = Context::open(lib, &found.device).map_err(|error| {
            let failure = cannot_open(&found.device, &error);
            named(Failure::new(failure.status, format!("{}: {}", found.device, failure.message)))
        })?;
        let os = |what: &'static str| move |error: std::io::Error| Failure::os(what, &error);
        let attr = context.attr().map_err(os("attributes of the device"))?;
        let port = context.port(found.port).map_err(os("attributes of the port"))?;
        never_blocks(context.async_fd()).map_err(os("the device's events"))?;
        let dev = Dev {
            anchor: Mutex::new(Some(found.anchor)),
            sources: Mutex::default(),
            cm: found.channel,
            memory: Memory::new(&context)?,
            attr,
            max_message: u64::from(port.max_msg_sz).min(1 << 31),
            link: if port.link_layer == IBV_LINK_LAYER_ETHERNET { "RoCE" } else { "InfiniBand" },
            name: found.device,
            port: found.port,
            address: found.address,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| os("epoll")(error.into()))?,
            bell: EventFd::new().map_err(os("eventfd"))?,
            timer: Timer::new().map_err(os("timerfd"))?,
            events: Mutex::default(),
            faults: Mutex::default(),
            stopping: Mutex::default(),
            lost: AtomicBool::new(false),
            tokens: AtomicU64::new(ANCHOR + 1),
            channels: AtomicU32::new(0),
            queues: AtomicU32::new(0),
            context,
            params,
        };
        // SAFETY: descriptors of objects that live as long as the device.
        let (cm, events) =
            unsafe { (BorrowedFd::borrow_raw(dev.cm.fd()), BorrowedFd::borrow_raw(dev.context.async_fd())) };
        for (fd, token) in [(dev.bell.as_fd(), BELL), (dev.timer.as_fd(), TIMER), (cm, CM), (events, ASYNC)] {
            epoll::add(&dev.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
                .map_err(|error| os("epoll")(error.into()))?;
        }
        Ok(IbDevice(Arc::new(dev)))
    }
}

impl Dev {
    pub(crate) fn forked(&self) -> bool {
        self.context.guard.forked()
    }

    pub(crate) fn check_fork(&self) -> Result<(), Failure> {
        if !self.forked() {
            return Ok(());
        }
        let message =
            "this process is a child made by fork from the one that opened the adapter; open it anew";
        Err(Failure::new(Status::FORKED, message))
    }

    pub(crate) fn new_token(&self) -> u64 {
        self.tokens.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn sources(&self) -> MutexGuard<'_, HashMap<u64, Source>> {
        lock(&self.sources)
    }

    pub(crate) fn add_channel(&self, token: u64, chan: &Arc<Chan>) {
        self.sources().insert(token, Source::Channel(chan.clone()));
    }

    pub(crate) fn remove_channel(&self, chan: &Chan) {
        let mut sources = self.sources();
        let gone = sources.remove(&chan.token);
        let accepted = chan.cm_token.get().and_then(|token| sources.remove(token));
        drop(sources);
        drop((gone, accepted));
        lock(&self.stopping).retain(|other| other.token != chan.token);
    }

    /// Takes a request; what RDMA CM reports of it goes to `chan` from now on.
    pub(crate) fn take_request(&self, token: u64, chan: &Arc<Chan>) -> Option<Request> {
        let mut sources = self.sources();
        let source = sources.get_mut(&token).filter(|source| matches!(source, Source::Request(_)))?;
        match std::mem::replace(source, Source::Channel(chan.clone())) {
            Source::Request(request) => Some(request),
            other => {
                *source = other;
                None
            }
        }
    }

    /// Hands an event to the engine.
    pub(crate) fn push_event(&self, chan: Option<&Arc<Chan>>, event: Event) {
        lock(&self.events).push_back((chan.cloned(), event));
        self.bell.signal();
    }

    pub(crate) fn to_finish(&self, token: u64) {
        lock(&self.faults).push(token);
        self.bell.signal();
    }

    /// Has the event thread look after a channel that stops.
    pub(crate) fn watch(&self, chan: &Arc<Chan>) {
        let mut stopping = lock(&self.stopping);
        if stopping.iter().all(|other| other.token != chan.token) {
            stopping.push(chan.clone());
        }
        drop(stopping);
        self.set_timer();
    }

    pub(crate) fn set_timer(&self) {
        if let Err(error) = self.timer.set(TICK) {
            tracing::error!(%error, "the timer");
        }
    }

    pub(crate) fn count_channel(&self) -> Result<(), Failure> {
        let most = self.device_attr().max_channels;
        if self.channels.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        self.channel_closed();
        let message = format!("{}: there are {most} channels; close one first", self.params.ia_name);
        Err(Failure::new(Status::NO_RESOURCE, message))
    }

    pub(crate) fn channel_closed(&self) {
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn queue_closed(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }

    /// What peers may do through a queue pair; the rest is decided by each registration.
    pub(crate) fn remote_rights(&self) -> u32 {
        let atomic = if self.has_atomics() { IBV_ACCESS_REMOTE_ATOMIC } else { 0 };
        (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | atomic) as u32
    }

    /// Reads a channel may have under way, each way.
    pub(crate) fn max_reads(&self) -> u8 {
        self.attr.max_qp_rd_atom.min(self.attr.max_qp_init_rd_atom).clamp(1, 254) as u8
    }

    fn has_atomics(&self) -> bool {
        self.attr.atomic_cap != IBV_ATOMIC_NONE
    }

    pub(crate) fn device_attr(&self) -> DeviceAttr {
        let attr = &self.attr;
        let params = &self.params;
        let count = |number: i32, most: u32| (number.max(0) as u32).min(most);
        let has = |flag: u32| attr.device_cap_flags & flag != 0;
        let mut caps = Caps::ALLOC | Caps::INTER_PROCESS | Caps::INTER_HOST | Caps::IMMEDIATE;
        for (there, cap) in [
            (params.rnr_retry == 7, Caps::RECEIVER_WAITS),
            (params.write_ordered, Caps::WRITE_ORDERED),
            (self.has_atomics(), Caps::ATOMICS),
            (attr.max_srq > 0, Caps::SRQ),
            (has(IBV_DEVICE_MEM_WINDOW) && attr.max_mw > 0, Caps::WINDOWS),
            (params.dmabuf && self.context.lib.verbs.ibv_reg_dmabuf_mr.is_some(), Caps::DMABUF),
        ] {
            if there {
                caps = caps | cap;
            }
        }
        let work = count(attr.max_qp_wr, MAX_WORK).saturating_sub(2).max(1);
        let segments = count(attr.max_sge, MAX_SEGMENTS as u32);
        DeviceAttr {
            caps,
            address: self.address.ip().into(),
            max_channels: count(attr.max_qp, params.max_channels).min(Place::MOST),
            max_queues: count(attr.max_cq, u32::MAX),
            max_queue_depth: count(attr.max_cqe, u32::MAX),
            max_regions: count(attr.max_mr, u32::MAX),
            max_requests_per_channel: work,
            max_recvs_per_channel: work,
            max_segments: segments,
            max_read_segments: count(attr.max_sge_rd, segments).max(1),
            max_write_segments: segments,
            max_reads_per_channel: self.max_reads().into(),
            max_message: self.max_message,
            max_rdma: self.max_message,
            max_region: attr.max_mr_size,
            max_private_data: params.style.limit() as u32,
            qos: 0,
            alignment: 64,
            max_srqs: count(attr.max_srq, u32::MAX),
            max_srq_depth: count(attr.max_srq_wr, MAX_WORK),
            max_srq_segments: count(attr.max_srq_sge, MAX_SEGMENTS as u32),
            max_windows: if caps.contains(Caps::WINDOWS) { count(attr.max_mw, u32::MAX) } else { 0 },
            ..DeviceAttr::default()
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Device for IbDevice {
    type Channel = IbChannel;
    type Queue = IbQueue;
    type Srq = IbSrq;
    type Listener = IbListener;

    fn attr(&self) -> DeviceAttr {
        self.0.device_attr()
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<IbQueue>, Failure> {
        self.0.check_fork()?;
        let que = Que::new(&self.0, depth)?;
        self.0.queues.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(IbQueue(que)))
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<IbQueue>>,
        recv: Option<&Arc<IbQueue>>,
    ) -> Result<Arc<IbChannel>, Failure> {
        self.0.check_fork()?;
        let chan = Chan::new(&self.0, attr, send.map(|queue| &queue.0), recv.map(|queue| &queue.0), None)?;
        Ok(Arc::new(IbChannel(chan)))
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<IbQueue>>,
        recv: Option<&Arc<IbQueue>>,
        srq: &Arc<IbSrq>,
    ) -> Result<Arc<IbChannel>, Failure> {
        self.0.check_fork()?;
        let (send, recv) = (send.map(|queue| &queue.0), recv.map(|queue| &queue.0));
        let chan = Chan::new(&self.0, attr, send, recv, Some(&srq.0))?;
        Ok(Arc::new(IbChannel(chan)))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<IbSrq>, Failure> {
        self.0.check_fork()?;
        Ok(Arc::new(IbSrq(Shared::new(&self.0, attr)?)))
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<IbListener>, Failure> {
        IbListener::new(&self.0, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.0.check_fork()?;
        self.0.memory.register(&self.0.params, addr, len, access, domain)
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
        self.0.check_fork()?;
        self.0.memory.register_dmabuf(&self.0.params, dmabuf, [offset, len, addr], access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        if self.0.forked() {
            return Status::OK;
        }
        self.0.memory.deregister(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.0.check_fork()?;
        self.0.memory.alloc(&self.0.params, len)
    }

    fn free(&self, block: Block) -> Status {
        self.0.memory.free(block)
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.0.check_fork()?;
        self.0.memory.open_window(domain)
    }

    fn close_window(&self, window: u64) -> Status {
        self.0.memory.close_window(window)
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let dev = &self.0;
        if dev.forked() {
            return Status::FORKED;
        }
        let by_consumer = match reason {
            RejectReason::CONSUMER => true,
            RejectReason::PROVIDER => false,
            _ => return Status::INVALID,
        };
        if data.len() > dev.params.style.limit() {
            return Status::INVALID;
        }
        let mut sources = dev.sources();
        if !matches!(sources.get(&request), Some(Source::Request(_))) {
            return Status::INVALID;
        }
        let taken = sources.remove(&request);
        drop(sources);
        let Some(Source::Request(Request { id, gone, .. })) = taken else { return Status::INVALID };
        if gone {
            return Status::GONE;
        }
        let data = if by_consumer { dev.params.style.wrap(data, private::REJECT) } else { Vec::new() };
        match id.reject(by_consumer, &data) {
            Ok(()) => Status::OK,
            Err(error) => {
                tracing::debug!(%error, "a reject came too late");
                Status::GONE
            }
        }
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.0.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.0.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let dev = &self.0;
        let firmware: String = dev
            .attr
            .fw_ver
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| char::from(*byte as u8))
            .collect();
        format!(
            "{} port {}, {}, address {}, firmware {firmware}, {}",
            dev.name,
            dev.port,
            dev.link,
            dev.address.ip(),
            crate::probe::locked_memory()
        )
    }

    fn close(&self) {
        let dev = &self.0;
        if dev.forked() {
            return;
        }
        let anchor = lock(&dev.anchor).take();
        let sources: Vec<Source> = dev.sources().drain().map(|(_, source)| source).collect();
        for source in sources {
            if let Source::Request(Request { id, gone: false, .. }) = source {
                // Refused by something else than the consumer, which never heard of it.
                let _ = id.reject(false, &[]);
            }
        }
        drop(anchor);
        lock(&dev.events).clear();
        lock(&dev.stopping).clear();
    }
}
