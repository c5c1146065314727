//! The device.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use dat_plugin::{
    Access, Block, ChannelAttr, Device, DeviceAttr, Event, Failure, Keys, NoSrq, RejectReason, Status,
};

use crate::channel::RouteChannel;
use crate::child::{Child, Via, attributes};
use crate::listener::RouteListener;
use crate::queue::{Progress, RouteQueue, add};
use crate::shared::Shared;

/// The device of a route.
pub struct Route {
    shared: Arc<Shared>,
    progress: Arc<Progress>,
}

impl Route {
    pub(crate) fn open(name: &str, children: Vec<Via>) -> Result<Route, Failure> {
        let children: Arc<[Child]> = children.into_iter().map(Child::new).collect();
        let attr = attributes(name, &children)?;
        let progress = Arc::new(Progress::new()?);
        for child in &*children {
            if let Some(fd) = child.below.borrowed_fd() {
                add(&progress.epoll, fd)?;
            }
        }
        Ok(Route { shared: Arc::new(Shared::new(children, attr)), progress })
    }
}

impl Device for Route {
    type Channel = RouteChannel;
    type Queue = RouteQueue;
    type Listener = RouteListener;
    type Srq = NoSrq;

    fn attr(&self) -> DeviceAttr {
        self.shared.attr
    }

    fn open_queue(&self, depth: u32) -> Result<Arc<RouteQueue>, Failure> {
        RouteQueue::open(&self.shared.children, &self.progress, depth).map(Arc::new)
    }

    fn open_channel(
        &self,
        attr: &ChannelAttr,
        send: Option<&Arc<RouteQueue>>,
        recv: Option<&Arc<RouteQueue>>,
    ) -> Result<Arc<RouteChannel>, Failure> {
        let channel = Arc::new(RouteChannel::new(&self.shared, attr, [send, recv]));
        self.shared.add(attr.user, channel.clone())?;
        Ok(channel)
    }

    fn listen(&self, port: u64, user: u64) -> Result<Arc<RouteListener>, Failure> {
        RouteListener::open(&self.shared.children, port, user).map(Arc::new)
    }

    fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        self.shared.regions.register(addr, len, access, domain)
    }

    fn deregister(&self, keys: Keys) -> Status {
        self.shared.regions.deregister(keys)
    }

    fn alloc(&self, len: u64) -> Result<Block, Failure> {
        self.shared.children[0].below.alloc(len)
    }

    fn free(&self, block: Block) -> Status {
        self.shared.children[0].below.free(block)
    }

    fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        self.shared.reject(request, reason, data)
    }

    fn poll_events(&self, out: &mut [Event]) -> usize {
        self.progress.run();
        self.shared.poll_events(out)
    }

    fn event_fd(&self) -> RawFd {
        self.progress.epoll.as_raw_fd()
    }

    fn describe(&self) -> String {
        let children: Vec<String> = self
            .shared
            .children
            .iter()
            .map(|child| format!("{}: {}", child.label(), child.below.describe()))
            .collect();
        format!("route over {}", children.join("; "))
    }

    fn close(&self) {}
}
