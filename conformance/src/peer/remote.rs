//! End B as clauses see it: one of everything at the peer.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use dat_types::{
    ConnectionKind, DtoCompletion, DtoOperation, DtoStatus, EvdFlags, ObjectId, Privileges, RmrTriplet,
};

use super::Peer;
use super::command::{Answer, AttrSpec, Command, Posted};
use crate::check::{Outcome, Stop, ensure_eq, fail};
use crate::fixture::REGION;

pub(crate) struct RemoteEnd {
    pub(crate) peer: Arc<Peer>,
    pub(crate) address: SocketAddr,
    /// Where the service point listens.
    pub(crate) port: u64,
    pub(crate) ep: u32,
    pub(crate) ep_id: ObjectId,
    pub(crate) recv: u32,
    pub(crate) request_evd: u32,
    pub(crate) conn: u32,
    pub(crate) crs: u32,
    pub(crate) pz: u32,
    pub(crate) psp: u32,
    pub(crate) lmr: u32,
    addr: u64,
    rmr_context: u32,
}

/// A request that arrived at the peer.
pub(crate) struct RemoteRequest {
    pub(crate) cr: u32,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) remote_port: u64,
    pub(crate) conn_qual: u64,
    pub(crate) data: Vec<u8>,
}

/// A region at the peer: handle, address, remote key.
pub(crate) struct RemoteRegion {
    pub(crate) handle: u32,
    pub(crate) addr: u64,
    pub(crate) rmr_context: u32,
}

impl RemoteRegion {
    pub(crate) fn triplet(&self, offset: u64, length: u32) -> RmrTriplet {
        RmrTriplet { address: self.addr + offset, length, context: self.rmr_context }
    }
}

impl RemoteEnd {
    pub(crate) fn new(peer: Arc<Peer>, attr: &AttrSpec) -> Result<RemoteEnd, Stop> {
        RemoteEnd::with_backlog(peer, attr, 16)
    }

    /// `backlog`: room for connection requests.
    pub(crate) fn with_backlog(peer: Arc<Peer>, attr: &AttrSpec, backlog: i32) -> Result<RemoteEnd, Stop> {
        let Answer::Address(address) = peer.call(Command::Address)? else { return odd("Address") };
        let (pz, _) = made(&peer, Command::Pz)?;
        let evd = |qlen, flags: EvdFlags| {
            made(&peer, Command::Evd { qlen, flags: flags.bits() }).map(|made| made.0)
        };
        let recv = evd(128, EvdFlags::DTO)?;
        let request_evd = evd(128, EvdFlags::DTO | EvdFlags::RMR_BIND)?;
        let conn = evd(16, EvdFlags::CONNECTION)?;
        let crs = evd(backlog, EvdFlags::CR)?;
        let region = region(&peer, pz, REGION, Privileges::ALL)?;
        let (ep, id) = made(&peer, Command::Ep { pz, recv, request: request_evd, conn, attr: attr.clone() })?;
        let answer = peer.call(Command::Psp { evd: crs, by_provider: false })?;
        let Answer::Listening { handle: psp, port } = answer else { return odd("Psp") };
        Ok(RemoteEnd {
            peer,
            address,
            port,
            ep,
            ep_id: ObjectId(id),
            recv,
            request_evd,
            conn,
            crs,
            pz,
            psp,
            lmr: region.handle,
            addr: region.addr,
            rmr_context: region.rmr_context,
        })
    }

    /// Another region at the peer, in the same zone or a new one.
    pub(crate) fn region(&self, privileges: Privileges, own_zone: bool) -> Result<RemoteRegion, Stop> {
        let pz = if own_zone { made(&self.peer, Command::Pz)?.0 } else { self.pz };
        region(&self.peer, pz, REGION, privileges)
    }

    /// Memory of B's shared with other processes that map the file.
    pub(crate) fn shared_region(&self, path: &Path, len: u64, cookie: u8) -> Result<RemoteRegion, Stop> {
        match self.peer.call(Command::Shared { pz: self.pz, path: path.to_owned(), len, cookie })? {
            Answer::Region { handle, addr, rmr_context } => Ok(RemoteRegion { handle, addr, rmr_context }),
            _ => odd("Shared"),
        }
    }

    /// The triplet with which A reaches the region.
    pub(crate) fn target(&self, offset: u64, length: u32) -> RmrTriplet {
        RmrTriplet { address: self.addr + offset, length, context: self.rmr_context }
    }

    fn wait(&self, evd: u32, what: &str) -> Result<Answer, Stop> {
        match self.peer.call(Command::Wait { evd, ms: self.peer.fixture.long().as_millis() as u64 })? {
            Answer::Nothing => fail(format!("no event at B: {what}")),
            answer => Ok(answer),
        }
    }

