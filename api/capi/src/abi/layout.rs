//! Sizes, offsets and values, compared with what a C compiler makes of the headers in `include`. `tests/headers` compares
//! these with Debian's.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use super::*;

/// What C should answer to each expression.
fn expectations() -> Vec<(String, u64)> {
    let mut all: Vec<(String, u64)> = Vec::new();
    macro_rules! structure {
        ($c:literal = $rust:ty { $($field:ident),* $(,)? } $($c_field:literal = $other:ident),*) => {
            all.push((format!("sizeof({})", $c), size_of::<$rust>() as u64));
            $(all.push((
                format!("offsetof({}, {})", $c, stringify!($field)),
                offset_of!($rust, $field) as u64,
            ));)*
            $(all.push((format!("offsetof({}, {})", $c, $c_field), offset_of!($rust, $other) as u64));)*
        };
    }
    structure!("DAT_LMR_TRIPLET" = LmrTriplet {} "virtual_address" = address, "segment_length" = length, "lmr_context" = context);
    structure!("DAT_RMR_TRIPLET" = RmrTriplet {} "virtual_address" = address, "segment_length" = length, "rmr_context" = context);
    structure!("DAT_NAMED_ATTR" = NamedAttr { name, value });
    structure!("DAT_COMM" = Comm { domain, protocol } "type" = kind);
    structure!(
        "DAT_IA_ATTR" = IaAttr {
            adapter_name,
            vendor_name,
            hardware_version_major,
            hardware_version_minor,
            firmware_version_major,
            firmware_version_minor,
            ia_address_ptr,
            max_eps,
            max_dto_per_ep,
            max_rdma_read_per_ep_in,
            max_rdma_read_per_ep_out,
            max_evds,
            max_evd_qlen,
            max_iov_segments_per_dto,
            max_lmrs,
            max_lmr_block_size,
            max_lmr_virtual_address,
            max_pzs,
            max_message_size,
            max_rdma_size,
            max_rmrs,
            max_rmr_target_address,
            max_srqs,
            max_ep_per_srq,
            max_recv_per_srq,
            max_iov_segments_per_rdma_read,
            max_iov_segments_per_rdma_write,
            max_rdma_read_in,
            max_rdma_read_out,
            max_rdma_read_per_ep_in_guaranteed,
            max_rdma_read_per_ep_out_guaranteed,
            zb_supported,
            extension_supported,
            extension_version,
            num_transport_attr,
            transport_attr,
            num_vendor_attr,
            vendor_attr,
        }
    );
    structure!(
        "DAT_PROVIDER_ATTR" = ProviderAttr {
            provider_name,
            provider_version_major,
            provider_version_minor,
            dapl_version_major,
            dapl_version_minor,
            lmr_mem_types_supported,
            iov_ownership_on_return,
            dat_qos_supported,
            completion_flags_supported,
            is_thread_safe,
            max_private_data_size,
            supports_multipath,
            ep_creator,
            pz_support,
            optimal_buffer_alignment,
            evd_stream_merging_supported,
            srq_supported,
            srq_watermarks_supported,
            srq_ep_pz_difference_supported,
            srq_info_supported,
            ep_recv_info_supported,
            lmr_sync_req,
            dto_async_return_guaranteed,
            rdma_write_for_rdma_read_req,
            rdma_read_lmr_rmr_context_exposure,
            rmr_scope_supported,
            is_signal_safe,
            ha_supported,
            ha_loadbalancing,
            num_provider_specific_attr,
            provider_specific_attr,
        }
    );
    structure!(
        "DAT_EP_ATTR" = EpAttr {
            service_type,
            max_message_size,
            max_rdma_size,
            qos,
            recv_completion_flags,
            request_completion_flags,
            max_recv_dtos,
            max_request_dtos,
            max_recv_iov,
            max_request_iov,
            max_rdma_read_in,
            max_rdma_read_out,
            srq_soft_hw,
            max_rdma_read_iov,
            max_rdma_write_iov,
            ep_transport_specific_count,
            ep_transport_specific,
            ep_provider_specific_count,
            ep_provider_specific,
        }
    );
    structure!(
        "DAT_EP_PARAM" = EpParam {
            ia_handle,
            ep_state,
            comm,
            local_ia_address_ptr,
            local_port_qual,
            remote_ia_address_ptr,
            remote_port_qual,
            pz_handle,
            recv_evd_handle,
            request_evd_handle,
            connect_evd_handle,
            srq_handle,
            ep_attr,
        }
    );
    structure!("DAT_SRQ_ATTR" = SrqAttr { max_recv_dtos, max_recv_iov, low_watermark });
    structure!(
        "DAT_SRQ_PARAM" = SrqParam {
            ia_handle,
            srq_state,
            pz_handle,
            max_recv_dtos,
            max_recv_iov,
            low_watermark,
            available_dto_count,
            outstanding_dto_count,
        }
    );
    structure!("DAT_PZ_PARAM" = PzParam { ia_handle });
    structure!("DAT_PSP_PARAM" = PspParam { ia_handle, conn_qual, evd_handle, psp_flags });
    structure!("DAT_RSP_PARAM" = RspParam { ia_handle, conn_qual, evd_handle, ep_handle });
    structure!("DAT_CSP_PARAM" = CspParam { ia_handle, comm, address_ptr, evd_handle });
    structure!(
        "DAT_CR_PARAM" = CrParam {
            remote_ia_address_ptr,
            remote_port_qual,
            private_data_size,
            private_data,
            local_ep_handle,
        }
    );
    structure!("DAT_EVD_PARAM" = EvdParam { ia_handle, evd_qlen, evd_state, cno_handle, evd_flags });
    structure!("DAT_REGION_DESCRIPTION" = RegionDescription {}
        "for_va" = first, "for_lmr_handle" = first, "for_shared_memory.virtual_address" = first,
        "for_shared_memory.shared_memory_id" = second);
    structure!(
        "DAT_LMR_PARAM" = LmrParam {
            ia_handle,
            mem_type,
            region_desc,
            length,
            pz_handle,
            mem_priv,
            va_type,
            lmr_context,
            rmr_context,
            registered_size,
            registered_address,
        }
    );
    structure!(
        "DAT_RMR_PARAM" =
            RmrParam { ia_handle, pz_handle, lmr_triplet, mem_priv, rmr_context, rmr_scope, va_type }
    );
    structure!("DAT_OS_WAIT_PROXY_AGENT" = Agent { instance_data, proxy_agent_func });
    structure!("DAT_CNO_PARAM" = CnoParam { ia_handle, proxy_type, proxy });
    structure!(
        "DAT_DTO_COMPLETION_EVENT_DATA" =
            DtoData { ep_handle, user_cookie, status, transfered_length, operation, rmr_context }
    );
    structure!("DAT_RMR_BIND_COMPLETION_EVENT_DATA" = RmrBindData { rmr_handle, user_cookie, status });
    structure!(
        "DAT_CR_ARRIVAL_EVENT_DATA" =
            CrArrivalData { sp_handle, local_ia_address_ptr, conn_qual, cr_handle, truncate_flag }
    );
    structure!("DAT_CONNECTION_EVENT_DATA" = ConnectionData { ep_handle, private_data_size, private_data });
    structure!("DAT_ASYNCH_ERROR_EVENT_DATA" = AsyncData { dat_handle, reason });
    structure!("DAT_EVENT_DATA" = EventData {});
    structure!("DAT_EVENT" = Event { event_number, evd_handle, event_data } "event_extension_data" = extension);
    // Where `event::extend` writes.
    for (field, at) in [("type", 0), ("status", 4), ("val.immed.data", 8)] {
        all.push((format!("offsetof(DAT_IB_EXTENSION_EVENT_DATA, {field})"), at));
    }
    structure!(
        "DAT_PROVIDER_INFO" =
            ProviderInfo { ia_name, dapl_version_major, dapl_version_minor, is_thread_safe }
    );
    all.extend(offsets().into_iter().map(|(field, at)| (format!("offsetof(DAT_PROVIDER, {field})"), at)));
    all.push(("sizeof(DAT_PROVIDER)".to_owned(), size_of::<Provider>() as u64));
    all.extend(values());
    all
}

