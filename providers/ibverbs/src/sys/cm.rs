//! Owners of librdmacm's objects: where it reports, and its identifiers.

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use dat_plugin::host::ForkGuard;
use rdma_sys::cm::*;
use rdma_sys::verbs::*;
use rdma_sys::{Cm, Libraries};

use super::common::{give_back, last, minus_one, never_blocks, shareable};
use super::context::device_name;
use super::queue_pair::blank_attr;

shareable!(EventChannel, CmId);

/// Where RDMA CM reports.
pub(crate) struct EventChannel {
    lib: &'static Libraries,
    ptr: NonNull<rdma_event_channel>,
    guard: ForkGuard,
}

/// An event of RDMA CM, acknowledged.
pub(crate) struct CmEvent {
    pub(crate) kind: c_int,
    pub(crate) status: c_int,
    /// The number of the identifier it happened to; for a request the listener's.
    pub(crate) user: u64,
    pub(crate) data: Vec<u8>,
    /// The peer's limits on reads: those it may have under way here, and those it accepts.
    pub(crate) reads: (u8, u8),
    /// The identifier of a new request.
    pub(crate) new: Option<CmId>,
}

impl EventChannel {
    pub(crate) fn new(lib: &'static Libraries) -> io::Result<Arc<EventChannel>> {
        // SAFETY: the function takes nothing and gives a new channel or null.
        let ptr = NonNull::new(unsafe { (lib.cm.rdma_create_event_channel)() }).ok_or_else(last)?;
        let channel = EventChannel { lib, ptr, guard: ForkGuard::new() };
        never_blocks(channel.fd())?;
        Ok(Arc::new(channel))
    }

    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: `self` owns the object until its drop.
        unsafe { self.ptr.as_ref().fd }
    }

    /// The next event, acknowledged at once. Destroying an identifier waits for that, and the thread that destroys one may
    /// hold a lock that handling the event needs.
    pub(crate) fn next(self: &Arc<Self>) -> io::Result<CmEvent> {
        let cm = &self.lib.cm;
        let mut raw = null_mut();
        // SAFETY: `self` owns the channel, whose descriptor does not block. The event and its identifiers are valid until
        // the event is acknowledged; all that is kept of them is copied first. The connection parameters are the union's valid
        // member for every event of a connected port space.
        unsafe {
            minus_one((cm.rdma_get_cm_event)(self.ptr.as_ptr(), &raw mut raw))?;
            let event = &*raw;
            let is_request = event.event == RDMA_CM_EVENT_CONNECT_REQUEST;
            let of = if is_request { event.listen_id } else { event.id };
            let carries = matches!(
                event.event,
                RDMA_CM_EVENT_CONNECT_REQUEST
                    | RDMA_CM_EVENT_CONNECT_RESPONSE
                    | RDMA_CM_EVENT_ESTABLISHED
                    | RDMA_CM_EVENT_REJECTED
            );
            let conn = event.param.conn;
            let data = match carries && !conn.private_data.is_null() {
                true => {
                    std::slice::from_raw_parts(conn.private_data.cast::<u8>(), conn.private_data_len.into())
                }
                false => &[],
            };
            let taken = CmEvent {
                kind: event.event,
                status: event.status,
                user: (*of).context as u64,
                data: data.to_vec(),
                reads: (conn.initiator_depth, conn.responder_resources),
                new: NonNull::new(event.id)
                    .filter(|_| is_request)
                    .map(|ptr| CmId { ptr, channel: self.clone() }),
            };
            (cm.rdma_ack_cm_event)(raw);
            Ok(taken)
        }
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        if !self.guard.forked() {
            // SAFETY: each identifier holds an `Arc` of the channel, so none is left.
            unsafe { (self.lib.cm.rdma_destroy_event_channel)(self.ptr.as_ptr()) };
        }
    }
}

/// An identifier of RDMA CM: a listener, a request, or one end of a connection.
pub(crate) struct CmId {
    ptr: NonNull<rdma_cm_id>,
    channel: Arc<EventChannel>,
}

/// The parameters of a connect or accept.
pub(crate) struct ConnParam<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) reads_in: u8,
    pub(crate) reads_out: u8,
    pub(crate) retry: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) srq: bool,
    pub(crate) qp: u32,
}

