//! Events as an EVD hands them out (spec: events).

use crate::ObjectId;

/// One event.
#[derive(Clone, Debug)]
pub struct Event {
    /// The EVD it came from.
    pub evd: ObjectId,
    /// What happened.
    pub data: EventData,
}

impl Event {
    /// The event number of the public headers.
    pub fn number(&self) -> u32 {
        match &self.data {
            EventData::Dto(dto) if dto.operation.is_extension() => 0x40000,
            EventData::Dto(_) => 0x00001,
            EventData::RmrBind { .. } => 0x01001,
            EventData::ConnectionRequest { .. } => 0x02001,
            EventData::Connection { kind, .. } => *kind as u32,
            EventData::Async { reason, .. } => match reason {
                AsyncReason::EvdOverflow => 0x08001,
                AsyncReason::IaCatastrophic => 0x08002,
                AsyncReason::EpTransferToError => 0x08003,
                _ => 0x08005,
            },
            EventData::Software(_) => 0x10001,
        }
    }
}

/// What an event says.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum EventData {
    /// A posted data transfer is done.
    Dto(DtoCompletion),
    /// A posted bind of a memory window is done.
    RmrBind {
        /// The window.
        rmr: ObjectId,
        /// The cookie given at the post.
        cookie: u64,
        /// How it ended.
        status: DtoStatus,
    },
    /// A peer asks to connect. The request itself is taken from the service point's IA by its id.
    ConnectionRequest {
        /// The service point; `None` for a reserved one, which is gone by now (decision D-20).
        service_point: Option<ObjectId>,
        /// The connection qualifier the peer asked for.
        conn_qual: u64,
        /// The request, to be accepted, rejected or handed off.
        cr: ObjectId,
    },
    /// Something happened to a connection.
    Connection {
        /// What.
        kind: ConnectionKind,
        /// To which endpoint.
        ep: ObjectId,
        /// Private data of the peer: only with `Established` on the active side and `PeerRejected`.
        private_data: Box<[u8]>,
        /// Why it broke: with `Broken`, and with no other kind.
        reason: Option<BreakReason>,
    },
    /// An asynchronous error or notice.
    Async {
        /// The affected object.
        object: ObjectId,
        /// What about it.
        reason: AsyncReason,
    },
    /// A software event: the Consumer's own value, untouched.
    Software(u64),
}

/// Completion of a data transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtoCompletion {
    /// The endpoint.
    pub ep: ObjectId,
    /// The cookie given at the post.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// What it was.
    pub operation: DtoOperation,
    /// Bytes transferred; defined on success only.
    pub length: u64,
    /// What [`DtoCompletion::immediate`] and [`DtoCompletion::invalidated`] tell; else 0.
    pub value: u32,
}

impl DtoCompletion {
    /// The sender's immediate value, of a receive that was used by a transfer with one.
    pub fn immediate(&self) -> Option<u32> {
        let with = matches!(self.operation, DtoOperation::RecvImmed | DtoOperation::RecvMsgImmed);
        (with && self.status.is_success()).then_some(self.value)
    }

    /// The `rmr_context` of the memory window that the message of a receive ended.
    pub fn invalidated(&self) -> Option<u32> {
        let with = self.operation == DtoOperation::ReceiveWithInvalidate;
        (with && self.status.is_success()).then_some(self.value)
    }
}

/// What kind of transfer completed. The values are those of the public headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum DtoOperation {
    /// A send.
    Send = 0,
    /// An RDMA write.
    RdmaWrite = 1,
    /// An RDMA read.
    RdmaRead = 2,
    /// A receive.
    Receive = 3,
    /// A receive whose message invalidated a memory window.
    ReceiveWithInvalidate = 4,
    /// A bind of a memory window.
    BindMw = 5,
    /// An RDMA write with an immediate value (extension, as all below).
    RdmaWriteImmed = 8,
    /// A receive that such a write used: its buffer is untouched, the length is what was written.
    RecvImmed = 9,
    /// A fetch-and-add.
    FetchAdd = 10,
    /// A compare-and-swap.
    CmpSwap = 11,
    /// A receive of a message with an immediate value.
    RecvMsgImmed = 12,
}

impl DtoOperation {
    /// Whether it used a receive, of whichever kind.
    pub fn is_receive(self) -> bool {
        use DtoOperation::{Receive, ReceiveWithInvalidate, RecvImmed, RecvMsgImmed};
        matches!(self, Receive | ReceiveWithInvalidate | RecvImmed | RecvMsgImmed)
    }

    /// Whether it is one of the extension's, whose completions have an event number of their own.
    pub fn is_extension(self) -> bool {
        self as u32 >= DtoOperation::RdmaWriteImmed as u32
    }
}

/// How a transfer ended (spec: transfer). The values are those of the public headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum DtoStatus {
    /// Done; the length is valid.
    Success = 0,
    /// Not executed, because the endpoint was or went disconnected.
    Flushed = 1,
    /// The incoming message was longer than the receive, or the local total beyond the transport's limit.
    LocalLength = 2,
    /// The local endpoint is inconsistent for this operation.
    LocalEp = 3,
    /// Right, protection zone or context of a local segment.
    LocalProtection = 4,
    /// The peer's answer is malformed.
    BadResponse = 5,
    /// Context, right, range or protection zone at the peer.
    RemoteAccess = 6,
    /// The peer refused or failed the request.
    RemoteResponder = 7,
    /// Retries exhausted, link or peer dead.
    Transport = 8,
    /// No receive posted at the peer within the provider's bound.
    ReceiverNotReady = 9,
    /// The message arrived incomplete.
    PartialPacket = 10,
    /// A bind or invalidate failed.
    RmrOperationFailed = 11,
}

impl DtoStatus {
    /// Whether the transfer succeeded.
    pub fn is_success(self) -> bool {
        self == DtoStatus::Success
    }
}

/// Connection events. The values are the event numbers of the public headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ConnectionKind {
    /// The connection is up.
    Established = 0x04001,
    /// The peer's Consumer refused.
    PeerRejected = 0x04002,
    /// Refused by something else: no listener, backlog full, quality of service, transport error.
    NonPeerRejected = 0x04003,
    /// An accept did not lead to a connection.
    AcceptCompletionError = 0x04004,
    /// The connection was ended in order.
    Disconnected = 0x04005,
    /// The connection broke.
    Broken = 0x04006,
    /// The Consumer's time-out expired.
    TimedOut = 0x04007,
    /// The peer cannot be reached.
    Unreachable = 0x04008,
}

/// Why a connection broke, as far as this end knows. Not part of the public headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BreakReason {
    /// An operation of this endpoint failed; its completion has this status.
    Operation(DtoStatus),
    /// A completion of this endpoint did not fit on this event dispatcher.
    Overflow(ObjectId),
    /// More receives were posted than the hard high watermark allows.
    HardWatermark,
    /// The provider completed work that was not posted.
    ProviderFault,
    /// The transport reported it: an operation of the peer was refused or failed here, or the peer or the link is gone.
    Transport,
}

/// Why an asynchronous event was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncReason {
    /// The whole IA is unusable.
    IaCatastrophic,
    /// An event did not fit on the EVD.
    EvdOverflow,
    /// The endpoint broke without a connection event to say so.
    EpTransferToError,
    /// The soft high watermark of an endpoint was passed.
    EpSoftHighWatermark,
    /// A shared receive queue fell below its low watermark.
    SrqLowWatermark,
    /// The provider found a fault of its own.
    ProviderInternal,
}
