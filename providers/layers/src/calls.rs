//! Calls, posts and their outcomes, as layers see them.

use std::time::Instant;

use dat_plugin::{Access, Block, ChannelAttr, Failure, Opcode, RejectReason, SockAddr, SrqAttr, Status};

/// When a batch of completions was taken. The clock is read at the first use, once for the batch.
#[derive(Debug, Default)]
pub struct Moment(Option<Instant>);

impl Moment {
    /// The time.
    pub fn time(&mut self) -> Instant {
        *self.0.get_or_insert_with(Instant::now)
    }
}

/// A control call and its arguments, without private data and keys, which are the application's secrets.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the methods of dat_plugin's traits and their arguments")]
pub enum Control<'a> {
    OpenQueue { depth: u32 },
    OpenChannel { attr: &'a ChannelAttr },
    OpenSrq { attr: &'a SrqAttr },
    ResizeSrq { depth: u32 },
    ArmSrq { limit: u32 },
    Listen { port: u64 },
    Register { len: u64, access: Access, domain: u32 },
    Deregister { lkey: u32 },
    Alloc { len: u64 },
    Free { block: Block },
    OpenWindow { domain: u32 },
    CloseWindow { window: u64 },
    Connect { peer: SockAddr, port: u64, private_data: usize },
    Accept { request: u64, private_data: usize },
    Reject { request: u64, reason: RejectReason },
    Disconnect,
    CloseChannel,
}

/// A post and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Post {
    /// What is posted.
    pub kind: Kind,
    /// Comes back in the completion.
    pub token: u64,
    /// Bytes to move; of a receive, its room.
    pub bytes: u64,
    /// Local segments.
    pub segments: usize,
    /// The flags, as a number.
    pub flags: u16,
}

/// What can be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request with this opcode.
    Request(Opcode),
    /// A receive.
    Recv,
    /// The binding of a window.
    Bind,
}

impl Kind {
    /// Its name in traces and counters.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Recv => "recv",
            Kind::Bind => "bind",
            Kind::Request(opcode) => match opcode {
                Opcode::SEND => "send",
                Opcode::WRITE => "write",
                Opcode::READ => "read",
                Opcode::WRITE_IMM => "write_imm",
                Opcode::SEND_IMM => "send_imm",
                Opcode::SEND_INVALIDATE => "send_invalidate",
                Opcode::FETCH_ADD => "fetch_add",
                Opcode::CMP_SWAP => "cmp_swap",
                _ => "other",
            },
        }
    }
}

/// The direction of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Requests.
    Send,
    /// Receives.
    Recv,
}

/// The outcome of a call, as a layer sees it.
pub trait Outcome: Sized {
    /// The status.
    fn status(&self) -> Status;
    /// The outcome of a call that failed without being passed on.
    fn failed(failure: Failure) -> Self;
}

impl Outcome for Status {
    fn status(&self) -> Status {
        *self
    }

    fn failed(failure: Failure) -> Status {
        failure.status
    }
}

impl<T> Outcome for Result<T, Failure> {
    fn status(&self) -> Status {
        self.as_ref().map_or_else(|failure| failure.status, |_| Status::OK)
    }

    fn failed(failure: Failure) -> Self {
        Err(failure)
    }
}

impl Outcome for Result<u32, Status> {
    fn status(&self) -> Status {
        self.err().unwrap_or(Status::OK)
    }

    fn failed(failure: Failure) -> Self {
        Err(failure.status)
    }
}
