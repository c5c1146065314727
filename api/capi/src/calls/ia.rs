//! Interface adapters.

use std::ffi::c_char;
use std::sync::{Arc, OnceLock};

use dat_engine::{AsyncEvd, IaOptions, Rules};
use dat_types::{CloseFlags, ReturnType, Subtype};
use parking_lot::Mutex;

use crate::abi::*;
use crate::address::Stored;
use crate::code::{NO_ROOM, Outcome, code, ensure, handle as bad_handle, parameter, put, put_if};
use crate::counter::Base;
use crate::handle;
use crate::names::{self, Refused};
use crate::object::{Evd, Ia, IaRef, find, find_ia};
use crate::text::NamedList;
use crate::{foreign, registered, text};

const IA_MASK: u64 = 0x3F_FFFF_FFFF;
const PROVIDER_MASK: u64 = 0x7FFF_FFFF;

/// A vendor's mark in front of a name, of no meaning here (spec: conflicts, D-27).
const RELAXED_ORDERING: &str = "RO_AWARE_";

/// Gives the provider table for an IA name.
pub type TableOf = fn(&str) -> &'static Provider;

/// `dat_ia_openv`.
pub unsafe fn open(
    c_name: *const c_char,
    qlen: Count,
    evd: *mut Handle,
    ia: *mut Handle,
    version: (u32, u32, bool),
    table: TableOf,
) -> Outcome {
    // SAFETY: as the caller promises, here and below.
    let name = unsafe { name(c_name)? };
    ensure(!evd.is_null(), parameter(Subtype::Arg3))?;
    ensure(!ia.is_null(), bad_handle(Subtype::HandleIa))?;
    // SAFETY: neither is null.
    if let Some(result) = unsafe { foreign::open(&name, c_name, qlen, evd, ia, version) } {
        return result;
    }
    // All our providers are 2.0, and thread-safe, which serves those who do not need it too.
    let (major, minor, _) = version;
    ensure(major == 2, code(ReturnType::ProviderNotFound, Subtype::MajorNotFound))?;
    ensure(minor == 0, code(ReturnType::ProviderNotFound, Subtype::MinorNotFound))?;
    // SAFETY: neither is null.
    let (opened, address) = unsafe { open_with(qlen, evd, table(&name), || names::open(&name))? };
    let Some(number) = handle::assign_number(address) else {
        let _ = end(&opened, address, CloseFlags::Abrupt);
        return Err(NO_ROOM);
    };
    let _ = opened.handle.set(number.into());
    // SAFETY: not null.
    unsafe { put(ia, Subtype::HandleIa, number) }
}

/// The slot another registry calls; it gives the IA a number of its own.
pub unsafe fn open_for_registry(
    c_name: *const c_char,
    qlen: Count,
    evd: *mut Handle,
    ia: *mut Handle,
    table: TableOf,
) -> Outcome {
    // SAFETY: as the caller promises, here and below.
    let name = unsafe { name(c_name)? };
    ensure(!evd.is_null(), parameter(Subtype::Arg3))?;
    ensure(!ia.is_null(), bad_handle(Subtype::HandleIa))?;
    let line = registered::line(&name);
    let open = || match &line {
        Some(line) => names::open_target(&name, &line.params),
        None => names::open(&name),
    };
    // SAFETY: neither is null.
    let (opened, address) = unsafe { open_with(qlen, evd, table(&name), open)? };
    if let Some(line) = line {
        let _ = opened.line.set(line);
    }
    let _ = opened.handle.set(address.into());
    // SAFETY: not null.
    unsafe { put(ia, Subtype::HandleIa, address) }
}

unsafe fn name(c_name: *const c_char) -> Outcome<String> {
    // SAFETY: null or a terminated string.
    let name = unsafe { text::read(c_name) }.ok_or(parameter(Subtype::Arg1))?;
    ensure(!name.is_empty() && name.len() < NAME_MAX, parameter(Subtype::Arg1))?;
    Ok(name.strip_prefix(RELAXED_ORDERING).map_or(name.clone(), str::to_owned))
}

