//! Addresses of this host.

use std::net::IpAddr;

/// Whether this host has the address.
pub(crate) fn is_own_address(ip: IpAddr) -> bool {
    if ip.is_loopback() {
        return true;
    }
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `list` is a place for the answer.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return false;
    }
    let mut found = false;
    let mut next = list;
    while !next.is_null() {
        // SAFETY: a node of the list, which lives until it is freed below; an address is as long as its family says.
        unsafe {
            let node = &*next;
            next = node.ifa_next;
            if node.ifa_addr.is_null() {
                continue;
            }
            let its = match i32::from((*node.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let addr = node.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    IpAddr::from(addr.sin_addr.s_addr.to_ne_bytes())
                }
                libc::AF_INET6 => {
                    let addr = node.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    IpAddr::from(addr.sin6_addr.s6_addr)
                }
                _ => continue,
            };
            found |= its == ip;
        }
    }
    // SAFETY: the list `getifaddrs` gave, freed once.
    unsafe { libc::freeifaddrs(list) };
    found
}
