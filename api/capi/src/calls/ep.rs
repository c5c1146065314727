//! Endpoints, apart from posting to them.

use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_engine::{ConnectOptions, EpMask, EpModify};
use dat_types::{CloseFlags, CompletionFlags, ConnectFlags, Qos, ServiceType, Subtype, Timeout};

use super::private_data;
use crate::abi::*;
use crate::address::{self, Stored};
use crate::code::{Outcome, check_query, ensure, parameter, put, put_if};
use crate::handle;
use crate::object::{Ep, EpKept, Evd, Ia, Pz, SizeHints, Srq, find, find_ia, find_or_null};
use crate::text::{self, NamedList};

pub unsafe fn create(
    ia: Handle,
    pz: Handle,
    recv: Handle,
    request: Handle,
    connect: Handle,
    attr: *const EpAttr,
    out: *mut Handle,
) -> Outcome {
    let ia = find_ia(ia)?;
    let pz = find_or_null::<Pz>(pz, Subtype::HandlePz)?;
    let recv = find_or_null::<Evd>(recv, Subtype::HandleEvdRecv)?;
    let request = find_or_null::<Evd>(request, Subtype::HandleEvdRequest)?;
    let connect = find_or_null::<Evd>(connect, Subtype::HandleEvdConn)?;
    // SAFETY: null or valid.
    let attr = unsafe { attr.as_ref() };
    let size_hints =
        attr.map_or(SizeHints::default(), |attr| SizeHints::new(attr.max_message_size, attr.max_rdma_size));
    let attr = match attr {
        // SAFETY: its lists are null or valid.
        Some(attr) => Some(unsafe { sized(read_attr(attr, Subtype::Arg6)?, &ia)? }),
        None => None,
    };
    ensure(!out.is_null(), parameter(Subtype::Arg7))?;
    let engine = ia.engine.ep_create(
        pz.as_ref().map(|pz| &pz.engine),
        recv.as_ref().map(|evd| &evd.engine),
        request.as_ref().map(|evd| &evd.engine),
        connect.as_ref().map(|evd| &evd.engine),
        attr.as_ref(),
    )?;
    let kept = EpKept { size_hints, ..EpKept::default() };
    let handle = ia.adopt(engine.id(), Ep { ia: ia.clone(), engine, kept: Arc::new(kept) })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg7, handle) }
}

#[allow(clippy::too_many_arguments, reason = "the call has as many")]
pub unsafe fn create_with_srq(
    ia: Handle,
    pz: Handle,
    recv: Handle,
    request: Handle,
    connect: Handle,
    srq: Handle,
    attr: *const EpAttr,
    out: *mut Handle,
) -> Outcome {
    let ia = find_ia(ia)?;
    let pz = find_or_null::<Pz>(pz, Subtype::HandlePz)?;
    let recv = find_or_null::<Evd>(recv, Subtype::HandleEvdRecv)?;
    let request = find_or_null::<Evd>(request, Subtype::HandleEvdRequest)?;
    let connect = find_or_null::<Evd>(connect, Subtype::HandleEvdConn)?;
    let srq = find::<Srq>(srq, Subtype::HandleSrq)?;
    // SAFETY: null or valid.
    let attr = unsafe { attr.as_ref() }.ok_or(parameter(Subtype::Arg7))?;
    let size_hints = SizeHints::new(attr.max_message_size, attr.max_rdma_size);
    // SAFETY: its lists are null or valid.
    let attr = sized(unsafe { read_attr(attr, Subtype::Arg7)? }, &ia)?;
    ensure(!out.is_null(), parameter(Subtype::Arg8))?;
    let engine = ia.engine.ep_create_with_srq(
        pz.as_ref().map(|pz| &pz.engine),
        recv.as_ref().map(|evd| &evd.engine),
        request.as_ref().map(|evd| &evd.engine),
        connect.as_ref().map(|evd| &evd.engine),
        &srq.engine,
        &attr,
    )?;
    let kept = EpKept { size_hints, ..EpKept::default() };
    let handle = ia.adopt(engine.id(), Ep { ia: ia.clone(), engine, kept: Arc::new(kept) })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg8, handle) }
}