unsafe fn open_with(
    qlen: Count,
    evd: *mut Handle,
    provider: &'static Provider,
    open: impl FnOnce() -> Result<dat_registry::Opened, Refused>,
) -> Outcome<(Arc<Ia>, Handle)> {
    // SAFETY: not null, valid.
    let asked = unsafe { evd.read() };
    ensure(!asked.is_null() || qlen > 0, parameter(Subtype::Arg2))?;
    let opened = open().map_err(|refused| {
        names::complain(&format!("dat_ia_open: {}", refused.message));
        refused.code
    })?;
    let source = match asked as usize {
        0 => AsyncEvd::Own,
        ASYNC_EXISTS => AsyncEvd::Exists,
        _ => AsyncEvd::Shared(find::<Evd>(asked, Subtype::HandleEvdAsync)?.engine),
    };
    let version = format!("{} {}", opened.plugin.name(), opened.plugin.version());
    let options =
        IaOptions { async_evd_min_qlen: qlen.max(1), rules: Rules::Reference, ..IaOptions::default() };
    let engine = dat_engine::Ia::open_with(opened.device, &opened.ia_name, &version, options, source)?;
    let attr = engine.query()?;
    let provider_attr = engine.provider_query()?;
    let id = engine.id();
    let own_evd = engine.async_evd();
    let opened = Arc::new(Ia {
        handle: OnceLock::new(),
        provider,
        address: Stored::of_ip(attr.address),
        transport_attr: NamedList::new(&attr.transport_attr),
        vendor_attr: NamedList::new(&attr.vendor_attr),
        provider_attr: NamedList::new(&[&provider_attr.provider_specific[..], &[mtu(&attr)]].concat()),
        async_evd: OnceLock::new(),
        line: OnceLock::new(),
        reserved: Mutex::default(),
        children: Mutex::default(),
        counters: Base::default(),
        engine,
    });
    let Ok(address) = handle::insert(id, opened.provider, IaRef { ia: opened.clone() }) else {
        let _ = opened.engine.close(CloseFlags::Abrupt);
        return Err(NO_ROOM);
    };
    let async_evd = match asked as usize {
        ASYNC_EXISTS => OUT_OF_SCOPE as Handle,
        0 => {
            let object = Evd { ia: opened.clone(), counters: Arc::default(), engine: own_evd.clone() };
            opened.adopt(own_evd.id(), object).inspect_err(|_| {
                let _ = end(&opened, address, CloseFlags::Abrupt);
            })?
        }
        _ => asked,
    };
    let _ = opened.async_evd.set(async_evd.into());
    // SAFETY: not null, valid.
    unsafe { evd.write(async_evd) };
    Ok((opened, address))
}

/// An attribute of the reference's that programs take the size of their buffers from.
fn mtu(attr: &dat_types::IaAttr) -> (String, String) {
    const USUAL: u64 = 4096;
    ("DAT_IB_TRANSPORT_MTU".to_owned(), attr.max_message_size.min(USUAL).to_string())
}

/// `dat_ia_close`.
pub unsafe fn close(ia: Handle, flags: u32) -> Outcome {
    let address = handle::ia_address(ia);
    let ia = find_ia(ia)?;
    let flags = CloseFlags::from_raw(flags).ok_or(parameter(Subtype::Arg2))?;
    end(&ia, address, flags)
}

fn end(ia: &Arc<Ia>, address: Handle, flags: CloseFlags) -> Outcome {
    ia.engine.close(flags)?;
    ia.disown_all();
    if handle::is_number(ia.handle()) {
        handle::release_number(ia.handle());
    }
    handle::remove::<IaRef>(address);
    Ok(())
}

/// Whether the IA of this name is the same adapter's.
pub unsafe fn related(ia: Handle, other: *const c_char, answer: *mut Boolean) -> Outcome {
    let ia = find_ia(ia)?;
    // SAFETY: null or a terminated string.
    let other = unsafe { text::read(other) }.ok_or(parameter(Subtype::Arg2))?;
    let same = ia.engine.name() == other;
    // SAFETY: null or valid.
    unsafe { put(answer, Subtype::Arg3, same.into()) }
}

/// `dat_ia_query`.
pub unsafe fn query(
    ia: Handle,
    async_evd: *mut Handle,
    ia_mask: u64,
    ia_attr: *mut IaAttr,
    provider_mask: u64,
    provider_attr: *mut ProviderAttr,
) -> Outcome {
    let ia = find_ia(ia)?;
    ensure(ia_mask & !IA_MASK == 0, parameter(Subtype::Arg3))?;
    ensure(ia_mask == 0 || !ia_attr.is_null(), parameter(Subtype::Arg4))?;
    ensure(provider_mask & !PROVIDER_MASK == 0, parameter(Subtype::Arg5))?;
    ensure(provider_mask == 0 || !provider_attr.is_null(), parameter(Subtype::Arg6))?;
    let evd = ia.async_evd.get().map_or(NULL, |evd| evd.0 as Handle);
    if ia_mask != 0 {
        let value = ia_attributes(&ia, ia.engine.query()?);
        // SAFETY: not null, valid.
        unsafe { ia_attr.write(value) };
    }
    if provider_mask != 0 {
        let mut value = provider_attributes(&ia, ia.engine.provider_query()?);
        if let Some(line) = ia.line.get() {
            (value.dapl_version_major, value.dapl_version_minor) = line.version;
            value.is_thread_safe = line.thread_safe.into();
        }
        // SAFETY: not null, valid.
        unsafe { provider_attr.write(value) };
    }
    // SAFETY: null or valid.
    unsafe { put_if(async_evd, evd) };
    Ok(())
}

