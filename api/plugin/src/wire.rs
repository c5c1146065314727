//! The plain values that cross the boundary. All `#[repr(C)]`; numbers with constants instead of enumerations, so that
//! an unknown value is a value and never undefined behaviour.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use abi_stable::StableAbi;

macro_rules! constants {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$cdoc:meta])* $constant:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, StableAbi)]
        pub struct $name(pub $int);
        impl $name {
            $($(#[$cdoc])* pub const $constant: $name = $name($value);)*

            /// All of them by name, in the order they are declared.
            pub const ALL: &'static [(&'static str, $name)] =
                &[$((stringify!($constant), $name::$constant),)*];

            /// The constant's name, or `None` for a value this version does not know.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(v if v == $value => Some(stringify!($constant)),)*
                    _ => None,
                }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
    };
}

macro_rules! bits {
    ($name:ident($int:ty)) => {
        impl $name {
            /// No bit.
            pub const NONE: $name = $name(0);

            /// Whether all bits of `other` are set.
            #[inline]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }
        impl std::ops::BitOr for $name {
            type Output = $name;
            #[inline]
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

constants! {
    /// Outcome of a call into a provider. Negative values are failures.
    Status(i32) {
        /// Done.
        OK = 0;
        /// Begun; an event will tell.
        PENDING = 1;
        /// A queue, table or limit is full. Nothing changed; a later try may work.
        NO_RESOURCE = -1;
        /// An argument the provider cannot make sense of.
        INVALID = -2;
        /// The provider does not have this operation.
        NOT_SUPPORTED = -3;
        /// The channel is not, or no longer, connected.
        NOT_CONNECTED = -4;
        /// The port already has a listener.
        IN_USE = -5;
        /// The peer cannot be reached.
        UNREACHABLE = -6;
        /// The address is of a kind this provider cannot use.
        BAD_ADDRESS = -7;
        /// The operating system forbids it.
        PERMISSION = -8;
        /// There is no such device on this machine.
        NO_DEVICE = -9;
        /// The provider panicked; the panic stopped at the boundary.
        PANICKED = -10;
        /// An operating system call failed.
        IO = -11;
        /// A parameter of the configuration is unknown or out of range.
        BAD_CONFIG = -12;
        /// The request is gone: its peer gave up.
        GONE = -13;
        /// Called in a child made by fork from the process that opened the device.
        FORKED = -14;
        /// Made by the host when a provider's answer makes no sense; never return it.
        FAULTY = -15;
    }
}

constants! {
    /// What a request does.
    Opcode(u16) {
        /// Message into the peer's next posted receive.
        SEND = 0;
        /// Local memory to remote memory.
        WRITE = 1;
        /// Remote memory to local memory.
        READ = 2;
        /// [`Opcode::WRITE`], then the peer's next receive completes with [`Request::imm`]. With [`Caps::IMMEDIATE`].
        WRITE_IMM = 3;
        /// [`Opcode::SEND`] whose receive completes with [`Request::imm`]. With [`Caps::IMMEDIATE`].
        SEND_IMM = 4;
        /// [`Opcode::SEND`] that ends the peer's window [`Request::rkey`] before its receive completes. With
        /// [`Caps::SEND_INVALIDATE`].
        SEND_INVALIDATE = 5;
        /// [`AtomicRequest`]: adds to a remote word, the old value goes to local memory. With [`Caps::ATOMICS`].
        FETCH_ADD = 6;
        /// [`AtomicRequest`]: replaces a remote word that is as expected; the old value goes to local memory.
        CMP_SWAP = 7;
        /// [`BindRequest`]; for a provider's own books, no [`Request`] has it.
        BIND = 8;
    }
}

constants! {
    /// Flags of a request.
    PostFlag(u16) {
        /// The peer's completion is marked [`CompletionFlag::SOLICITED`].
        SOLICITED = 1;
        /// Start only when all earlier reads of the channel completed.
        FENCE = 2;
        /// On a receive: complete with [`CompletionStatus::LOCAL_ACCESS`] when a message would use it.
        POISON = 4;
        /// A success needs no completion of its own (the provider may give one); a failure still has one. A later
        /// completion of the channel's requests says that this one succeeded. A provider that keeps successes silent
        /// has [`crate::Channel::settle`]. Of [`ChannelAttr::max_requests`] in a row at most half are so.
        UNSIGNALLED = 8;
    }
}
bits!(PostFlag(u16));

constants! {
    /// How a request or receive ended.
    CompletionStatus(u32) {
        /// Done.
        SUCCESS = 0;
        /// The message was longer than the receive.
        LOCAL_LENGTH = 1;
        /// A local segment could not be accessed.
        LOCAL_ACCESS = 2;
        /// Key, right, range or zone at the peer.
        REMOTE_ACCESS = 3;
        /// The peer failed the request.
        REMOTE_ERROR = 4;
        /// The link or the peer is gone.
        TRANSPORT = 5;
        /// The peer had no receive posted for longer than the provider's bound.
        NOT_READY = 6;
        /// The peer's answer made no sense.
        BAD_RESPONSE = 7;
        /// The message arrived incomplete.
        PARTIAL = 8;
        /// A memory window could not be bound or ended.
        WINDOW = 9;
        /// The channel itself is in no order for the operation.
        LOCAL_CHANNEL = 10;
    }
}

constants! {
    /// Marks of a completion.
    CompletionFlag(u32) {
        /// The sender asked for a solicited completion.
        SOLICITED = 1;
        /// Receive: [`Completion::imm`] is the sender's immediate value.
        IMMEDIATE = 2;
        /// Receive: the message ended the window whose key is [`Completion::imm`].
        INVALIDATED = 4;
        /// Receive: a write with an immediate value used it; `length` is what was written, the buffer is untouched.
        WRITTEN = 8;
    }
}
bits!(CompletionFlag(u32));

constants! {
    /// Rights on registered memory.
    Access(u32) {
        /// Source of sends and writes.
        LOCAL_READ = 0x01;
        /// Source of a peer's reads.
        REMOTE_READ = 0x02;
        /// Sink of receives and reads.
        LOCAL_WRITE = 0x10;
        /// Sink of a peer's writes.
        REMOTE_WRITE = 0x20;
        /// Target of a peer's atomic operations.
        REMOTE_ATOMIC = 0x40;
        /// Windows may be bound to it.
        WINDOW = 0x80;
    }
}
bits!(Access(u32));

constants! {
    /// What a device can do beyond messages, one-sided writes and reads. The engine refuses the rest.
    Caps(u64) {
        /// Allocates memory that peers reach fastest ([`crate::Device::alloc`]).
        ALLOC = 0x01;
        /// A message that finds no receive waits without limit, rather than breaking the connection.
        RECEIVER_WAITS = 0x02;
        /// Bytes of a one-sided write become visible in address order, the last byte last.
        WRITE_ORDERED = 0x04;
        /// Reaches peers in other processes.
        INTER_PROCESS = 0x08;
        /// Reaches peers on other hosts.
        INTER_HOST = 0x10;
        /// Has [`Opcode::FETCH_ADD`] and [`Opcode::CMP_SWAP`].
        ATOMICS = 0x20;
        /// Has [`Opcode::WRITE_IMM`] and [`Opcode::SEND_IMM`].
        IMMEDIATE = 0x40;
        /// Has shared receive queues ([`crate::Device::open_srq`]).
        SRQ = 0x80;
        /// Has memory windows ([`crate::Device::open_window`], [`crate::Channel::bind`]).
        WINDOWS = 0x100;
        /// Has [`Opcode::SEND_INVALIDATE`].
        SEND_INVALIDATE = 0x200;
        /// Registers memory of other devices ([`crate::Device::register_dmabuf`]).
        DMABUF = 0x400;
    }
}
bits!(Caps(u64));

constants! {
    /// Kind of an [`Event`].
    EventKind(u32) {
        /// A peer asks to connect: `user` is the listener's, `request` names it, `peer`, `peer_port`, `qos`, `data`.
        REQUEST = 1;
        /// A channel is connected. On the connecting side `data` is the acceptor's.
        ESTABLISHED = 2;
        /// The peer's consumer refused; `data` is its reason.
        REJECTED = 3;
        /// Refused by something else: no listener, backlog, a protocol fault.
        REFUSED = 4;
        /// The peer cannot be reached.
        UNREACHABLE = 5;
        /// An accept did not lead to a connection: the peer is gone.
        ACCEPT_FAILED = 6;
        /// The peer ended the connection in order.
        DISCONNECTED = 7;
        /// The connection broke.
        BROKEN = 8;
        /// The device is unusable from now on.
        DEVICE_LOST = 9;
        /// A shared receive queue has fewer receives left than it was armed for; `user` is its own.
        SRQ_LIMIT = 10;
        /// A port of the device went down; connections live on for as long as the fabric lets them.
        PORT_DOWN = 11;
        /// A port of the device came up.
        PORT_UP = 12;
    }
}

constants! {
    /// Why a request is rejected.
    RejectReason(u32) {
        /// The consumer said no; the peer sees [`EventKind::REJECTED`].
        CONSUMER = 1;
        /// The engine said no (backlog, quality of service); the peer sees [`EventKind::REFUSED`].
        PROVIDER = 2;
    }
}

/// A stretch of local registered memory. Only [`crate::host::SpanTable`] makes one, from memory that is registered.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Segment {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
}

impl Segment {
    /// A segment without a [`crate::host::SpanTable`], for tests and benchmarks that call a provider directly.
    ///
    /// # Safety
    /// The range lies inside memory registered under `lkey`, for as long as a post that names it is outstanding; `len`
    /// is not 0.
    pub const unsafe fn from_parts(addr: u64, len: u32, lkey: u32) -> Segment {
        Segment { addr, len, lkey }
    }

    /// Address of the first byte in this process.
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes, not 0.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// The local key [`crate::Device::register`] gave.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }
}

/// One request: a send, write or read, each in its variants.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct Request {
    /// Comes back in the completion.
    pub token: u64,
    pub(crate) segs: *const Segment,
    pub(crate) nsegs: u32,
    /// What to do.
    pub opcode: Opcode,
    /// How.
    pub flags: PostFlag,
    /// Sum of the segments' lengths.
    pub total: u64,
    /// Write and read: first byte at the peer.
    pub remote_addr: u64,
    /// Write and read: key the peer gave out.
    pub rkey: u32,
    /// Read: bytes to read, at most `total`. Write: 0.
    pub remote_len: u32,
    /// Immediate value, for the opcodes that carry one; the receiver sees the same number.
    pub imm: u32,
    pub(crate) reserved: u32,
}

/// One atomic operation on an aligned 64-bit word at the peer.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct AtomicRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// [`Opcode::FETCH_ADD`] or [`Opcode::CMP_SWAP`].
    pub opcode: Opcode,
    /// How.
    pub flags: PostFlag,
    /// Key the peer gave out, with [`Access::REMOTE_ATOMIC`].
    pub rkey: u32,
    /// The word at the peer, aligned to 8 bytes.
    pub remote_addr: u64,
    /// What to add, or what the word is expected to be.
    pub operand: u64,
    /// What the word becomes when it is as expected.
    pub swap: u64,
    /// Eight bytes that receive the old value, in this host's byte order.
    pub sink: Segment,
}

/// Binding of a memory window, a request like others: it completes in order, with an event.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct BindRequest {
    /// Comes back in the completion.
    pub token: u64,
    /// What [`crate::Device::open_window`] gave.
    pub window: u64,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) lkey: u32,
    /// Remote rights of the window; none when it is unbound.
    pub access: Access,
    /// How.
    pub flags: PostFlag,
    pub(crate) reserved: u16,
}

