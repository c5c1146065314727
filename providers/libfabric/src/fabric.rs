//! libfabric's objects that a device holds: fabric, domain, queues, address table. Opened together, closed together.
//!
//! # Unsafe
//! This file, `endpoint`, `connect`, `listener`, `memory`, `port` and `progress` are where libfabric is called. Objects are
//! closed in the reverse order of opening, by their owners' `Drop`; nothing is used after that.

use std::ffi::{CStr, CString, c_void};
use std::mem::size_of;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::inline::*;
use libfabric_sys::types::*;
use libfabric_sys::{Library, consts};

use crate::address::Raw;
use crate::cq::{Cq, Wait};
use crate::endpoint::MAX_INJECT;
use crate::framed::{FRAMES_IN, FRAMES_OUT};
use crate::params::{Endpoint, Family, Params, Progress};
use crate::place;
use crate::status;
use crate::wire::{Head, PAYLOAD};

/// The interface this was written for; newer libraries offer it too.
pub const API: u32 = consts::fi_version(1, 17);

/// A list of what libfabric offers, or a copy of one entry.
#[derive(Debug)]
pub struct Info {
    pub library: &'static Library,
    pub head: *mut fi_info,
}

// SAFETY: a list nobody changes after it was made.
unsafe impl Send for Info {}
// SAFETY: as above.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: allocated by the library, owned by this value alone.
        unsafe { self.library.freeinfo(self.head) }
    }
}

impl Info {
    /// What the library offers for these parameters, the likeliest first.
    pub fn ask(library: &'static Library, params: &Params) -> Result<Info, Failure> {
        // Atomic operations are taken where they are to be had.
        let offered =
            Info::ask_for(library, params, FI_ATOMIC, 0).or_else(|_| Info::ask_for(library, params, 0, 0));
        // Where addresses are not the internet's, the device's own says where it is to be found by TCP, and a fabric that
        // was told it took it for a name of its own format.
        let nameless = Params { address: None, ..params.clone() };
        match &offered {
            Ok(info) if params.address.is_none() || is_internet(info.first().addr_format) => offered,
            Err(_) if params.address.is_none() => offered,
            _ => match Info::ask(library, &nameless) {
                Ok(info) if !is_internet(info.first().addr_format) => Ok(info),
                _ => offered,
            },
        }
    }

    /// The same of what has `caps` and completes requests with `op_flags` besides.
    fn ask_for(
        library: &'static Library,
        params: &Params,
        caps: u64,
        op_flags: u64,
    ) -> Result<Info, Failure> {
        // SAFETY: null is answered with an empty one.
        let head = unsafe { library.dupinfo(ptr::null()) };
        if head.is_null() {
            return Err(Failure::new(Status::NO_RESOURCE, "fi_allocinfo: out of memory"));
        }
        let hints = Info { library, head };
        let name = CString::new(params.fabric.as_str())
            .map_err(|_| Failure::new(Status::BAD_CONFIG, "parameter fabric: a byte 0"))?;
        // SAFETY: just allocated, with all attributes; strings are freed by the library, so they are the C library's.
        unsafe {
            let info = &mut *hints.head;
            info.caps = FI_MSG | FI_RMA | caps;
            if params.endpoint == Endpoint::Rdm {
                info.caps |= FI_TAGGED;
            }
            info.mode = FI_CONTEXT | FI_CONTEXT2;
            (*info.tx_attr).op_flags = op_flags;
            (*info.ep_attr).type_ = match params.endpoint {
                Endpoint::Msg => FI_EP_MSG,
                Endpoint::Rdm => FI_EP_RDM,
            };
            let domain = &mut *info.domain_attr;
            domain.mr_mode =
                FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
            domain.threading = FI_THREAD_SAFE;
            domain.resource_mgmt = FI_RM_ENABLED;
            (*info.fabric_attr).prov_name = libc::strdup(name.as_ptr());
            if !params.interface.is_empty()
                && let Ok(interface) = CString::new(params.interface.as_str())
            {
                domain.name = libc::strdup(interface.as_ptr());
            }
        }
        let node = params.address.and_then(|address| CString::new(address.to_string()).ok());
        let (node, flags) = match &node {
            Some(node) => (node.as_ptr(), FI_SOURCE | FI_NUMERICHOST),
            None => (ptr::null(), 0),
        };
        let mut out = ptr::null_mut();
        // SAFETY: strings that end with 0, hints of the library.
        let result = unsafe { library.getinfo(API, node, ptr::null(), flags, hints.head, &mut out) };
        if result != 0 {
            let kind = if params.endpoint == Endpoint::Msg { "connected" } else { "reliable datagram" };
            let mut failure = status::failure(library, "fi_getinfo", result.into());
            failure.status = Status::NO_DEVICE;
            failure.message = format!(
                "{}: libfabric {} offers no {kind} endpoints of fabric {:?}{}{} here ({}); `fi_info -l` lists its fabrics",
                params.ia_name,
                version(library),
                params.fabric,
                params.address.map(|address| format!(" at {address}")).unwrap_or_default(),
                if params.interface.is_empty() { String::new() } else { format!(" on {}", params.interface) },
                failure.message,
            );
            return Err(failure);
        }
        Ok(Info { library, head: out })
    }

