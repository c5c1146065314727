//! What happens on a device, and addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use abi_stable::StableAbi;

use super::constants::EventKind;

/// The most private data any provider carries, in bytes.
pub const MAX_PRIVATE_DATA: usize = 512;

/// Something that happened on a device.
#[repr(C)]
#[derive(Clone, Copy, StableAbi)]
pub struct Event {
    /// What.
    pub kind: EventKind,
    /// Request: the quality of service the peer asked for.
    pub qos: u32,
    /// The listener's or channel's number.
    pub user: u64,
    /// Request: its name, for accept and reject.
    pub request: u64,
    /// Request: the port that was asked for.
    pub port: u64,
    /// Request: the peer's port.
    pub peer_port: u64,
    /// Request: the peer's address.
    pub peer: SockAddr,
    /// Bytes of private data in `data`.
    pub data_len: u32,
    /// Private data.
    pub data: [u8; MAX_PRIVATE_DATA],
}

impl Event {
    /// An event of this kind for this listener or channel, everything else zero.
    pub fn new(kind: EventKind, user: u64) -> Event {
        Event {
            kind,
            qos: 0,
            user,
            request: 0,
            port: 0,
            peer_port: 0,
            peer: SockAddr::UNSPECIFIED,
            data_len: 0,
            data: [0; MAX_PRIVATE_DATA],
        }
    }

    /// The same with private data; longer than [`MAX_PRIVATE_DATA`] is cut.
    pub fn with_data(mut self, data: &[u8]) -> Event {
        let len = data.len().min(MAX_PRIVATE_DATA);
        self.data[..len].copy_from_slice(&data[..len]);
        self.data_len = len as u32;
        self
    }

    /// The private data.
    pub fn data(&self) -> &[u8] {
        &self.data[..(self.data_len as usize).min(MAX_PRIVATE_DATA)]
    }
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Event")
            .field("kind", &self.kind)
            .field("user", &self.user)
            .field("request", &self.request)
            .field("port", &self.port)
            .field("data_len", &self.data_len)
            .finish_non_exhaustive()
    }
}

/// An internet address, with a port where one is meant.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Eq, StableAbi)]
pub struct SockAddr {
    /// 4, 6, or 0 for none.
    pub family: u16,
    /// Host order; 0 where none is meant.
    pub port: u16,
    /// Scope of a link-local IPv6 address.
    pub scope: u32,
    /// Network order; an IPv4 address takes the first four bytes.
    pub bytes: [u8; 16],
}

impl SockAddr {
    /// No address.
    pub const UNSPECIFIED: SockAddr = SockAddr { family: 0, port: 0, scope: 0, bytes: [0; 16] };

    /// As the standard library has it, or `None` when unspecified or unknown.
    pub fn to_std(self) -> Option<SocketAddr> {
        let ip = match self.family {
            4 => {
                let [a, b, c, d, ..] = self.bytes;
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            6 => IpAddr::V6(Ipv6Addr::from(self.bytes)),
            _ => return None,
        };
        let mut addr = SocketAddr::new(ip, self.port);
        if let SocketAddr::V6(v6) = &mut addr {
            v6.set_scope_id(self.scope);
        }
        Some(addr)
    }
}

impl From<SocketAddr> for SockAddr {
    fn from(addr: SocketAddr) -> SockAddr {
        let mut out = SockAddr { port: addr.port(), ..SockAddr::from(addr.ip()) };
        if let SocketAddr::V6(v6) = addr {
            out.scope = v6.scope_id();
        }
        out
    }
}

impl From<IpAddr> for SockAddr {
    fn from(ip: IpAddr) -> SockAddr {
        let mut out = SockAddr::UNSPECIFIED;
        match ip {
            IpAddr::V4(v4) => {
                out.family = 4;
                out.bytes[..4].copy_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out.family = 6;
                out.bytes = v6.octets();
            }
        }
        out
    }
}

impl std::fmt::Debug for SockAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.to_std() {
            Some(addr) => write!(f, "{addr}"),
            None => f.write_str("no address"),
        }
    }
}