pub unsafe fn query(ep: Handle, mask: u64, out: *mut EpParam) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let wanted = check_query(mask, EpMask::all().bits(), Subtype::Arg2, out, Subtype::Arg3)?;
    let param = ep.engine.query()?;
    if !wanted {
        return Ok(());
    }
    let evd = |evd: &Option<dat_engine::Evd>| evd.as_ref().map_or(NULL, |evd| handle::of(evd.id()));
    let value = EpParam {
        ia_handle: ep.ia.handle(),
        ep_state: param.state as u32,
        comm: Comm { domain: param.comm.domain, kind: param.comm.kind, protocol: param.comm.protocol },
        local_ia_address_ptr: ep.ia.address.pointer(),
        local_port_qual: param.local_port_qual,
        remote_ia_address_ptr: remote_address(&ep, param.remote_address),
        remote_port_qual: param.remote_port_qual,
        pz_handle: param.pz.as_ref().map_or(NULL, |pz| handle::of(pz.id())),
        recv_evd_handle: evd(&param.recv_evd),
        request_evd_handle: evd(&param.request_evd),
        connect_evd_handle: evd(&param.connect_evd),
        srq_handle: param.srq.as_ref().map_or(NULL, |srq| handle::of(srq.id())),
        ep_attr: write_attr(&ep, &param.attr),
    };
    // SAFETY: not null, valid.
    unsafe { out.write(value) };
    Ok(())
}

/// At a place that stays the same for one connection.
fn remote_address(ep: &Ep, address: Option<std::net::SocketAddr>) -> Address {
    let Some(address) = address else { return std::ptr::null_mut() };
    let mut kept = ep.kept.remote.lock();
    match &*kept {
        Some((known, stored)) if *known == address => stored.pointer(),
        _ => {
            let stored = Stored::new(address);
            let pointer = stored.pointer();
            *kept = Some((address, stored));
            pointer
        }
    }
}

pub unsafe fn modify(ep: Handle, mask: u64, param: *const EpParam) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let mask = EpMask::from_bits_retain(mask);
    if mask.is_empty() {
        return Ok(ep.engine.modify(mask, &EpModify::default())?);
    }
    // SAFETY: null or valid.
    let param = unsafe { param.as_ref() }.ok_or(parameter(Subtype::Arg3))?;
    // Handles inside the parameters are parameters, and only looked at where the mask says so.
    let bad = |_| parameter(Subtype::Arg3);
    let evd = |bit: EpMask, handle: Handle| -> Outcome<Option<dat_engine::Evd>> {
        if !mask.contains(bit) {
            return Ok(None);
        }
        let found = find_or_null::<Evd>(handle, Subtype::Arg3).map_err(bad)?;
        Ok(found.map(|evd| evd.engine))
    };
    let pz = match mask.contains(EpMask::PZ_HANDLE) {
        true => find_or_null::<Pz>(param.pz_handle, Subtype::Arg3).map_err(bad)?.map(|pz| pz.engine),
        false => None,
    };
    let lists = mask.intersects(EpMask::TRANSPORT_SPECIFIC | EpMask::PROVIDER_SPECIFIC);
    let plain = EpAttr { ep_transport_specific_count: 0, ep_provider_specific_count: 0, ..param.ep_attr };
    let Comm { domain, kind, protocol } = param.comm;
    let new = EpModify {
        comm: dat_types::Comm { domain, kind, protocol },
        pz,
        recv_evd: evd(EpMask::RECV_EVD_HANDLE, param.recv_evd_handle)?,
        request_evd: evd(EpMask::REQUEST_EVD_HANDLE, param.request_evd_handle)?,
        connect_evd: evd(EpMask::CONNECT_EVD_HANDLE, param.connect_evd_handle)?,
        // SAFETY: its lists are null or valid where the mask names them.
        attr: sized(unsafe { read_masked(if lists { &param.ep_attr } else { &plain }, mask)? }, &ep.ia)?,
    };
    ep.engine.modify(mask, &new)?;
    if mask.contains(EpMask::MAX_MESSAGE_SIZE) {
        ep.kept.size_hints.message.store(param.ep_attr.max_message_size, Ordering::Relaxed);
    }
    if mask.contains(EpMask::MAX_RDMA_SIZE) {
        ep.kept.size_hints.rdma.store(param.ep_attr.max_rdma_size, Ordering::Relaxed);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "the call has as many")]
pub unsafe fn connect(
    ep: Handle,
    address: Address,
    conn_qual: u64,
    timeout: u32,
    size: Count,
    data: *const c_void,
    qos: u32,
    flags: u32,
) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    // SAFETY: null or a socket address.
    let address = unsafe { address::read(address, Subtype::Arg2)? };
    // SAFETY: null or valid for `size` bytes.
    let private_data = unsafe { private_data(size, data, Subtype::Arg5, Subtype::Arg6)? };
    let options = ConnectOptions {
        address,
        conn_qual,
        timeout: Timeout(timeout),
        private_data,
        qos: Qos(qos),
        flags: ConnectFlags::from_bits_retain(flags),
    };
    Ok(ep.engine.connect(&options)?)
}

