//! Attributes of adapters, providers, endpoints and shared receive queues (spec: attributes).

use std::net::IpAddr;

use crate::{
    CompletionFlags, Extension, HaLoadBalancing, IovOwnership, MemTypes, PzSupport, Qos, RmrScope,
    ServiceType,
};

/// What an interface adapter can do (`DAT_IA_ATTR`). Counts are objects, sizes are bytes.
#[derive(Clone, Debug)]
pub struct IaAttr {
    /// Name of the adapter in the registry, at most 255 bytes.
    pub adapter_name: String,
    /// Name and version of the provider, at most 255 bytes.
    pub vendor_name: String,
    /// Hardware version, major and minor; 0 if unknown.
    pub hardware_version: (u32, u32),
    /// Firmware version, major and minor; 0 if unknown.
    pub firmware_version: (u32, u32),
    /// The adapter's own address, for service points and as the source of connections.
    pub address: IpAddr,
    /// Largest number of endpoints at one time. One more is `DAT_INSUFFICIENT_RESOURCES` (spec: endpoint, C-020).
    pub max_eps: u32,
    /// Largest `max_recv_dtos` and `max_request_dtos` of an endpoint, in operations.
    pub max_dto_per_ep: u32,
    /// Largest `max_rdma_read_in` of an endpoint: reads by its peer at one time.
    pub max_rdma_read_per_ep_in: u32,
    /// Largest `max_rdma_read_out` of an endpoint, in reads that it issues.
    pub max_rdma_read_per_ep_out: u32,
    /// Largest number of event dispatchers at one time.
    pub max_evds: u32,
    /// Greatest length of an event dispatcher, in events. A longer one is `DAT_INSUFFICIENT_RESOURCES` (spec: events,
    /// C-234).
    pub max_evd_qlen: u32,
    /// Most segments of a send or receive.
    pub max_iov_segments_per_dto: u32,
    /// Most local segments of an RDMA read.
    pub max_iov_segments_per_rdma_read: u32,
    /// Most local segments of an RDMA write.
    pub max_iov_segments_per_rdma_write: u32,
    /// Largest number of memory regions at one time.
    pub max_lmrs: u32,
    /// Greatest length of a memory region, in bytes. A longer one is `DAT_INVALID_PARAMETER`.
    pub max_lmr_block_size: u64,
    /// Highest virtual address that can be registered.
    pub max_lmr_virtual_address: u64,
    /// Largest number of protection zones at one time.
    pub max_pzs: u32,
    /// Most bytes of one send, and of one receive.
    pub max_message_size: u64,
    /// Most bytes of one RDMA write or read.
    pub max_rdma_size: u64,
    /// Largest number of memory windows at one time; 0 without windows.
    pub max_rmrs: u32,
    /// Highest address a memory window can have.
    pub max_rmr_target_address: u64,
    /// Largest number of shared receive queues at one time; 0 without them.
    pub max_srqs: u32,
    /// Most endpoints that share one receive queue; 0 without shared queues.
    pub max_ep_per_srq: u32,
    /// Most receives of one shared queue; 0 without shared queues.
    pub max_recv_per_srq: u32,
    /// Most RDMA reads by all peers of the adapter at one time.
    pub max_rdma_read_in: u32,
    /// Most RDMA reads that the whole adapter issues at one time.
    pub max_rdma_read_out: u32,
    /// Whether every endpoint can have `max_rdma_read_per_ep_in` at the same time.
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    /// Whether every endpoint can have `max_rdma_read_per_ep_out` at the same time.
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    /// Whether regions can have zero-based addresses. Always `false`: such a request is `DAT_MODEL_NOT_SUPPORTED` (spec:
    /// memory, C-304).
    pub zb_supported: bool,
    /// The extension interface: [`Extension::Ib`] if the provider has atomic operations or immediate data.
    pub extension_supported: Extension,
    /// Version of the extension interface as its header counts; 0 without one.
    pub extension_version: u32,
    /// Names and values of attributes that only this transport has.
    pub transport_attr: Vec<(String, String)>,
    /// Names and values of attributes that only this vendor has.
    pub vendor_attr: Vec<(String, String)>,
}

