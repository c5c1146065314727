//! Commands to a peer, and its answers.

use std::net::SocketAddr;
use std::path::PathBuf;

use dat_engine::Ia;
use dat_types::{CompletionFlags, EpAttr};
use serde::{Deserialize, Serialize};

use crate::check::Stop;

/// One command. Objects are named by the handles the peer gave out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Where the peer's adapter is.
    Address,
    Pz,
    Evd {
        qlen: i32,
        flags: u32,
    },
    Lmr {
        pz: u32,
        len: u64,
        privileges: u32,
    },
    Ep {
        pz: u32,
        recv: u32,
        request: u32,
        conn: u32,
        attr: AttrSpec,
    },
    Psp {
        evd: u32,
        by_provider: bool,
    },
    Connect {
        ep: u32,
        address: SocketAddr,
        port: u64,
        data: Vec<u8>,
        ms: u64,
    },
    Request {
        cr: u32,
    },
    Accept {
        cr: u32,
        ep: Option<u32>,
        data: Vec<u8>,
    },
    Reject {
        cr: u32,
        data: Vec<u8>,
    },
    Disconnect {
        ep: u32,
        graceful: bool,
    },
    Reset {
        ep: u32,
    },
    State {
        ep: u32,
    },
    Free {
        handle: u32,
    },
    Post {
        ep: u32,
        /// Region, offset, length.
        segment: (u32, u64, u32),
        cookie: u64,
        flags: u32,
        what: Posted,
    },
    Recv {
        ep: u32,
        segments: Vec<(u32, u64, u32)>,
        cookie: u64,
    },
    CommonConnect {
        ep: u32,
        address: SocketAddr,
        ms: u64,
    },
    /// Qualities of service offered.
    Qos,
    /// Registers memory shared with other processes, under a name of this byte.
    Shared {
        pz: u32,
        path: PathBuf,
        len: u64,
        cookie: u8,
    },
    Handoff {
        cr: u32,
        port: u64,
    },
    Store {
        lmr: u32,
        offset: u64,
        bytes: Vec<u8>,
    },
    Load {
        lmr: u32,
        offset: u64,
        len: u32,
    },
    /// Waits for an event; 0 ms only looks.
    Wait {
        evd: u32,
        ms: u64,
    },
}

/// A request to post, besides its local segment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Posted {
    Send,
    Write { to: Far },
    SendInvalidate { context: u32 },
    SendImmed { value: u32 },
    WriteImmed { to: Far, value: u32 },
}

/// Address, length, key of memory at the other side.
pub(crate) type Far = (u64, u32, u32);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Done,
    Made { handle: u32, id: u64 },
    Listening { handle: u32, port: u64 },
    Region { handle: u32, addr: u64, rmr_context: u32 },
    Address(SocketAddr),
    PendingRequest { remote: Option<SocketAddr>, remote_port: u64, conn_qual: u64, data: Vec<u8> },
    State(String),
    Bytes(Vec<u8>),
    Nothing,
    Dto { ep: u64, cookie: u64, status: u32, operation: u32, length: u64, value: u32 },
    Offered(u32),
    Arrived { cr: u32 },
    Connection { ep: u64, kind: u32, data: Vec<u8> },
    Other(String),
}

/// An error the peer met.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) text: String,
}

/// Attributes of an endpoint that differ from the defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct AttrSpec {
    pub(crate) recvs: Option<u32>,
    pub(crate) requests: Option<u32>,
    pub(crate) recv_iov: Option<u32>,
    pub(crate) request_iov: Option<u32>,
    pub(crate) reads_in: Option<u32>,
    pub(crate) reads_out: Option<u32>,
    pub(crate) message: Option<u64>,
    pub(crate) recv_flags: u32,
    pub(crate) request_flags: u32,
}

impl AttrSpec {
    /// The attributes, the defaults clipped to what `ia` has.
    pub(crate) fn over(&self, ia: &Ia) -> Result<EpAttr, Stop> {
        let most = ia.query()?;
        let base = EpAttr::default();
        Ok(EpAttr {
            max_message_size: self.message.unwrap_or(base.max_message_size.min(most.max_message_size)),
            max_rdma_size: base.max_rdma_size.min(most.max_rdma_size),
            max_recv_dtos: self.recvs.unwrap_or(base.max_recv_dtos.min(most.max_dto_per_ep)),
            max_request_dtos: self.requests.unwrap_or(base.max_request_dtos.min(most.max_dto_per_ep)),
            max_recv_iov: self.recv_iov.unwrap_or(base.max_recv_iov.min(most.max_iov_segments_per_dto)),
            max_request_iov: self
                .request_iov
                .unwrap_or(base.max_request_iov.min(most.max_iov_segments_per_dto)),
            max_rdma_read_in: self
                .reads_in
                .unwrap_or(base.max_rdma_read_in.min(most.max_rdma_read_per_ep_in)),
            max_rdma_read_out: self
                .reads_out
                .unwrap_or(base.max_rdma_read_out.min(most.max_rdma_read_per_ep_out)),
            recv_completion_flags: CompletionFlags::from_bits_retain(self.recv_flags),
            request_completion_flags: CompletionFlags::from_bits_retain(self.request_flags),
            ..base
        })
    }
}
