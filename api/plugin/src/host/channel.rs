//! One end of a connection.

use std::sync::Arc;

use super::{Device, Object, Queue, call, sentence};
use crate::ops::{Ctx, RawConnect};
use crate::provider::{ConnectParam, Failure};
use crate::wire::{Opcode, PostFlag, RecvRequest, Request, Segment, Status};

/// One end of a connection, used for one connection only; closed on drop.
pub struct Channel {
    object: Object,
    // Dropped after the object: the plugin may use them until the channel is closed.
    device: Device,
    _queues: [Option<Arc<Queue>>; 2],
}

/// The remote side of a write or read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remote {
    /// First byte at the peer.
    pub addr: u64,
    /// Key the peer gave out.
    pub rkey: u32,
    /// Read: how many bytes.
    pub len: u32,
}

impl Channel {
    pub(super) fn new(device: Device, ctx: Ctx, queues: [Option<Arc<Queue>>; 2]) -> Channel {
        let close = device.0.tables.channel.close;
        Channel { object: Object { ctx, close }, device, _queues: queues }
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
        let request = Request {
            token,
            segs: segments.as_ptr(),
            nsegs: segments.len() as u32,
            opcode,
            flags,
            total,
            remote_addr: remote.addr,
            rkey: remote.rkey,
            remote_len: remote.len,
        };
        // SAFETY: the plugin's own object; the request and its segments live for the call.
        unsafe { (self.device.0.tables.channel.post)(self.object.ctx, &request) }
    }

    /// Posts a receive.
    #[inline]
    pub fn post_recv(&self, flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> Status {
        let request = RecvRequest {
            token,
            segs: segments.as_ptr(),
            nsegs: segments.len() as u32,
            flags,
            reserved: 0,
            total,
        };
        // SAFETY: as above.
        unsafe { (self.device.0.tables.channel.post_recv)(self.object.ctx, &request) }
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
        // SAFETY: as above.
        call((), |_, m| unsafe { (self.device.0.tables.channel.connect)(self.object.ctx, &raw, m) })
    }

    /// Accepts a request.
    pub fn accept(&self, request: u64, data: &[u8]) -> Result<(), Failure> {
        let ops = self.device.0.tables.channel;
        // SAFETY: as above.
        call((), |_, m| unsafe { (ops.accept)(self.object.ctx, request, data.as_ptr(), data.len(), m) })
    }

    /// Ends the connection or the attempt.
    pub fn disconnect(&self) -> Status {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.channel.disconnect)(self.object.ctx) }
    }

    /// The local port.
    pub fn local_port(&self) -> u64 {
        // SAFETY: the plugin's own object.
        unsafe { (self.device.0.tables.channel.local_port)(self.object.ctx) }
    }

    /// The path taken, for people.
    pub fn describe(&self) -> String {
        // SAFETY: the plugin's own object and a place for its sentence.
        sentence(|m| unsafe { (self.device.0.tables.channel.describe)(self.object.ctx, m) })
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel").field("path", &self.describe()).finish()
    }
}
