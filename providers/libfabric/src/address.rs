//! Addresses in the C interface's format.

use std::mem::size_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use dat_plugin::SockAddr;

/// Most bytes of an address, of any fabric.
pub const ROOM: usize = 128;

/// An address in the fabric's format, opaque unless it is a socket address.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    bytes: [u8; ROOM],
    len: usize,
}

impl Raw {
    /// An address of these bytes; `None` if there are too many.
    pub fn new(bytes: &[u8]) -> Option<Raw> {
        let mut raw = Raw { bytes: [0; ROOM], len: bytes.len() };
        raw.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(raw)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The socket address, if it is one.
    pub fn socket(&self) -> Option<SocketAddr> {
        let bytes = self.bytes();
        let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
        let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        match i32::from(family) {
            libc::AF_INET => {
                let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
                Some(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::from(ip), port)))
            }
            libc::AF_INET6 => {
                let flow = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
                let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
                let scope = u32::from_ne_bytes(bytes.get(24..28)?.try_into().ok()?);
                Some(SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope)))
            }
            _ => None,
        }
    }
}

impl From<SocketAddr> for Raw {
    fn from(addr: SocketAddr) -> Raw {
        let mut raw = Raw { bytes: [0; ROOM], len: 0 };
        let bytes = &mut raw.bytes;
        bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let family = match addr {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                raw.len = size_of::<libc::sockaddr_in>();
                libc::AF_INET
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                raw.len = size_of::<libc::sockaddr_in6>();
                libc::AF_INET6
            }
        };
        raw.bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        raw
    }
}

/// The socket address of `port` at `addr`; `None` if `port` is 0.
pub fn at_port(addr: SockAddr, port: u16) -> Option<SocketAddr> {
    let mut socket = addr.to_std()?;
    socket.set_port(Some(port).filter(|port| *port != 0)?);
    // An IPv4-mapped IPv6 address means the IPv4 address.
    Some(SocketAddr::new(socket.ip().to_canonical(), socket.port())).map(|plain| match (plain, socket) {
        (SocketAddr::V6(_), SocketAddr::V6(full)) => SocketAddr::V6(full),
        (plain, _) => plain,
    })
}

/// Whether an address is good on one link only.
pub fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.segments()[0] & 0xFFC0 == 0xFE80,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses_are_read_as_written() {
        for text in ["127.0.0.1:4711", "[::1]:4711", "[fe80::1%7]:65535"] {
            let addr: SocketAddr = text.parse().unwrap();
            assert_eq!(Raw::from(addr).socket(), Some(addr));
        }
    }

    #[test]
    fn other_bytes_are_no_socket_address() {
        for bytes in [&[][..], &[2], &[2, 0, 1, 2], &[99, 0, 1, 2, 3, 4, 5, 6], &[10, 0, 1, 2, 3, 4, 5, 6, 7]]
        {
            assert_eq!(Raw::new(bytes).and_then(|raw| raw.socket()), None);
        }
        assert!(Raw::new(&[0; ROOM + 1]).is_none());
    }

    #[test]
    fn port_0_is_no_address() {
        let addr = SockAddr::from(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(at_port(addr, 80), Some("127.0.0.1:80".parse().unwrap()));
        assert_eq!(at_port(addr, 0), None);
        assert_eq!(at_port(SockAddr::UNSPECIFIED, 80), None);
    }
}