pub unsafe fn dup_connect(
    ep: Handle,
    like: Handle,
    timeout: u32,
    size: Count,
    data: *const c_void,
    qos: u32,
) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let like = find::<Ep>(like, Subtype::HandleEp)?;
    // SAFETY: null or valid for `size` bytes.
    let data = unsafe { private_data(size, data, Subtype::Arg4, Subtype::Arg5)? };
    Ok(ep.engine.dup_connect(&like.engine, Timeout(timeout), data, Qos(qos))?)
}

pub unsafe fn common_connect(
    ep: Handle,
    address: Address,
    timeout: u32,
    size: Count,
    data: *const c_void,
) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    // SAFETY: null or a socket address.
    let address = unsafe { address::read(address, Subtype::Arg2)? };
    // SAFETY: null or valid for `size` bytes.
    let data = unsafe { private_data(size, data, Subtype::Arg4, Subtype::Arg5)? };
    Ok(ep.engine.common_connect(address, Timeout(timeout), data)?)
}

pub unsafe fn disconnect(ep: Handle, flags: u32) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let flags = CloseFlags::from_raw(flags).ok_or(parameter(Subtype::Arg2))?;
    Ok(ep.engine.disconnect(flags)?)
}

pub unsafe fn status(
    ep: Handle,
    state: *mut u32,
    recv_idle: *mut Boolean,
    request_idle: *mut Boolean,
) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let status = ep.engine.status()?;
    // SAFETY: all are null or valid.
    unsafe {
        put_if(state, status.state as u32);
        put_if(recv_idle, status.recv_idle.into());
        put_if(request_idle, status.request_idle.into());
    }
    Ok(())
}

pub unsafe fn reset(ep: Handle) -> Outcome {
    Ok(find::<Ep>(ep, Subtype::HandleEp)?.engine.reset()?)
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let ep = find::<Ep>(handle, Subtype::HandleEp)?;
    ep.engine.free()?;
    ep.ia.disown::<Ep>(handle);
    Ok(())
}

pub unsafe fn recv_query(ep: Handle, buffers: *mut Count, span: *mut Count) -> Outcome {
    let param = find::<Ep>(ep, Subtype::HandleEp)?.engine.recv_query()?;
    // SAFETY: both are null or valid.
    unsafe {
        put_if(buffers, param.nbufs_allocated as Count);
        put_if(span, param.bufs_alloc_span as Count);
    }
    Ok(())
}

pub unsafe fn set_watermark(ep: Handle, soft: Count, hard: Count) -> Outcome {
    let ep = find::<Ep>(ep, Subtype::HandleEp)?;
    let mark = |value: Count, position| match value {
        WATERMARK_INFINITE => Ok(None),
        value => u32::try_from(value).map(Some).map_err(|_| parameter(position)),
    };
    Ok(ep.engine.set_watermark(mark(soft, Subtype::Arg2)?, mark(hard, Subtype::Arg3)?)?)
}

/// `DAT_WATERMARK_INFINITE`.
const WATERMARK_INFINITE: Count = -1;

/// The engine's form of attributes; a negative count is none.
///
/// # Safety
/// Its lists are null or valid.
unsafe fn read_attr(attr: &EpAttr, position: Subtype) -> Outcome<dat_types::EpAttr> {
    let bad = || parameter(position);
    let count = |value: Count| u32::try_from(value).map_err(|_| bad());
    let flags = |value: u32| CompletionFlags::from_bits(value).ok_or_else(bad);
    // SAFETY: null or valid, says the caller.
    let list = |list, count| unsafe { text::read_list(list, count) }.ok_or_else(bad);
    Ok(dat_types::EpAttr {
        service_type: ServiceType(attr.service_type),
        max_message_size: attr.max_message_size.into(),
        max_rdma_size: attr.max_rdma_size.into(),
        qos: Qos(attr.qos),
        recv_completion_flags: flags(attr.recv_completion_flags)?,
        request_completion_flags: flags(attr.request_completion_flags)?,
        max_recv_dtos: count(attr.max_recv_dtos)?,
        max_request_dtos: count(attr.max_request_dtos)?,
        max_recv_iov: count(attr.max_recv_iov)?,
        max_request_iov: count(attr.max_request_iov)?,
        max_rdma_read_in: count(attr.max_rdma_read_in)?,
        max_rdma_read_out: count(attr.max_rdma_read_out)?,
        max_rdma_read_iov: count(attr.max_rdma_read_iov)?,
        max_rdma_write_iov: count(attr.max_rdma_write_iov)?,
        srq_soft_hw: watermark(attr.srq_soft_hw).ok_or_else(bad)?,
        transport_specific: list(attr.ep_transport_specific, attr.ep_transport_specific_count)?,
        provider_specific: list(attr.ep_provider_specific, attr.ep_provider_specific_count)?,
    })
}

