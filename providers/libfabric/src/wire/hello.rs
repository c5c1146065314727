//! Handshakes: what a connecting and an accepting device tell each other first.

use dat_kit::Qualifier;

use crate::wire::bytes::{long, word};
use crate::wire::{MAGIC, VERSION};

/// Bytes of a [`Hello`] without private data.
pub const HELLO: usize = 48;

/// What a handshake message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request to connect.
    Request,
    /// The request is accepted.
    Accept,
    /// Refused by the consumer.
    Reject,
    /// Refused by the provider.
    Refuse,
    /// Datagrams: the request arrived. Its sender waits for the answer at the address given here.
    Heard,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Request => 1,
            Kind::Accept => 2,
            Kind::Reject => 3,
            Kind::Refuse => 4,
            Kind::Heard => 5,
        }
    }

    fn of(code: u8) -> Option<Kind> {
        let all = [Kind::Request, Kind::Accept, Kind::Reject, Kind::Refuse, Kind::Heard];
        all.into_iter().find(|kind| kind.code() == code)
    }
}

/// The fixed part of a request, accept, reject or refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub kind: Kind,
    /// The sender's channel.
    pub chan: u32,
    /// Request: quality of service.
    pub qos: u32,
    /// Receives the sender has posted.
    pub posted: u32,
    /// `room_code` of the smallest of them.
    pub room: u32,
    /// Connected endpoints: the address of the sender's control page for the peer's writes. Datagrams: a secret that
    /// identifies the channel in tags and frames.
    pub page: u64,
    /// Key of the control page; 0 with datagrams.
    pub key: u64,
    /// The sender's receives come from a shared queue: its peer must request them (`Control::RequestReceives`).
    pub shared: bool,
    /// Request: the quotient of the qualifier asked for ([`Qualifier`]).
    pub quotient: u64,
}

impl Hello {
    /// Appends it and the private data to `out`.
    pub fn encode(&self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind.code()]);
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        for word in [self.chan, self.qos, self.posted, self.room] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.page.to_le_bytes());
        out.extend_from_slice(&self.key.to_le_bytes());
        out.push(u8::from(self.shared));
        out.extend_from_slice(&Qualifier::bytes(self.quotient));
        out.extend_from_slice(data);
    }

    /// Decodes it and the private data; `None` unless it is well formed.
    pub fn decode(bytes: &[u8]) -> Option<(Hello, &[u8])> {
        let (head, data) = bytes.split_at_checked(HELLO)?;
        if head[..4] != MAGIC || head[4] != VERSION || head[40] > 1 {
            return None;
        }
        let len = u16::from_le_bytes([head[6], head[7]]) as usize;
        // A transport may pad what was sent; it never shortens it.
        let data = data.get(..len)?;
        let kind = Kind::of(head[5])?;
        let quotient = Qualifier::quotient_of(head[41..].try_into().ok()?);
        if quotient != 0 && kind != Kind::Request {
            return None;
        }
        let hello = Hello {
            kind,
            chan: word(head, 8),
            qos: word(head, 12),
            posted: word(head, 16),
            room: word(head, 20),
            page: long(head, 24),
            key: long(head, 32),
            shared: head[40] == 1,
            quotient,
        };
        Some((hello, data))
    }
}

/// Bytes of a short [`Hello`] without private data, for fabrics that carry little connection data. The first credit follows
/// when the connection is up, and no control message needs the sender's channel.
pub const SHORT_HELLO: usize = 5;

/// A short request with a quotient in front of its private data.
const QUOTIENT_FOLLOWS: u8 = 6;

/// Most private data after a short handshake: 7 bits hold its length.
pub const SHORT_DATA: usize = 127;

