//! The C types of uDAPL 2.0: sizes, offsets and values are those of the public headers, compared with a C compiler's
//! answers by `tests/layout.rs`. C enumerations are plain integers here, so that any value is a value.
#![allow(missing_docs, reason = "each item is the header's item of the same name")]

use std::ffi::{c_char, c_int, c_void};

mod provider;

pub use provider::Provider;
pub(crate) use provider::for_each_function;
#[cfg(test)]
pub use provider::offsets;

/// Any handle.
pub type Handle = *mut c_void;
/// `DAT_RETURN`.
pub type Return = u32;
/// `DAT_COUNT`.
pub type Count = i32;
/// A union of pointer, index and 64 bits: `DAT_CONTEXT`, `DAT_DTO_COOKIE`, `DAT_RMR_COOKIE`.
pub type Context = u64;
/// `DAT_BOOLEAN`.
pub type Boolean = u32;
/// `DAT_IA_ADDRESS_PTR`.
pub type Address = *mut libc::sockaddr;

pub const NAME_MAX: usize = 256;
/// `DAT_EVD_ASYNC_EXISTS`.
pub const ASYNC_EXISTS: usize = 1;
/// `DAT_EVD_OUT_OF_SCOPE`.
pub const OUT_OF_SCOPE: usize = 2;
pub const NULL: Handle = std::ptr::null_mut();

