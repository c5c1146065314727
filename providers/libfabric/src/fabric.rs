//! libfabric's objects that a device holds: fabric, domain, queues, address table. Opened together, closed together.
//!
//! # Unsafe
//! This file, `info`, `endpoint`, `connect`, `cq`, `listener`, `memory`, `outbox`, `port` and `progress` are where libfabric is
//! called. Objects are closed in the reverse order of opening, by their owners' `Drop`; nothing is used after that.

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
use crate::cq::{Cq, Wait};
use crate::info::{Info, ip_of, is_internet, text};
use crate::limits::{Limits, limits_of};
use crate::params::{Endpoint, Params, Progress};
use crate::place;
use crate::status;

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
    /// The queue of all that is not in the near one.
    pub far: Cq,
    /// The queue of the first connections, where that is quicker.
    pub near: Option<Cq>,
    /// Null with connected endpoints.
    pub av: *mut fid_av,
    /// -1 without an event queue.
    pub eq_fd: RawFd,
    /// The device's own address, by which peers find it.
    ip: Option<IpAddr>,
}

// SAFETY: opened with FI_THREAD_SAFE: every call may be made from any thread, concurrently. What the manual asks
// beyond that, that nothing is used once closed, is kept by ownership.
unsafe impl Send for Fabric {}
// SAFETY: as above.
unsafe impl Sync for Fabric {}

/// Entries of the completion queue.
pub const CQ_SIZE: usize = 8192;

impl Fabric {
    pub fn open(library: &'static Library, params: &Params) -> Result<Fabric, Failure> {
        let mut info = Info::ask(library, params)?.choose(params)?;
        let mut limits = limits_of(info.first(), params)?;
        if limits.framed {
            info.fit_to_frames();
        }
        let named = Params {
            address: params.address.filter(|_| is_internet(info.first().addr_format)),
            ..params.clone()
        };
        limits.delivery = Info::ask_for(library, &named, 0, FI_DELIVERY_COMPLETE).is_ok();
        if limits.order & FI_ORDER_SAW == 0 && !limits.delivery {
            let message = format!(
                "{}: fabric {:?} neither keeps messages behind writes (FI_ORDER_SAW) nor says when a write has arrived \
                 (FI_DELIVERY_COMPLETE)",
                params.ia_name, params.fabric
            );
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        }
        let ip = match is_internet(info.first().addr_format) {
            true => ip_of(info.first()),
            false => params.address.or_else(|| place::first_address(params.family)),
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
        // SAFETY: the entry the library gave, unchanged.
        let result = unsafe { library.fabric((*head).fabric_attr, &mut this.fabric) };
        check(library, "fi_fabric", result)?;
        if this.is_verbs()
            && let Err(errno) = library.keep_no_registrations()
        {
            tracing::warn!(errno, "libfabric keeps registrations, for somebody else in this process");
        }
        // SAFETY: open objects, filled structures; `this` closes what was opened if a later step fails.
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

    fn open_queues(&mut self, params: &Params) -> Result<(), Failure> {
        self.far = match params.progress {
            Progress::Auto => Cq::open(self, CQ_SIZE)?,
            Progress::Tick => Cq::open_with(self, CQ_SIZE, FI_WAIT_NONE)?,
        };
        if params.endpoint == Endpoint::Msg && params.progress == Progress::Auto && self.wakes() {
            // Fabrics without this kind say so.
            self.near = Cq::open_with(self, CQ_SIZE, FI_WAIT_POLLFD).ok();
        }
        Ok(())
    }

    /// The completion queues that can have something.
    pub fn queues(&self) -> impl Iterator<Item = &Cq> {
        let near = self.near.as_ref().filter(|near| near.in_use());
        let far = Some(&self.far).filter(|far| self.near.is_none() || far.in_use());
        near.into_iter().chain(far)
    }

    /// Fails if `result` is an error of `what`.
    pub fn check(&self, what: &str, result: i32) -> Result<(), Failure> {
        check(self.library, what, result)
    }

    /// Whether the fabric maps memory of its peers, all on this host.
    pub fn maps_peers(&self) -> bool {
        // SAFETY: an entry of the library's has all attributes.
        unsafe { (*self.info.first().ep_attr).protocol == FI_PROTO_SHM }
    }

    /// Whether a port of the fabric is a TCP port.
    pub fn is_over_tcp(&self) -> bool {
        // SAFETY: an entry of the library's has all attributes.
        let name = text(unsafe { (*self.info.first().fabric_attr).prov_name });
        ["tcp", "net", "sockets"].contains(&name.split(';').next().unwrap_or_default())
    }

    /// Whether connections are the tcp provider's own, which older libfabrics call `net` too.
    pub fn is_tcp(&self) -> bool {
        // SAFETY: an entry of the library's has all attributes.
        let name = text(unsafe { (*self.info.first().fabric_attr).prov_name });
        name == "tcp" || name == "net"
    }

    /// The device's own address, by which peers find it: the fabric's, or where those are of another kind, the host's.
    pub fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    /// Whether the fabric wakes who sleeps on its queues.
    pub fn wakes(&self) -> bool {
        self.far.wait_fd().is_some()
    }

    /// The descriptor of the event queue.
    pub fn eq_wait(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: open as long as the queue is, which this value closes.
        (self.eq_fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(self.eq_fd) })
    }

    /// What to sleep on.
    pub fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.near.iter().chain([&self.far]).filter_map(Cq::wait_fd)
    }

    /// Somebody is going to sleep on the descriptors.
    pub fn watch(&self) {
        self.queues().for_each(Cq::watch);
    }

