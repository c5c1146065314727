//! The local addresses of endpoints.

use std::net::SocketAddr;

use libfabric_sys::inline::fi_getname;
use libfabric_sys::types::fid_ep;

use crate::address::{ROOM, Raw};

/// The local port of an endpoint or passive endpoint.
pub fn port_of(ep: *mut fid_ep) -> u64 {
    address_of(ep).map_or(0, |address| address.port().into())
}

/// The local address of an endpoint or passive endpoint, on fabrics whose addresses are socket addresses.
pub fn address_of(ep: *mut fid_ep) -> Option<SocketAddr> {
    raw_name(ep).ok().flatten().and_then(|raw| raw.socket())
}

/// The local address of an endpoint in the fabric's format; `None` if it is too long, or libfabric's error.
pub fn raw_name(ep: *mut fid_ep) -> Result<Option<Raw>, i32> {
    let mut room = [0u8; ROOM];
    let mut len = room.len();
    // SAFETY: the caller's endpoint is open, and `room` has the length given in `len`.
    match unsafe { fi_getname(ep, room.as_mut_ptr().cast(), &mut len) } {
        0 => Ok(Raw::new(&room[..len.min(room.len())])),
        error => Err(error),
    }
}