impl BindRequest {
    /// The range to open, of registered memory that has [`Access::WINDOW`]; `None`: end what the window is bound to.
    pub fn range(&self) -> Option<Segment> {
        (self.len != 0).then_some(Segment { addr: self.addr, len: self.len, lkey: self.lkey })
    }
}

/// One receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, StableAbi)]
pub struct RecvRequest {
    /// Comes back in the completion.
    pub token: u64,
    pub(crate) segs: *const Segment,
    pub(crate) nsegs: u32,
    /// Only [`PostFlag::POISON`] means something here.
    pub flags: PostFlag,
    pub(crate) reserved: u16,
    /// Sum of the segments' lengths.
    pub total: u64,
}

impl Request {
    /// Segments are named by pointer only: whoever passes the result on keeps them where they are.
    #[inline]
    pub(crate) fn new(
        opcode: Opcode,
        flags: PostFlag,
        token: u64,
        segments: &[Segment],
        total: u64,
        remote: crate::host::Remote,
        imm: u32,
    ) -> Request {
        Request {
            token,
            segs: segments.as_ptr(),
            nsegs: segments.len() as u32,
            opcode,
            flags,
            total,
            remote_addr: remote.addr,
            rkey: remote.rkey,
            remote_len: remote.len,
            imm,
            reserved: 0,
        }
    }

