//! Choosing the device: by name, by address, by interface, or the first that will do.
//!
//! RDMA CM knows which device an IP address belongs to: an identifier is bound to the address and asked. So every
//! address of this host is tried, and the first whose device is wanted is taken.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use dat_plugin::{Failure, Status};
use rdma_sys::Libraries;
use rdma_sys::verbs::IBV_PORT_ACTIVE;

use crate::params::Params;
use crate::status;
use crate::sys::cm::{CmId, EventChannel};
use crate::sys::context::{Context, device_name};

/// A device's port and the address it is reached at.
pub(crate) struct Found {
    pub(crate) device: String,
    pub(crate) port: u8,
    pub(crate) address: SocketAddr,
    /// Bound to the address; reports the device's removal.
    pub(crate) anchor: CmId,
    pub(crate) channel: Arc<EventChannel>,
}

/// The libraries, or why there are none.
pub(crate) fn libraries() -> Result<&'static Libraries, Failure> {
    rdma_sys::libraries().map_err(|why| Failure::new(Status::NO_DEVICE, why))
}

/// Finds what the parameters ask for.
pub(crate) fn find(lib: &'static Libraries, params: &Params) -> Result<Found, Failure> {
    let names = devices(lib)?;
    let fail = |status, why: String| Failure::new(status, format!("{}: {why}", params.ia_name));
    if let Some(wanted) = &params.device
        && !names.contains(wanted)
    {
        let why = format!("there is no RDMA device {wanted}; this machine has {}", names.join(", "));
        return Err(fail(Status::NO_DEVICE, why));
    }
    let channel = event_channel(lib).map_err(|failure| {
        Failure::new(failure.status, format!("{}: {}", params.ia_name, failure.message))
    })?;
    let candidates = addresses(params)?;
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for address in &candidates {
        let Ok(anchor) = CmId::new(&channel, 0) else { continue };
        if anchor.bind(*address).is_err() {
            continue;
        }
        let Some((device, port)) = anchor.device() else { continue };
        if params.device.as_ref().is_some_and(|wanted| *wanted != device)
            || params.port.is_some_and(|wanted| wanted != port)
        {
            seen.insert(format!("{device} port {port}"), format!("{} is another device's", address.ip()));
            continue;
        }
        match port_state(lib, &device, port) {
            Ok(()) => return Ok(Found { device, port, address: *address, anchor, channel }),
            Err(why) => {
                seen.insert(format!("{device} port {port}"), why);
            }
        }
    }
    let mut status = Status::NO_DEVICE;
    for name in names.iter().filter(|name| params.device.as_ref().is_none_or(|wanted| wanted == *name)) {
        status = examine(lib, name, &mut seen).unwrap_or(status);
    }
    Err(fail(status, explain(params, &names, &seen)))
}

/// What keeps a device from being used that RDMA CM does not speak of: it knows no address of one that it could not open,
/// or whose link is down. The result replaces "no device".
fn examine(lib: &'static Libraries, device: &str, seen: &mut BTreeMap<String, String>) -> Option<Status> {
    let context = match Context::open(lib, device) {
        Ok(context) => context,
        Err(error) => {
            let failure = cannot_open(device, &error);
            seen.insert(device.to_owned(), failure.message);
            return Some(failure.status);
        }
    };
    for port in 1..=context.attr().map_or(0, |attr| attr.phys_port_cnt) {
        if let Ok(attr) = context.port(port)
            && attr.state != IBV_PORT_ACTIVE
        {
            seen.entry(format!("{device} port {port}")).or_insert_with(|| link_down(attr.state));
        }
    }
    None
}

/// The names of this machine's RDMA devices; none is a failure.
pub(crate) fn devices(lib: &'static Libraries) -> Result<Vec<String>, Failure> {
    let verbs = &lib.verbs;
    let mut names = Vec::new();
    // SAFETY: the list is read within its count and freed after its last use.
    unsafe {
        let mut count = 0;
        let list = (verbs.ibv_get_device_list)(&raw mut count);
        if !list.is_null() {
            names.extend((0..count as usize).map(|i| device_name(verbs, *list.add(i))));
            (verbs.ibv_free_device_list)(list);
        }
    }
    if names.is_empty() {
        return Err(Failure::new(Status::NO_DEVICE, no_device()));
    }
    Ok(names)
}

/// Why there is no device at all.
fn no_device() -> String {
    let entries =
        |folder: &str| std::fs::read_dir(folder).map(|list| list.flatten().count()).unwrap_or_default();
    match (entries("/sys/class/infiniband"), entries("/sys/class/infiniband_verbs")) {
        (0, _) => "no RDMA device: /sys/class/infiniband is empty. Is the adapter's kernel driver loaded? (Soft-RoCE: \
                   `rdma link add rxe0 type rxe netdev eth0`)"
            .to_owned(),
        (_, 0) => "the kernel has an RDMA device but no user access to it; load the module ib_uverbs".to_owned(),
        _ => "the kernel has an RDMA device for which libibverbs has no driver; install ibverbs-providers".to_owned(),
    }
}

