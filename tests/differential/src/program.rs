//! Programs: steps over fixed places.

use std::fmt;

/// Places for endpoints: the first half on one adapter, the others on the other.
pub const PLACES: usize = 4;
/// Protection zones of an adapter.
pub const ZONES: u8 = 2;
/// Dispatchers of an adapter, by what they were made for.
pub const EVDS: [Evd; 5] = [Evd::Dto, Evd::Binds, Evd::Both, Evd::Connection, Evd::Requests];
/// Memory windows of an adapter.
pub const WINDOWS: usize = 2;
/// As the region of a remote segment: this and those after it are windows, under the context they were bound with last.
pub const WINDOW: u8 = 10;
/// The same windows under the context before.
pub const STALE: u8 = WINDOW + WINDOWS as u8;
/// Bytes of each region: no whole pages, because a peer reaches the length asked for and no more.
pub const REGION: u32 = 3840;
/// Requests of private data of this length mean one byte more than is allowed.
pub const TOO_LONG: u16 = u16::MAX;

/// What a dispatcher was made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evd {
    /// Completions.
    Dto,
    /// Completions, those of binds too.
    Binds,
    /// All of these and connection events.
    Both,
    /// Connection events.
    Connection,
    /// Connection requests.
    Requests,
}

/// The adapter a place belongs to.
pub fn side_of(place: u8) -> usize {
    usize::from(place) * 2 / PLACES
}

/// One call, or a few that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are places and arguments of the call each variant names")]
pub enum Step {
    /// Creates an endpoint. The old endpoint of the slot stays alive, unreachable.
    Create {
        place: u8,
        shape: Shape,
        /// With the shared receive queue of its side.
        shared: bool,
    },
    Free {
        place: u8,
    },
    Connect {
        place: u8,
        to: Target,
        data: u16,
        time: Time,
        flags: u32,
        qos: u32,
    },
    /// Accepts one of the undecided requests of the side, with the endpoint in `place`, if there is one.
    Accept {
        side: u8,
        which: u8,
        place: Option<u8>,
        data: u16,
    },
    Reject {
        side: u8,
        which: u8,
        data: u16,
    },
    /// Accepts or rejects a request that was decided before.
    AcceptStale {
        side: u8,
        place: u8,
    },
    RejectStale {
        side: u8,
    },
    /// Connects as the endpoint in the place `dup` did.
    DupConnect {
        place: u8,
        dup: u8,
        data: u16,
        time: Time,
        qos: u32,
    },
    /// Ties an endpoint to a reserved service point of its side: on a qualifier of its own, or on the public one's.
    Reserve {
        place: u8,
        taken: bool,
    },
    /// Frees the reserved service point of a side.
    Unreserve {
        side: u8,
    },
    Disconnect {
        place: u8,
        graceful: bool,
    },
    Reset {
        place: u8,
    },
    Recv {
        place: u8,
        iov: Vec<Segment>,
        flags: u32,
    },
    Send {
        place: u8,
        iov: Vec<Segment>,
        flags: u32,
        immediate: Option<u32>,
    },
    Write {
        place: u8,
        iov: Vec<Segment>,
        far: Far,
        flags: u32,
        immediate: Option<u32>,
    },
    Read {
        place: u8,
        iov: Vec<Segment>,
        far: Far,
        flags: u32,
    },
    Atomic {
        place: u8,
        local: Segment,
        far: Far,
        atomic: Atomic,
        flags: u32,
    },
    /// Binds a window of the side of the endpoint; to nothing with a length of 0.
    Bind {
        place: u8,
        window: u8,
        range: Range,
        flags: u32,
    },
    WindowCreate {
        side: u8,
        window: u8,
        zone: u8,
    },
    WindowFree {
        side: u8,
        window: u8,
    },
    /// Frees a region that a window is bound to, which is refused.
    FreeRegion {
        side: u8,
        region: u8,
    },
    /// Makes a shared receive queue. The old queue of the slot stays, with the endpoints that use it.
    QueueCreate {
        side: u8,
        zone: u8,
        recvs: u32,
        segments: u32,
        mark: u32,
    },
    QueueFree {
        side: u8,
    },
    QueueRecv {
        side: u8,
        iov: Vec<Segment>,
    },
    QueueMark {
        side: u8,
        mark: u32,
    },
    QueueResize {
        side: u8,
        recvs: u32,
    },
    QueueQuery {
        side: u8,
    },
    Modify {
        place: u8,
        mask: u64,
        shape: Shape,
    },
    Query {
        place: u8,
    },
    /// Takes the endpoint that was made for an undecided request into a place of its side.
    Adopt {
        side: u8,
        which: u8,
        place: u8,
    },
    /// Delivers an undecided request anew, to what `to` means to the peers of its side.
    HandOff {
        side: u8,
        which: u8,
        to: Target,
    },
    StopListening {
        side: u8,
        point: Point,
    },
    Listen {
        side: u8,
        point: Point,
    },
    /// Frees what is in use, which is refused.
    FreeZone {
        side: u8,
        zone: u8,
    },
    FreeEvd {
        side: u8,
        evd: u8,
    },
}

