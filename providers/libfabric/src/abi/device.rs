//! The engine's calls on a device.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{
    Access, Caps, ChannelAttr, Config, Device, DeviceAttr, Event, Failure, Keys, RejectReason, SockAddr,
    SrqAttr, Status,
};

use crate::abi::channel::{FabricChannel, check_attr};
use crate::abi::listener::FabricListener;
use crate::abi::queue::FabricQueue;
use crate::abi::srq::FabricSrq;
use crate::channel::completion_queue::{MAX_DEPTH, QueueInner};
use crate::channel::shared_pool::{self, SharedPool};
use crate::device::DeviceInner;
use crate::fabric::info::version;
use crate::fabric::limits::MAX_SEGMENTS;
use crate::memory::MAX_REGIONS;
use crate::wire::count::MAX_WINDOW;

/// An open interface adapter.
pub struct FabricDevice(Arc<DeviceInner>);

/// The most that a device can do; a fabric may lack atomic operations.
pub const CAPS: Caps = Caps(
    Caps::RECEIVER_WAITS.0
        | Caps::INTER_PROCESS.0
        | Caps::INTER_HOST.0
        | Caps::IMMEDIATE.0
        | Caps::SRQ.0
        | Caps::WINDOWS.0
        | Caps::ATOMICS.0
        | Caps::CHANNEL_FLAGS.0,
);

const MAX_QUEUES: u32 = 65_536;
const MAX_SRQS: u32 = 4096;
const MAX_READS: u32 = 256;

impl FabricDevice {
    pub(crate) fn open(config: &Config) -> Result<FabricDevice, Failure> {
        DeviceInner::open(config).map(FabricDevice)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn inner(&self) -> &Arc<DeviceInner> {
        &self.0
    }
}

impl Device for FabricDevice {
    type Channel = FabricChannel;
    type Queue = FabricQueue;
    type Listener = FabricListener;
    type Srq = FabricSrq;

