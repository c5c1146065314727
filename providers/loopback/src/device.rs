//! The interface adapter.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dat_kit::KeyTable;
use dat_plugin::{
    Access, Block, ChannelAttr, Device, DeviceAttr, Event, EventKind, Failure, Keys, RejectReason, SrqAttr,
    Status,
};

use crate::adapter::Adapter;
use crate::channel::LoopChannel;
use crate::limits::{CAPS, MAX_DEPTH, MAX_MESSAGE, MAX_POSTS, MAX_PRIVATE_DATA, MAX_REGION, MAX_SEGMENTS};
use crate::listener::LoopListener;
use crate::memory::Blocks;
use crate::network::{DeviceState, Network};
use crate::params::Params;
use crate::queue::LoopQueue;
use crate::srq::LoopSrq;
use crate::wake::Wake;

/// An open interface adapter.
#[derive(Debug)]
pub struct LoopDevice {
    adapter: Adapter,
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
        let adapter = Adapter { network, params: Arc::new(params), index };
        Ok(LoopDevice { adapter, event_fd, blocks: Mutex::default() })
    }

    fn blocks(&self) -> MutexGuard<'_, Blocks> {
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
            address: self.adapter.params.address.into(),
            max_channels: self.adapter.params.max_channels,
            max_queues: u32::MAX,
            max_queue_depth: MAX_DEPTH,
            max_regions: self.adapter.params.max_regions,
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
            qos: self.adapter.params.qos,
            alignment: 64,
            max_srqs: u32::MAX,
            max_srq_depth: MAX_POSTS,
            max_srq_segments: MAX_SEGMENTS,
            max_windows: self.adapter.params.max_regions,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<LoopQueue>, Failure> {
        self.adapter.params.inject("open_queue")?;
        LoopQueue::new(depth).map(Arc::new)
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<LoopQueue>>,
        recv: Option<&Arc<LoopQueue>>,
    ) -> Result<Arc<LoopChannel>, Failure> {
        self.adapter.params.inject("open_channel")?;
        LoopChannel::new(&self.adapter, attr, send, recv, None).map(Arc::new)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<LoopQueue>>,
        recv: Option<&Arc<LoopQueue>>,
        srq: &Arc<LoopSrq>,
    ) -> Result<Arc<LoopChannel>, Failure> {
        self.adapter.params.inject("open_channel")?;
        LoopChannel::new(&self.adapter, attr, send, recv, Some(srq.index)).map(Arc::new)
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<LoopSrq>, Failure> {
        LoopSrq::new(&self.adapter, attr).map(Arc::new)
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        let mut state = self.adapter.network.lock();
        let window =
            state.devices.get_mut(self.adapter.index).and_then(|device| device.keys.open_window(domain));
        window.map(u64::from).ok_or_else(|| {
            let message = format!(
                "{}: the device has max_regions registrations and windows; end one first",
                self.adapter.params.ia_name
            );
            Failure::new(Status::NO_RESOURCE, message)
        })
    }

    fn close_window(&self, window: u64) -> Status {
        let mut state = self.adapter.network.lock();
        let keys = state.devices.get_mut(self.adapter.index).map(|device| &mut device.keys);
        match keys.is_some_and(|keys| u32::try_from(window).is_ok_and(|window| keys.close_window(window))) {
            true => Status::OK,
            false => Status::INVALID,
        }
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<LoopListener>, Failure> {
        self.adapter.params.inject("listen")?;
        self.adapter.params.inject_port(port)?;
        LoopListener::new(&self.adapter.network, self.adapter.index, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.adapter.register_memory(addr, len, access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        self.adapter.deregister_memory(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.blocks().alloc(&self.adapter.params, len)
    }

    fn free(&self, block: Block) -> Status {
        self.blocks().free(block)
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
        let mut state = self.adapter.network.lock();
        if state.requests.get(&request).is_none_or(|asked| asked.at != self.adapter.index) {
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
        let mut state = self.adapter.network.lock();
        state.check_waiting(self.adapter.index);
        let Some(device) = state.devices.get_mut(self.adapter.index) else { return 0 };
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
        format!(
            "in-process, network {:?}, address {}",
            self.adapter.network.name, self.adapter.params.address
        )
    }

    fn close(&self) {
        let mut state = self.adapter.network.lock();
        state.listeners.retain(|_, listening| listening.device != self.adapter.index);
        let unanswered = state.requests.extract_if(.., |_, asked| asked.at == self.adapter.index);
        let askers: Vec<_> = unanswered.map(|(_, asked)| asked.from).collect();
        for asker in askers {
            state.fail_connect(asker, EventKind::REFUSED, &[]);
        }
        state.devices.remove(self.adapter.index);
    }
}