    /// The next connection request.
    pub(crate) fn request(&self) -> Result<RemoteRequest, Stop> {
        let Answer::Arrived { cr } = self.wait(self.crs, "a connection request")? else { return odd("Wait") };
        match self.peer.call(Command::Request { cr })? {
            Answer::PendingRequest { remote, remote_port, conn_qual, data } => {
                Ok(RemoteRequest { cr, remote, remote_port, conn_qual, data })
            }
            _ => odd("Request"),
        }
    }

    pub(crate) fn accept(&self, request: &RemoteRequest, data: &[u8]) -> Outcome {
        self.tell(Command::Accept { cr: request.cr, ep: Some(self.ep), data: data.to_vec() })
    }

    pub(crate) fn reject(&self, request: &RemoteRequest, data: &[u8]) -> Outcome {
        self.tell(Command::Reject { cr: request.cr, data: data.to_vec() })
    }

    /// Hands a request over to another service point.
    pub(crate) fn hand_over(&self, request: &RemoteRequest, port: u64) -> Outcome {
        self.tell(Command::Handoff { cr: request.cr, port })
    }

    /// Connects to a service point of an adapter.
    pub(crate) fn connect_to(&self, to: &dat_engine::Ia, port: u64, data: &[u8], ms: u64) -> Outcome {
        let address = (to.query()?.address, 0).into();
        self.tell(Command::Connect { ep: self.ep, address, port, data: data.to_vec(), ms })
    }

    pub(crate) fn connection(&self) -> Result<(ConnectionKind, Vec<u8>), Stop> {
        match self.wait(self.conn, "a connection event")? {
            Answer::Connection { kind, data, ep } => {
                ensure_eq("endpoint of B's connection event", ObjectId(ep), self.ep_id)?;
                Ok((connection_kind(kind)?, data))
            }
            other => fail(format!("an event at B that is no connection event: {other:?}")),
        }
    }

    pub(crate) fn expect_event(&self, kind: ConnectionKind) -> Outcome {
        ensure_eq("connection event at B", self.connection()?.0, kind)
    }

    fn dto(&self, evd: u32) -> Result<DtoCompletion, Stop> {
        match self.wait(evd, "a completion")? {
            Answer::Dto { ep, cookie, status, operation, length, value } => Ok(DtoCompletion {
                ep: ObjectId(ep),
                cookie,
                status: dto_status(status)?,
                operation: dto_operation(operation)?,
                length,
                value,
            }),
            other => fail(format!("an event at B that is no completion: {other:?}")),
        }
    }

    pub(crate) fn received(&self) -> Result<DtoCompletion, Stop> {
        self.dto(self.recv)
    }

    pub(crate) fn requested(&self) -> Result<DtoCompletion, Stop> {
        self.dto(self.request_evd)
    }

    /// The next receive completion has this cookie and status.
    pub(crate) fn receives(&self, cookie: u64, status: DtoStatus) -> Result<DtoCompletion, Stop> {
        let dto = self.received()?;
        ensure_eq("receive at B (cookie, status)", (dto.cookie, dto.status), (cookie, status))?;
        Ok(dto)
    }

    /// Nothing arrives on `evd` for a while.
    pub(crate) fn expect_no_event(&self, evd: u32, what: &str) -> Outcome {
        match self.peer.call(Command::Wait { evd, ms: self.peer.fixture.short().as_millis() as u64 })? {
            Answer::Nothing => Ok(()),
            other => fail(format!("{what}: an event at B that should not be there: {other:?}")),
        }
    }

    pub(crate) fn post_recv(&self, offset: u64, len: u32, cookie: u64) -> Outcome {
        self.post_recv_iov(&[(offset, len)], cookie)
    }

    pub(crate) fn post_recv_iov(&self, segments: &[(u64, u32)], cookie: u64) -> Outcome {
        let segments = segments.iter().map(|(offset, len)| (self.lmr, *offset, *len)).collect();
        self.tell(Command::Recv { ep: self.ep, segments, cookie })
    }

    pub(crate) fn send(&self, offset: u64, len: u32, cookie: u64) -> Outcome {
        self.send_with(offset, len, cookie, dat_types::CompletionFlags::empty())
    }

    pub(crate) fn send_with(
        &self,
        offset: u64,
        len: u32,
        cookie: u64,
        flags: dat_types::CompletionFlags,
    ) -> Outcome {
        self.post(offset, len, cookie, flags, Posted::Send)
    }

    /// Posts something else than a send.
    pub(crate) fn post(
        &self,
        offset: u64,
        len: u32,
        cookie: u64,
        flags: dat_types::CompletionFlags,
        what: Posted,
    ) -> Outcome {
        let segment = (self.lmr, offset, len);
        self.tell(Command::Post { ep: self.ep, segment, cookie, flags: flags.bits(), what })
    }

    /// An RDMA write to memory of A's.
    pub(crate) fn write(&self, len: u32, cookie: u64, to: RmrTriplet) -> Outcome {
        let to = (to.address, to.length, to.context);
        self.post(0, len, cookie, dat_types::CompletionFlags::empty(), Posted::Write { to })
    }

