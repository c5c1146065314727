//! Socket addresses, in and out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use dat_types::{ReturnType, Subtype};

use crate::abi::Address;
use crate::code::{Code, Outcome, code, parameter};

const MALFORMED: Code = code(ReturnType::InvalidAddress, Subtype::AddressMalformed);

/// Reads a socket address of either family.
///
/// # Safety
/// `address` is null or points at a socket address as long as its family says.
pub unsafe fn read(address: Address, position: Subtype) -> Outcome<SocketAddr> {
    if address.is_null() {
        return Err(parameter(position));
    }
    // SAFETY: every socket address begins with its family; unaligned, because C code casts byte arrays.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: the family says that this much is there.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            // An IPv4 address in the clothes of the other family is what it is.
            if let Some(v4) = ip.to_ipv4_mapped() {
                return Ok(SocketAddrV4::new(v4, port).into());
            }
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(MALFORMED),
    }
}

/// An address at a fixed place, for C programs to look at.
pub struct Stored(Box<libc::sockaddr_storage>);

impl Stored {
    /// Of this address.
    pub fn new(address: SocketAddr) -> Stored {
        let mut stored = Stored::unknown();
        let place = std::ptr::from_mut(&mut *stored.0);
        match address {
            SocketAddr::V4(v4) => {
                let value = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: v4.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is large enough and aligned for every kind of address, and borrowed here.
                unsafe { place.cast::<libc::sockaddr_in>().write(value) };
            }
            SocketAddr::V6(v6) => {
                let value = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: v6.port().to_be(),
                    sin6_flowinfo: v6.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                    sin6_scope_id: v6.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(value) };
            }
        }
        stored
    }

    /// Of this host, without a port.
    pub fn of_ip(ip: IpAddr) -> Stored {
        Stored::new(SocketAddr::new(ip, 0))
    }

    /// Family 0: nothing is known.
    pub fn unknown() -> Stored {
        // SAFETY: a plain C structure, for which zeros are a value.
        Stored(Box::new(unsafe { std::mem::zeroed() }))
    }

    /// Where it lies: the same place as long as this lives.
    pub fn pointer(&self) -> Address {
        std::ptr::from_ref(&*self.0).cast_mut().cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["127.0.0.1:45248", "[fe80::1%3]:9", "[::1]:0"] {
            let address: SocketAddr = text.parse().expect("an address");
            let stored = Stored::new(address);
            // SAFETY: it points at the stored address.
            assert_eq!(unsafe { read(stored.pointer(), Subtype::Arg2) }, Ok(address));
        }
    }

    #[test]
    fn what_is_no_address_is_said_so() {
        // SAFETY: null, and a stored one without a family.
        unsafe {
            assert_eq!(read(std::ptr::null_mut(), Subtype::Arg2), Err(parameter(Subtype::Arg2)));
            assert_eq!(read(Stored::unknown().pointer(), Subtype::Arg2), Err(MALFORMED));
        }
    }
}
