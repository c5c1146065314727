//! What an adapter and its provider can do, as `dat_ia_query` tells it (spec: attributes).

use dat_plugin::Caps;
use dat_plugin::host::SpanTable;
use dat_types::{
    CompletionFlags, EpCreator, Extension, HaLoadBalancing, IaAttr, IovOwnership, MemTypes, ProviderAttr,
    PzSupport, Qos, Result, RmrScope,
};

use crate::adapter::inner::Ia;

/// The version of the extensions' interface, as their header numbers it.
const EXTENSION_VERSION: u32 = 209;

/// Low watermark of shared receive queues, soft and hard high watermark of endpoints.
const WATERMARKS: u32 = 0b111;
/// Both numbers a query can tell.
const BOTH: u32 = 0b11;

impl Ia {
    /// `dat_ia_query`: the adapter's attributes.
    pub fn query(&self) -> Result<IaAttr> {
        self.device("dat_ia_query")?;
        let attr = self.inner.attr();
        let iov = self.inner.max_iov();
        let extended = attr.caps.contains(Caps::ATOMICS) || attr.caps.contains(Caps::IMMEDIATE);
        Ok(IaAttr {
            adapter_name: self.inner.name().to_owned(),
            vendor_name: self.inner.version().to_owned(),
            hardware_version: (0, 0),
            firmware_version: (0, 0),
            address: self.inner.address(),
            max_eps: attr.max_channels,
            max_dto_per_ep: attr.max_requests_per_channel.min(attr.max_recvs_per_channel),
            max_rdma_read_per_ep_in: attr.max_reads_per_channel,
            max_rdma_read_per_ep_out: attr.max_reads_per_channel,
            max_evds: attr.max_queues,
            max_evd_qlen: attr.max_queue_depth,
            max_iov_segments_per_dto: iov,
            max_iov_segments_per_rdma_read: attr.max_read_segments.min(iov),
            max_iov_segments_per_rdma_write: attr.max_write_segments.min(iov),
            max_lmrs: attr.max_regions.min(SpanTable::CAPACITY as u32),
            max_lmr_block_size: attr.max_region,
            max_lmr_virtual_address: u64::MAX,
            max_pzs: u32::MAX,
            max_message_size: attr.max_message,
            max_rdma_size: attr.max_rdma,
            max_rmrs: attr.max_windows,
            max_rmr_target_address: u64::MAX,
            max_srqs: attr.max_srqs,
            max_ep_per_srq: if attr.max_srqs > 0 { attr.max_channels } else { 0 },
            max_recv_per_srq: attr.max_srq_depth,
            max_rdma_read_in: attr.max_reads_per_channel.saturating_mul(attr.max_channels),
            max_rdma_read_out: attr.max_reads_per_channel.saturating_mul(attr.max_channels),
            max_rdma_read_per_ep_in_guaranteed: true,
            max_rdma_read_per_ep_out_guaranteed: true,
            zb_supported: false,
            extension_supported: if extended { Extension::Ib } else { Extension::None },
            extension_version: if extended { EXTENSION_VERSION } else { 0 },
            transport_attr: Vec::new(),
            vendor_attr: Vec::new(),
        })
    }

    /// `dat_ia_query`: the provider's attributes.
    pub fn provider_query(&self) -> Result<ProviderAttr> {
        self.device("dat_ia_query")?;
        let attr = self.inner.attr();
        let has = |caps: Caps| attr.caps.contains(caps);
        let specific = [
            ("DAT_RECEIVER_WAITS", has(Caps::RECEIVER_WAITS)),
            ("DAT_WRITE_ORDERED", has(Caps::WRITE_ORDERED)),
            ("DAT_INTER_PROCESS", has(Caps::INTER_PROCESS)),
            ("DAT_INTER_HOST", has(Caps::INTER_HOST)),
            ("DAT_IB_FETCH_AND_ADD", has(Caps::ATOMICS)),
            ("DAT_IB_CMP_AND_SWAP", has(Caps::ATOMICS)),
            ("DAT_IB_IMMED_DATA", has(Caps::IMMEDIATE)),
            ("DAT_IB_UD", false),
            ("DAT_COUNTERS", true),
        ];
        let srq = has(Caps::SRQ);
        Ok(ProviderAttr {
            provider_name: self.inner.name().to_owned(),
            provider_version: self.inner.version().to_owned(),
            provider_version_number: numbers(self.inner.version()),
            dapl_version: (2, 0),
            lmr_mem_types_supported: MemTypes::LMR | MemTypes::SHARED_VIRTUAL,
            iov_ownership_on_return: IovOwnership::Consumer,
            qos_supported: Qos(attr.qos),
            completion_flags_supported: CompletionFlags::all(),
            is_thread_safe: true,
            max_private_data_size: attr.max_private_data,
            supports_multipath: false,
            ep_creator: EpCreator::IfAsked,
            pz_support: PzSupport::Unique,
            optimal_buffer_alignment: attr.alignment,
            evd_stream_merging_supported: [[true; 6]; 6],
            srq_supported: srq,
            srq_watermarks_supported: if srq { WATERMARKS } else { 0 },
            srq_ep_pz_difference_supported: srq,
            srq_info_supported: if srq { BOTH } else { 0 },
            ep_recv_info_supported: BOTH,
            lmr_sync_req: false,
            dto_async_return_guaranteed: true,
            rdma_write_for_rdma_read_req: false,
            rdma_read_lmr_rmr_context_exposure: false,
            rmr_scope_supported: RmrScope::Pz,
            is_signal_safe: false,
            ha_supported: false,
            ha_loadbalancing: HaLoadBalancing::None,
            provider_specific: specific
                .map(|(name, yes)| (name.to_owned(), if yes { "TRUE" } else { "FALSE" }.to_owned()))
                .into(),
        })
    }
}

/// The first two numbers of the last word of a version: `shm 0.1.0` is 0 and 1.
fn numbers(version: &str) -> (u32, u32) {
    let last = version.split_whitespace().last().unwrap_or_default();
    let mut parts = last.split('.').map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn a_version_is_the_last_word() {
        assert_eq!(numbers("dat-shm 1.12.3"), (1, 12));
        assert_eq!(numbers("0"), (0, 0));
        assert_eq!(numbers("weird v2"), (0, 0));
    }
}
