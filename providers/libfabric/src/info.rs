//! What libfabric offers (`fi_getinfo`), and the entry of it that a device uses.

use std::ffi::{CStr, CString, c_void};
use std::net::IpAddr;
use std::ptr;

use dat_plugin::{Failure, Status};
use libfabric_sys::consts::*;
use libfabric_sys::types::fi_info;
use libfabric_sys::{Library, consts};

use crate::address::Raw;
use crate::framed::{FRAMES_IN, FRAMES_OUT};
use crate::params::{Endpoint, Family, Params};
use crate::status;

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
    pub fn ask_for(
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
pub fn is_internet(format: u32) -> bool {
    matches!(format, FI_SOCKADDR | FI_SOCKADDR_IN | FI_SOCKADDR_IN6)
}

pub(crate) fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xFFC0 == 0xFE80,
    }
}