    fn attr(&self) -> DeviceAttr {
        let core = &self.0.core;
        let limits = &core.fabric.limits;
        let segments = limits.iov.min(MAX_SEGMENTS) as u32;
        let caps = if limits.atomics { CAPS } else { Caps(CAPS.0 & !Caps::ATOMICS.0) };
        DeviceAttr {
            caps,
            address: core.fabric.ip().map_or(SockAddr::UNSPECIFIED, SockAddr::from),
            max_channels: core.max_channels(),
            max_queues: MAX_QUEUES,
            max_queue_depth: MAX_DEPTH,
            max_regions: MAX_REGIONS,
            max_requests_per_channel: MAX_WINDOW,
            max_recvs_per_channel: MAX_WINDOW,
            max_segments: segments,
            max_read_segments: segments,
            max_write_segments: segments,
            max_reads_per_channel: MAX_READS,
            max_message: core.max_message(),
            max_rdma: core.max_message(),
            max_region: 1 << 46,
            max_private_data: core.max_private_data() as u32,
            qos: 0,
            alignment: 64,
            max_srqs: MAX_SRQS,
            max_srq_depth: shared_pool::MAX_DEPTH,
            max_srq_segments: segments,
            max_windows: MAX_REGIONS,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<FabricQueue>, Failure> {
        self.0.core.check_fork()?;
        if self.0.open_queues.load(Ordering::Relaxed) >= MAX_QUEUES {
            let message = format!("there are {MAX_QUEUES} queues, the most this device has");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let queue = QueueInner::new(&self.0.core, depth)?;
        self.0.open_queues.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(FabricQueue { device: self.0.clone(), queue }))
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
        self.new_channel(attr, send, recv, Some(srq.pool.clone()))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<FabricSrq>, Failure> {
        let core = &self.0.core;
        core.check_fork()?;
        if self.0.open_srqs.fetch_add(1, Ordering::Relaxed) >= MAX_SRQS {
            self.0.open_srqs.fetch_sub(1, Ordering::Relaxed);
            let message = format!(
                "{}: there are {MAX_SRQS} shared receive queues, the most this device has",
                core.params.ia_name
            );
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let made = SharedPool::new(core, attr);
        if made.is_err() {
            self.0.open_srqs.fetch_sub(1, Ordering::Relaxed);
        }
        made.map(|pool| Arc::new(FabricSrq { device: self.0.clone(), pool }))
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<FabricListener>, Failure> {
        self.0.core.check_fork()?;
        FabricListener::open(&self.0, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.0.core.check_fork()?;
        let core = &self.0.core;
        core.regions.register(&core.fabric, core.shared_endpoint(), (addr, len), access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        if !self.0.core.fork_guard.here() {
            return Status::FORKED;
        }
        if self.0.core.regions.is_held(keys.lkey) {
            // The host must not free memory whose registration does not end.
            tracing::error!(
                lkey = keys.lkey,
                "a closed channel's transfer still writes to this memory; it is kept"
            );
            return Status::IN_USE;
        }
        match self.0.core.regions.remove(keys) {
            None => Status::INVALID,
            Some(removed) => {
                self.0.end_registration(removed);
                Status::OK
            }
        }
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.0.core.check_fork()?;
        Ok(self.0.core.windows.open(domain))
    }

    fn close_window(&self, window: u64) -> Status {
        match self.0.core.windows.close(window) {
            None => Status::INVALID,
            Some(rkey) => {
                self.0.core.regions.revoke(rkey);
                Status::OK
            }
        }
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        if !self.0.core.fork_guard.here() {
            return Status::FORKED;
        }
        if data.len() > self.0.core.max_private_data() {
            return Status::INVALID;
        }
        self.0.reject(request, reason, data)
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.0.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.0.core.wake.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let core = &self.0.core;
        let ip = core.fabric.ip().map_or("no IP address".into(), |ip| ip.to_string());
        format!("{}, address {ip}, libfabric {}", core.title(), version(core.fabric.library))
    }

    fn close(&self) {
        if self.0.core.fork_guard.here() {
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
        srq: Option<Arc<SharedPool>>,
    ) -> Result<Arc<FabricChannel>, Failure> {
        let core = &self.0.core;
        core.check_fork()?;
        check_attr(core, attr, srq.is_some())?;
        let full = |what: &str| Failure::new(Status::NO_RESOURCE, format!("{}: {what}", core.params.ia_name));
        if self.0.open_channels.fetch_add(1, Ordering::Relaxed) >= core.max_channels() {
            self.0.open_channels.fetch_sub(1, Ordering::Relaxed);
            return Err(full("there are already max_channels channels; close one first"));
        }
        let queue = |queue: Option<&Arc<FabricQueue>>| queue.map(|queue| queue.queue.clone());
        let made = self.0.channels.create(attr, [queue(send), queue(recv)], srq);
        if made.is_err() {
            self.0.open_channels.fetch_sub(1, Ordering::Relaxed);
        }
        made.map(|channel| Arc::new(FabricChannel { device: self.0.clone(), channel }))
    }
}

#[cfg(test)]
mod tests {
    use dat_plugin::Channel as _;

    use super::*;
    use crate::channel::Phase;
    use crate::channel::ring::{Recv, RecvStage};
    use crate::endpoint::context::Seg;
    use crate::endpoint::link::Link;
    use crate::testing::{channel, device};

    /// libfabric does not hand a receive back. Its memory stays registered after the channel is closed, until it does.
    #[test]
    fn memory_of_a_transfer_that_does_not_end_stays_registered() {
        let Some(device) = device(&[("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")]) else { return };
        let inner = device.inner();
        let memory = [0u8; 64];
        let addr = memory.as_ptr() as u64;
        let keys = device.register(addr, 64, Access::LOCAL_WRITE, 1).expect("registered");
        let chan = channel(&device);
        {
            let mut st = chan.lock();
            let recv = Recv { len: 64, stage: RecvStage::Posted, ..Recv::default() };
            assert!(st.recvs.push(recv, &[Seg { addr, len: 64, lkey: keys.lkey }]));
            st.recvs.next = st.recvs.tail;
            st.inflight = 1;
            st.phase = Phase::Connected;
            let ep = inner.core.shared_endpoint();
            st.link = Some(Link { ep, dest: 0, datagrams: true, framed: false, tag_out: 1, tag_in: 2 });
        }
        FabricChannel { device: inner.clone(), channel: chan.clone() }.close();
        assert_eq!(device.deregister(keys), Status::IN_USE, "libfabric may still write to it");
        inner.progress.drop_closed_channels();
        assert_eq!(device.deregister(keys), Status::IN_USE);
        chan.lock().inflight = 0;
        inner.progress.drop_closed_channels();
        assert_eq!(device.deregister(keys), Status::OK, "the transfer ended");
    }
}