/// Constants this library uses or hands through, by their names in the headers.
fn values() -> Vec<(String, u64)> {
    use dat_types::*;
    let mut all: Vec<(&str, u64)> = vec![
        ("DAT_NAME_MAX_LENGTH", NAME_MAX as u64),
        ("(uintptr_t)DAT_EVD_ASYNC_EXISTS", ASYNC_EXISTS as u64),
        ("(uintptr_t)DAT_EVD_OUT_OF_SCOPE", OUT_OF_SCOPE as u64),
        ("DAT_IA_FIELD_ALL", 0x3F_FFFF_FFFF),
        ("DAT_PROVIDER_FIELD_ALL", 0x7FFF_FFFF),
        ("DAT_EP_FIELD_ALL", dat_engine::EpMask::all().bits()),
        ("DAT_EVD_DEFAULT_FLAG", EvdFlags::DEFAULT.bits().into()),
        ("DAT_EVD_STATE_CONFIG_THRESHOLD", EvdState::CONFIG_THRESHOLD.bits().into()),
        ("DAT_MEM_PRIV_ALL_FLAG", Privileges::ALL.bits().into()),
        ("DAT_IB_MEM_PRIV_REMOTE_ATOMIC", Privileges::REMOTE_ATOMIC.bits().into()),
        ("DAT_COMPLETION_SUPPRESS_FLAG", CompletionFlags::SUPPRESS.bits().into()),
        ("DAT_COMPLETION_SOLICITED_WAIT_FLAG", CompletionFlags::SOLICITED_WAIT.bits().into()),
        ("DAT_COMPLETION_UNSIGNALLED_FLAG", CompletionFlags::UNSIGNALLED.bits().into()),
        ("DAT_COMPLETION_BARRIER_FENCE_FLAG", CompletionFlags::BARRIER_FENCE.bits().into()),
        ("DAT_COMPLETION_EVD_THRESHOLD_FLAG", CompletionFlags::EVD_THRESHOLD.bits().into()),
        ("DAT_CLOSE_GRACEFUL_FLAG", CloseFlags::Graceful as u64),
        ("DAT_PSP_PROVIDER_FLAG", PspFlags::Provider as u64),
        ("DAT_TIMEOUT_INFINITE", Timeout::INFINITE.0.into()),
        ("DAT_QOS_PREMIUM", Qos::PREMIUM.0.into()),
        ("DAT_EP_STATE_CONNECTED", EpState::Connected as u64),
        ("DAT_EP_STATE_CONNECTED_MULTI_PATH", EpState::ConnectedMultiPath as u64),
        ("DAT_DTO_ERR_PARTIAL_PACKET", DtoStatus::PartialPacket as u64),
        ("DAT_DTO_BIND_MW", DtoOperation::BindMw as u64),
        ("DAT_CONNECTION_EVENT_UNREACHABLE", ConnectionKind::Unreachable as u64),
        ("DAT_SOFTWARE_EVENT", crate::event::event_number::SOFTWARE.into()),
        ("DAT_PSP_CREATES_EP_IFASKED", EpCreator::IfAsked as u64),
        ("DAT_RMR_SCOPE_ANY", RmrScope::Any as u64),
        ("DAT_EXTENSION_IB", Extension::Ib as u64),
        ("DCNT_IA_ALL_COUNTERS", IaCounter::ALL.len() as u64),
        ("DCNT_EP_ALL_COUNTERS", EpCounter::ALL.len() as u64),
        ("DCNT_EVD_ALL_COUNTERS", EvdCounter::ALL.len() as u64),
    ];
    all.extend([
        ("DAT_HANDLE_TYPE_EP", Kind::Ep as u64),
        ("DAT_HANDLE_TYPE_RMR", Kind::Rmr as u64),
        ("DAT_HANDLE_TYPE_CSP", Kind::Csp as u64),
    ]);
    let mut all: Vec<(String, u64)> = all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    all.extend(IaCounter::ALL.iter().map(|counter| (counter.name().to_owned(), *counter as u64)));
    all.extend(EpCounter::ALL.iter().map(|counter| (counter.name().to_owned(), *counter as u64)));
    all.extend(EvdCounter::ALL.iter().map(|counter| (counter.name().to_owned(), *counter as u64)));
    // Every return type and subtype, by the name this project prints for it.
    for number in 0..0x4000u32 {
        if let Some((name, _)) = ReturnCode(0x8000_0000 | number << 16).names() {
            all.push((format!("(uint32_t){name}"), (number << 16).into()));
        }
    }
    for number in 0..=u32::from(u16::MAX) {
        if let Some((_, name)) = ReturnCode(0x8000_0000 | number).names() {
            all.push((format!("(uint32_t){name}"), number.into()));
        }
    }
    all
}

#[test]
fn every_layout_and_value_is_what_c_says() {
    let expectations = expectations();
    let mut source = String::from(
        "#include <dat2/udat.h>\n#include <dat2/dat_registry.h>\n#include <dat2/dat_ib_extensions.h>\n\
         int main(void) {\n",
    );
    for (expression, _) in &expectations {
        let _ = writeln!(source, "    printf(\"%llu\\n\", (unsigned long long)({expression}));");
    }
    source.push_str("    return 0;\n}\n");
    let folder = tempfile::tempdir().expect("a folder");
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).expect("written");
    let built = Command::new("cc")
        .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
        .arg(&file)
        .arg("-o")
        .arg(&program)
        .output();
    let built = built.expect("a C compiler named cc; install gcc");
    let complaint = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{complaint}");
    let printed = Command::new(&program).output().expect("runs");
    let answers: Vec<u64> = String::from_utf8_lossy(&printed.stdout)
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(answers.len(), expectations.len());
    let wrong: Vec<String> = expectations
        .iter()
        .zip(answers)
        .filter(|((_, ours), theirs)| ours != theirs)
        .map(|((expression, ours), theirs)| format!("{expression}: {ours} here, {theirs} in C"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