/// Whether a provider makes endpoints for public service points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum EpCreator {
    /// Never the provider.
    Never = 0,
    /// The provider if the service point asks for it.
    IfAsked = 1,
    /// Always the provider.
    Always = 2,
}

/// What a provider can do (`DAT_PROVIDER_ATTR`).
#[derive(Clone, Debug)]
pub struct ProviderAttr {
    /// Name of the adapter in the registry.
    pub provider_name: String,
    /// Name and version of the provider as text.
    pub provider_version: String,
    /// Version of the provider, major and minor.
    pub provider_version_number: (u32, u32),
    /// Version of the API: 2.0.
    pub dapl_version: (u32, u32),
    /// Owner of a list of segments after the post returned. Always the consumer, which may reuse the list.
    pub iov_ownership_on_return: IovOwnership,
    /// Whether adapters share protection zones.
    pub pz_support: PzSupport,
    /// Kinds of memory regions besides virtual memory, which every provider has.
    pub lmr_mem_types_supported: MemTypes,
    /// Qualities of service on offer, as a union. An endpoint that requests another is `DAT_MODEL_NOT_SUPPORTED` (spec:
    /// endpoint, C-019).
    pub qos_supported: Qos,
    /// Completion flags that endpoints and posts may have.
    pub completion_flags_supported: CompletionFlags,
    /// Whether every call may be made by several threads on one object. Always `true`.
    pub is_thread_safe: bool,
    /// Most bytes of private data with a connect, accept or reject; at least 64 (spec: adapter, C-344). More is
    /// `DAT_INVALID_PARAMETER`.
    pub max_private_data_size: u32,
    /// Whether a connection can use several paths. Where it cannot, a connect that requires them is
    /// `DAT_MODEL_NOT_SUPPORTED` (spec: connection, C-066).
    pub supports_multipath: bool,
    /// Whether the provider makes endpoints for public service points.
    pub ep_creator: EpCreator,
    /// Alignment of buffers that suits the device best, in bytes. It divides 256, and is advice.
    pub optimal_buffer_alignment: u32,
    /// Whether there are shared receive queues. Without them `dat_srq_create` is `DAT_MODEL_NOT_SUPPORTED`.
    pub srq_supported: bool,
    /// Watermarks, as a union of 1: low watermark of a shared queue, 2: soft and 4: hard high watermark of an endpoint.
    pub srq_watermarks_supported: u32,
    /// Whether an endpoint and its shared receive queue may have distinct zones (spec: shared_receive, C-191).
    pub srq_ep_pz_difference_supported: bool,
    /// Counts in a query of a shared receive queue, as a union of 1: available, 2: outstanding.
    pub srq_info_supported: u32,
    /// Counts that `dat_ep_recv_query` returns, as a union of 1: receives held, 2: span.
    pub ep_recv_info_supported: u32,
    /// Whether memory must be synchronised around RDMA. Where it is `false` the calls only check their ranges.
    pub lmr_sync_req: bool,
    /// Whether errors of local memory are always returned by the post. Always `true`: the engine checks every segment.
    pub dto_async_return_guaranteed: bool,
    /// Whether the local memory of an RDMA read needs the right REMOTE_WRITE.
    pub rdma_write_for_rdma_read_req: bool,
    /// Whether an RDMA read exposes its local memory to the peer.
    pub rdma_read_lmr_rmr_context_exposure: bool,
    /// What a memory window can be used through: one endpoint, all endpoints of its zone, or either.
    pub rmr_scope_supported: RmrScope,
    /// Whether a wait goes on after a signal. Where it is `false` the wait returns `DAT_INTERRUPTED_CALL` (spec: events,
    /// C-245).
    pub is_signal_safe: bool,
    /// Whether the provider offers high availability.
    pub ha_supported: bool,
    /// How traffic is spread over paths.
    pub ha_loadbalancing: HaLoadBalancing,
    /// Pairs of event streams that may share an event dispatcher, in the order of [`crate::EvdFlags::STREAMS`]. Symmetric,
    /// with a diagonal of `true`. Other pairs are `DAT_INVALID_PARAMETER` (spec: events, C-236).
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    /// Names and values of attributes that only this provider has, for example `DAT_INTER_HOST` with `TRUE` or `FALSE`.
    pub provider_specific: Vec<(String, String)>,
}

