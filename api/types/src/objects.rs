//! Kinds of objects, communicators, and the small enumerations objects are described with. Values are those of the
//! public headers.

/// Kind of an object (`DAT_HANDLE_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HandleType {
    /// Connection request.
    Cr = 0,
    /// Endpoint.
    Ep = 1,
    /// Event dispatcher.
    Evd = 2,
    /// Interface adapter.
    Ia = 3,
    /// Local memory region.
    Lmr = 4,
    /// Public service point.
    Psp = 5,
    /// Protection zone.
    Pz = 6,
    /// Remote memory region (memory window).
    Rmr = 7,
    /// Reserved service point.
    Rsp = 8,
    /// Consumer notification object.
    Cno = 9,
    /// Shared receive queue.
    Srq = 10,
    /// Common service point.
    Csp = 11,
}

/// A communicator in socket terms (`DAT_COMM`): the three arguments of socket(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Comm {
    /// Address family.
    pub domain: i32,
    /// Kind of socket.
    pub kind: i32,
    /// Protocol; 0 is the usual one.
    pub protocol: i32,
}

impl Comm {
    /// AF_INET of the operating system.
    pub const INET: i32 = 2;
    /// AF_INET6 of the operating system.
    pub const INET6: i32 = 10;
    /// SOCK_STREAM of the operating system.
    pub const STREAM: i32 = 1;
    /// IPPROTO_TCP.
    pub const TCP: i32 = 6;

    /// The communicator of connections to and from addresses of this family.
    pub const fn of(address: std::net::IpAddr) -> Comm {
        let domain = match address {
            std::net::IpAddr::V4(_) => Comm::INET,
            std::net::IpAddr::V6(_) => Comm::INET6,
        };
        Comm { domain, kind: Comm::STREAM, protocol: 0 }
    }

    /// Whether reliable connections can be had from it: a stream over one of the two families of addresses.
    pub const fn is_known(self) -> bool {
        matches!(self.domain, Comm::INET | Comm::INET6)
            && self.kind == Comm::STREAM
            && matches!(self.protocol, 0 | Comm::TCP)
    }

    /// Whether `address` is of its family.
    pub const fn covers(self, address: std::net::IpAddr) -> bool {
        match address {
            std::net::IpAddr::V4(_) => self.domain == Comm::INET,
            std::net::IpAddr::V6(_) => self.domain == Comm::INET6,
        }
    }
}

impl Default for Comm {
    /// A stream over IPv4.
    fn default() -> Comm {
        Comm { domain: Comm::INET, kind: Comm::STREAM, protocol: 0 }
    }
}

/// How addresses in triplets are meant (`DAT_VA_TYPE`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum VaType {
    /// Virtual addresses.
    #[default]
    Virtual = 0,
    /// Offsets from the start of the region.
    ZeroBased = 1,
}

impl VaType {
    /// The value of the C constant, or `None` for any other.
    pub fn from_raw(value: u32) -> Option<VaType> {
        [VaType::Virtual, VaType::ZeroBased].into_iter().find(|kind| *kind as u32 == value)
    }
}

/// What names memory shared by several processes: 40 bytes, compared in full.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LmrCookie(pub [u8; 40]);

impl std::fmt::Debug for LmrCookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LmrCookie(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Whether protection zones belong to one adapter each (`DAT_PZ_SUPPORT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum PzSupport {
    /// One adapter each.
    #[default]
    Unique = 0,
    /// Several adapters may share one.
    Shareable = 1,
}

/// Who owns the segments of a post when it returns (`DAT_IOV_OWNERSHIP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum IovOwnership {
    /// The consumer: they may be forgotten.
    #[default]
    Consumer = 0,
    /// The provider until the completion; it leaves them as they are.
    ProviderNoModify = 1,
    /// The provider until the completion; it may change them.
    ProviderModify = 2,
}

/// Where a memory window can be used (`DAT_RMR_SCOPE`); as an attribute, which kinds there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RmrScope {
    /// Through the endpoint it was bound on.
    Ep = 0,
    /// Through every endpoint of its zone.
    Pz = 1,
    /// As an attribute: both kinds.
    Any = 2,
}

/// Load balancing of a provider with several paths (`DAT_HA_LB`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum HaLoadBalancing {
    /// None.
    #[default]
    None = 0,
    /// Between connections.
    InterComm = 1,
    /// Within a connection.
    IntraComm = 2,
}

/// The family of extensions an adapter has (`DAT_EXTENSION`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Extension {
    /// None.
    #[default]
    None = 0,
    /// Those named after InfiniBand.
    Ib = 1,
    /// Those named after iWARP.
    Iw = 2,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communicators_are_streams_over_internet_addresses() {
        for ip in ["10.0.0.1", "::1"] {
            let ip: std::net::IpAddr = ip.parse().unwrap();
            assert!(Comm::of(ip).is_known() && Comm::of(ip).covers(ip));
        }
        assert!(!Comm::default().covers("::1".parse().unwrap()));
        for strange in [
            Comm { domain: 27, ..Comm::default() },
            Comm { kind: 2, ..Comm::default() },
            Comm { protocol: 17, ..Comm::default() },
        ] {
            assert!(!strange.is_known(), "{strange:?}");
        }
    }
}