/// RDMA CM, or why there is none.
fn event_channel(lib: &'static Libraries) -> Result<Arc<EventChannel>, Failure> {
    EventChannel::new(lib).map_err(|error| {
        let (status, advice) = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                (Status::PERMISSION, "this user may not open /dev/infiniband/rdma_cm; see its group and mode")
            }
            _ => (Status::NO_DEVICE, "is the kernel module rdma_ucm loaded?"),
        };
        Failure::new(status, format!("no access to RDMA CM: {error}; {advice}"))
    })
}

fn port_state(lib: &'static Libraries, device: &str, port: u8) -> Result<(), String> {
    let context = Context::open(lib, device).map_err(|error| cannot_open(device, &error).message)?;
    let attr = context.port(port).map_err(|error| format!("its port cannot be asked: {error}"))?;
    match attr.state {
        IBV_PORT_ACTIVE => Ok(()),
        state => Err(link_down(state)),
    }
}

fn link_down(state: std::ffi::c_int) -> String {
    format!("its link is down (state {state}, {IBV_PORT_ACTIVE} is active)")
}

/// Why a device could not be opened. The library does not tell: it looks for the node elsewhere then, and the error is of
/// that.
pub(crate) fn cannot_open(device: &str, error: &io::Error) -> Failure {
    match shut_node(device) {
        Some(node) => Failure::new(
            Status::PERMISSION,
            format!("this user may not open its node {node}; see its group and mode"),
        ),
        None => status::failure("it cannot be opened", error),
    }
}

/// The device's node, by which programs of users reach it, if this one may not.
fn shut_node(device: &str) -> Option<String> {
    let nodes = std::fs::read_dir("/sys/class/infiniband_verbs").ok()?;
    let of_device = |node: &std::fs::DirEntry| {
        std::fs::read_to_string(node.path().join("ibdev")).is_ok_and(|name| name.trim() == device)
    };
    let node = nodes.flatten().find(of_device)?;
    let path = format!("/dev/infiniband/{}", node.file_name().to_string_lossy());
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    (rustix::fs::access(&path, access) == Err(rustix::io::Errno::ACCESS)).then_some(path)
}

fn explain(params: &Params, names: &[String], seen: &BTreeMap<String, String>) -> String {
    let mut wanted = String::from("no usable RDMA device");
    for (what, value) in [
        ("device", params.device.clone()),
        ("port", params.port.map(|port| port.to_string())),
        ("address", params.address.map(|address| address.to_string())),
        ("interface", params.interface.clone()),
    ] {
        if let Some(value) = value {
            wanted.push_str(&format!(", {what} {value}"));
        }
    }
    if seen.is_empty() {
        return format!(
            "{wanted}: none of the addresses asked for belongs to one of {}; give the device's network interface an IP \
             address",
            names.join(", ")
        );
    }
    let seen: Vec<String> = seen.iter().map(|(what, why)| format!("{what}: {why}")).collect();
    format!("{wanted}: {}", seen.join("; "))
}

/// The addresses to try.
fn addresses(params: &Params) -> Result<Vec<SocketAddr>, Failure> {
    if let Some(address) = params.address {
        return Ok(vec![SocketAddr::new(address, 0)]);
    }
    let all = interface_addresses().map_err(|error| Failure::os("getifaddrs", &error))?;
    let Some(wanted) = &params.interface else {
        // IPv4 first: it is what people give as an address.
        let (v4, v6): (Vec<_>, Vec<_>) =
            all.into_iter().map(|(_, address)| address).partition(SocketAddr::is_ipv4);
        return Ok(v4.into_iter().chain(v6).collect());
    };
    let own: Vec<SocketAddr> =
        all.iter().filter(|(name, _)| name == wanted).map(|(_, address)| *address).collect();
    if own.is_empty() {
        let mut names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        let message = format!(
            "{}: there is no interface {wanted} with an IP address; there are {}",
            params.ia_name,
            names.join(", ")
        );
        return Err(Failure::new(Status::NO_DEVICE, message));
    }
    Ok(own)
}

/// The addresses of this host's interfaces, but the loopback ones.
fn interface_addresses() -> io::Result<Vec<(String, SocketAddr)>> {
    let mut out = Vec::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: the list is walked to its end and freed after its last use; the family says which structure an address
    // is.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut entry = list;
        while let Some(this) = entry.as_ref() {
            entry = this.ifa_next;
            if this.ifa_addr.is_null() || this.ifa_flags & libc::IFF_LOOPBACK as u32 != 0 {
                continue;
            }
            let ip = match i32::from((*this.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let raw = &*this.ifa_addr.cast::<libc::sockaddr_in>();
                    SocketAddr::new(IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes()), 0)
                }
                libc::AF_INET6 => {
                    let raw = &*this.ifa_addr.cast::<libc::sockaddr_in6>();
                    SocketAddrV6::new(raw.sin6_addr.s6_addr.into(), 0, 0, raw.sin6_scope_id).into()
                }
                _ => continue,
            };
            out.push((CStr::from_ptr(this.ifa_name).to_string_lossy().into_owned(), ip));
        }
        libc::freeifaddrs(list);
    }
    Ok(out)
}