impl Hello {
    /// Appends the short form and the private data to `out`.
    pub fn encode_short(&self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC[..1]);
        out.extend_from_slice(&MAGIC[3..]);
        let code = if self.quotient == 0 { self.kind.code() } else { QUOTIENT_FOLLOWS };
        out.push(VERSION << 4 | code);
        out.push(data.len() as u8 | u8::from(self.shared) << 7);
        out.push(self.qos as u8);
        if self.quotient != 0 {
            out.extend_from_slice(&Qualifier::bytes(self.quotient));
        }
        out.extend_from_slice(data);
    }

    /// Decodes the short form and the private data.
    pub fn decode_short(bytes: &[u8]) -> Option<(Hello, &[u8])> {
        let (head, data) = bytes.split_at_checked(SHORT_HELLO)?;
        if head[..2] != [MAGIC[0], MAGIC[3]] || head[2] >> 4 != VERSION {
            return None;
        }
        let (kind, quotient, data) = match head[2] & 0xF {
            QUOTIENT_FOLLOWS => {
                let (quotient, data) = data.split_first_chunk()?;
                (Kind::Request, Qualifier::quotient_of(*quotient), data)
            }
            code => (Kind::of(code)?, 0, data),
        };
        let hello = Hello {
            kind,
            chan: 0,
            qos: head[4].into(),
            posted: 0,
            room: u32::MAX,
            page: 0,
            key: 0,
            shared: head[3] >> 7 == 1,
            quotient,
        };
        Some((hello, data.get(..usize::from(head[3] & 0x7F))?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let page = u64::MAX - 1;
        Hello {
            kind: Kind::Request,
            chan: 7,
            qos: 1,
            posted: 3,
            room: 65,
            page,
            key: 42,
            shared: true,
            quotient: 0,
        }
    }

    #[test]
    fn a_hello_is_read_as_written() {
        let mut bytes = Vec::new();
        hello().encode(b"private", &mut bytes);
        assert_eq!(bytes.len(), HELLO + 7);
        assert_eq!(Hello::decode(&bytes), Some((hello(), &b"private"[..])));
        bytes.push(0);
        assert_eq!(Hello::decode(&bytes), Some((hello(), &b"private"[..])), "padding of the transport");
    }

    #[test]
    fn a_hello_cut_short_or_of_another_version_is_none() {
        let mut bytes = Vec::new();
        hello().encode(&[1; 100], &mut bytes);
        for len in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..len]), None, "{len} bytes of it");
        }
        for at in [0, 3, 4, 5, 40] {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert_eq!(Hello::decode(&other), None, "byte {at} changed");
        }
    }

    #[test]
    fn requests_carry_a_quotient_and_other_handshakes_none() {
        for quotient in [2, 1 << 48, (1 << 56) - 1] {
            let mut bytes = Vec::new();
            let hello = Hello { quotient, ..hello() };
            hello.encode(b"private", &mut bytes);
            assert_eq!(Hello::decode(&bytes), Some((hello, &b"private"[..])));
            bytes[5] = Kind::Accept.code();
            assert_eq!(Hello::decode(&bytes), None, "an accept with a quotient");
            let short = Hello { posted: 0, room: u32::MAX, page: 0, key: 0, chan: 0, ..hello };
            let mut bytes = Vec::new();
            short.encode_short(b"private", &mut bytes);
            assert_eq!(bytes.len(), SHORT_HELLO + Qualifier::QUOTIENT + 7);
            assert_eq!(Hello::decode_short(&bytes), Some((short, &b"private"[..])));
            for len in 0..bytes.len() {
                assert_eq!(Hello::decode_short(&bytes[..len]), None, "{len} bytes of it");
            }
        }
    }

    #[test]
    fn a_short_hello_is_read_as_written() {
        let short = Hello { posted: 0, room: u32::MAX, page: 0, key: 0, chan: 0, ..hello() };
        let mut bytes = Vec::new();
        short.encode_short(&[7; 40], &mut bytes);
        assert_eq!(bytes.len(), SHORT_HELLO + 40);
        assert_eq!(Hello::decode_short(&bytes), Some((short, &[7; 40][..])));
        for len in 0..bytes.len() {
            assert_eq!(Hello::decode_short(&bytes[..len]), None, "{len} bytes of it");
        }
        for at in 0..3 {
            let mut other = bytes.clone();
            other[at] ^= 0x48;
            assert_eq!(Hello::decode_short(&other), None, "byte {at} changed");
        }
    }

    proptest! {
        #[test]
        fn fuzz_decoders(bytes: Vec<u8>) {
            for decoded in [Hello::decode(&bytes), Hello::decode_short(&bytes)].into_iter().flatten() {
                prop_assert!(decoded.1.len() <= bytes.len());
            }
        }
    }
}
