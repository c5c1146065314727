//! This host's IP address and identity, for fabrics whose own addresses have neither.

use std::net::{IpAddr, SocketAddrV6};
use std::sync::OnceLock;

use crate::address::is_link_local;
use crate::params::Family;

/// The host's first address of the family that is neither a loopback nor a link-local address; otherwise its first one.
pub fn first_address(family: Family) -> Option<IpAddr> {
    let fits = |ip: &IpAddr| match family {
        Family::Any => true,
        Family::V4 => ip.is_ipv4(),
        Family::V6 => ip.is_ipv6(),
    };
    let all: Vec<IpAddr> = own_addresses().into_iter().filter(fits).collect();
    // IPv4 first: it is what people mostly configure.
    let outside = |ip: &&IpAddr| !ip.is_loopback() && !is_link_local(**ip);
    let first = |wanted: &dyn Fn(&&IpAddr) -> bool| {
        let v4 = all.iter().filter(|ip| ip.is_ipv4()).find(wanted);
        v4.or_else(|| all.iter().find(wanted)).copied()
    };
    first(&outside).or_else(|| first(&|_| true))
}

/// The addresses of the host's interfaces.
fn own_addresses() -> Vec<IpAddr> {
    let mut out = Vec::new();
    let mut list = std::ptr::null_mut();
    // SAFETY: `getifaddrs` made the list, which ends with null; it is freed after its last use. The family gives the type
    // of each address.
    unsafe {
        if libc::getifaddrs(&raw mut list) != 0 {
            return out;
        }
        let mut entry = list;
        while let Some(this) = entry.as_ref() {
            entry = this.ifa_next;
            if this.ifa_addr.is_null() {
                continue;
            }
            match i32::from((*this.ifa_addr).sa_family) {
                libc::AF_INET => {
                    let raw = this.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned();
                    out.push(IpAddr::from(raw.sin_addr.s_addr.to_ne_bytes()));
                }
                libc::AF_INET6 => {
                    let raw = this.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned();
                    out.push(SocketAddrV6::new(raw.sin6_addr.s6_addr.into(), 0, 0, 0).ip().to_owned().into());
                }
                _ => {}
            }
        }
        libc::freeifaddrs(list);
    }
    out
}

/// The random number that the kernel chose when this host started; all 0 if it cannot be read.
pub fn boot_id() -> [u8; 16] {
    static HOST: OnceLock<[u8; 16]> = OnceLock::new();
    *HOST.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        number_of(&text).unwrap_or_default()
    })
}

/// Parses 32 hexadecimal digits with dashes between them.
fn number_of(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_has_an_address() {
        let Some(ip) = first_address(Family::Any) else { panic!("no interface has an address") };
        assert!(std::net::TcpListener::bind((ip, 0)).is_ok(), "{ip} is not this host's");
        assert!(first_address(Family::V4).is_none_or(|ip| ip.is_ipv4()));
        assert!(first_address(Family::V6).is_none_or(|ip| ip.is_ipv6()));
    }

    #[test]
    fn boot_ids_are_parsed() {
        assert_eq!(boot_id(), boot_id());
        let number = number_of("00000000-0000-0000-0000-0000000001ff\n");
        assert_eq!(number.map(u128::from_be_bytes), Some(511));
        for wrong in ["", "1ff", "00000000-0000-0000-0000-0000000001fg", &"0".repeat(33)] {
            assert_eq!(number_of(wrong), None);
        }
    }
}
