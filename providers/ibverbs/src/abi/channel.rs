//! Channels.

use std::sync::Arc;

use dat_plugin::{AtomicRequest, BindRequest, Channel, ConnectParam, Failure, RecvRequest, Request, Status};

use crate::control::channel::ChannelInner;
use crate::control::events::DeviceInner;
use crate::data::post;

/// One end of a connection.
pub struct IbChannel {
    pub(crate) inner: Arc<ChannelInner>,
    pub(crate) device: Arc<DeviceInner>,
}

impl Channel for IbChannel {
    fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        self.inner.start_connect(param)
    }

    fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        self.inner.start_accept(&self.device.sources, request, data)
    }

    fn disconnect(&self) -> Status {
        self.inner.disconnect()
    }

    #[inline]
    fn post(&self, request: &Request) -> Status {
        post::one(&self.inner.queue_pair, request)
    }

    #[inline]
    fn post_recv(&self, request: &RecvRequest) -> Status {
        post::one(&self.inner.queue_pair, request)
    }

    fn post_list(&self, requests: &[Request]) -> (usize, Status) {
        post::list(&self.inner.queue_pair, requests)
    }

    fn post_recv_list(&self, requests: &[RecvRequest]) -> (usize, Status) {
        post::list(&self.inner.queue_pair, requests)
    }

    fn post_atomic(&self, request: &AtomicRequest) -> Status {
        self.inner.queue_pair.post_atomic_request(request)
    }

    fn settle(&self) {
        self.inner.queue_pair.complete_unsignalled();
    }

    fn bind(&self, request: &BindRequest) -> Result<u32, Status> {
        self.inner.queue_pair.post_bind(request)
    }

    fn local_port(&self) -> u64 {
        self.inner.local_port()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn close(&self) {
        if self.inner.stop_for_close() {
            self.device.sources.remove_channel(&self.inner);
            self.inner.release();
        }
    }
}