impl CmId {
    pub(crate) fn new(channel: &Arc<EventChannel>, user: u64) -> io::Result<CmId> {
        let mut id = null_mut();
        let create = channel.lib.cm.rdma_create_id;
        // SAFETY: the caller's `Arc` keeps the channel for the call.
        minus_one(unsafe { create(channel.ptr.as_ptr(), &raw mut id, user as *mut c_void, RDMA_PS_TCP) })?;
        Ok(CmId { ptr: NonNull::new(id).ok_or_else(last)?, channel: channel.clone() })
    }

    fn cm(&self) -> &'static Cm {
        &self.channel.lib.cm
    }

    /// From now on its events carry this number. Called before another thread knows the identifier.
    pub(crate) fn set_user(&self, user: u64) {
        // SAFETY: `self` owns the object until its drop; the field is the user's.
        unsafe { (*self.ptr.as_ptr()).context = user as *mut c_void };
    }

    pub(crate) fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        let mut raw = storage(addr);
        // SAFETY: `self` owns the object until its drop; the address is complete.
        minus_one(unsafe { (self.cm().rdma_bind_addr)(self.ptr.as_ptr(), (&raw mut raw).cast()) })
    }

    pub(crate) fn resolve_addr(&self, addr: SocketAddr, milliseconds: c_int) -> io::Result<()> {
        let mut raw = storage(addr);
        let resolve = self.cm().rdma_resolve_addr;
        // SAFETY: `self` owns the identifier, which is bound, so that no source is needed; `raw` is a complete address.
        minus_one(unsafe { resolve(self.ptr.as_ptr(), null_mut(), (&raw mut raw).cast(), milliseconds) })
    }

    pub(crate) fn resolve_route(&self, milliseconds: c_int) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        minus_one(unsafe { (self.cm().rdma_resolve_route)(self.ptr.as_ptr(), milliseconds) })
    }

    pub(crate) fn listen(&self, backlog: c_int) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        minus_one(unsafe { (self.cm().rdma_listen)(self.ptr.as_ptr(), backlog) })
    }

    pub(crate) fn connect(&self, param: &ConnParam<'_>) -> io::Result<()> {
        let mut raw = param.raw();
        // SAFETY: `self` owns the object until its drop; the private data lives for the call.
        minus_one(unsafe { (self.cm().rdma_connect)(self.ptr.as_ptr(), &raw mut raw) })
    }

    pub(crate) fn accept(&self, param: &ConnParam<'_>) -> io::Result<()> {
        let mut raw = param.raw();
        // SAFETY: `self` owns the identifier until its drop; the private data lives for the call.
        minus_one(unsafe { (self.cm().rdma_accept)(self.ptr.as_ptr(), &raw mut raw) })
    }

    pub(crate) fn establish(&self) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        minus_one(unsafe { (self.cm().rdma_establish)(self.ptr.as_ptr()) })
    }

    /// Refuses a request: by the consumer's will, or with a reason that the peer can tell from that.
    pub(crate) fn reject(&self, by_consumer: bool, data: &[u8]) -> io::Result<()> {
        let cm = self.cm();
        let reject = match cm.rdma_reject_ece {
            Some(reject) if !by_consumer => reject,
            _ => cm.rdma_reject,
        };
        // SAFETY: `self` owns the object until its drop; the data lives for the call.
        minus_one(unsafe { reject(self.ptr.as_ptr(), data.as_ptr().cast(), data.len() as u8) })
    }

    pub(crate) fn disconnect(&self) -> io::Result<()> {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        minus_one(unsafe { (self.cm().rdma_disconnect)(self.ptr.as_ptr()) })
    }

    /// Data arrived before the last packet of the handshake.
    pub(crate) fn notify_established(&self) {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        unsafe { (self.cm().rdma_notify)(self.ptr.as_ptr(), IBV_EVENT_COMM_EST) };
    }

    /// The attributes that bring a queue pair to `state`.
    pub(crate) fn qp_attr(&self, state: c_int) -> io::Result<(ibv_qp_attr, c_int)> {
        let (mut attr, mut mask) = (blank_attr(), 0);
        attr.qp_state = state;
        // SAFETY: `self` owns the object until its drop; both are filled by the call.
        minus_one(unsafe { (self.cm().rdma_init_qp_attr)(self.ptr.as_ptr(), &raw mut attr, &raw mut mask) })?;
        Ok((attr, mask))
    }

    /// The traffic class of what is sent.
    pub(crate) fn set_traffic_class(&self, class: u8) -> io::Result<()> {
        let mut class = class;
        let set = self.cm().rdma_set_option;
        // SAFETY: `self` owns the object until its drop; the option is one byte.
        minus_one(unsafe {
            set(self.ptr.as_ptr(), RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, (&raw mut class).cast(), 1)
        })
    }

    pub(crate) fn local_port(&self) -> u16 {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        u16::from_be(unsafe { (self.cm().rdma_get_src_port)(self.ptr.as_ptr()) })
    }

    pub(crate) fn peer_port(&self) -> u16 {
        // SAFETY: `self` owns the object, which the library frees in `drop` alone.
        u16::from_be(unsafe { (self.cm().rdma_get_dst_port)(self.ptr.as_ptr()) })
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        // SAFETY: `self` owns the object until its drop; the storage is initialised by the library.
        address(unsafe { &(*self.ptr.as_ptr()).route.addr.dst_addr })
    }

    /// Name and port of the device it is bound to.
    pub(crate) fn device(&self) -> Option<(String, u8)> {
        // SAFETY: `self` owns the identifier until its drop. A bound one has an open context, whose device has a name.
        unsafe {
            let id = self.ptr.as_ref();
            let verbs = NonNull::new(id.verbs)?;
            Some((device_name(&self.channel.lib.verbs, (*verbs.as_ptr()).device), id.port_num))
        }
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        let destroy = self.cm().rdma_destroy_id;
        // SAFETY: `self` owns the identifier. Its events are acknowledged as they are taken, so this does not wait.
        give_back(self.channel.guard, "a connection", || unsafe { destroy(self.ptr.as_ptr()) });
    }
}

