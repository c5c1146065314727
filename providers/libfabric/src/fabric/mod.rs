//! libfabric's objects of a device: fabric, domain, queues, address vector. They are opened together and closed together.
//!
//! # Unsafe
//! This folder, `memory`, `endpoint`, `progress.rs`, `connected`, `channel/framed.rs` and `abi/listener.rs` call libfabric.
//! The `Drop` of their owner closes objects in the reverse order of opening; nothing uses them after that.

pub mod cq;
pub mod cq_share;
pub mod fd_scan;
pub mod host_id;
pub mod info;
pub mod limits;

use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use dat_plugin::{Failure, Status};
use libfabric_sys::Library;
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;

use crate::address::Raw;
use crate::fabric::cq::{Cq, Domain, Wait};
use crate::fabric::info::{Info, has_socket_addresses, ip_of, text};
use crate::fabric::limits::{CQ_SIZE, Limits, limits_of};
use crate::params::{Endpoint, Params, Progress};
use crate::status::{self, check};

/// The objects of a device.
#[derive(Debug)]
pub struct Fabric {
    pub library: &'static Library,
    pub info: Info,
    pub limits: Limits,
    pub fabric: *mut fid_fabric,
    pub domain: *mut fid_domain,
    /// Null with datagrams.
    pub eq: *mut fid_eq,
    /// The queue of all endpoints that do not use the near one.
    pub far: Cq,
    /// The queue of the first connections, if the fabric supports it.
    pub near: Option<Cq>,
    /// Null with connected endpoints.
    pub av: *mut fid_av,
    /// -1 without an event queue.
    pub eq_fd: RawFd,
    /// The device's address, by which peers find it.
    ip: Option<IpAddr>,
}

// SAFETY: opened with FI_THREAD_SAFE, so any thread may call, concurrently. Ownership keeps objects open while they are
// used: `Drop` closes them.
unsafe impl Send for Fabric {}
// SAFETY: FI_THREAD_SAFE allows concurrent calls through shared references.
unsafe impl Sync for Fabric {}

impl Fabric {
    pub fn open(library: &'static Library, params: &Params) -> Result<Fabric, Failure> {
        let mut info = Info::ask(library, params)?.choose(params)?;
        let mut limits = limits_of(info.first(), params)?;
        if limits.framed {
            info.fit_to_frames();
        }
        let named = Params {
            address: params.address.filter(|_| has_socket_addresses(info.first().addr_format)),
            ..params.clone()
        };
        limits.delivery = Info::ask_for(library, &named, 0, FI_DELIVERY_COMPLETE).is_ok();
        if limits.order & FI_ORDER_SAW == 0 && !limits.delivery {
            let message = format!(
                "{}: fabric {:?} neither orders messages after writes (FI_ORDER_SAW) nor reports when a write has arrived \
                 (FI_DELIVERY_COMPLETE)",
                params.ia_name, params.fabric
            );
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        }
        let ip = match has_socket_addresses(info.first().addr_format) {
            true => ip_of(info.first()),
            false => params.address.or_else(|| host_id::first_address(params.family)),
        };
        let mut this = Fabric {
            library,
            info,
            ip,
            limits,
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            eq: ptr::null_mut(),
            far: Cq::none(),
            near: None,
            av: ptr::null_mut(),
            eq_fd: -1,
        };
        let head = this.info.head;
        let none = ptr::null_mut();
        // SAFETY: `info` keeps the entry, which the library made and nothing changed.
        let result = unsafe { library.fabric((*head).fabric_attr, &mut this.fabric) };
        check(library, "fi_fabric", result)?;
        if this.is_verbs()
            && let Err(errno) = library.keep_no_registrations()
        {
            tracing::warn!(
                errno,
                "libfabric caches registrations: another library in this process opened it first"
            );
        }
        // SAFETY: each object is open when it is used, and the structures are filled. If a later step fails, `this` closes
        // what was opened.
        unsafe {
            check(library, "fi_domain", fi_domain(this.fabric, head, &mut this.domain, none))?;
            match params.endpoint {
                Endpoint::Msg => {
                    let mut attr = fi_eq_attr {
                        size: 1024,
                        flags: 0,
                        wait_obj: FI_WAIT_FD,
                        signaling_vector: 0,
                        wait_set: none,
                    };
                    check(library, "fi_eq_open", fi_eq_open(this.fabric, &mut attr, &mut this.eq, none))?;
                    check(
                        library,
                        "descriptor of the event queue",
                        fi_wait_fd(this.eq.cast(), &mut this.eq_fd),
                    )?;
                }
                Endpoint::Rdm => {
                    let mut attr = fi_av_attr {
                        type_: FI_AV_TABLE,
                        rx_ctx_bits: 0,
                        count: 64,
                        ep_per_node: 0,
                        name: ptr::null(),
                        map_addr: none,
                        flags: 0,
                    };
                    check(library, "fi_av_open", fi_av_open(this.domain, &mut attr, &mut this.av, none))?;
                }
            }
        }
        this.open_queues(params)?;
        this.limits.atomics = this.info.first().caps & FI_ATOMIC != 0 && this.has_atomics();
        if this.limits.framed {
            this.limits.cm_data = this.cm_data().unwrap_or(this.limits.cm_data);
        }
        Ok(this)
    }

