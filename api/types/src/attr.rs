//! Attributes of adapters, providers, endpoints and shared receive queues (contract section 10).

use std::net::IpAddr;

use crate::{
    CompletionFlags, Extension, HaLoadBalancing, IovOwnership, MemTypes, PzSupport, Qos, RmrScope,
    ServiceType,
};

/// What an interface adapter can do (`DAT_IA_ATTR`). Counts are objects, sizes are bytes.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is the attribute of the same name in contract section 10.1")]
pub struct IaAttr {
    pub adapter_name: String,
    pub vendor_name: String,
    pub hardware_version: (u32, u32),
    pub firmware_version: (u32, u32),
    pub address: IpAddr,
    pub max_eps: u32,
    pub max_dto_per_ep: u32,
    pub max_rdma_read_per_ep_in: u32,
    pub max_rdma_read_per_ep_out: u32,
    pub max_evds: u32,
    pub max_evd_qlen: u32,
    pub max_iov_segments_per_dto: u32,
    pub max_iov_segments_per_rdma_read: u32,
    pub max_iov_segments_per_rdma_write: u32,
    pub max_lmrs: u32,
    pub max_lmr_block_size: u64,
    pub max_lmr_virtual_address: u64,
    pub max_pzs: u32,
    pub max_message_size: u64,
    pub max_rdma_size: u64,
    pub max_rmrs: u32,
    pub max_rmr_target_address: u64,
    pub max_srqs: u32,
    pub max_ep_per_srq: u32,
    pub max_recv_per_srq: u32,
    pub max_rdma_read_in: u32,
    pub max_rdma_read_out: u32,
    pub max_rdma_read_per_ep_in_guaranteed: bool,
    pub max_rdma_read_per_ep_out_guaranteed: bool,
    pub zb_supported: bool,
    pub extension_supported: Extension,
    pub extension_version: u32,
    /// Name and value of what only this transport has.
    pub transport_attr: Vec<(String, String)>,
    /// Name and value of what only this vendor has.
    pub vendor_attr: Vec<(String, String)>,
}

/// Who supplies endpoints for public service points, as a provider reports it.
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
#[allow(missing_docs, reason = "each field is the attribute of the same name in contract section 10.2")]
pub struct ProviderAttr {
    pub provider_name: String,
    pub provider_version: String,
    pub provider_version_number: (u32, u32),
    pub dapl_version: (u32, u32),
    pub iov_ownership_on_return: IovOwnership,
    pub pz_support: PzSupport,
    pub lmr_mem_types_supported: MemTypes,
    pub qos_supported: Qos,
    pub completion_flags_supported: CompletionFlags,
    pub is_thread_safe: bool,
    pub max_private_data_size: u32,
    pub supports_multipath: bool,
    pub ep_creator: EpCreator,
    pub optimal_buffer_alignment: u32,
    pub srq_supported: bool,
    /// 1: the low watermark of a shared receive queue; 2: the soft, 4: the hard high watermark of an endpoint.
    pub srq_watermarks_supported: u32,
    pub srq_ep_pz_difference_supported: bool,
    /// 1: receives not taken yet, 2: receives not reaped yet are told by a query of a shared receive queue.
    pub srq_info_supported: u32,
    /// 1: receives held, 2: their span are told by `dat_ep_recv_query`.
    pub ep_recv_info_supported: u32,
    pub lmr_sync_req: bool,
    pub dto_async_return_guaranteed: bool,
    pub rdma_write_for_rdma_read_req: bool,
    pub rdma_read_lmr_rmr_context_exposure: bool,
    pub rmr_scope_supported: RmrScope,
    pub is_signal_safe: bool,
    pub ha_supported: bool,
    pub ha_loadbalancing: HaLoadBalancing,
    /// Pairs of event streams that may share an EVD, in the order of [`crate::EvdFlags::STREAMS`].
    pub evd_stream_merging_supported: [[bool; 6]; 6],
    /// Name and value of everything only this provider has.
    pub provider_specific: Vec<(String, String)>,
}

/// Attributes of an endpoint (`DAT_EP_ATTR`). Sizes are bytes, `dtos` operations, `iov` segments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the attribute of the same name in contract section 10.3")]
pub struct EpAttr {
    pub service_type: ServiceType,
    pub max_message_size: u64,
    pub max_rdma_size: u64,
    pub qos: Qos,
    pub recv_completion_flags: CompletionFlags,
    pub request_completion_flags: CompletionFlags,
    pub max_recv_dtos: u32,
    pub max_request_dtos: u32,
    pub max_recv_iov: u32,
    pub max_request_iov: u32,
    pub max_rdma_read_in: u32,
    pub max_rdma_read_out: u32,
    /// 0 means the same as `max_request_iov` (decision D-41).
    pub max_rdma_read_iov: u32,
    /// 0 means the same as `max_request_iov` (decision D-41).
    pub max_rdma_write_iov: u32,
    /// Soft high watermark of an endpoint with a shared receive queue; 0 is off.
    pub srq_soft_hw: u32,
    /// Names and values. [`EpAttr::SINGLE_THREADED`] is known with every provider, and no other.
    pub transport_specific: Vec<(String, String)>,
    pub provider_specific: Vec<(String, String)>,
}

impl EpAttr {
    /// Name of the transport attribute that says whether one thread uses the endpoint: `true` or `false`, which is the
    /// default. That thread then takes no lock for the endpoint's posts and completions, from its first call on a
    /// connection on, and again at once after another one called. Others may call all the same and are served correctly;
    /// it costs them, and that thread, microseconds.
    pub const SINGLE_THREADED: &'static str = "single_threaded";

    /// The same attributes, for an endpoint that one thread uses ([`EpAttr::SINGLE_THREADED`]).
    #[must_use]
    pub fn single_threaded(mut self) -> EpAttr {
        self.transport_specific.retain(|(name, _)| name != EpAttr::SINGLE_THREADED);
        self.transport_specific.push((EpAttr::SINGLE_THREADED.into(), "true".into()));
        self
    }

    /// Whether they say that one thread uses the endpoint.
    pub fn is_single_threaded(&self) -> bool {
        self.transport_specific.iter().any(|(name, value)| name == EpAttr::SINGLE_THREADED && value == "true")
    }
}

impl Default for EpAttr {
    /// The defaults of contract section 10.5, before they are clipped to a device.
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
#[allow(missing_docs, reason = "each field is the attribute of the same name in contract section 9.1")]
pub struct SrqAttr {
    pub max_recv_dtos: u32,
    pub max_recv_iov: u32,
    pub low_watermark: u32,
}