pub use dat_types::{LmrTriplet, RmrTriplet};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct NamedAttr {
    pub name: *const c_char,
    pub value: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Comm {
    pub domain: c_int,
    pub kind: c_int,
    pub protocol: c_int,
}

#[repr(C)]
pub struct IaAttr {
    pub adapter_name: [c_char; NAME_MAX],
    pub vendor_name: [c_char; NAME_MAX],
    pub hardware_version_major: u32,
    pub hardware_version_minor: u32,
    pub firmware_version_major: u32,
    pub firmware_version_minor: u32,
    pub ia_address_ptr: Address,
    pub max_eps: Count,
    pub max_dto_per_ep: Count,
    pub max_rdma_read_per_ep_in: Count,
    pub max_rdma_read_per_ep_out: Count,
    pub max_evds: Count,
    pub max_evd_qlen: Count,
    pub max_iov_segments_per_dto: Count,
    pub max_lmrs: Count,
    pub max_lmr_block_size: u32,
    pub max_lmr_virtual_address: u64,
    pub max_pzs: Count,
    pub max_message_size: u32,
    pub max_rdma_size: u32,
    pub max_rmrs: Count,
    pub max_rmr_target_address: u64,
    pub max_srqs: Count,
    pub max_ep_per_srq: Count,
    pub max_recv_per_srq: Count,
    pub max_iov_segments_per_rdma_read: Count,
    pub max_iov_segments_per_rdma_write: Count,
    pub max_rdma_read_in: Count,
    pub max_rdma_read_out: Count,
    pub max_rdma_read_per_ep_in_guaranteed: Boolean,
    pub max_rdma_read_per_ep_out_guaranteed: Boolean,
    pub zb_supported: Boolean,
    pub extension_supported: u32,
    pub extension_version: Count,
    pub num_transport_attr: Count,
    pub transport_attr: *const NamedAttr,
    pub num_vendor_attr: Count,
    pub vendor_attr: *const NamedAttr,
}

#[repr(C)]
pub struct ProviderAttr {
    pub provider_name: [c_char; NAME_MAX],
    pub provider_version_major: u32,
    pub provider_version_minor: u32,
    pub dapl_version_major: u32,
    pub dapl_version_minor: u32,
    pub lmr_mem_types_supported: u32,
    pub iov_ownership_on_return: u32,
    pub dat_qos_supported: u32,
    pub completion_flags_supported: u32,
    pub is_thread_safe: Boolean,
    pub max_private_data_size: Count,
    pub supports_multipath: Boolean,
    pub ep_creator: u32,
    pub pz_support: u32,
    pub optimal_buffer_alignment: u32,
    pub evd_stream_merging_supported: [[Boolean; 6]; 6],
    pub srq_supported: Boolean,
    pub srq_watermarks_supported: Count,
    pub srq_ep_pz_difference_supported: Boolean,
    pub srq_info_supported: Count,
    pub ep_recv_info_supported: Count,
    pub lmr_sync_req: Boolean,
    pub dto_async_return_guaranteed: Boolean,
    pub rdma_write_for_rdma_read_req: Boolean,
    pub rdma_read_lmr_rmr_context_exposure: Boolean,
    pub rmr_scope_supported: u32,
    pub is_signal_safe: Boolean,
    pub ha_supported: Boolean,
    pub ha_loadbalancing: u32,
    pub num_provider_specific_attr: Count,
    pub provider_specific_attr: *const NamedAttr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct EpAttr {
    pub service_type: u32,
    pub max_message_size: u32,
    pub max_rdma_size: u32,
    pub qos: u32,
    pub recv_completion_flags: u32,
    pub request_completion_flags: u32,
    pub max_recv_dtos: Count,
    pub max_request_dtos: Count,
    pub max_recv_iov: Count,
    pub max_request_iov: Count,
    pub max_rdma_read_in: Count,
    pub max_rdma_read_out: Count,
    pub srq_soft_hw: Count,
    pub max_rdma_read_iov: Count,
    pub max_rdma_write_iov: Count,
    pub ep_transport_specific_count: Count,
    pub ep_transport_specific: *const NamedAttr,
    pub ep_provider_specific_count: Count,
    pub ep_provider_specific: *const NamedAttr,
}

#[repr(C)]
pub struct EpParam {
    pub ia_handle: Handle,
    pub ep_state: u32,
    pub comm: Comm,
    pub local_ia_address_ptr: Address,
    pub local_port_qual: u64,
    pub remote_ia_address_ptr: Address,
    pub remote_port_qual: u64,
    pub pz_handle: Handle,
    pub recv_evd_handle: Handle,
    pub request_evd_handle: Handle,
    pub connect_evd_handle: Handle,
    pub srq_handle: Handle,
    pub ep_attr: EpAttr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SrqAttr {
    pub max_recv_dtos: Count,
    pub max_recv_iov: Count,
    pub low_watermark: Count,
}

#[repr(C)]
pub struct SrqParam {
    pub ia_handle: Handle,
    pub srq_state: u32,
    pub pz_handle: Handle,
    pub max_recv_dtos: Count,
    pub max_recv_iov: Count,
    pub low_watermark: Count,
    pub available_dto_count: Count,
    pub outstanding_dto_count: Count,
}

#[repr(C)]
pub struct PzParam {
    pub ia_handle: Handle,
}

#[repr(C)]
pub struct PspParam {
    pub ia_handle: Handle,
    pub conn_qual: u64,
    pub evd_handle: Handle,
    pub psp_flags: u32,
}

#[repr(C)]
pub struct RspParam {
    pub ia_handle: Handle,
    pub conn_qual: u64,
    pub evd_handle: Handle,
    pub ep_handle: Handle,
}

#[repr(C)]
pub struct CspParam {
    pub ia_handle: Handle,
    pub comm: *const Comm,
    pub address_ptr: Address,
    pub evd_handle: Handle,
}

#[repr(C)]
pub struct CrParam {
    pub remote_ia_address_ptr: Address,
    pub remote_port_qual: u64,
    pub private_data_size: Count,
    pub private_data: *const c_void,
    pub local_ep_handle: Handle,
}

#[repr(C)]
pub struct EvdParam {
    pub ia_handle: Handle,
    pub evd_qlen: Count,
    pub evd_state: u32,
    pub cno_handle: Handle,
    pub evd_flags: u32,
}

/// A union of pointer, handle, and pointer with cookie; the second word is the cookie's address.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RegionDescription {
    pub first: *mut c_void,
    pub second: *mut c_void,
}

#[repr(C)]
pub struct LmrParam {
    pub ia_handle: Handle,
    pub mem_type: u32,
    pub region_desc: RegionDescription,
    pub length: u64,
    pub pz_handle: Handle,
    pub mem_priv: u32,
    pub va_type: u32,
    pub lmr_context: u32,
    pub rmr_context: u32,
    pub registered_size: u64,
    pub registered_address: u64,
}

#[repr(C)]
pub struct RmrParam {
    pub ia_handle: Handle,
    pub pz_handle: Handle,
    pub lmr_triplet: LmrTriplet,
    pub mem_priv: u32,
    pub rmr_context: u32,
    pub rmr_scope: u32,
    pub va_type: u32,
}

/// `DAT_AGENT_FUNC`.
pub type AgentFunction = unsafe extern "C" fn(data: *mut c_void, evd: Handle);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Agent {
    pub instance_data: *mut c_void,
    pub proxy_agent_func: Option<AgentFunction>,
}

/// The union's three members: an agent, a descriptor, nothing.
#[repr(C)]
pub union Proxy {
    pub agent: Agent,
    pub fd: c_int,
    pub none: *mut c_void,
}

#[repr(C)]
pub struct CnoParam {
    pub ia_handle: Handle,
    pub proxy_type: u32,
    pub proxy: Proxy,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DtoData {
    pub ep_handle: Handle,
    pub user_cookie: Context,
    pub status: u32,
    pub transfered_length: u32,
    pub operation: u32,
    pub rmr_context: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RmrBindData {
    pub rmr_handle: Handle,
    pub user_cookie: Context,
    pub status: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct CrArrivalData {
    pub sp_handle: Handle,
    pub local_ia_address_ptr: Address,
    pub conn_qual: u64,
    pub cr_handle: Handle,
    pub truncate_flag: Boolean,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnectionData {
    pub ep_handle: Handle,
    pub private_data_size: Count,
    pub private_data: *const c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsyncData {
    pub dat_handle: Handle,
    pub reason: Count,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union EventData {
    pub dto: DtoData,
    pub rmr_bind: RmrBindData,
    pub cr_arrival: CrArrivalData,
    pub connect: ConnectionData,
    pub asynch: AsyncData,
    pub software: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Event {
    pub event_number: u32,
    pub evd_handle: Handle,
    pub event_data: EventData,
    pub extension: [u64; 8],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ProviderInfo {
    pub ia_name: [c_char; NAME_MAX],
    pub dapl_version_major: u32,
    pub dapl_version_minor: u32,
    pub is_thread_safe: Boolean,
}

/// Object kinds, `DAT_HANDLE_TYPE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    Cr = 0,
    Ep,
    Evd,
    Ia,
    Lmr,
    Psp,
    Pz,
    Rmr,
    Rsp,
    Cno,
    Srq,
    Csp,
}

#[cfg(test)]
mod layout;
