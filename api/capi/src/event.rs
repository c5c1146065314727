//! Events as C programs see them.

use std::sync::Arc;

use dat_types::{AsyncReason, DtoCompletion, DtoOperation, DtoStatus, EventData, ObjectId};

use crate::abi::{self, Handle, NULL};
use crate::handle;
use crate::object::{Cr, CrKept, Ep, EpKept, Evd, Ia};

/// Writes the C form of an event taken from `evd`.
///
/// # Safety
/// `out` is valid for a write.
#[inline(never)]
pub unsafe fn write(evd: &Evd, handle: Handle, event: dat_types::Event, out: *mut abi::Event) {
    match event.data {
        // SAFETY: valid, says the caller.
        EventData::Dto(done) => unsafe { write_transfer(handle, &done, out) },
        // SAFETY: as above.
        _ => unsafe { write_other(evd, handle, event, out) },
    }
}

/// A completion, the hot path: member by member straight to where it belongs. Put together first and copied then, it would
/// be loaded in larger pieces than it was stored in a moment before; processors wait with that until the stores have left.
/// The extension area is written for the extension's events alone, as in the reference: it is half of an event.
///
/// # Safety
/// `out` is valid for a write.
#[inline(always)]
pub unsafe fn write_transfer(handle: Handle, done: &DtoCompletion, out: *mut abi::Event) {
    let extended = done.operation.is_extension();
    // SAFETY: valid, says the caller.
    unsafe {
        (&raw mut (*out).event_number).write(match extended {
            true => event_number::EXTENSION_DTO,
            false => event_number::DTO,
        });
        (&raw mut (*out).evd_handle).write(handle);
        let data = &raw mut (*out).event_data.dto;
        (&raw mut (*data).ep_handle).write(handle::of(done.ep));
        (&raw mut (*data).user_cookie).write(done.cookie);
        (&raw mut (*data).status).write(done.status as u32);
        (&raw mut (*data).transfered_length).write(done.length as u32);
        (&raw mut (*data).operation).write(done.operation as u32);
        (&raw mut (*data).rmr_context).write(done.invalidated().unwrap_or(0));
        if extended {
            (&raw mut (*out).extension).write(extension(done.operation, done.status, done.immediate()));
        }
    }
}

/// Any other event.
#[cold]
unsafe fn write_other(evd: &Evd, handle: Handle, event: dat_types::Event, out: *mut abi::Event) {
    let (number, data) = other(evd, event);
    // SAFETY: valid, says the caller of `write`.
    unsafe {
        (&raw mut (*out).event_number).write(number);
        (&raw mut (*out).evd_handle).write(handle);
        (&raw mut (*out).event_data).write(data);
    }
}

/// Event numbers of the headers.
pub mod event_number {
    #![allow(missing_docs, reason = "each is the header's constant of the same words")]
    pub const DTO: u32 = 0x00001;
    pub const SOFTWARE: u32 = 0x10001;
    pub const EXTENSION_DTO: u32 = 0x40000;
}

