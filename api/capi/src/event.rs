//! Events as C programs see them.

use std::sync::Arc;

use dat_types::{AsyncReason, DtoCompletion, DtoOperation, EventData, ObjectId};

use crate::abi::{self, Handle, NULL};
use crate::handle;
use crate::object::{Cr, CrKept, Ep, EpKept, Evd, Ia};

/// The C form of an event taken from `evd`.
#[inline]
pub fn convert(evd: &Evd, handle: Handle, event: dat_types::Event) -> abi::Event {
    match event.data {
        EventData::Dto(done) => {
            let ep_handle = handle::of(done.ep);
            let data = abi::DtoData {
                ep_handle,
                user_cookie: done.cookie,
                status: done.status as u32,
                transfered_length: done.length as u32,
                operation: done.operation as u32,
                rmr_context: done.invalidated().unwrap_or(0),
            };
            let mut event = event_of(event_number::DTO, handle, abi::EventData { dto: data });
            if done.operation.is_extension() {
                extend(&mut event, &done);
            }
            event
        }
        _ => other(evd, handle, event),
    }
}

/// Event numbers of the headers.
pub mod event_number {
    #![allow(missing_docs, reason = "each is the header's constant of the same words")]
    pub const DTO: u32 = 0x00001;
    pub const SOFTWARE: u32 = 0x10001;
    pub const EXTENSION_DTO: u32 = 0x40000;
}

/// The extension's part of a completion: what kind it is, and the immediate value.
#[cold]
fn extend(event: &mut abi::Event, done: &DtoCompletion) {
    event.event_number = event_number::EXTENSION_DTO;
    let kind = match done.operation {
        DtoOperation::FetchAdd => 0,
        DtoOperation::CmpSwap => 1,
        DtoOperation::RdmaWriteImmed => 2,
        DtoOperation::RecvImmed => 3,
        _ => 4,
    };
    // The first twelve bytes of the area: kind, status, value.
    let status = u64::from(!done.status.is_success());
    event.extension[0] = u64::from_ne_bytes(pair(kind, status as u32));
    event.extension[1] = u64::from_ne_bytes(pair(done.immediate().unwrap_or(0), 0));
}

fn pair(first: u32, second: u32) -> [u8; 8] {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

#[inline]
fn event_of(number: u32, evd_handle: Handle, event_data: abi::EventData) -> abi::Event {
    abi::Event { event_number: number, evd_handle, event_data, extension: [0; 8] }
}

#[cold]
fn other(evd: &Evd, handle: Handle, event: dat_types::Event) -> abi::Event {
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
            let dat_handle = match object == evd.ia.engine.id() {
                true => evd.ia.handle(),
                false => handle::of(object),
            };
            abi::EventData { asynch: abi::AsyncData { dat_handle, reason: reason_of(dat_handle, reason) } }
        }
        EventData::Software(value) => abi::EventData { software: value as Handle },
        // Newer kinds have no C form.
        _ => abi::EventData { software: NULL },
    };
    event_of(number, handle, data)
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

/// Private data of a connection event stays with its endpoint (contract section 1.2).
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