    /// A request without a [`crate::host::Channel`], for tests and benchmarks that call a provider directly.
    ///
    /// # Safety
    /// `segments` outlives the result.
    pub unsafe fn from_parts(opcode: Opcode, token: u64, segments: &[Segment]) -> Request {
        let total = segments.iter().map(|segment| u64::from(segment.len)).sum();
        Request::new(opcode, PostFlag::NONE, token, segments, total, crate::host::Remote::default(), 0)
    }
}

impl RecvRequest {
    /// As [`Request::new`].
    #[inline]
    pub(crate) fn new(flags: PostFlag, token: u64, segments: &[Segment], total: u64) -> RecvRequest {
        let (segs, nsegs) = (segments.as_ptr(), segments.len() as u32);
        RecvRequest { token, segs, nsegs, flags, reserved: 0, total }
    }

    /// As [`Request::from_parts`].
    ///
    /// # Safety
    /// `segments` outlives the result.
    pub unsafe fn from_parts(token: u64, segments: &[Segment]) -> RecvRequest {
        let total = segments.iter().map(|segment| u64::from(segment.len)).sum();
        RecvRequest::new(PostFlag::NONE, token, segments, total)
    }
}

macro_rules! segments {
    ($($type:ident),*) => {$(
        impl $type {
            /// The local segments, none of them empty. Copy what is needed after the call.
            #[inline]
            pub fn segments(&self) -> &[Segment] {
                if self.nsegs == 0 {
                    return &[];
                }
                // SAFETY: the fields are private to this crate; `host` fills them from a slice that outlives the call.
                unsafe { std::slice::from_raw_parts(self.segs, self.nsegs as usize) }
            }
        }
    )*};
}
segments!(Request, RecvRequest);