/// A public service point of an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Point {
    /// Which listens from the start.
    First = 0,
    /// Another one.
    Second = 1,
    /// One whose requests come with an endpoint the provider makes.
    Maker = 2,
}

/// How many there are.
pub const POINTS: usize = 3;

/// Where a connect goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first service point of the other adapter.
    Peer,
    /// The one of the same adapter.
    Own,
    /// The second one of the other adapter.
    Second,
    /// The one there that makes endpoints.
    Maker,
    /// The last reserved service point of the other adapter.
    Reserved,
    /// A qualifier without a listener.
    Nobody,
}

/// The time-out of a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// 0, which is refused.
    Zero,
    /// Short: an attempt without an answer ends within its step.
    Short,
    /// None.
    Infinite,
}

/// Zone, dispatchers and attributes of an endpoint. [`FOREIGN`] names one of the other adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the parameter of the same name")]
pub struct Shape {
    pub zone: Option<u8>,
    pub recv: Option<u8>,
    pub request: Option<u8>,
    pub conn: Option<u8>,
    pub attrs: Attrs,
}

/// A zone or dispatcher of the other adapter.
pub const FOREIGN: u8 = 9;

/// Attributes that programs vary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the attribute of the same name")]
pub struct Attrs {
    pub service: u32,
    pub qos: u32,
    pub message: u64,
    pub rdma: u64,
    pub recv_flags: u32,
    pub request_flags: u32,
    pub recvs: u32,
    pub requests: u32,
    pub recv_iov: u32,
    pub request_iov: u32,
    pub reads_in: u32,
    pub reads_out: u32,
}

/// A local segment: [`UNKNOWN`] is a region that was freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Segment {
    pub region: u8,
    pub offset: u32,
    pub len: u32,
}

/// What is done to a word at the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub enum Atomic {
    /// This is added.
    Add(u64),
    /// If it is what is expected, it is swapped for another.
    Swap { expected: u64, swap: u64 },
}

/// What a window is bound to, and the remote rights it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Range {
    pub region: u8,
    pub offset: u32,
    pub len: u32,
    pub rights: u32,
}

/// A remote segment: a region of the adapter the endpoint is connected to, or a window of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are what they are called")]
pub struct Far {
    pub region: u8,
    pub offset: u32,
    pub len: u32,
}

/// A context that was never given out.
pub const UNKNOWN: u8 = 5;

/// A list of steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program(pub Vec<Step>);

impl Step {
    /// The call it is.
    pub fn name(&self) -> String {
        let all = format!("{self:?}");
        all.split(' ').next().unwrap_or_default().to_owned()
    }

    /// Posts do not wait for what they cause when the next step is a post on the same endpoint.
    pub fn post_on(&self) -> Option<u8> {
        match self {
            Step::Recv { place, .. }
            | Step::Send { place, .. }
            | Step::Write { place, .. }
            | Step::Read { place, .. } => Some(*place),
            _ => None,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{index:3}  {step:?}"))
    }
}