/// The extension's part of a completion: what kind it is, how it ended, and the immediate value.
#[cold]
fn extension(operation: DtoOperation, status: DtoStatus, immediate: Option<u32>) -> [u64; 8] {
    let kind = match operation {
        DtoOperation::FetchAdd => 0,
        DtoOperation::CmpSwap => 1,
        DtoOperation::RdmaWriteImmed => 2,
        DtoOperation::RecvImmed => 3,
        _ => 4,
    };
    let status = u32::from(!status.is_success());
    let mut area = [0; 8];
    area[0] = u64::from_ne_bytes(pair(kind, status));
    area[1] = u64::from_ne_bytes(pair(immediate.unwrap_or(0), 0));
    area
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

fn other(evd: &Evd, event: dat_types::Event) -> (u32, abi::EventData) {
    let number = event.number();
    let data = match event.data {
        EventData::RmrBind { rmr, cookie, status } => abi::EventData {
            rmr_bind: abi::RmrBindData {
                rmr_handle: handle::of(rmr),
                user_cookie: cookie,
                status: status as u32,
            },
        },
        EventData::ConnectionRequest { service_point, conn_qual, cr } => abi::EventData {
            cr_arrival: abi::CrArrivalData {
                sp_handle: match service_point {
                    Some(id) => handle::of(id),
                    None => reserved(&evd.ia, conn_qual),
                },
                local_ia_address_ptr: evd.ia.address.pointer(),
                conn_qual,
                cr_handle: request(&evd.ia, cr),
                truncate_flag: 0,
            },
        },
        EventData::Connection { ep, private_data, .. } => {
            let ep = handle::of(ep);
            abi::EventData { connect: keep_data(ep, private_data) }
        }
        EventData::Async { object, reason } => {
            let address = handle::of(object);
            let dat_handle = match handle::kind(address) {
                Some(abi::Kind::Ia) => handle::number_of(address).unwrap_or(address),
                _ => address,
            };
            abi::EventData { asynch: abi::AsyncData { dat_handle, reason: reason_of(dat_handle, reason) } }
        }
        EventData::Software(value) => abi::EventData { software: value as Handle },
        // Newer kinds have no C form.
        _ => abi::EventData { software: NULL },
    };
    (number, data)
}

/// The reserved service point whose one request this is. It is spent; the reference names it all the same, and programs
/// tell by it what the request is for.
fn reserved(ia: &Ia, conn_qual: u64) -> Handle {
    ia.reserved.lock().get(&conn_qual).map_or(NULL, |handle| handle.0 as Handle)
}

/// A handle for the request an event announces; null when it is gone already.
fn request(ia: &Arc<Ia>, id: ObjectId) -> Handle {
    let Ok(cr) = ia.engine.cr(id) else { return NULL };
    let Ok(param) = cr.query() else { return NULL };
    let address = match param.remote_address {
        Some(address) => crate::address::Stored::new(address),
        None => crate::address::Stored::unknown(),
    };
    let ep = match &param.local_ep {
        // A reserved service point's is known; one made for the request is new.
        Some(ep) => match handle::of(ep.id()) {
            known if !known.is_null() => known,
            _ => {
                let object = Ep { ia: ia.clone(), engine: ep.clone(), kept: Arc::new(EpKept::default()) };
                ia.adopt(ep.id(), object).unwrap_or(NULL)
            }
        },
        None => NULL,
    };
    let kept =
        CrKept { address, port: param.remote_port_qual, private_data: param.private_data, ep: ep.into() };
    ia.adopt(id, Cr { ia: ia.clone(), engine: cr, kept: Arc::new(kept) }).unwrap_or(NULL)
}

/// Private data of a connection event stays with its endpoint (spec: common).
fn keep_data(ep_handle: Handle, data: Box<[u8]>) -> abi::ConnectionData {
    let size = data.len() as abi::Count;
    let guard = handle::epoch::enter();
    let pointer = match handle::get::<Ep>(&guard, ep_handle) {
        Some(ep) if size > 0 => {
            let mut kept = ep.kept.private_data.lock();
            *kept = data;
            kept.as_ptr().cast::<std::ffi::c_void>()
        }
        _ => std::ptr::null(),
    };
    let private_data_size = if pointer.is_null() { 0 } else { size };
    abi::ConnectionData { ep_handle, private_data_size, private_data: pointer }
}

/// The reason as the headers number it, by kind of object.
fn reason_of(handle: Handle, reason: AsyncReason) -> abi::Count {
    const OTHER: abi::Count = 1;
    match reason {
        AsyncReason::IaCatastrophic | AsyncReason::EvdOverflow | AsyncReason::EpTransferToError => 0,
        AsyncReason::EpSoftHighWatermark | AsyncReason::SrqLowWatermark => 2,
        // Regions, windows and zones have this one reason alone.
        _ => match handle::kind(handle) {
            Some(abi::Kind::Lmr | abi::Kind::Rmr | abi::Kind::Pz) => 0,
            _ => OTHER,
        },
    }
}