fn ia_attributes(ia: &Ia, attr: dat_types::IaAttr) -> IaAttr {
    IaAttr {
        adapter_name: text::fixed(&attr.adapter_name),
        vendor_name: text::fixed(&attr.vendor_name),
        hardware_version_major: attr.hardware_version.0,
        hardware_version_minor: attr.hardware_version.1,
        firmware_version_major: attr.firmware_version.0,
        firmware_version_minor: attr.firmware_version.1,
        ia_address_ptr: ia.address.pointer(),
        max_eps: count(attr.max_eps),
        max_dto_per_ep: count(attr.max_dto_per_ep),
        max_rdma_read_per_ep_in: count(attr.max_rdma_read_per_ep_in),
        max_rdma_read_per_ep_out: count(attr.max_rdma_read_per_ep_out),
        max_evds: count(attr.max_evds),
        max_evd_qlen: count(attr.max_evd_qlen),
        max_iov_segments_per_dto: count(attr.max_iov_segments_per_dto),
        max_lmrs: count(attr.max_lmrs),
        max_lmr_block_size: length(attr.max_lmr_block_size),
        max_lmr_virtual_address: attr.max_lmr_virtual_address,
        max_pzs: count(attr.max_pzs),
        max_message_size: length(attr.max_message_size),
        max_rdma_size: length(attr.max_rdma_size),
        max_rmrs: count(attr.max_rmrs),
        max_rmr_target_address: attr.max_rmr_target_address,
        max_srqs: count(attr.max_srqs),
        max_ep_per_srq: count(attr.max_ep_per_srq),
        max_recv_per_srq: count(attr.max_recv_per_srq),
        max_iov_segments_per_rdma_read: count(attr.max_iov_segments_per_rdma_read),
        max_iov_segments_per_rdma_write: count(attr.max_iov_segments_per_rdma_write),
        max_rdma_read_in: count(attr.max_rdma_read_in),
        max_rdma_read_out: count(attr.max_rdma_read_out),
        max_rdma_read_per_ep_in_guaranteed: attr.max_rdma_read_per_ep_in_guaranteed.into(),
        max_rdma_read_per_ep_out_guaranteed: attr.max_rdma_read_per_ep_out_guaranteed.into(),
        zb_supported: attr.zb_supported.into(),
        extension_supported: attr.extension_supported as u32,
        extension_version: count(attr.extension_version),
        num_transport_attr: ia.transport_attr.count(),
        transport_attr: ia.transport_attr.pointer(),
        num_vendor_attr: ia.vendor_attr.count(),
        vendor_attr: ia.vendor_attr.pointer(),
    }
}

fn provider_attributes(ia: &Ia, attr: dat_types::ProviderAttr) -> ProviderAttr {
    ProviderAttr {
        provider_name: text::fixed(&attr.provider_name),
        provider_version_major: attr.provider_version_number.0,
        provider_version_minor: attr.provider_version_number.1,
        dapl_version_major: attr.dapl_version.0,
        dapl_version_minor: attr.dapl_version.1,
        lmr_mem_types_supported: attr.lmr_mem_types_supported.bits(),
        iov_ownership_on_return: attr.iov_ownership_on_return as u32,
        dat_qos_supported: attr.qos_supported.0,
        completion_flags_supported: attr.completion_flags_supported.bits(),
        is_thread_safe: attr.is_thread_safe.into(),
        max_private_data_size: count(attr.max_private_data_size),
        supports_multipath: attr.supports_multipath.into(),
        ep_creator: attr.ep_creator as u32,
        pz_support: attr.pz_support as u32,
        optimal_buffer_alignment: attr.optimal_buffer_alignment,
        evd_stream_merging_supported: attr.evd_stream_merging_supported.map(|row| row.map(Boolean::from)),
        srq_supported: attr.srq_supported.into(),
        srq_watermarks_supported: count(attr.srq_watermarks_supported),
        srq_ep_pz_difference_supported: attr.srq_ep_pz_difference_supported.into(),
        srq_info_supported: count(attr.srq_info_supported),
        ep_recv_info_supported: count(attr.ep_recv_info_supported),
        lmr_sync_req: attr.lmr_sync_req.into(),
        dto_async_return_guaranteed: attr.dto_async_return_guaranteed.into(),
        rdma_write_for_rdma_read_req: attr.rdma_write_for_rdma_read_req.into(),
        rdma_read_lmr_rmr_context_exposure: attr.rdma_read_lmr_rmr_context_exposure.into(),
        rmr_scope_supported: attr.rmr_scope_supported as u32,
        is_signal_safe: attr.is_signal_safe.into(),
        ha_supported: attr.ha_supported.into(),
        ha_loadbalancing: attr.ha_loadbalancing as u32,
        num_provider_specific_attr: ia.provider_attr.count(),
        provider_specific_attr: ia.provider_attr.pointer(),
    }
}

fn count(value: u32) -> Count {
    value.min(i32::MAX as u32) as Count
}

fn length(value: u64) -> u32 {
    value.min(u32::MAX.into()) as u32
}