    /// A copy of the entry to use: of the wanted family, and no loopback address if there is another and none was
    /// asked for.
    pub fn choose(&self, params: &Params) -> Result<Info, Failure> {
        let fits = |info: &&fi_info| match (params.family, ip_of(info)) {
            (Family::Any, _) => true,
            _ if !is_internet(info.addr_format) => true,
            (Family::V4, Some(ip)) => ip.is_ipv4(),
            (Family::V6, Some(ip)) => ip.is_ipv6(),
            (_, None) => false,
        };
        let all: Vec<&fi_info> = self.iter().filter(fits).collect();
        let outside =
            all.iter().find(|info| ip_of(info).is_some_and(|ip| !ip.is_loopback() && !link_local(ip)));
        let chosen = match params.address {
            Some(_) => all.first(),
            None => outside.or(all.first()),
        };
        let Some(chosen) = chosen else {
            let message = format!(
                "{}: fabric {:?} has no address of family {:?}",
                params.ia_name, params.fabric, params.family
            );
            return Err(Failure::new(Status::NO_DEVICE, message));
        };
        self.copy_of(chosen)
    }

    /// A copy of one entry, alone.
    pub fn copy_of(&self, info: &fi_info) -> Result<Info, Failure> {
        // SAFETY: an entry of the library's.
        let head = unsafe { self.library.dupinfo(info) };
        match head.is_null() {
            true => Err(Failure::new(Status::NO_RESOURCE, "fi_dupinfo: out of memory")),
            false => Ok(Info { library: self.library, head }),
        }
    }

    /// A copy with another source address.
    pub fn at(&self, addr: &Raw) -> Result<Info, Failure> {
        let copy = self.copy_of(self.first())?;
        let bytes = c_copy(addr)?;
        // SAFETY: the copy is this function's; addresses are freed by the library, so they are the C library's.
        unsafe {
            let info = &mut *copy.head;
            libc::free(info.src_addr);
            info.src_addr = bytes;
            info.src_addrlen = addr.bytes().len();
        }
        Ok(copy)
    }

    /// A copy with another destination address.
    pub fn towards(&self, addr: &Raw) -> Result<Info, Failure> {
        let copy = self.copy_of(self.first())?;
        let bytes = c_copy(addr)?;
        // SAFETY: as above.
        unsafe {
            let info = &mut *copy.head;
            libc::free(info.dest_addr);
            info.dest_addr = bytes;
            info.dest_addrlen = addr.bytes().len();
        }
        Ok(copy)
    }

    /// Has endpoints made of it hold no more than frames need: each is given room in the completion queue.
    pub fn fit_to_frames(&mut self) {
        // SAFETY: an entry of the library's with all attributes, which only this value knows.
        unsafe {
            let (tx, rx) = (&mut *(*self.head).tx_attr, &mut *(*self.head).rx_attr);
            rx.size = rx.size.min(FRAMES_IN as usize);
            tx.size = tx.size.min(4 * FRAMES_OUT as usize);
        }
    }

    pub fn first(&self) -> &fi_info {
        // SAFETY: never null: made by successful calls only.
        unsafe { &*self.head }
    }

    pub fn iter(&self) -> impl Iterator<Item = &fi_info> {
        // SAFETY: a list of the library's, which ends with null.
        std::iter::successors(unsafe { self.head.as_ref() }, |info| unsafe { info.next.as_ref() })
    }
}

/// An address in memory of the C library's.
fn c_copy(addr: &Raw) -> Result<*mut c_void, Failure> {
    let len = addr.bytes().len();
    // SAFETY: as much memory as is copied.
    unsafe {
        let bytes = libc::malloc(len.max(1));
        if bytes.is_null() {
            return Err(Failure::new(Status::NO_RESOURCE, "an address: out of memory"));
        }
        ptr::copy_nonoverlapping(addr.bytes().as_ptr(), bytes.cast(), len);
        Ok(bytes)
    }
}