/// One finished request or receive.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct Completion {
    /// The token of the post.
    pub token: u64,
    /// The number given for this channel and direction when the channel was opened.
    pub user: u64,
    /// How it ended.
    pub status: CompletionStatus,
    /// Bytes transferred.
    pub length: u32,
    /// Marks.
    pub flags: CompletionFlag,
    /// Immediate value or key, as `flags` says; else 0.
    pub imm: u32,
}

/// The most private data any provider carries, in bytes.
pub const MAX_PRIVATE_DATA: usize = 512;

/// Something that happened on a device.
#[repr(C)]
#[derive(Clone, Copy, StableAbi)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Request: the quality of service the peer asked for.
    pub qos: u32,
    /// The listener's or channel's number.
    pub user: u64,
    /// Request: its name, for accept and reject.
    pub request: u64,
    /// Request: the port that was asked for.
    pub port: u64,
    /// Request: the peer's port.
    pub peer_port: u64,
    /// Request: the peer's address.
    pub peer: SockAddr,
    /// Bytes of private data in `data`.
    pub data_len: u32,
    /// Private data.
    pub data: [u8; MAX_PRIVATE_DATA],
}

impl Event {
    /// An event of this kind for this listener or channel, everything else zero.
    pub fn new(kind: EventKind, user: u64) -> Event {
        Event {
            kind,
            qos: 0,
            user,
            request: 0,
            port: 0,
            peer_port: 0,
            peer: SockAddr::UNSPECIFIED,
            data_len: 0,
            data: [0; MAX_PRIVATE_DATA],
        }
    }

    /// The same with private data; longer than [`MAX_PRIVATE_DATA`] is cut.
    pub fn with_data(mut self, data: &[u8]) -> Event {
        let len = data.len().min(MAX_PRIVATE_DATA);
        self.data[..len].copy_from_slice(&data[..len]);
        self.data_len = len as u32;
        self
    }

    /// The private data.
    pub fn data(&self) -> &[u8] {
        &self.data[..(self.data_len as usize).min(MAX_PRIVATE_DATA)]
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("user", &self.user)
            .field("request", &self.request)
            .field("port", &self.port)
            .field("data_len", &self.data_len)
            .finish_non_exhaustive()
    }
}

/// An internet address, with a port where one is meant.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, StableAbi)]
pub struct SockAddr {
    /// 4, 6, or 0 for none.
    pub family: u16,
    /// Host order; 0 where none is meant.
    pub port: u16,
    /// Scope of a link-local IPv6 address.
    pub scope: u32,
    /// Network order; an IPv4 address takes the first four bytes.
    pub bytes: [u8; 16],
}