/// Attributes of an endpoint (`DAT_EP_ATTR`). Sizes are bytes, `dtos` operations, `iov` segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpAttr {
    /// Type of the connection. Default and only value: reliable connection. Any other is `DAT_MODEL_NOT_SUPPORTED` at
    /// create and `DAT_INVALID_PARAMETER` at modify (spec: endpoint, K-1).
    pub service_type: ServiceType,
    /// Most bytes of one send; a longer one is `DAT_INVALID_PARAMETER`. Default 2^31, clipped to the adapter's
    /// `max_message_size`, which is the limit (spec: endpoint, K-4).
    pub max_message_size: u64,
    /// Most bytes of one RDMA write or read; a longer one is `DAT_INVALID_PARAMETER`. Default 2^31, clipped to the
    /// adapter's `max_rdma_size`, which is the limit (spec: endpoint, K-4).
    pub max_rdma_size: u64,
    /// One quality of service. Default best effort. The provider may refuse any other: `DAT_MODEL_NOT_SUPPORTED` at create
    /// (spec: endpoint, C-019), `DAT_INVALID_PARAMETER` at modify.
    pub qos: Qos,
    /// How receives notify: default flags, UNSIGNALLED, SOLICITED_WAIT or EVD_THRESHOLD (the default). The engine refuses
    /// other values and clashes on a shared dispatcher with `DAT_INVALID_PARAMETER` (spec: endpoint, K-5, K-7, K-8, K-9).
    /// A change with receives posted is `DAT_INVALID_STATE`.
    pub recv_completion_flags: CompletionFlags,
    /// How requests notify: default flags, UNSIGNALLED or EVD_THRESHOLD (the default). The engine refuses other values and
    /// clashes on a shared dispatcher with `DAT_INVALID_PARAMETER` (spec: endpoint, K-6, K-7, K-8).
    pub request_completion_flags: CompletionFlags,
    /// Most receives outstanding; one more is `DAT_INSUFFICIENT_RESOURCES`. Default 16. It is 0 exactly without a receive
    /// dispatcher (spec: endpoint, K-2), and at most the adapter's `max_dto_per_ep`.
    pub max_recv_dtos: u32,
    /// Most requests outstanding, binds and extensions included; one more is `DAT_INSUFFICIENT_RESOURCES`. Default 16. It
    /// is 0 exactly without a request dispatcher (spec: endpoint, K-3), and at most the adapter's `max_dto_per_ep`. With a
    /// shared receive queue it is a lower bound (spec: endpoint, K-11).
    pub max_request_dtos: u32,
    /// Most segments of a receive; a longer list is `DAT_INVALID_PARAMETER`. Default 4, at most the adapter's
    /// `max_iov_segments_per_dto`. Without meaning with a shared receive queue (spec: endpoint, K-11).
    pub max_recv_iov: u32,
    /// Most segments of a send; a longer list is `DAT_INVALID_PARAMETER`. Default 4, at most the adapter's
    /// `max_iov_segments_per_dto`. It is 0 without a request dispatcher (spec: endpoint, K-3).
    pub max_request_iov: u32,
    /// RDMA reads of the peer in progress at one time. Default 4, at most the adapter's `max_rdma_read_per_ep_in`. It
    /// must not be below the peer's `max_rdma_read_out` (spec: conflicts, D-40).
    pub max_rdma_read_in: u32,
    /// RDMA reads issued at one time; further ones wait. Default 4, at most the adapter's `max_rdma_read_per_ep_out`. With
    /// 0 every read is `DAT_INVALID_PARAMETER` (spec: conflicts, D-16).
    pub max_rdma_read_out: u32,
    /// Most local segments of an RDMA read, at most the adapter's `max_iov_segments_per_rdma_read`. Default 0: the same as
    /// `max_request_iov` (spec: conflicts, D-41).
    pub max_rdma_read_iov: u32,
    /// Most local segments of an RDMA write, at most the adapter's `max_iov_segments_per_rdma_write`. Default 0: the same
    /// as `max_request_iov` (spec: conflicts, D-41).
    pub max_rdma_write_iov: u32,
    /// Soft high watermark of receives at create; default 0, which is off (spec: shared_receive, C-195).
    pub srq_soft_hw: u32,
    /// Names and values, none by default. [`EpAttr::SINGLE_THREADED`] is the only known name, over every provider. Other
    /// names and values are `DAT_INVALID_PARAMETER` (spec: endpoint, C-166).
    pub transport_specific: Vec<(String, String)>,
    /// Names and values, none by default. No name is known; each is `DAT_INVALID_PARAMETER` (spec: endpoint, C-167).
    pub provider_specific: Vec<(String, String)>,
}

