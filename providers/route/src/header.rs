//! What the two ends of a connection say of themselves, ahead of the private data.
//!
//! ```text
//! 0      version, 1
//! 1      flags: 1 the sender's keys are those of the carrying child, 2 an address follows
//! 2..4   0
//! 4..8   key of the table of translations, little-endian; 0 with flag 1
//! 8..16  address of that table, little-endian
//! 16..20 the sender's port
//! 20..42 with flag 2: the address of the route: family (2), scope (4), bytes (16)
//! ```

use dat_plugin::SockAddr;

/// Version of the header. Peers of another version are refused.
const VERSION: u8 = 1;
const DIRECT: u8 = 1;
const ADDRESS: u8 = 2;
const SHORT: usize = 20;
const LONG: usize = 42;

/// One side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Where the sender's keys are translated to those of the carrying child. `None`: they are that child's.
    pub(crate) table: Option<TableAt>,
    /// The sender's port. It stays the same through all attempts of a connect.
    pub(crate) port: u32,
    /// The sender's address, where the carrying child has another one.
    pub(crate) address: Option<SockAddr>,
}

/// Place of a table of translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableAt {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

/// Bytes of a header, on the child with the route's address or on another one.
pub(crate) fn len(has_address: bool) -> usize {
    if has_address { SHORT } else { LONG }
}

impl Header {
    /// The header and `data` after it.
    pub(crate) fn with(&self, data: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(LONG + data.len());
        let direct = if self.table.is_none() { DIRECT } else { 0 };
        let address = if self.address.is_some() { ADDRESS } else { 0 };
        out.extend([VERSION, direct | address, 0, 0]);
        let at = self.table.unwrap_or(TableAt { addr: 0, rkey: 0 });
        out.extend(at.rkey.to_le_bytes());
        out.extend(at.addr.to_le_bytes());
        out.extend(self.port.to_le_bytes());
        if let Some(address) = self.address {
            out.extend(address.family.to_le_bytes());
            out.extend(address.scope.to_le_bytes());
            out.extend(address.bytes);
        }
        out.extend(data);
        out
    }

    /// The header and the data behind it. `None`: the peer is not a route, or one of another version.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Header, &[u8])> {
        let (fixed, rest) = bytes.split_first_chunk::<SHORT>()?;
        let [VERSION, flags, 0, 0, ..] = *fixed else { return None };
        if flags & !(DIRECT | ADDRESS) != 0 {
            return None;
        }
        let rkey = u32::from_le_bytes(fixed[4..8].try_into().ok()?);
        let addr = u64::from_le_bytes(fixed[8..16].try_into().ok()?);
        let port = u32::from_le_bytes(fixed[16..20].try_into().ok()?);
        let table = (flags & DIRECT == 0).then_some(TableAt { addr, rkey });
        if flags & ADDRESS == 0 {
            return Some((Header { table, port, address: None }, rest));
        }
        let (more, rest) = rest.split_first_chunk::<{ LONG - SHORT }>()?;
        let address = SockAddr {
            family: u16::from_le_bytes(more[0..2].try_into().ok()?),
            port: 0,
            scope: u32::from_le_bytes(more[2..6].try_into().ok()?),
            bytes: more[6..22].try_into().ok()?,
        };
        // A family that is none would be no address for the application.
        address.to_std()?;
        Some((Header { table, port, address: Some(address) }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_reads_back_with_the_data_behind_it() {
        let address = SockAddr::from(std::net::IpAddr::from([10, 0, 0, 7]));
        for table in [None, Some(TableAt { addr: 0x7fff_1234_5678, rkey: 0xdead_beef })] {
            for address in [None, Some(address)] {
                let header = Header { table, port: 0x1234_5678, address };
                let bytes = header.with(b"private");
                assert_eq!(bytes.len(), len(address.is_none()) + 7);
                assert_eq!(Header::read(&bytes), Some((header, &b"private"[..])));
            }
        }
    }

    #[test]
    fn what_is_no_header_is_refused() {
        let good = Header { table: None, port: 1, address: None }.with(b"");
        assert!(Header::read(&good[..19]).is_none(), "too short");
        for (at, value) in [(0, 2), (1, 4), (1, 3), (2, 1), (3, 1)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Header::read(&bad).is_none(), "byte {at} = {value}");
        }
        let mut none = Header { table: None, port: 1, address: Some(SockAddr::UNSPECIFIED) }.with(b"");
        assert!(Header::read(&none).is_none(), "an address of no family");
        none[20] = 9;
        assert!(Header::read(&none).is_none(), "an unknown family");
    }
}