    /// What completion queues are opened on.
    pub fn domain(&self) -> Domain {
        Domain { library: self.library, domain: self.domain, framed: self.limits.framed }
    }

    fn open_queues(&mut self, params: &Params) -> Result<(), Failure> {
        self.far = match params.progress {
            Progress::Auto => Cq::open(&self.domain(), CQ_SIZE)?,
            Progress::Tick => Cq::open_with(&self.domain(), CQ_SIZE, FI_WAIT_NONE)?,
        };
        if params.endpoint == Endpoint::Msg && params.progress == Progress::Auto && self.wakes() {
            // A fabric that does not support this kind refuses it.
            self.near = Cq::open_with(&self.domain(), CQ_SIZE, FI_WAIT_POLLFD).ok();
        }
        Ok(())
    }

    /// The completion queues that are in use.
    pub fn queues(&self) -> impl Iterator<Item = &Cq> {
        let near = self.near.as_ref().filter(|near| near.in_use());
        let far = Some(&self.far).filter(|far| self.near.is_none() || far.in_use());
        near.into_iter().chain(far)
    }

    /// Fails if `result` is an error of the call `what`.
    pub fn check(&self, what: &str, result: i32) -> Result<(), Failure> {
        check(self.library, what, result)
    }

    /// Whether the fabric maps memory of its peers, all on this host.
    pub fn maps_peers(&self) -> bool {
        // SAFETY: `info` keeps the entry, which the library made with all attributes.
        unsafe { (*self.info.first().ep_attr).protocol == FI_PROTO_SHM }
    }

    /// Whether a port of the fabric is a TCP port.
    pub fn is_over_tcp(&self) -> bool {
        // SAFETY: `info` keeps the entry, which the library made with all attributes.
        let name = text(unsafe { (*self.info.first().fabric_attr).prov_name });
        ["tcp", "net", "sockets"].contains(&name.split(';').next().unwrap_or_default())
    }

    /// Whether connections are the tcp provider's own, which older libfabrics call `net` too.
    pub fn is_tcp(&self) -> bool {
        // SAFETY: `info` keeps the entry, which the library made with all attributes.
        let name = text(unsafe { (*self.info.first().fabric_attr).prov_name });
        name == "tcp" || name == "net"
    }

    /// The device's address, by which peers find it: the fabric's if that is an IP address, otherwise the host's.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Whether a thread can sleep on the fabric's queues.
    pub fn wakes(&self) -> bool {
        self.far.wait_fd().is_some()
    }

