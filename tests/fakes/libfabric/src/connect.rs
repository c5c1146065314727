//! Listeners, and the handshake between two endpoints of this process.
//!
//! # Safety
//! All of the functions in tables have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr::null_mut;

use libfabric_sys::consts::*;
use libfabric_sys::ops::{fi_ops, fi_ops_cm, fi_ops_ep};
use libfabric_sys::types::*;

use crate::common::Object;
use crate::endpoint::{Endpoint, Request};
use crate::head::{basics, class, head};
use crate::info::{fi_dupinfo, fi_freeinfo, of_request};
use crate::queues::{Event, Events};
use crate::world::{address, lock, port_of};

/// The most bytes that go with a request or an answer.
const DATA: usize = 256;

/// A listener.
#[repr(C)]
pub struct Passive {
    base: fid_pep,
    info: *mut fi_info,
    events: *mut Events,
    port: u16,
}

static PASSIVE_FID: fi_ops = basics(close_passive, Some(bind_passive), None);
static REQUEST_FID: fi_ops = basics(close_request, None, None);
static OPTIONS: fi_ops_ep = fi_ops_ep { getopt: Some(option), ..no_options() };

const fn no_options() -> fi_ops_ep {
    fi_ops_ep {
        size: size_of::<fi_ops_ep>(),
        cancel: None,
        getopt: None,
        setopt: None,
        tx_ctx: None,
        rx_ctx: None,
        rx_size_left: None,
        tx_size_left: None,
    }
}

/// Of endpoints and listeners.
pub static CALLS: fi_ops_cm = fi_ops_cm {
    size: size_of::<fi_ops_cm>(),
    setname: None,
    getname: Some(name),
    getpeer: None,
    connect: Some(connect),
    listen: Some(listen),
    accept: Some(accept),
    reject: Some(reject),
    shutdown: Some(shutdown),
    join: None,
};

pub unsafe extern "C" fn open_passive(
    _fabric: *mut fid_fabric,
    info: *mut fi_info,
    out: *mut *mut fid_pep,
    context: *mut c_void,
) -> c_int {
    // SAFETY: an entry of this library's, and the caller's pointer.
    unsafe {
        let wanted = port_of((*info).src_addr, (*info).src_addrlen);
        let Some(port) = lock().take_port(wanted) else { return -libc::EADDRINUSE };
        let base = fid_pep {
            fid: head(class::PASSIVE, context, &PASSIVE_FID),
            ops: (&raw const OPTIONS).cast_mut(),
            cm: (&raw const CALLS).cast_mut(),
        };
        let made = Passive { base, info: fi_dupinfo(info), events: null_mut(), port };
        *out = Box::into_raw(Box::new(made)).cast();
    }
    0
}

unsafe extern "C" fn close_passive(passive: *mut fid) -> c_int {
    let mut world = lock();
    // SAFETY: made above.
    unsafe {
        let it = Box::from_raw(passive.cast::<Passive>());
        if world.listeners.get(&it.port).is_some_and(|found| found.0 == passive.cast()) {
            world.listeners.remove(&it.port);
        }
        world.free_port(it.port);
        if let Some(events) = it.events.as_mut() {
            events.forget(passive).into_iter().for_each(|request| refuse(request, Vec::new()));
        }
        fi_freeinfo(it.info);
    }
    0
}

unsafe extern "C" fn bind_passive(passive: *mut fid, to: *mut fid, _flags: u64) -> c_int {
    // SAFETY: open objects.
    unsafe {
        if (*to).fclass != class::EVENTS {
            return -libc::EINVAL;
        }
        (*passive.cast::<Passive>()).events = to.cast();
    }
    0
}

unsafe extern "C" fn close_request(request: *mut fid) -> c_int {
    // SAFETY: made by `connect`; the lock is held, or no other code knows it.
    unsafe {
        let request = Box::from_raw(request.cast::<Request>());
        if let Some(from) = request.from.as_mut() {
            from.asked = null_mut();
        }
    }
    0
}

unsafe extern "C" fn option(
    _of: *mut fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the caller's pointers, with the given room.
    unsafe {
        if (level, name) != (FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE) || *len < size_of::<usize>() {
            return -libc::ENOSYS;
        }
        value.cast::<usize>().write_unaligned(DATA);
        *len = size_of::<usize>();
    }
    0
}

