//! The interface adapter.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use dat_plugin::{
    Access, Block, ChannelAttr, Config, Device, DeviceAttr, Event, Failure, Keys, RejectReason, SrqAttr,
    Status,
};

use crate::abi::channel::IbChannel;
use crate::abi::listener::IbListener;
use crate::abi::queue::IbQueue;
use crate::abi::srq::IbSrq;
use crate::control::channel::ChannelInner;
use crate::control::events::DeviceInner;
use crate::control::sources::{Request, Source};
use crate::data::adapter::{Adapter, AdapterParts};
use crate::data::queue::QueueInner;
use crate::data::srq::SrqInner;
use crate::find::{self, cannot_open};
use crate::params::Params;
use crate::private_data;
use crate::sys::common::{locked_memory, never_blocks};
use crate::sys::context::Context;

/// An open interface adapter.
pub struct IbDevice(Arc<DeviceInner>);

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
            // Without effect once memory is registered without it: then the program called it, or never forks.
            // SAFETY: the function takes nothing and may be called at any time.
            unsafe { (lib.verbs.ibv_fork_init)() };
        }
        let found = find::find(lib, &params)?;
        let context = Context::open(lib, &found.device).map_err(|error| {
            let failure = cannot_open(&found.device, &error);
            named(Failure::new(failure.status, format!("{}: {}", found.device, failure.message)))
        })?;
        let os = |what: &'static str| move |error: std::io::Error| Failure::os(what, &error);
        let attr = context.attr().map_err(os("attributes of the device"))?;
        let port_attr = context.port(found.port).map_err(os("attributes of the port"))?;
        never_blocks(context.async_fd()).map_err(os("the device's events"))?;
        let adapter = Adapter::new(AdapterParts {
            cm: found.channel,
            context,
            params,
            attr,
            port_attr,
            name: found.device,
            port: found.port,
            address: found.address,
        })?;
        Ok(IbDevice(Arc::new(DeviceInner::new(adapter, found.anchor))))
    }

    fn new_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<IbQueue>>,
        recv: Option<&Arc<IbQueue>>,
        srq: Option<&Arc<SrqInner>>,
    ) -> Result<Arc<IbChannel>, Failure> {
        let queues = [send.map(|queue| &queue.0), recv.map(|queue| &queue.0)];
        let inner = ChannelInner::new(&self.0.adapter, attr, queues, srq)?;
        self.0.sources.add_channel(&inner);
        Ok(Arc::new(IbChannel { inner, device: self.0.clone() }))
    }
}

impl Device for IbDevice {
    type Channel = IbChannel;
    type Queue = IbQueue;
    type Srq = IbSrq;
    type Listener = IbListener;

    fn attr(&self) -> DeviceAttr {
        self.0.adapter.device_attr()
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<IbQueue>, Failure> {
        self.0.adapter.check_fork()?;
        QueueInner::new(&self.0.adapter, depth).map(|inner| Arc::new(IbQueue(inner)))
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<IbQueue>>,
        recv: Option<&Arc<IbQueue>>,
    ) -> Result<Arc<IbChannel>, Failure> {
        self.0.adapter.check_fork()?;
        self.new_channel(attr, send, recv, None)
    }

    fn open_channel_srq(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<IbQueue>>,
        recv: Option<&Arc<IbQueue>>,
        srq: &Arc<IbSrq>,
    ) -> Result<Arc<IbChannel>, Failure> {
        self.0.adapter.check_fork()?;
        self.new_channel(attr, send, recv, Some(&srq.0))
    }

    fn open_srq(&self, attr: &SrqAttr) -> Result<Arc<IbSrq>, Failure> {
        self.0.adapter.check_fork()?;
        SrqInner::new(&self.0.adapter, attr).map(|inner| Arc::new(IbSrq(inner)))
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<IbListener>, Failure> {
        IbListener::new(&self.0, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.0.adapter.check_fork()?;
        self.0.adapter.memory.register(&self.0.adapter.params, addr, len, access, domain)
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
        self.0.adapter.check_fork()?;
        self.0.adapter.memory.register_dmabuf(
            &self.0.adapter.params,
            dmabuf,
            [offset, len, addr],
            access,
            domain,
        )
    }

    fn deregister(&self, keys: Keys) -> Status {
        if self.0.adapter.forked() {
            return Status::OK;
        }
        self.0.adapter.memory.deregister(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.0.adapter.check_fork()?;
        self.0.adapter.memory.alloc(&self.0.adapter.params, len)
    }

    fn free(&self, block: Block) -> Status {
        self.0.adapter.memory.free(block)
    }

    fn open_window(&self, domain: u32) -> Result<u64, Failure> {
        self.0.adapter.check_fork()?;
        self.0.adapter.memory.open_window(domain)
    }

    fn close_window(&self, window: u64) -> Status {
        self.0.adapter.memory.close_window(window)
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        let adapter = &self.0.adapter;
        if adapter.forked() {
            return Status::FORKED;
        }
        let by_consumer = match reason {
            RejectReason::CONSUMER => true,
            RejectReason::PROVIDER => false,
            _ => return Status::INVALID,
        };
        if data.len() > adapter.params.style.limit() {
            return Status::INVALID;
        }
        let mut sources = self.0.sources.lock();
        if !matches!(sources.get(&request), Some(Source::Request(_))) {
            return Status::INVALID;
        }
        let taken = sources.remove(&request);
        drop(sources);
        let Some(Source::Request(Request { id, gone, .. })) = taken else { return Status::INVALID };
        if gone {
            return Status::GONE;
        }
        let data =
            if by_consumer { adapter.params.style.wrap(data, private_data::REJECT) } else { Vec::new() };
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
        self.0.adapter.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let adapter = &self.0.adapter;
        let firmware: String = adapter
            .attr
            .fw_ver
            .iter()
            .take_while(|byte| **byte != 0)
            .map(|byte| char::from(*byte as u8))
            .collect();
        format!(
            "{} port {}, {}, address {}, firmware {firmware}, {}",
            adapter.name,
            adapter.port,
            adapter.link,
            adapter.address.ip(),
            locked_memory()
        )
    }

    fn close(&self) {
        if !self.0.adapter.forked() {
            self.0.close();
        }
    }
}