    /// Nobody sleeps, or those who do need no waking.
    pub fn do_not_watch(&self) {
        if let Some(Wait::Sockets(naps)) = self.near.as_ref().map(|near| &near.wait) {
            naps.off();
        }
    }

    /// Whether a thread may sleep on the completion queues' descriptors now; `false`: read first. Only where there are any.
    pub fn may_wait_for_completions(&self) -> bool {
        self.queues().all(|queue| self.may_wait(queue.cq.cast()))
    }

    /// As above, of the event queue.
    pub fn may_wait_for_events(&self) -> bool {
        self.eq.is_null() || self.may_wait(self.eq.cast())
    }

    /// As above, of any open queue.
    pub fn may_wait(&self, queue: *mut fid) -> bool {
        let mut objects = [queue];
        // SAFETY: open objects.
        unsafe { fi_trywait(self.fabric, objects.as_mut_ptr(), 1) == 0 }
    }

    /// What a negative number in a completion means, in the fabric's own words.
    pub fn words(&self, queue: &Cq, error: &fi_cq_err_entry) -> String {
        let mut room = [0; 128];
        // SAFETY: the buffer has the length that is said; the answer ends with 0.
        let words = unsafe {
            fi_cq_strerror(queue.cq, error.prov_errno, error.err_data, room.as_mut_ptr(), room.len())
        };
        format!("{}; {}", self.library.strerror(error.err), text(words))
    }

    /// Adds a peer's address.
    pub fn add_peer(&self, addr: &Raw) -> Result<fi_addr_t, Failure> {
        let mut out = FI_ADDR_UNSPEC;
        // SAFETY: an address of the fabric's format, which has the size the fabric says.
        let result =
            unsafe { fi_av_insert(self.av, addr.bytes().as_ptr().cast(), 1, &mut out, 0, ptr::null_mut()) };
        match result {
            1 => Ok(out),
            0 => Err(Failure::new(Status::UNREACHABLE, "fi_av_insert: the fabric knows no such address")),
            error => Err(status::failure(self.library, "fi_av_insert", error.into())),
        }
    }

    /// Bytes of connection data, as a passive endpoint says.
    fn cm_data(&self) -> Option<usize> {
        let (mut pep, mut size, mut len) = (ptr::null_mut(), 0usize, size_of::<usize>());
        // SAFETY: open objects; room for the answer, whose size is said. A passive endpoint begins as any other.
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

    /// The error a failed operation says. Verbs says the same of all but those that were taken back, and its own status.
    pub fn errno_of(&self, error: &fi_cq_err_entry) -> i32 {
        if self.is_verbs() && error.err == libc::EIO { status::of_verbs(error.prov_errno) } else { error.err }
    }

    fn is_verbs(&self) -> bool {
        self.name().starts_with("verbs")
    }

    fn name(&self) -> String {
        // SAFETY: an entry of the library's has all attributes.
        text(unsafe { (*self.info.first().fabric_attr).prov_name })
    }

    fn has_atomics(&self) -> bool {
        if !has_sound_atomics(&self.name(), self.library.version()) {
            return false;
        }
        [(FI_SUM, FI_FETCH_ATOMIC), (FI_CSWAP, FI_COMPARE_ATOMIC)].into_iter().all(|(op, flag)| {
            let mut attr = fi_atomic_attr { count: 0, size: 0 };
            // SAFETY: open domain, room for the answer.
            let result = unsafe { fi_query_atomic(self.domain, FI_UINT64, op, &mut attr, flag) };
            result == 0 && attr.count >= 1 && attr.size == size_of::<u64>()
        })
    }
}

/// Whether the atomic operations of a fabric of this name can be used, if it has any.
fn has_sound_atomics(fabric: &str, version: (u32, u32)) -> bool {
    // Verbs took the addresses of operands for their values until 2.2.
    let verbs = fabric.starts_with("verbs") && version < (2, 2);
    // ofi_rxd had one in two of its lists at once until 2.5, and crashed now and then (ofiwg/libfabric#11814).
    let datagrams = fabric.contains("ofi_rxd") && version < (2, 5);
    !verbs && !datagrams
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.near = None;
        self.far = Cq::none();
        let all: [*mut fid; 4] = [self.av.cast(), self.eq.cast(), self.domain.cast(), self.fabric.cast()];
        for object in all.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: opened by this value, and everything opened on it is closed: endpoints and registrations hold a
            // reference to the device, which holds this.
            let result = unsafe { fi_close(object) };
            if result != 0 {
                tracing::warn!(error = %self.library.strerror(-result), "closing an object of libfabric");
            }
        }
    }
}

fn check(library: &Library, what: &str, result: i32) -> Result<(), Failure> {
    if result >= 0 { Ok(()) } else { Err(status::failure(library, what, result.into())) }
}

#[cfg(test)]
mod tests {
    use super::has_sound_atomics;

    #[test]
    fn atomic_operations_that_do_not_work_are_not_offered() {
        for (fabric, mended) in [("verbs", (2, 2)), ("verbs;ofi_rxm", (2, 2)), ("udp;ofi_rxd", (2, 5))] {
            assert!(!has_sound_atomics(fabric, (1, 17)), "{fabric}");
            assert!(!has_sound_atomics(fabric, (mended.0, mended.1 - 1)), "{fabric}");
            assert!(has_sound_atomics(fabric, mended), "{fabric}");
        }
        for fabric in ["tcp;ofi_rxm", "shm", "efa"] {
            assert!(has_sound_atomics(fabric, (1, 17)), "{fabric}");
        }
    }
}
