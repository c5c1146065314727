//! One end of a connection.

use std::sync::Arc;

use super::batch::{Batch, RecvBatch};
use super::inner::Inner;
use super::object::{Object, call, sentence};
use super::queue::Queue;
use super::srq::Srq;
use super::window::Window;
use crate::abi::{
    Access, AtomicRequest, BindRequest, Opcode, PostFlag, RecvRequest, Remote, Request, Segment, Status,
};
use crate::ops::{Ctx, RawConnect};
use crate::provider::{ConnectParam, Failure};

/// One end of a connection, used for one connection only; closed on drop.
pub struct Channel {
    object: Object,
    // Dropped after the object: the plugin may use them until the channel is closed.
    device: Arc<Inner>,
    _queues: [Option<Arc<Queue>>; 2],
    _srq: Option<Arc<Srq>>,
}

impl Channel {
    pub(super) fn new(
        device: Arc<Inner>,
        ctx: Ctx,
        queues: [Option<Arc<Queue>>; 2],
        srq: Option<Arc<Srq>>,
    ) -> Channel {
        let close = device.tables.channel.close;
        Channel { object: Object { ctx, close }, device, _queues: queues, _srq: srq }
    }

    /// Posts a request; `total` is the sum of the segments' lengths.
    #[inline]
    pub fn post(
        &self,
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: Remote,
    ) -> Status {
        self.post_imm(opcode, flags, token, segments, total, remote, 0)
    }

    /// Posts a request with an immediate value.
    #[inline]
    #[allow(clippy::too_many_arguments, reason = "the fields of Request; a struct of them would be copied")]
    pub fn post_imm(
        &self,
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: Remote,
        imm: u32,
    ) -> Status {
        let request = Request::new(opcode, flags, token, segments, total, remote, imm);
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the request
        // and its segments outlive the call.
        unsafe { (self.device.tables.channel.post)(self.object.ctx, &request) }
    }

    /// Posts a receive.
    #[inline]
    pub fn post_recv(&self, flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> Status {
        let request = RecvRequest::new(flags, token, segments, total);
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the
        // arguments outlive the call.
        unsafe { (self.device.tables.channel.post_recv)(self.object.ctx, &request) }
    }

    /// Posts several requests: how many were accepted, and why no more.
    pub fn post_batch(&self, batch: &mut Batch) -> (usize, Status) {
        let (requests, mut posted) = (batch.requests(), 0);
        if requests.is_empty() {
            return (0, Status::OK);
        }
        let ops = self.device.tables.channel;
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the batch
        // holds the segments that its requests name.
        let status =
            unsafe { (ops.post_list)(self.object.ctx, requests.as_ptr(), requests.len(), &raw mut posted) };
        (posted.min(requests.len()), status)
    }

    /// Posts several receives: how many were accepted, and why no more.
    pub fn post_recv_batch(&self, batch: &mut RecvBatch) -> (usize, Status) {
        let (requests, mut posted) = (batch.requests(), 0);
        if requests.is_empty() {
            return (0, Status::OK);
        }
        let ops = self.device.tables.channel;
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the
        // arguments outlive the call.
        let status = unsafe {
            (ops.post_recv_list)(self.object.ctx, requests.as_ptr(), requests.len(), &raw mut posted)
        };
        (posted.min(requests.len()), status)
    }

    /// Posts an atomic operation.
    pub fn post_atomic(&self, request: &AtomicRequest) -> Status {
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the
        // arguments outlive the call.
        unsafe { (self.device.tables.channel.post_atomic)(self.object.ctx, request) }
    }

    /// Completes the last success that was kept silent.
    pub fn settle(&self) {
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever.
        unsafe { (self.device.tables.channel.settle)(self.object.ctx) }
    }

    /// Posts the binding of a window to a range with remote rights, or its end: the window's new key.
    pub fn bind(
        &self,
        flags: PostFlag,
        token: u64,
        window: &Window,
        range: Option<(Segment, Access)>,
    ) -> Result<u32, Status> {
        let nothing = (Segment { addr: 0, len: 0, lkey: 0 }, Access::NONE);
        let (Segment { addr, len, lkey }, access) = range.unwrap_or(nothing);
        let request = BindRequest { token, window: window.id(), addr, len, lkey, access, flags, reserved: 0 };
        let mut rkey = 0;
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; `rkey`
        // takes the answer.
        let status = unsafe { (self.device.tables.channel.bind)(self.object.ctx, &request, &raw mut rkey) };
        if status.0 < 0 { Err(status) } else { Ok(rkey) }
    }

    /// Starts to connect.
    pub fn connect(&self, param: &ConnectParam<'_>) -> Result<(), Failure> {
        let raw = RawConnect {
            addr: param.addr,
            port: param.port,
            data: param.data.as_ptr(),
            data_len: param.data.len() as u32,
            qos: param.qos,
        };
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the
        // arguments outlive the call.
        call((), |_, m| unsafe { (self.device.tables.channel.connect)(self.object.ctx, &raw, m) })
    }

    /// Accepts a request.
    pub fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let ops = self.device.tables.channel;
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; the
        // arguments outlive the call.
        call((), |_, m| unsafe { (ops.accept)(self.object.ctx, request, data.as_ptr(), data.len(), m) })
    }

    /// Ends the connection or the attempt.
    pub fn disconnect(&self) -> Status {
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever.
        unsafe { (self.device.tables.channel.disconnect)(self.object.ctx) }
    }

    /// The local port.
    pub fn local_port(&self) -> u64 {
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever.
        unsafe { (self.device.tables.channel.local_port)(self.object.ctx) }
    }

    /// The path taken, for people.
    pub fn describe(&self) -> String {
        // SAFETY: `object` keeps the plugin's channel open, and the tables live for ever; `m` has
        // room for the sentence.
        sentence(|m| unsafe { (self.device.tables.channel.describe)(self.object.ctx, m) })
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("path", &self.describe()).finish()
    }
}