    /// The descriptor of the event queue.
    pub fn eq_wait(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is open as long as the queue, which this value closes when it is dropped.
        (self.eq_fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.eq_fd) })
    }

    /// The completion queues' wait descriptors.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.near.iter().chain([&self.far]).filter_map(Cq::wait_fd)
    }

    /// Prepares for a sleep on the descriptors. The caller holds the reader's lock.
    pub fn watch(&self) {
        self.queues().for_each(Cq::watch);
    }

    /// No thread sleeps: messages need not wake any.
    pub fn stop_watching(&self) {
        if let Some(Wait::Sockets(naps)) = self.near.as_ref().map(|near| &near.wait) {
            naps.off();
        }
    }

    /// Whether a thread may sleep on the completion queues' descriptors now. `false`: read the queues first.
    pub fn may_wait_for_completions(&self) -> bool {
        self.queues().all(|queue| self.may_wait(queue.cq.cast()))
    }

    /// Whether a thread may sleep on the event queue's descriptor now.
    pub fn may_wait_for_events(&self) -> bool {
        self.eq.is_null() || self.may_wait(self.eq.cast())
    }

    /// Whether a thread may sleep on this queue's descriptor now. The queue is open.
    pub fn may_wait(&self, queue: *mut fid) -> bool {
        let mut objects = [queue];
        // SAFETY: the fabric is open, and the caller keeps the queue open.
        unsafe { fi_trywait(self.fabric, objects.as_mut_ptr(), 1) == 0 }
    }

    /// The text of a completion's error.
    pub fn error_text(&self, queue: &Cq, error: &fi_cq_err_entry) -> String {
        let mut room = [0; 128];
        // SAFETY: `room` has the length given; the text ends with 0.
        let words = unsafe {
            fi_cq_strerror(queue.cq, error.prov_errno, error.err_data, room.as_mut_ptr(), room.len())
        };
        format!("{}; {}", self.library.strerror(error.err), text(words))
    }

    /// Adds a peer's address.
    pub fn add_peer(&self, addr: &Raw) -> Result<fi_addr_t, Failure> {
        let mut out = FI_ADDR_UNSPEC;
        // SAFETY: the address vector is open. Callers check that the address has the fabric's format and length.
        let result =
            unsafe { fi_av_insert(self.av, addr.bytes().as_ptr().cast(), 1, &mut out, 0, ptr::null_mut()) };
        match result {
            1 => Ok(out),
            0 => Err(Failure::new(Status::UNREACHABLE, "fi_av_insert: the fabric knows no such address")),
            error => Err(status::failure(self.library, "fi_av_insert", error.into())),
        }
    }

    /// Removes a peer's address. Nothing may be under way to or from it.
    pub fn remove_peer(&self, mut number: fi_addr_t) {
        // SAFETY: an open address vector of this value; a number that it gave, which the caller uses no more.
        let result = unsafe { fi_av_remove(self.av, &mut number, 1, 0) };
        if result != 0 {
            tracing::warn!(error = %self.library.strerror(-result), "fi_av_remove");
        }
    }

    /// Bytes of connection data that a passive endpoint offers.
    fn cm_data(&self) -> Option<usize> {
        let (mut pep, mut size, mut len) = (ptr::null_mut(), 0usize, size_of::<usize>());
        // SAFETY: the fabric is open; `size` has the length given. A passive endpoint has the same layout up to its options.
        unsafe {
            if fi_passive_ep(self.fabric, self.info.head, &mut pep, ptr::null_mut()) != 0 {
                return None;
            }
            let value = ptr::from_mut(&mut size).cast();
            let result = fi_getopt(pep.cast(), FI_OPT_ENDPOINT, FI_OPT_CM_DATA_SIZE, value, &mut len);
            fi_close(pep.cast());
            (result == 0).then_some(size)
        }
    }

    /// The error number of a failed operation. Verbs reports EIO for nearly all, and its own status beside it.
    pub fn errno_of(&self, error: &fi_cq_err_entry) -> i32 {
        if self.is_verbs() && error.err == libc::EIO { status::of_verbs(error.prov_errno) } else { error.err }
    }

    fn is_verbs(&self) -> bool {
        self.name().starts_with("verbs")
    }

    fn name(&self) -> String {
        // SAFETY: `info` keeps the entry, which the library made with all attributes.
        text(unsafe { (*self.info.first().fabric_attr).prov_name })
    }

    fn has_atomics(&self) -> bool {
        if !has_sound_atomics(&self.name(), self.library.version()) {
            return false;
        }
        [(FI_SUM, FI_FETCH_ATOMIC), (FI_CSWAP, FI_COMPARE_ATOMIC)].into_iter().all(|(op, flag)| {
            let mut attr = fi_atomic_attr { count: 0, size: 0 };
            // SAFETY: the domain is open; the answer goes to `attr`.
            let result = unsafe { fi_query_atomic(self.domain, FI_UINT64, op, &mut attr, flag) };
            result == 0 && attr.count >= 1 && attr.size == size_of::<u64>()
        })
    }
}

/// Whether the atomic operations of a fabric of this name work, if it has any.
fn has_sound_atomics(fabric: &str, version: (u32, u32)) -> bool {
    // Before 2.2, verbs used the addresses of operands as their values.
    let verbs = fabric.starts_with("verbs") && version < (2, 2);
    // Before 2.5, ofi_rxd kept one operation in two lists at once and crashed now and then (ofiwg/libfabric#11814).
    let datagrams = fabric.contains("ofi_rxd") && version < (2, 5);
    !verbs && !datagrams
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.near = None;
        self.far = Cq::none();
        let all: [*mut fid; 4] = [self.av.cast(), self.eq.cast(), self.domain.cast(), self.fabric.cast()];
        for object in all.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: this value opened the object. Endpoints and registrations hold this value, so all of them are closed.
            let result = unsafe { fi_close(object) };
            if result != 0 {
                tracing::warn!(error = %self.library.strerror(-result), "cannot close an object of libfabric");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::has_sound_atomics;

    #[test]
    fn broken_atomic_operations_are_not_offered() {
        for (fabric, fixed) in [("verbs", (2, 2)), ("verbs;ofi_rxm", (2, 2)), ("udp;ofi_rxd", (2, 5))] {
            assert!(!has_sound_atomics(fabric, (1, 17)), "{fabric}");
            assert!(!has_sound_atomics(fabric, (fixed.0, fixed.1 - 1)), "{fabric}");
            assert!(has_sound_atomics(fabric, fixed), "{fabric}");
        }
        for fabric in ["tcp;ofi_rxm", "shm", "efa"] {
            assert!(has_sound_atomics(fabric, (1, 17)), "{fabric}");
        }
    }
}