unsafe extern "C" fn name(of: *mut fid, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an endpoint or a listener; room of the given length.
    unsafe {
        let port = match (*of).fclass {
            class::PASSIVE => (*of.cast::<Passive>()).port,
            _ => (*of.cast::<Endpoint>()).port,
        };
        let room = std::mem::replace(&mut *len, size_of::<libc::sockaddr_in>());
        if room < *len {
            return -FI_ETOOSMALL;
        }
        out.cast::<libc::sockaddr_in>().write_unaligned(address(port));
    }
    0
}

unsafe extern "C" fn listen(passive: *mut fid_pep) -> c_int {
    let mut world = lock();
    // SAFETY: an open listener.
    unsafe {
        let passive = passive.cast::<Passive>();
        if (*passive).events.is_null() {
            return -FI_ENOEQ;
        }
        world.listeners.insert((*passive).port, Object(passive.cast()));
    }
    0
}

unsafe fn bytes(data: *const c_void, len: usize) -> Option<Vec<u8>> {
    match len {
        _ if data.is_null() => Some(Vec::new()),
        // SAFETY: the callers': `len` bytes.
        0..=DATA => Some(unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) }.to_vec()),
        _ => None,
    }
}

unsafe extern "C" fn connect(ep: *mut fid_ep, to: *const c_void, data: *const c_void, len: usize) -> c_int {
    let world = lock();
    // SAFETY: an open endpoint, an address of this fabric; listeners live as long as they are in the table.
    unsafe {
        let ep = ep.cast::<Endpoint>();
        let Some(data) = bytes(data, len) else { return -libc::EINVAL };
        if (*ep).events.is_null() {
            return -FI_ENOEQ;
        }
        let port = port_of(to, size_of::<libc::sockaddr_in>());
        let here =
            to.cast::<libc::sockaddr_in>().read_unaligned().sin_addr.s_addr == address(0).sin_addr.s_addr;
        let listener = world.listeners.get(&port).filter(|_| here);
        let Some(listener) = listener.and_then(|listener| listener.0.cast::<Passive>().as_mut()) else {
            let error = if here { libc::ECONNREFUSED } else { libc::EHOSTUNREACH };
            (*ep).tell(Event { error, ..Event::new(0) });
            return 0;
        };
        let base = head(class::REQUEST, null_mut(), &REQUEST_FID);
        (*ep).asked = Box::into_raw(Box::new(Request { base, from: ep }));
        let info = of_request(listener.info, (*ep).port, (*ep).asked.cast());
        let of = (&raw mut *listener).cast();
        (*listener.events).push(Event { of, info, data, ..Event::new(FI_CONNREQ) });
    }
    0
}

unsafe extern "C" fn accept(ep: *mut fid_ep, data: *const c_void, len: usize) -> c_int {
    let _locked = lock();
    // SAFETY: an open endpoint; its peer, if it has one, is open too.
    unsafe {
        let ep = ep.cast::<Endpoint>();
        let Some(data) = bytes(data, len) else { return -libc::EINVAL };
        let Some(peer) = (*ep).peer.as_mut() else { return -libc::ECONNRESET };
        peer.peer = ep;
        ((*ep).connected, peer.connected) = (true, true);
        peer.tell(Event { data, ..Event::new(FI_CONNECTED) });
        (*ep).tell(Event::new(FI_CONNECTED));
    }
    0
}

unsafe extern "C" fn reject(
    _passive: *mut fid_pep,
    request: *mut fid,
    data: *const c_void,
    len: usize,
) -> c_int {
    let _locked = lock();
    // SAFETY: an unanswered request, with data of the given length.
    unsafe {
        let Some(data) = bytes(data, len) else { return -libc::EINVAL };
        refuse(request, data);
    }
    0
}

/// Notifies the requester, if it is there. The lock is held.
unsafe fn refuse(request: *mut fid, data: Vec<u8>) {
    // SAFETY: the callers': an unanswered request.
    unsafe {
        let from = (*request.cast::<Request>()).from;
        close_request(request);
        if let Some(asking) = from.as_mut() {
            asking.tell(Event { data, error: libc::ECONNREFUSED, ..Event::new(0) });
        }
    }
}

unsafe extern "C" fn shutdown(ep: *mut fid_ep, _flags: u64) -> c_int {
    let _locked = lock();
    // SAFETY: an open endpoint.
    unsafe { (*ep.cast::<Endpoint>()).hang_up() };
    0
}
