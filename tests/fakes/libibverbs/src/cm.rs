//! The functions of librdmacm: the handshake between two identifiers of this process.
//!
//! # Safety
//! All of them have the promises of their manual pages: pointers are of this library's making, and live.
#![allow(clippy::missing_safety_doc, reason = "see the manual pages")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use rdma_sys::cm::*;
use rdma_sys::verbs::*;

use crate::common::{Object, event_fd, signal, take};
use crate::objects::{context, ibv_close_device};
use crate::world::{Id, fail, lock};

/// RDMA CM's word for a rejection by the consumer.
const CONSUMER: c_int = 28;

#[repr(C)]
struct Channel {
    base: rdma_event_channel,
    events: VecDeque<Object<Event>>,
    /// The device, opened once for all identifiers of the channel.
    context: *mut ibv_context,
}

#[repr(C)]
struct Event {
    base: rdma_cm_event,
    data: Vec<u8>,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let base = rdma_event_channel { fd: event_fd() };
    Box::into_raw(Box::new(Channel { base, events: VecDeque::new(), context: context() })).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    // SAFETY: made above; its identifiers are gone.
    unsafe {
        let channel = Box::from_raw(channel.cast::<Channel>());
        libc::close(channel.base.fd);
        ibv_close_device(channel.context);
        for event in channel.events {
            drop(Box::from_raw(event.0));
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    id: *mut *mut rdma_cm_id,
    user: *mut c_void,
    ps: c_int,
) -> c_int {
    // SAFETY: the pointer is the caller's.
    unsafe { *id = new_id(channel, user, ps).cast() };
    0
}

fn new_id(channel: *mut rdma_event_channel, user: *mut c_void, ps: c_int) -> *mut Id {
    // SAFETY: zero is a value of every field.
    unsafe {
        let base = rdma_cm_id { channel, context: user, ps, ..std::mem::zeroed() };
        Box::into_raw(Box::new(Id {
            base,
            peer: null_mut(),
            connected: false,
            bound: false,
            listens: 0,
            peer_pair: 0,
        }))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    let mut world = lock();
    // SAFETY: made above; no pointer to it is left.
    unsafe {
        let id = id.cast::<Id>();
        if (*id).listens != 0 {
            world.listeners.remove(&(*id).listens);
        }
        if (*id).bound {
            world.ports.remove(&u16::from_be(*port_of(&raw const (*id).base.route.addr.src_addr)));
        }
        hang_up(id);
        if !(*id).peer.is_null() {
            (*(*id).peer).peer = null_mut();
        }
        let channel = &mut *(*id).base.channel.cast::<Channel>();
        channel.events.retain(|event| {
            let of = (*event.0).base.id == id.cast();
            if of {
                drop(Box::from_raw(event.0));
            }
            !of
        });
        drop(Box::from_raw(id));
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut libc::sockaddr) -> c_int {
    let mut world = lock();
    // SAFETY: an address of the size its family says; the storage has room for either.
    unsafe {
        let own = &raw mut (*id).route.addr.src_addr;
        copy_address(addr, own);
        let port = match u16::from_be(*port_of(own)) {
            0 => world.free_port(),
            port => Some(port).filter(|port| !world.ports.contains(port)),
        };
        let Some(port) = port else { return fail(libc::EADDRINUSE) };
        world.ports.insert(port);
        *port_of(own) = port.to_be();
        (*id.cast::<Id>()).bound = true;
        open_device(id);
    }
    0
}

unsafe fn open_device(id: *mut rdma_cm_id) {
    // SAFETY: the identifier lives, and so its channel.
    unsafe {
        (*id).verbs = (*(*id).channel.cast::<Channel>()).context;
        (*id).port_num = 1;
    }
}

unsafe fn copy_address(from: *const libc::sockaddr, to: *mut libc::sockaddr_storage) {
    // SAFETY: the callers'.
    unsafe {
        let size = match c_int::from((*from).sa_family) {
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => size_of::<libc::sockaddr_in>(),
        };
        std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast::<u8>(), size);
    }
}

/// The port of an address, which both families have at the same place.
unsafe fn port_of(address: *const libc::sockaddr_storage) -> *mut u16 {
    // SAFETY: the callers': a live storage.
    unsafe { &raw const (*address.cast::<libc::sockaddr_in>()).sin_port }.cast_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    _from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _milliseconds: c_int,
) -> c_int {
    // SAFETY: as in `rdma_bind_addr`.
    unsafe {
        open_device(id);
        copy_address(to, &raw mut (*id).route.addr.dst_addr);
        let world = lock();
        tell(id.cast(), RDMA_CM_EVENT_ADDR_RESOLVED, 0, None);
        drop(world);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _milliseconds: c_int) -> c_int {
    let world = lock();
    // SAFETY: the identifier lives.
    unsafe { tell(id.cast(), RDMA_CM_EVENT_ROUTE_RESOLVED, 0, None) };
    drop(world);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let world = lock();
    // SAFETY: identifier and parameters live, listeners do as long as they are in the table.
    unsafe {
        let id = id.cast::<Id>();
        let port = u16::from_be(*port_of(&raw const (*id).base.route.addr.dst_addr));
        let Some(listener) = world.listeners.get(&port) else {
            tell(id, RDMA_CM_EVENT_REJECTED, 8, None);
            return 0;
        };
        let listener = listener.0;
        let asked = new_id((*listener).base.channel, (*listener).base.context, (*listener).base.ps);
        (*asked).base.verbs = (*listener).base.verbs;
        (*asked).base.port_num = 1;
        (*asked).base.route.addr.src_addr = (*id).base.route.addr.dst_addr;
        (*asked).base.route.addr.dst_addr = (*id).base.route.addr.src_addr;
        ((*id).peer, (*asked).peer) = (asked, id);
        (*asked).peer_pair = (*param).qp_num;
        let event = tell(asked, RDMA_CM_EVENT_CONNECT_REQUEST, 0, Some(&*param));
        (*event).base.listen_id = listener.cast();
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    let _locked = lock();
    // SAFETY: as above.
    unsafe {
        let id = id.cast::<Id>();
        let peer = (*id).peer;
        if peer.is_null() {
            return fail(libc::ECONNRESET);
        }
        (*peer).peer_pair = (*param).qp_num;
        tell(peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, Some(&*param));
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let _locked = lock();
    // SAFETY: as above.
    unsafe {
        let id = id.cast::<Id>();
        let peer = (*id).peer;
        if peer.is_null() {
            return fail(libc::ECONNRESET);
        }
        ((*id).connected, (*peer).connected) = (true, true);
        tell(peer, RDMA_CM_EVENT_ESTABLISHED, 0, None);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, _backlog: c_int) -> c_int {
    let mut world = lock();
    // SAFETY: as above.
    unsafe {
        let id = id.cast::<Id>();
        let port = u16::from_be(*port_of(&raw const (*id).base.route.addr.src_addr));
        (*id).listens = port;
        world.listeners.insert(port, Object(id));
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, length: u8) -> c_int {
    let _locked = lock();
    // SAFETY: as above.
    unsafe {
        let peer = (*id.cast::<Id>()).peer;
        if !peer.is_null() {
            let said = rdma_conn_param { private_data: data, private_data_len: length, ..std::mem::zeroed() };
            tell(peer, RDMA_CM_EVENT_REJECTED, CONSUMER, Some(&said));
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let _locked = lock();
    // SAFETY: as above.
    unsafe {
        if hang_up(id.cast()) {
            tell(id.cast(), RDMA_CM_EVENT_DISCONNECTED, 0, None);
        }
    }
    0
}

/// Sends the peer the disconnect; `false` when it was sent before.
unsafe fn hang_up(id: *mut Id) -> bool {
    // SAFETY: the callers': the identifier lives, and its peer if it has one.
    unsafe {
        if !std::mem::replace(&mut (*id).connected, false) {
            return false;
        }
        let peer = (*id).peer;
        if !peer.is_null() && std::mem::replace(&mut (*peer).connected, false) {
            tell(peer, RDMA_CM_EVENT_DISCONNECTED, 0, None);
        }
        true
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_notify(_id: *mut rdma_cm_id, _event: c_int) -> c_int {
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the channel lives, the pointer is the caller's.
    unsafe {
        // One count for each event, but for those whose identifier went before they were taken.
        while take((*channel).fd) {
            let world = lock();
            let next = (*channel.cast::<Channel>()).events.pop_front();
            drop(world);
            if let Some(next) = next {
                *event = next.0.cast();
                return 0;
            }
        }
    }
    fail(libc::EAGAIN)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: made by `tell`.
    drop(unsafe { Box::from_raw(event.cast::<Event>()) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the identifier lives.
    unsafe { *port_of(&raw const (*id).route.addr.src_addr) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the identifier lives.
    unsafe { *port_of(&raw const (*id).route.addr.dst_addr) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    attr: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    // SAFETY: identifier and pointers live.
    unsafe {
        *mask = match (*attr).qp_state {
            IBV_QPS_INIT => IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
            IBV_QPS_RTR => {
                (*attr).dest_qp_num = (*id.cast::<Id>()).peer_pair;
                IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_MAX_DEST_RD_ATOMIC
            }
            _ => {
                (*attr).max_rd_atomic = u8::MAX;
                IBV_QP_STATE | IBV_QP_MAX_QP_RD_ATOMIC
            }
        };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    _id: *mut rdma_cm_id,
    _level: c_int,
    _name: c_int,
    _value: *mut c_void,
    _length: usize,
) -> c_int {
    0
}

/// Reports something of an identifier. The lock is held.
unsafe fn tell(id: *mut Id, kind: c_int, status: c_int, said: Option<&rdma_conn_param>) -> *mut Event {
    // SAFETY: the identifier lives and so its channel; private data is as long as its parameter says.
    unsafe {
        let channel = (*id).base.channel.cast::<Channel>();
        let data = match said {
            Some(said) if !said.private_data.is_null() && said.private_data_len > 0 => {
                std::slice::from_raw_parts(said.private_data.cast::<u8>(), said.private_data_len.into())
                    .to_vec()
            }
            _ => Vec::new(),
        };
        let conn = rdma_conn_param {
            private_data: if data.is_empty() { null() } else { data.as_ptr().cast() },
            private_data_len: data.len() as u8,
            // What one side makes is what the other takes.
            responder_resources: said.map_or(0, |said| said.initiator_depth),
            initiator_depth: said.map_or(0, |said| said.responder_resources),
            qp_num: said.map_or(0, |said| said.qp_num),
            ..std::mem::zeroed()
        };
        let base = rdma_cm_event {
            id: id.cast(),
            listen_id: null_mut(),
            event: kind,
            status,
            param: rdma_cm_event_param { conn },
        };
        let event = Box::into_raw(Box::new(Event { base, data }));
        (*channel).events.push_back(Object(event));
        signal((*channel).base.fd);
        event
    }
}
