//! What libfabric offers (`fi_getinfo`), and the entry that a device uses.

use std::ffi::{CStr, CString, c_void};
use std::net::IpAddr;
use std::ptr;

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::types::fi_info;
use libfabric_sys::{Library, consts};

use crate::address::Raw;
use crate::address::is_link_local;
use crate::fabric::limits::{FRAMES_IN, FRAMES_OUT};
use crate::params::{Endpoint, Family, Params};
use crate::status;

/// The interface version this provider uses; newer libraries offer it too.
pub const API: u32 = consts::fi_version(1, 17);

/// A list of what libfabric offers, or a copy of one entry.
#[derive(Debug)]
pub struct Info {
    pub library: &'static Library,
    pub head: *mut fi_info,
}

// SAFETY: the list is read only after it is made; `fit_to_frames` needs exclusive access.
unsafe impl Send for Info {}
// SAFETY: shared references only read the list.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the library allocated the list, and only this value owns it.
        unsafe { self.library.freeinfo(self.head) }
    }
}

impl Info {
    /// What the library offers for these parameters, its first choice first.
    pub fn ask(library: &'static Library, params: &Params) -> Result<Info, Failure> {
        // Atomic operations are optional.
        let offered =
            Info::ask_for(library, params, FI_ATOMIC, 0).or_else(|_| Info::ask_for(library, params, 0, 0));
        // On fabrics with addresses of another format, the device's address is only where peers find it by TCP. Such a
        // fabric would take it for a name in its own format.
        let nameless = Params { address: None, ..params.clone() };
        match &offered {
            Ok(info) if params.address.is_none() || has_socket_addresses(info.first().addr_format) => offered,
            Err(_) if params.address.is_none() => offered,
            _ => match Info::ask(library, &nameless) {
                Ok(info) if !has_socket_addresses(info.first().addr_format) => Ok(info),
                _ => offered,
            },
        }
    }

    /// The same with more capabilities (`caps`) and with `op_flags` for requests.
    pub fn ask_for(
        library: &'static Library,
        params: &Params,
        caps: u64,
        op_flags: u64,
    ) -> Result<Info, Failure> {
        // SAFETY: libfabric answers null with an empty entry that has all attributes.
        let head = unsafe { library.dupinfo(ptr::null()) };
        if head.is_null() {
            return Err(Failure::new(Status::NO_RESOURCE, "fi_allocinfo: out of memory"));
        }
        let hints = Info { library, head };
        let name = CString::new(params.fabric.as_str())
            .map_err(|_| Failure::new(Status::BAD_CONFIG, "parameter fabric: a byte 0"))?;
        // SAFETY: the entry was just allocated with all attributes, and only this function knows it. The library frees the
        // strings, so the C library allocates them.
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
        // SAFETY: `node` ends with 0 and outlives the call; the library allocated the hints.
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

    /// A copy of the entry to use: of the configured family. A loopback address only if it is configured or the only one.
    pub fn choose(&self, params: &Params) -> Result<Info, Failure> {
        let fits = |info: &&fi_info| match (params.family, ip_of(info)) {
            (Family::Any, _) => true,
            _ if !has_socket_addresses(info.addr_format) => true,
            (Family::V4, Some(ip)) => ip.is_ipv4(),
            (Family::V6, Some(ip)) => ip.is_ipv6(),
            (_, None) => false,
        };
        let all: Vec<&fi_info> = self.iter().filter(fits).collect();
        let outside =
            all.iter().find(|info| ip_of(info).is_some_and(|ip| !ip.is_loopback() && !is_link_local(ip)));
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
        // SAFETY: the library allocated the entry, and `self` keeps it during the call.
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
        // SAFETY: only this function knows the copy. The library frees the address, so the C library allocated it.
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
        // SAFETY: only this function knows the copy. The library frees the address, so the C library allocated it.
        unsafe {
            let info = &mut *copy.head;
            libc::free(info.dest_addr);
            info.dest_addr = bytes;
            info.dest_addrlen = addr.bytes().len();
        }
        Ok(copy)
    }

    /// Limits endpoints made from it to what frames need: the completion queue has room for each operation.
    pub fn fit_to_frames(&mut self) {
        // SAFETY: the library allocated the entry, with each attribute or a null in its place (2.1 leaves them out of a
        // request whose listener is closed); `&mut self` makes this the only access.
        unsafe {
            let (tx, rx) = ((*self.head).tx_attr.as_mut(), (*self.head).rx_attr.as_mut());
            if let (Some(tx), Some(rx)) = (tx, rx) {
                rx.size = rx.size.min(FRAMES_IN as usize);
                tx.size = tx.size.min(4 * FRAMES_OUT as usize);
            }
        }
    }

    pub fn first(&self) -> &fi_info {
        // SAFETY: only successful calls make an `Info`, so `head` is an entry; this value keeps it.
        unsafe { &*self.head }
    }

    pub fn iter(&self) -> impl Iterator<Item = &fi_info> {
        // SAFETY: the library made the list, which ends with null; this value keeps it.
        std::iter::successors(unsafe { self.head.as_ref() }, |info| unsafe { info.next.as_ref() })
    }
}

/// A copy of an address in memory of the C library.
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

/// A C string as text; empty if null.
pub fn text(ptr: *const std::ffi::c_char) -> String {
    if ptr.is_null() {
        return String::new();
    }
    // SAFETY: the caller's string is part of an entry that it keeps; such strings end with 0.
    unsafe { CStr::from_ptr(ptr) }.to_string_lossy().into_owned()
}

/// An address in an entry.
pub fn raw_of(addr: *const c_void, len: usize) -> Option<Raw> {
    if addr.is_null() || len == 0 {
        return None;
    }
    // SAFETY: libfabric gives each address its length, and the caller keeps the entry.
    Raw::new(unsafe { std::slice::from_raw_parts(addr.cast(), len) })
}

/// The IP address of an entry.
pub fn ip_of(info: &fi_info) -> Option<IpAddr> {
    raw_of(info.src_addr, info.src_addrlen)?.socket().map(|socket| socket.ip())
}

/// Whether addresses of this format are socket addresses.
pub fn has_socket_addresses(format: u32) -> bool {
    matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6)
}