impl ConnParam<'_> {
    fn raw(&self) -> rdma_conn_param {
        rdma_conn_param {
            private_data: self.data.as_ptr().cast(),
            private_data_len: self.data.len() as u8,
            responder_resources: self.reads_in,
            initiator_depth: self.reads_out,
            flow_control: 1,
            retry_count: self.retry,
            rnr_retry_count: self.rnr_retry,
            srq: self.srq.into(),
            qp_num: self.qp,
        }
    }
}

fn storage(addr: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: all-zero is a value of the structure; the casts are to the structure of the family it is marked with,
    // which fits by definition of the storage.
    unsafe {
        let mut out: libc::sockaddr_storage = std::mem::zeroed();
        match addr {
            SocketAddr::V4(v4) => {
                let raw = &mut *(&raw mut out).cast::<libc::sockaddr_in>();
                raw.sin_family = libc::AF_INET as u16;
                raw.sin_port = v4.port().to_be();
                raw.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                let raw = &mut *(&raw mut out).cast::<libc::sockaddr_in6>();
                raw.sin6_family = libc::AF_INET6 as u16;
                raw.sin6_port = v6.port().to_be();
                raw.sin6_addr.s6_addr = v6.ip().octets();
                raw.sin6_scope_id = v6.scope_id();
            }
        }
        out
    }
}

fn address(raw: &libc::sockaddr_storage) -> Option<SocketAddr> {
    // SAFETY: the kernel wrote the address; its family says which structure lies in the storage.
    unsafe {
        match i32::from(raw.ss_family) {
            libc::AF_INET => {
                let v4 = &*(&raw const *raw).cast::<libc::sockaddr_in>();
                let ip = std::net::Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Some((ip, u16::from_be(v4.sin_port)).into())
            }
            libc::AF_INET6 => {
                let v6 = &*(&raw const *raw).cast::<libc::sockaddr_in6>();
                let ip = std::net::Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Some(std::net::SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_family_port_and_scope() {
        for text in ["192.168.77.1:4791", "[fe80::1%3]:18515", "[2001:db8::7]:1"] {
            let addr: SocketAddr = text.parse().expect("an address");
            assert_eq!(address(&storage(addr)), Some(addr));
        }
    }
}