impl EpAttr {
    /// Name of the transport attribute by which a program declares that one thread uses the endpoint: `true` or `false`
    /// (the default). That thread then takes no lock for posts and completions, from its first call on a connection.
    /// The declaration is advice: calls of other threads are correct, and cost both threads microseconds (spec: threads,
    /// P-030).
    pub const SINGLE_THREADED: &'static str = "single_threaded";

    /// The same attributes, for an endpoint that one thread uses ([`EpAttr::SINGLE_THREADED`]).
    #[must_use]
    pub fn single_threaded(mut self) -> EpAttr {
        self.transport_specific.retain(|(name, _)| name != EpAttr::SINGLE_THREADED);
        self.transport_specific.push((EpAttr::SINGLE_THREADED.into(), "true".into()));
        self
    }

    /// Whether the attributes declare that one thread uses the endpoint.
    pub fn is_single_threaded(&self) -> bool {
        self.transport_specific.iter().any(|(name, value)| name == EpAttr::SINGLE_THREADED && value == "true")
    }
}

impl Default for EpAttr {
    /// The defaults, before they are clipped to the limits of an adapter (spec: attributes).
    fn default() -> EpAttr {
        EpAttr {
            service_type: ServiceType::RC,
            max_message_size: 0x8000_0000,
            max_rdma_size: 0x8000_0000,
            qos: Qos::BEST_EFFORT,
            recv_completion_flags: CompletionFlags::EVD_THRESHOLD,
            request_completion_flags: CompletionFlags::EVD_THRESHOLD,
            max_recv_dtos: 16,
            max_request_dtos: 16,
            max_recv_iov: 4,
            max_request_iov: 4,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            max_rdma_read_iov: 0,
            max_rdma_write_iov: 0,
            srq_soft_hw: 0,
            transport_specific: Vec::new(),
            provider_specific: Vec::new(),
        }
    }
}

/// Attributes of a shared receive queue (`DAT_SRQ_ATTR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqAttr {
    /// Least number of receives that the queue holds, from 1 to the adapter's `max_recv_per_srq`. Otherwise
    /// `DAT_INVALID_PARAMETER`. The queue may hold more (spec: shared_receive, C-321).
    pub max_recv_dtos: u32,
    /// Least number of segments of a receive, from 1 to the adapter's `max_iov_segments_per_dto`. Otherwise
    /// `DAT_INVALID_PARAMETER`.
    pub max_recv_iov: u32,
    /// Receives below which an event is raised. It must be 0, which is off; otherwise `DAT_INVALID_PARAMETER` (spec:
    /// conflicts, D-18). Set it after create.
    pub low_watermark: u32,
}
