//! The calls of the engine.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{
    Access, Caps, ChannelAttr, Device, DeviceAttr, Event, Failure, Keys, RejectReason, SockAddr, SrqAttr,
    Status,
};

use super::{CAPS, FabricDevice, MAX_QUEUES, MAX_READS, MAX_SRQS};
use crate::channel::{FabricChannel, check_attr};
use crate::endpoint::MAX_SEGMENTS;
use crate::info::version;
use crate::listener::FabricListener;
use crate::memory::MAX_REGIONS;
use crate::queue::{FabricQueue, MAX_DEPTH, Que};
use crate::srq::{self, FabricSrq, Shared};
use crate::wire::MAX_WINDOW;

impl Device for FabricDevice {
    type Channel = FabricChannel;
    type Queue = FabricQueue;
    type Listener = FabricListener;
    type Srq = FabricSrq;

    fn attr(&self) -> DeviceAttr {
        let dev = &self.0;
        let limits = &dev.fabric.limits;
        let segments = limits.iov.min(MAX_SEGMENTS) as u32;
        let caps = if limits.atomics { CAPS } else { Caps(CAPS.0 & !Caps::ATOMICS.0) };
        DeviceAttr {
            caps,
            address: dev.fabric.ip().map_or(SockAddr::UNSPECIFIED, SockAddr::from),
            max_channels: dev.max_channels(),
            max_queues: MAX_QUEUES,
            max_queue_depth: MAX_DEPTH,
            max_regions: MAX_REGIONS,
            max_requests_per_channel: MAX_WINDOW,
            max_recvs_per_channel: MAX_WINDOW,
            max_segments: segments,
            max_read_segments: segments,
            max_write_segments: segments,
            max_reads_per_channel: MAX_READS,
            max_message: dev.max_message(),
            max_rdma: dev.max_message(),
            max_region: 1 << 46,
            max_private_data: dev.max_private_data() as u32,
            qos: 0,
            alignment: 64,
            max_srqs: MAX_SRQS,
            max_srq_depth: srq::MAX_DEPTH,
            max_srq_segments: segments,
            max_windows: MAX_REGIONS,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<FabricQueue>, Failure> {
        self.0.check_fork()?;
        if self.0.open_queues.load(Ordering::Relaxed) >= MAX_QUEUES {
            let message = format!("there are {MAX_QUEUES} queues, the most this device has");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let queue = Que::new(&self.0, depth)?;
        self.0.open_queues.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(FabricQueue(queue)))
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<FabricQueue>>,
        recv: Option<&Arc<FabricQueue>>,
    ) -> Result<Arc<FabricChannel>, Failure> {
        self.new_channel(attr, send, recv, None)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<FabricQueue>>,
        recv: Option<&Arc<FabricQueue>>,
        srq: &Arc<FabricSrq>,
    ) -> Result<Arc<FabricChannel>, Failure> {
        self.new_channel(attr, send, recv, Some(srq.0.clone()))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<FabricSrq>, Failure> {
        let dev = &self.0;
        dev.check_fork()?;
        if dev.open_srqs.fetch_add(1, Ordering::Relaxed) >= MAX_SRQS {
            dev.srq_closed();
            let message = format!(
                "{}: there are {MAX_SRQS} shared receive queues, the most this device has",
                dev.params.ia_name
            );
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        Shared::new(dev, attr).map(|shared| Arc::new(FabricSrq(shared))).inspect_err(|_| dev.srq_closed())
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<FabricListener>, Failure> {
        self.0.check_fork()?;
        FabricListener::open(&self.0, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.0.check_fork()?;
        let dev = &self.0;
        dev.regions.register(&dev.fabric, dev.shared_endpoint(), (addr, len), access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        match self.0.regions.remove(keys) {
            None => Status::INVALID,
            Some(removed) => {
                self.0.end_registration(removed);
                Status::OK
            }
        }
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.0.check_fork()?;
        Ok(self.0.windows.open(domain))
    }

    fn close_window(&self, window: u64) -> Status {
        match self.0.windows.close(window) {
            None => Status::INVALID,
            Some(rkey) => {
                self.0.take_back(rkey);
                Status::OK
            }
        }
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        if data.len() > self.0.max_private_data() {
            return Status::INVALID;
        }
        self.0.reject(request, reason, data)
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.0.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.0.wait.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let dev = &self.0;
        let ip = dev.fabric.ip().map_or("no internet address".into(), |ip| ip.to_string());
        format!("{}, address {ip}, libfabric {}", dev.title(), version(dev.fabric.library))
    }

    fn close(&self) {
        if self.0.owner.here() {
            self.0.shut_down();
        }
    }
}

impl FabricDevice {
    fn new_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<FabricQueue>>,
        recv: Option<&Arc<FabricQueue>>,
        srq: Option<Arc<Shared>>,
    ) -> Result<Arc<FabricChannel>, Failure> {
        let dev = &self.0;
        dev.check_fork()?;
        check_attr(dev, attr, srq.is_some())?;
        let full = |what: &str| Failure::new(Status::NO_RESOURCE, format!("{}: {what}", dev.params.ia_name));
        if dev.open_chans.fetch_add(1, Ordering::Relaxed) >= dev.max_channels() {
            dev.open_chans.fetch_sub(1, Ordering::Relaxed);
            return Err(full("there are max_channels channels; close one first"));
        }
        let queue = |queue: Option<&Arc<FabricQueue>>| queue.map(|queue| queue.0.clone());
        let made = dev.new_chan(attr, [queue(send), queue(recv)], srq);
        if made.is_err() {
            dev.open_chans.fetch_sub(1, Ordering::Relaxed);
        }
        made.map(|chan| Arc::new(FabricChannel(chan)))
    }
}