impl SockAddr {
    /// No address.
    pub const UNSPECIFIED: SockAddr = SockAddr { family: 0, port: 0, scope: 0, bytes: [0; 16] };

    /// As the standard library has it, or `None` when unspecified or unknown.
    pub fn to_std(self) -> Option<SocketAddr> {
        let ip = match self.family {
            4 => {
                let [a, b, c, d, ..] = self.bytes;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            6 => IpAddr::V6(Ipv6Addr::from(self.bytes)),
            _ => return None,
        };
        let mut addr = SocketAddr::new(ip, self.port);
        if let SocketAddr::V6(v6) = &mut addr {
            v6.set_scope_id(self.scope);
        }
        Some(addr)
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> SockAddr {
        let mut out = SockAddr { port: addr.port(), ..SockAddr::from(addr.ip()) };
        if let SocketAddr::V6(v6) = addr {
            out.scope = v6.scope_id();
        }
        out
    }
}

impl From<IpAddr> for SockAddr {
    fn from(ip: IpAddr) -> SockAddr {
        let mut out = SockAddr::UNSPECIFIED;
        match ip {
            IpAddr::V4(v4) => {
                out.family = 4;
                out.bytes[..4].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out.family = 6;
                out.bytes = v6.octets();
            }
        }
        out
    }
}

impl std::fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_std() {
            Some(addr) => write!(f, "{addr}"),
            None => f.write_str("no address"),
        }
    }
}

/// What a device can do. Counts are objects, sizes bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
#[allow(missing_docs, reason = "max_X is the most X, per channel where the name says so")]
pub struct DeviceAttr {
    pub caps: Caps,
    /// The device's own address; peers connect to it.
    pub address: SockAddr,
    pub max_channels: u32,
    pub max_queues: u32,
    pub max_queue_depth: u32,
    pub max_regions: u32,
    pub max_requests_per_channel: u32,
    pub max_recvs_per_channel: u32,
    /// Segments of a send or receive.
    pub max_segments: u32,
    pub max_read_segments: u32,
    pub max_write_segments: u32,
    /// Reads a channel may have under way, as initiator and as target.
    pub max_reads_per_channel: u32,
    pub max_message: u64,
    pub max_rdma: u64,
    pub max_region: u64,
    /// At request, accept and reject; at most [`MAX_PRIVATE_DATA`].
    pub max_private_data: u32,
    /// OR of the quality of service values offered, as DAT numbers them.
    pub qos: u32,
    /// Advice for buffers.
    pub alignment: u32,
    pub max_srqs: u32,
    pub max_srq_depth: u32,
    pub max_srq_segments: u32,
    pub max_windows: u32,
    pub reserved: u32,
}

/// What a channel is to be able to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
#[allow(missing_docs, reason = "max_X is the most X outstanding or in one post")]
pub struct ChannelAttr {
    /// Comes back in the channel's events.
    pub user: u64,
    /// Comes back in the completions of requests.
    pub send_user: u64,
    /// Comes back in the completions of receives.
    pub recv_user: u64,
    /// Remote access through this channel is limited to registrations of this protection domain.
    pub domain: u32,
    pub max_requests: u32,
    pub max_recvs: u32,
    pub max_request_segments: u32,
    pub max_recv_segments: u32,
    pub max_reads_out: u32,
    pub max_reads_in: u32,
    pub reserved: u32,
    pub max_message: u64,
}

/// What a shared receive queue is to be able to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct SrqAttr {
    /// Comes back in [`EventKind::SRQ_LIMIT`].
    pub user: u64,
    /// Most receives in it.
    pub depth: u32,
    /// Most segments of a receive.
    pub max_segments: u32,
    /// Protection domain of the receives' memory.
    pub domain: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Keys of a registration.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, StableAbi)]
pub struct Keys {
    /// For local segments.
    pub lkey: u32,
    /// For peers; 0 when no remote right was asked for.
    pub rkey: u32,
}

/// Memory a provider allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct Block {
    /// Address of the first byte, aligned to a page.
    pub addr: u64,
    /// Length in bytes, at least what was asked for.
    pub len: u64,
    /// Names the block when it is freed.
    pub handle: u64,
}