/// Sizes for the engine: at least the IA's maximum. `max_message_size` and `max_rdma_size` are hints, because programs
/// of the field exceed both and the reference library allows it.
fn sized(mut attr: dat_types::EpAttr, ia: &Ia) -> Outcome<dat_types::EpAttr> {
    let most = ia.engine.query()?;
    attr.max_message_size = attr.max_message_size.max(most.max_message_size);
    attr.max_rdma_size = attr.max_rdma_size.max(most.max_rdma_size);
    Ok(attr)
}

/// The same where only masked fields count: what is not named may be anything.
unsafe fn read_masked(attr: &EpAttr, mask: EpMask) -> Outcome<dat_types::EpAttr> {
    let pick = |bit: EpMask, value: Count| if mask.contains(bit) { value } else { 0 };
    let pick_flags = |bit: EpMask, value: u32| if mask.contains(bit) { value } else { 0 };
    let cleaned = EpAttr {
        recv_completion_flags: pick_flags(EpMask::RECV_COMPLETION_FLAGS, attr.recv_completion_flags),
        request_completion_flags: pick_flags(EpMask::REQUEST_COMPLETION_FLAGS, attr.request_completion_flags),
        max_recv_dtos: pick(EpMask::MAX_RECV_DTOS, attr.max_recv_dtos),
        max_request_dtos: pick(EpMask::MAX_REQUEST_DTOS, attr.max_request_dtos),
        max_recv_iov: pick(EpMask::MAX_RECV_IOV, attr.max_recv_iov),
        max_request_iov: pick(EpMask::MAX_REQUEST_IOV, attr.max_request_iov),
        max_rdma_read_in: pick(EpMask::MAX_RDMA_READ_IN, attr.max_rdma_read_in),
        max_rdma_read_out: pick(EpMask::MAX_RDMA_READ_OUT, attr.max_rdma_read_out),
        max_rdma_read_iov: pick(EpMask::MAX_RDMA_READ_IOV, attr.max_rdma_read_iov),
        max_rdma_write_iov: pick(EpMask::MAX_RDMA_WRITE_IOV, attr.max_rdma_write_iov),
        srq_soft_hw: pick(EpMask::SRQ_SOFT_HW, attr.srq_soft_hw),
        ..*attr
    };
    // SAFETY: as the caller promises.
    unsafe { read_attr(&cleaned, Subtype::Arg3) }
}

/// `DAT_WATERMARK_INFINITE` and 0 are off.
fn watermark(value: Count) -> Option<u32> {
    if value == WATERMARK_INFINITE { Some(0) } else { u32::try_from(value).ok() }
}

fn write_attr(ep: &Ep, attr: &dat_types::EpAttr) -> EpAttr {
    let count = |value: u32| value.min(i32::MAX as u32) as Count;
    let hinted = |hint: &AtomicU32, value: u64| match hint.load(Ordering::Relaxed) {
        0 => value.min(u32::MAX.into()) as u32,
        hint => hint,
    };
    let keep = |place: &parking_lot::Mutex<NamedList>, pairs: &[(String, String)]| {
        let mut kept = place.lock();
        // What was given out stays valid as long as it is true.
        if !kept.says(pairs) {
            *kept = NamedList::new(pairs);
        }
        (kept.count(), kept.pointer())
    };
    let transport = keep(&ep.kept.transport_attr, &attr.transport_specific);
    let provider = keep(&ep.kept.provider_attr, &attr.provider_specific);
    EpAttr {
        service_type: attr.service_type.0,
        max_message_size: hinted(&ep.kept.size_hints.message, attr.max_message_size),
        max_rdma_size: hinted(&ep.kept.size_hints.rdma, attr.max_rdma_size),
        qos: attr.qos.0,
        recv_completion_flags: attr.recv_completion_flags.bits(),
        request_completion_flags: attr.request_completion_flags.bits(),
        max_recv_dtos: count(attr.max_recv_dtos),
        max_request_dtos: count(attr.max_request_dtos),
        max_recv_iov: count(attr.max_recv_iov),
        max_request_iov: count(attr.max_request_iov),
        max_rdma_read_in: count(attr.max_rdma_read_in),
        max_rdma_read_out: count(attr.max_rdma_read_out),
        srq_soft_hw: count(attr.srq_soft_hw),
        max_rdma_read_iov: count(attr.max_rdma_read_iov),
        max_rdma_write_iov: count(attr.max_rdma_write_iov),
        ep_transport_specific_count: transport.0,
        ep_transport_specific: transport.1,
        ep_provider_specific_count: provider.0,
        ep_provider_specific: provider.1,
    }
}
