//! The calls of the engine.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{
    Access, Block, ChannelAttr, Device, DeviceAttr, Event, Failure, Keys, RejectReason, SrqAttr, Status,
};

use crate::abi::channel::ShmChannel;
use crate::abi::queue::ShmQueue;
use crate::abi::srq::ShmSrq;
use crate::control::connection::Chan;
use crate::control::device::{
    CAPS, MAX_MESSAGE, MAX_QUEUES, MAX_READS, MAX_REQUESTS, MAX_SEGMENTS, MAX_SRQS, ShmDevice,
};
use crate::control::handshake::{self, MAX_DATA, Packet};
use crate::control::listener::ShmListener;
use crate::data::srq::{MAX_DEPTH, Shared};
use crate::memory::keys::MAX_REGIONS;
use crate::notify::ready_bitmap::SLOTS;

impl Device for ShmDevice {
    type Channel = ShmChannel;
    type Queue = ShmQueue;
    type Listener = ShmListener;
    type Srq = ShmSrq;

    fn attr(&self) -> DeviceAttr {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let room = files.unwrap_or(u64::MAX).saturating_sub(32).clamp(1, u32::MAX.into()) as u32;
        DeviceAttr {
            caps: CAPS,
            address: self.0.params.address.into(),
            max_channels: self.0.params.max_channels.min(room),
            max_queues: MAX_QUEUES.min(room),
            max_queue_depth: 1 << 20,
            max_regions: MAX_REGIONS as u32,
            max_requests_per_channel: MAX_REQUESTS,
            max_recvs_per_channel: MAX_REQUESTS,
            max_segments: MAX_SEGMENTS,
            max_read_segments: MAX_SEGMENTS,
            max_write_segments: MAX_SEGMENTS,
            max_reads_per_channel: MAX_READS,
            max_message: MAX_MESSAGE,
            max_rdma: MAX_MESSAGE,
            max_region: 1 << 47,
            max_private_data: MAX_DATA as u32,
            qos: 0,
            alignment: 64,
            max_srqs: MAX_SRQS,
            max_srq_depth: MAX_DEPTH,
            max_srq_segments: MAX_SEGMENTS,
            max_windows: MAX_REGIONS as u32,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<ShmQueue>, Failure> {
        self.0.check_fork()?;
        if depth > self.attr().max_queue_depth {
            return Err(Failure::new(
                Status::INVALID,
                format!("a queue for {depth} completions is too deep"),
            ));
        }
        if self.0.queues.fetch_add(1, Ordering::Relaxed) >= MAX_QUEUES {
            self.0.queue_closed();
            let message = format!("there are {MAX_QUEUES} queues, the most this device has");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let id = self.0.new_token();
        match ShmQueue::new(self.0.clone(), id) {
            Ok(queue) => Ok(Arc::new(queue)),
            Err(error) => {
                self.0.queue_closed();
                Err(Failure::os("a socket for a queue", &error))
            }
        }
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<ShmQueue>>,
        recv: Option<&Arc<ShmQueue>>,
    ) -> Result<Arc<ShmChannel>, Failure> {
        self.new_channel(attr, send, recv, None)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<ShmQueue>>,
        recv: Option<&Arc<ShmQueue>>,
        srq: &Arc<ShmSrq>,
    ) -> Result<Arc<ShmChannel>, Failure> {
        self.new_channel(attr, send, recv, Some(srq.shared.clone()))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<ShmSrq>, Failure> {
        self.0.check_fork()?;
        if attr.depth > MAX_DEPTH || attr.max_segments > MAX_SEGMENTS {
            let message = format!(
                "a shared queue of {} receives of {} segments; {MAX_DEPTH} of {MAX_SEGMENTS} are the most",
                attr.depth, attr.max_segments
            );
            return Err(Failure::new(Status::INVALID, message));
        }
        if self.0.srqs.fetch_add(1, Ordering::Relaxed) >= MAX_SRQS {
            self.0.srq_closed();
            let message = format!("there are {MAX_SRQS} shared receive queues, the most this device has");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        ShmSrq::new(&self.0, attr).map(Arc::new).inspect_err(|_| self.0.srq_closed())
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.0.check_fork()?;
        self.0.keys.open_window(domain)
    }

    fn close_window(&self, window: u64) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        if !self.0.keys.close_window(window) {
            return Status::INVALID;
        }
        self.0.wait_for_peers();
        Status::OK
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<ShmListener>, Failure> {
        self.0.check_fork()?;
        ShmListener::new(&self.0, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.0.check_fork()?;
        self.0.keys.register(addr, len, access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        if !self.0.keys.invalidate(keys) {
            return Status::INVALID;
        }
        if keys.rkey != 0 && !self.0.wait_for_peers() {
            tracing::warn!("a stopped peer may still write to memory whose registration ended; it is kept");
            return Status::IO;
        }
        Status::OK
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.0.check_fork()?;
        self.0.keys.alloc(len, self.0.params.hugepages)
    }

    fn free(&self, block: Block) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        if !self.0.keys.free(block) {
            return Status::INVALID;
        }
        self.0.unshare(block.handle);
        Status::OK
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        if !self.0.owner.here() {
            return Status::FORKED;
        }
        if data.len() > MAX_DATA {
            return Status::INVALID;
        }
        let Some(incoming) = self.0.take_request(request) else { return Status::GONE };
        if incoming.registered {
            self.0.forget(request, incoming.socket.as_fd());
        }
        let packet = Packet::Reject { consumer: reason == RejectReason::CONSUMER, data: data.to_vec() };
        match handshake::send(&incoming.socket, &packet, &[]) {
            Ok(()) if incoming.asked.is_some() => Status::OK,
            _ => Status::GONE,
        }
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.0.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.0.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let params = &self.0.params;
        let rings = match params.ring_bytes {
            Some(ring) => format!("rings of {} KiB", ring / 1024),
            None => "rings as endpoints need them".to_owned(),
        };
        format!(
            "shared memory of this host, address {}, domain {:?}, {rings}, {} channels open; of each peer at most {} GiB are \
             mapped",
            params.address,
            params.domain,
            self.0.channels.load(Ordering::Relaxed),
            params.peer_map_bytes >> 30
        )
    }

    fn close(&self) {
        let sources = std::mem::take(&mut *self.0.sources());
        drop(sources);
        let events = std::mem::take(&mut self.0.events().waiting);
        drop(events);
        let unsettled = std::mem::take(&mut *self.0.unsettled());
        drop(unsettled);
        self.0.peers.clear();
        self.0.timer.clear();
    }
}

impl ShmDevice {
    fn new_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<ShmQueue>>,
        recv: Option<&Arc<ShmQueue>>,
        srq: Option<Arc<Shared>>,
    ) -> Result<Arc<ShmChannel>, Failure> {
        self.0.check_fork()?;
        let most = [
            (attr.max_requests, MAX_REQUESTS, "requests"),
            (attr.max_recvs, MAX_REQUESTS, "receives"),
            (attr.max_request_segments, MAX_SEGMENTS, "segments of a request"),
            (attr.max_recv_segments, MAX_SEGMENTS, "segments of a receive"),
        ];
        for (asked, most, what) in most {
            if asked > most {
                return Err(Failure::new(
                    Status::INVALID,
                    format!("{asked} {what} asked for, {most} are the most"),
                ));
            }
        }
        let count = self.0.channels.fetch_add(1, Ordering::Relaxed);
        // The limit of descriptors changes seldom, so that it is looked at when it seems to be reached.
        if count >= self.0.room.load(Ordering::Relaxed) {
            self.0.room.store(self.attr().max_channels, Ordering::Relaxed);
        }
        let limit = self.0.room.load(Ordering::Relaxed);
        if count >= limit {
            self.0.channel_closed();
            let message =
                format!("there are {limit} channels; see max_channels and the limit of descriptors");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        let port = self.0.next_port.fetch_add(1, Ordering::Relaxed);
        let queue = |queue: Option<&Arc<ShmQueue>>| queue.map(|queue| queue.queue.clone());
        let chan = Chan::new(self.0.clone(), attr, queue(send), queue(recv), srq, port);
        if !chan.attach() {
            chan.detach();
            self.0.channel_closed();
            let message = format!("the queue serves {SLOTS} channels, the most it can");
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        Ok(Arc::new(ShmChannel::new(chan)))
    }
}
