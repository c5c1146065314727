//! An open interface adapter.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_kit::KeyTable;
use dat_plugin::{
    Access, Block, Caps, ChannelAttr, Device, DeviceAttr, Event, EventKind, Failure, Keys, RejectReason,
    SrqAttr, Status,
};

use crate::channel::LoopChannel;
use crate::listener::LoopListener;
use crate::memory::{Blocks, MAX_REGION};
use crate::network::{DeviceState, Network};
use crate::params::Params;
use crate::queue::{LoopQueue, MAX_DEPTH};
use crate::srq::LoopSrq;
use crate::wake::Wake;

/// What every device can do.
pub const CAPS: Caps = Caps(
    Caps::ALLOC.0
        | Caps::RECEIVER_WAITS.0
        | Caps::WRITE_ORDERED.0
        | Caps::ATOMICS.0
        | Caps::IMMEDIATE.0
        | Caps::SRQ.0
        | Caps::WINDOWS.0
        | Caps::SEND_INVALIDATE.0,
);
/// Private data at request, accept and reject, in bytes.
pub const MAX_PRIVATE_DATA: usize = 256;
/// Segments of one post.
pub const MAX_SEGMENTS: u32 = 16;
/// Requests or receives outstanding on one channel.
pub const MAX_POSTS: u32 = 8192;
/// Bytes of one message, write or read: a completion counts them in 32 bits.
pub const MAX_MESSAGE: u64 = 1 << 31;

/// An open interface adapter.
#[derive(Debug)]
pub struct LoopDevice {
    pub(crate) network: Arc<Network>,
    pub(crate) params: Arc<Params>,
    pub(crate) index: usize,
    event_fd: RawFd,
    blocks: Mutex<Blocks>,
}

impl LoopDevice {
    pub(crate) fn open(params: Params) -> Result<LoopDevice, Failure> {
        let network = Network::named(&params.domain);
        let wake = Wake::new(params.patience)
            .map_err(|error| Failure::os("event descriptor of a device", &error))?;
        let event_fd = wake.as_raw_fd();
        let index = network.lock().devices.insert(DeviceState {
            address: params.address,
            keys: KeyTable::new(params.max_regions),
            events: VecDeque::new(),
            wake,
            timer_runs: false,
            open_channels: 0,
        });
        Ok(LoopDevice { network, params: Arc::new(params), index, event_fd, blocks: Mutex::default() })
    }

    pub(crate) fn blocks(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for LoopDevice {
    type Channel = LoopChannel;
    type Queue = LoopQueue;
    type Listener = LoopListener;
    type Srq = LoopSrq;

    fn attr(&self) -> DeviceAttr {
        DeviceAttr {
            caps: CAPS,
            address: self.params.address.into(),
            max_channels: self.params.max_channels,
            max_queues: u32::MAX,
            max_queue_depth: MAX_DEPTH,
            max_regions: self.params.max_regions,
            max_requests_per_channel: MAX_POSTS,
            max_recvs_per_channel: MAX_POSTS,
            max_segments: MAX_SEGMENTS,
            max_read_segments: MAX_SEGMENTS,
            max_write_segments: MAX_SEGMENTS,
            max_reads_per_channel: MAX_POSTS,
            max_message: MAX_MESSAGE,
            max_rdma: MAX_MESSAGE,
            max_region: MAX_REGION,
            max_private_data: MAX_PRIVATE_DATA as u32,
            qos: self.params.qos,
            alignment: 64,
            max_srqs: u32::MAX,
            max_srq_depth: MAX_POSTS,
            max_srq_segments: MAX_SEGMENTS,
            max_windows: self.params.max_regions,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<LoopQueue>, Failure> {
        self.params.inject("open_queue")?;
        LoopQueue::new(depth).map(Arc::new)
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<LoopQueue>>,
        recv: Option<&Arc<LoopQueue>>,
    ) -> Result<Arc<LoopChannel>, Failure> {
        self.params.inject("open_channel")?;
        LoopChannel::new(self, attr, send, recv, None).map(Arc::new)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<LoopQueue>>,
        recv: Option<&Arc<LoopQueue>>,
        srq: &Arc<LoopSrq>,
    ) -> Result<Arc<LoopChannel>, Failure> {
        self.params.inject("open_channel")?;
        LoopChannel::new(self, attr, send, recv, Some(srq.index)).map(Arc::new)
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<LoopSrq>, Failure> {
        LoopSrq::new(self, attr).map(Arc::new)
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let mut state = self.network.lock();
        let window = state.devices.get_mut(self.index).and_then(|device| device.keys.open_window(domain));
        window.map(u64::from).ok_or_else(|| {
            let message = format!(
                "{}: the device has max_regions registrations and windows; end one first",
                self.params.ia_name
            );
            Failure::new(Status::NO_RESOURCE, message)
        })
    }

    fn close_window(&self, window: u64) -> Status {
        let mut state = self.network.lock();
        let keys = state.devices.get_mut(self.index).map(|device| &mut device.keys);
        match keys.is_some_and(|keys| u32::try_from(window).is_ok_and(|window| keys.close_window(window))) {
            true => Status::OK,
            false => Status::INVALID,
        }
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<LoopListener>, Failure> {
        self.params.inject("listen")?;
        self.params.inject_port(port)?;
        LoopListener::new(&self.network, self.index, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.register_memory(addr, len, access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        self.deregister_memory(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.alloc_memory(len)
    }

    fn free(&self, block: Block) -> Status {
        self.free_memory(block)
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let kind = match reason {
            RejectReason::CONSUMER => EventKind::REJECTED,
            RejectReason::PROVIDER => EventKind::REFUSED,
            _ => return Status::INVALID,
        };
        if data.len() > MAX_PRIVATE_DATA {
            return Status::INVALID;
        }
        let mut state = self.network.lock();
        if state.requests.get(&request).is_none_or(|asked| asked.at != self.index) {
            return Status::INVALID;
        }
        match state.requests.remove(&request).and_then(|asked| asked.from) {
            None => Status::GONE,
            from => {
                state.fail_connect(from, kind, data);
                Status::OK
            }
        }
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        let mut state = self.network.lock();
        state.check_waiting(self.index);
        let Some(device) = state.devices.get_mut(self.index) else { return 0 };
        let count = device.events.len().min(out.len());
        for (place, (_, event)) in out.iter_mut().zip(device.events.drain(..count)) {
            *place = event;
        }
        if device.events.is_empty() {
            device.wake.drain();
        }
        count
    }

    fn event_fd(&self) -> RawFd {
        self.event_fd
    }

    fn describe(&self) -> String {
        format!("in-process, network {:?}, address {}", self.network.name, self.params.address)
    }

    fn close(&self) {
        let mut state = self.network.lock();
        state.listeners.retain(|_, knock| knock.device != self.index);
        let unanswered = state.requests.extract_if(.., |_, asked| asked.at == self.index);
        let askers: Vec<_> = unanswered.map(|(_, asked)| asked.from).collect();
        for asker in askers {
            state.fail_connect(asker, EventKind::REFUSED, &[]);
        }
        state.devices.remove(self.index);
    }
}
