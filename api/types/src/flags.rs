//! Flags and small enumerations. Values are those of the public headers.

use bitflags::bitflags;

bitflags! {
    /// Completion flags: attribute of an endpoint's direction, or of one post (spec: events).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CompletionFlags: u32 {
        /// No event on success.
        const SUPPRESS = 0x01;
        /// The matching receive at the peer is a notification, if it waits for solicited ones only.
        const SOLICITED_WAIT = 0x02;
        /// The event is queued but is no notification.
        const UNSIGNALLED = 0x04;
        /// Start only after all earlier RDMA reads of the endpoint completed.
        const BARRIER_FENCE = 0x08;
        /// As an attribute: waiters unblock at their threshold. Same as the default, 0.
        const EVD_THRESHOLD = 0x10;
    }
}

bitflags! {
    /// The kinds of events an EVD takes (spec: events).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdFlags: u32 {
        /// Events posted by the Consumer.
        const SOFTWARE = 0x001;
        /// Arrivals of connection requests.
        const CR = 0x010;
        /// Completions of data transfers.
        const DTO = 0x020;
        /// Connection events of endpoints.
        const CONNECTION = 0x040;
        /// Completions of memory window binds.
        const RMR_BIND = 0x080;
        /// Asynchronous errors.
        const ASYNC = 0x100;
        /// All but software events.
        const DEFAULT = 0x1F0;
    }
}

impl EvdFlags {
    /// Index of each stream in the merging matrix (spec: events).
    pub const STREAMS: [EvdFlags; 6] = [
        EvdFlags::SOFTWARE,
        EvdFlags::CR,
        EvdFlags::DTO,
        EvdFlags::CONNECTION,
        EvdFlags::RMR_BIND,
        EvdFlags::ASYNC,
    ];
}

bitflags! {
    /// State of an EVD as a query shows it. The three CONFIG values are a two-bit field: compare, do not test.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EvdState: u32 {
        /// The CNO is triggered by notifications.
        const ENABLED = 0x01;
        /// The CNO is not triggered.
        const DISABLED = 0x02;
        /// Waiting is allowed.
        const WAITABLE = 0x04;
        /// Waiting is refused.
        const UNWAITABLE = 0x08;
        /// Feeders use UNSIGNALLED.
        const CONFIG_NOTIFY = 0x10;
        /// Feeders use SOLICITED_WAIT.
        const CONFIG_SOLICITED = 0x20;
        /// Waiters unblock at their threshold.
        const CONFIG_THRESHOLD = 0x30;
    }
}

bitflags! {
    /// Rights on registered memory (spec: memory).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Privileges: u32 {
        /// Source of sends and RDMA writes.
        const LOCAL_READ = 0x01;
        /// Source of a peer's RDMA reads.
        const REMOTE_READ = 0x02;
        /// Sink of receives and RDMA reads.
        const LOCAL_WRITE = 0x10;
        /// Sink of a peer's RDMA writes.
        const REMOTE_WRITE = 0x20;
        /// Target of a peer's atomic operations.
        const REMOTE_ATOMIC = 0x40;
        /// All four of the base API.
        const ALL = 0x33;
    }
}

bitflags! {
    /// Memory types a provider can register beyond plain virtual memory, which all can.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct MemTypes: u32 {
        /// A new registration over an existing one.
        const LMR = 0x01;
        /// Memory shared by several processes.
        const SHARED_VIRTUAL = 0x02;
    }
}

bitflags! {
    /// Flags of a connect.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ConnectFlags: u32 {
        /// Several paths if the provider has them.
        const MULTIPATH_REQUESTED = 0x01;
        /// Several paths or no connection.
        const MULTIPATH_REQUIRED = 0x02;
    }
}

/// How to disconnect an endpoint or close an IA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum CloseFlags {
    /// At once: outstanding work is flushed.
    #[default]
    Abrupt = 0,
    /// Endpoint: after its outstanding requests. IA: only if no object is left.
    Graceful = 1,
}

impl CloseFlags {
    /// The value of the C constant, or `None` for any other.
    pub fn from_raw(value: u32) -> Option<CloseFlags> {
        [CloseFlags::Abrupt, CloseFlags::Graceful].into_iter().find(|flag| *flag as u32 == value)
    }
}

/// Who supplies the endpoint for a request that arrives at a public service point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PspFlags {
    /// The Consumer names one when accepting.
    #[default]
    Consumer = 0,
    /// The provider makes one for each request.
    Provider = 1,
}

impl PspFlags {
    /// The value of the C constant, or `None` for any other.
    pub fn from_raw(value: u32) -> Option<PspFlags> {
        [PspFlags::Consumer, PspFlags::Provider].into_iter().find(|flag| *flag as u32 == value)
    }
}

/// Quality of service: one value per request; as a provider attribute, an OR of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Qos(pub u32);

impl Qos {
    /// Always supported.
    pub const BEST_EFFORT: Qos = Qos(0);
    /// Prefer bandwidth.
    pub const HIGH_THROUGHPUT: Qos = Qos(1);
    /// Prefer latency.
    pub const LOW_LATENCY: Qos = Qos(2);
    /// Prefer cost.
    pub const ECONOMY: Qos = Qos(4);
    /// The best there is.
    pub const PREMIUM: Qos = Qos(8);

    /// Whether this is one defined value.
    pub fn is_defined(self) -> bool {
        matches!(self.0, 0 | 1 | 2 | 4 | 8)
    }
}

/// Kind of transport service of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ServiceType(pub u32);

impl ServiceType {
    /// Reliable connection, the only one of the base API.
    pub const RC: ServiceType = ServiceType(0);
    /// Unreliable datagram (extension).
    pub const UD: ServiceType = ServiceType(1);
}