/// The library's version, for people.
pub fn version(library: &Library) -> String {
    let (major, minor) = library.version();
    format!("{major}.{minor} ({})", library.path().display())
}

/// Text of the library's, or nothing.
pub fn text(ptr: *const std::ffi::c_char) -> String {
    if ptr.is_null() {
        return String::new();
    }
    // SAFETY: strings in an info end with 0 and live as long as it.
    unsafe { CStr::from_ptr(ptr) }.to_string_lossy().into_owned()
}

/// Bytes of an address in an info.
pub fn raw_of(addr: *const c_void, len: usize) -> Option<Raw> {
    if addr.is_null() || len == 0 {
        return None;
    }
    // SAFETY: an info's address has the length it says.
    Raw::new(unsafe { std::slice::from_raw_parts(addr.cast(), len) })
}

/// The internet address an info is of.
pub fn ip_of(info: &fi_info) -> Option<IpAddr> {
    raw_of(info.src_addr, info.src_addrlen)?.socket().map(|socket| socket.ip())
}

/// Whether addresses of this format are the internet's.
fn is_internet(format: u32) -> bool {
    matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6)
}

pub(crate) fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xFFC0 == 0xFE80,
    }
}

/// What the fabric can do, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub mr_mode: i32,
    pub mr_key_size: usize,
    pub iov: usize,
    pub max_message: u64,
    pub cm_data: usize,
    /// Writes may complete when their bytes are in the peer's memory, rather than on their way.
    pub delivery: bool,
    pub atomics: bool,
    /// What the fabric keeps in order (`FI_ORDER_*`).
    pub order: u64,
    /// Immediate data is too little for the books of a connection, or uses a receive: frames hold them.
    pub framed: bool,
    /// Messages up to this length may be copied by the call that sends them.
    pub inject: usize,
}

impl Limits {
    /// Bytes of an entry of a completion queue.
    pub fn entry_size(&self) -> usize {
        if self.framed { size_of::<fi_cq_data_entry>() } else { size_of::<fi_cq_tagged_entry>() }
    }
}

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
        // SAFETY: an entry of the library's has all attributes.
        text(unsafe { (*self.info.first().fabric_attr).prov_name }).starts_with("verbs")
    }

    fn has_atomics(&self) -> bool {
        // Verbs took the addresses of operands for their values until 2.2.
        if self.is_verbs() && self.library.version() < (2, 2) {
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

fn limits_of(info: &fi_info, params: &Params) -> Result<Limits, Failure> {
    // SAFETY: an entry of the library's has all attributes.
    let (tx, rx, ep, domain) =
        unsafe { (&*info.tx_attr, &*info.rx_attr, &*info.ep_attr, &*info.domain_attr) };
    let refuse = |why: String| {
        let message = format!("{}: fabric {:?} {why}", params.ia_name, params.fabric);
        Err(Failure::new(Status::NOT_SUPPORTED, message))
    };
    let both = info.mode | tx.mode | rx.mode | domain.mode;
    let little = domain.cq_data_size < 8 || both & FI_RX_CQ_DATA != 0 || params.frames;
    if little && params.endpoint == Endpoint::Rdm {
        return refuse(format!(
            "carries {} bytes of immediate data; with datagrams 8 are needed for the books of a connection",
            domain.cq_data_size
        ));
    }
    if both & !(FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA) != 0 {
        return refuse(format!("asks for mode bits {both:#x}, which this provider does not have"));
    }
    if domain.mr_mode & FI_MR_RAW != 0 {
        return refuse("has keys that do not fit 64 bits (FI_MR_RAW)".into());
    }
    if params.endpoint == Endpoint::Msg && domain.mr_mode & FI_MR_ENDPOINT != 0 {
        return refuse("binds memory to single connected endpoints (FI_MR_ENDPOINT)".into());
    }
    if tx.msg_order & FI_ORDER_SAS == 0 {
        return refuse("does not keep messages in order (FI_ORDER_SAS)".into());
    }
    let iov = tx.iov_limit.min(rx.iov_limit);
    if little && (tx.inject_size < Head::SIZE + PAYLOAD || iov < 2) {
        return refuse(format!(
            "injects {} bytes and has {iov} segments; frames need {} and 2",
            tx.inject_size,
            Head::SIZE + PAYLOAD
        ));
    }
    Ok(Limits {
        mr_mode: domain.mr_mode,
        mr_key_size: domain.mr_key_size,
        iov,
        framed: little,
        max_message: ep.max_msg_size as u64,
        cm_data: 256,
        delivery: false,
        atomics: false,
        inject: tx.inject_size.min(MAX_INJECT),
        order: tx.msg_order,
    })
}