    /// The next completion of a request has this cookie and status.
    pub(crate) fn completes(&self, cookie: u64, status: DtoStatus) -> Result<DtoCompletion, Stop> {
        let dto = self.requested()?;
        ensure_eq("request at B (cookie, status)", (dto.cookie, dto.status), (cookie, status))?;
        Ok(dto)
    }

    /// Connects to the socket address of a common service point of A's.
    pub(crate) fn common_connect(&self, address: SocketAddr) -> Outcome {
        let ms = self.peer.fixture.long().as_millis() as u64;
        self.tell(Command::CommonConnect { ep: self.ep, address, ms })
    }

    /// The qualities of service B's adapter offers.
    pub(crate) fn qos(&self) -> Result<u32, Stop> {
        match self.peer.call(Command::Qos)? {
            Answer::Offered(bits) => Ok(bits),
            _ => odd("Qos"),
        }
    }

    pub(crate) fn disconnect(&self, graceful: bool) -> Outcome {
        self.tell(Command::Disconnect { ep: self.ep, graceful })
    }

    pub(crate) fn reset(&self) -> Outcome {
        self.tell(Command::Reset { ep: self.ep })
    }

    pub(crate) fn free(&self, handle: u32) -> Outcome {
        self.tell(Command::Free { handle })
    }

    pub(crate) fn is_in(&self, state: dat_types::EpState) -> Outcome {
        match self.peer.call(Command::State { ep: self.ep })? {
            Answer::State(name) => ensure_eq("state of B's endpoint", name.as_str(), state.name()),
            _ => odd("State"),
        }
    }

    pub(crate) fn store(&self, offset: u64, bytes: &[u8]) -> Outcome {
        self.tell(Command::Store { lmr: self.lmr, offset, bytes: bytes.to_vec() })
    }

    /// Bytes into another region of B's.
    pub(crate) fn store_in(&self, lmr: u32, offset: u64, bytes: &[u8]) -> Outcome {
        self.tell(Command::Store { lmr, offset, bytes: bytes.to_vec() })
    }

    pub(crate) fn load(&self, offset: u64, len: u32) -> Result<Vec<u8>, Stop> {
        self.load_from(self.lmr, offset, len)
    }

    /// Bytes of another region of B's.
    pub(crate) fn load_from(&self, lmr: u32, offset: u64, len: u32) -> Result<Vec<u8>, Stop> {
        match self.peer.call(Command::Load { lmr, offset, len })? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => odd("Load"),
        }
    }

    fn tell(&self, command: Command) -> Outcome {
        match self.peer.call(command)? {
            Answer::Done => Ok(()),
            other => fail(format!("the peer answered {other:?} where no answer was due")),
        }
    }
}

fn made(peer: &Peer, command: Command) -> Result<(u32, u64), Stop> {
    match peer.call(command)? {
        Answer::Made { handle, id } => Ok((handle, id)),
        _ => odd("a creation"),
    }
}

fn region(peer: &Peer, pz: u32, len: u64, privileges: Privileges) -> Result<RemoteRegion, Stop> {
    match peer.call(Command::Lmr { pz, len, privileges: privileges.bits() })? {
        Answer::Region { handle, addr, rmr_context } => Ok(RemoteRegion { handle, addr, rmr_context }),
        _ => odd("Lmr"),
    }
}

fn odd<T>(command: &str) -> Result<T, Stop> {
    fail(format!("the peer answered {command} with something else"))
}

fn connection_kind(value: u32) -> Result<ConnectionKind, Stop> {
    use ConnectionKind::*;
    let all = [
        Established,
        PeerRejected,
        NonPeerRejected,
        AcceptCompletionError,
        Disconnected,
        Broken,
        TimedOut,
        Unreachable,
    ];
    named(value, all.into_iter().find(|kind| *kind as u32 == value), "connection event")
}

fn dto_status(value: u32) -> Result<DtoStatus, Stop> {
    use DtoStatus::*;
    let all = [
        Success,
        Flushed,
        LocalLength,
        LocalEp,
        LocalProtection,
        BadResponse,
        RemoteAccess,
        RemoteResponder,
        Transport,
        ReceiverNotReady,
        PartialPacket,
        RmrOperationFailed,
    ];
    named(value, all.into_iter().find(|status| *status as u32 == value), "completion status")
}

fn dto_operation(value: u32) -> Result<DtoOperation, Stop> {
    use DtoOperation::*;
    let all = [
        Send,
        RdmaWrite,
        RdmaRead,
        Receive,
        ReceiveWithInvalidate,
        BindMw,
        RdmaWriteImmed,
        RecvImmed,
        FetchAdd,
        CmpSwap,
        RecvMsgImmed,
    ];
    named(value, all.into_iter().find(|operation| *operation as u32 == value), "operation")
}

fn named<T>(value: u32, found: Option<T>, what: &str) -> Result<T, Stop> {
    found.ok_or_else(|| Stop::Failed(format!("{value:#x} is no {what}")))
}
