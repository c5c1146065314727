//! The lookup protocol over TCP, for fabrics whose addresses are not IP addresses. A client knows an IP address and a port,
//! sends a question there and gets the device's address on the fabric. `docs/libfabric.md` describes the format. There is
//! one question and one answer; decoders check both completely.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::address::Raw;
use crate::wire::bytes::{long, word};

/// Version of this protocol.
pub const VERSION: u8 = 1;

/// The question.
pub const QUESTION: [u8; 8] = [b'D', b'A', b'T', b'Q', VERSION, 0, 0, 0];

/// Whether these bytes are a question, of any version.
pub fn is_question(bytes: &[u8; QUESTION.len()]) -> bool {
    bytes[..4] == QUESTION[..4]
}

const MAGIC: [u8; 4] = *b"DATA";

/// Bytes of an answer before the address.
pub const HEAD: usize = 48;

/// Bytes of the TCP address in a name.
const TCP_ADDRESS: usize = 18;

/// Most bytes of an address: with its TCP address it is a name in a frame.
pub const MAX_ADDRESS: usize = crate::wire::datagram::MAX_NAME - TCP_ADDRESS;

/// What must be the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    pub protocol: u32,
    pub version: u32,
    pub format: u32,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub protocol: Protocol,
    /// A TCP port of the device; a connection to it succeeds while its process lives.
    pub liveness_port: u16,
    /// What a request must carry, so that it does not reach a later device with the same address.
    pub token: u64,
    pub host: [u8; 16],
    pub address: Raw,
}

impl Answer {
    pub fn encode(&self) -> Vec<u8> {
        let address = self.address.bytes();
        let mut out = Vec::with_capacity(HEAD + address.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, 0]);
        out.extend_from_slice(&(address.len() as u16).to_le_bytes());
        for word in
            [self.protocol.protocol, self.protocol.version, self.protocol.format, self.liveness_port.into()]
        {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.token.to_le_bytes());
        out.extend_from_slice(&self.host);
        out.extend_from_slice(address);
        out
    }
}

/// What the received bytes of an answer are.
#[derive(Debug)]
pub enum Partial {
    /// The start of an answer.
    More,
    Whole(Answer),
    /// No answer, or one of another version.
    Invalid(&'static str),
}

impl Partial {
    pub fn of(bytes: &[u8]) -> Partial {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Partial::Invalid("something else listens there");
        }
        if bytes.get(4).is_some_and(|version| *version != VERSION) {
            return Partial::Invalid("the device there speaks another version");
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Partial::More };
        let len = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let Ok(liveness_port) = u16::try_from(word(head, 20)) else {
            return Partial::Invalid("an impossible port");
        };
        if len == 0 || len > MAX_ADDRESS {
            return Partial::Invalid("an address of impossible length");
        }
        let Some(address) = rest.get(..len).and_then(Raw::new) else { return Partial::More };
        let mut host = [0; 16];
        host.copy_from_slice(&head[32..48]);
        Partial::Whole(Answer {
            protocol: Protocol { protocol: word(head, 8), version: word(head, 12), format: word(head, 16) },
            liveness_port,
            token: long(head, 24),
            host,
            address,
        })
    }
}

/// A device's name in frames: where it listens by TCP, and its address.
pub fn name(liveness_at: SocketAddr, address: &Raw) -> Option<Raw> {
    let ip = match liveness_at.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut out = Vec::with_capacity(TCP_ADDRESS + address.bytes().len());
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&liveness_at.port().to_le_bytes());
    out.extend_from_slice(address.bytes());
    Raw::new(&out)
}

/// Decodes a name.
pub fn read_name(name: &[u8]) -> Option<(SocketAddr, Raw)> {
    let (tcp, address) = name.split_at_checked(TCP_ADDRESS)?;
    let ip: [u8; 16] = tcp[..16].try_into().ok()?;
    let port = u16::from_le_bytes([tcp[16], tcp[17]]);
    let liveness_at = SocketAddr::new(IpAddr::from(Ipv6Addr::from(ip)).to_canonical(), port);
    (!address.is_empty()).then(|| Raw::new(address)).flatten().map(|address| (liveness_at, address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(address: &[u8]) -> Answer {
        Answer {
            protocol: Protocol { protocol: 16, version: 1, format: 9 },
            liveness_port: 4711,
            token: u64::MAX - 4,
            host: [7; 16],
            address: Raw::new(address).expect("fits"),
        }
    }

    #[test]
    fn an_answer_is_read_as_written_once_it_is_whole() {
        let bytes = answer(b"fi_shm://1:0:0\0").encode();
        for len in 0..bytes.len() {
            assert!(matches!(Partial::of(&bytes[..len]), Partial::More), "{len} bytes of it");
        }
        let Partial::Whole(read) = Partial::of(&bytes) else { panic!("it is whole") };
        assert_eq!(
            (read.protocol, read.liveness_port, read.token),
            (answer(b"x").protocol, 4711, u64::MAX - 4)
        );
        assert_eq!((read.host, read.address.bytes()), ([7; 16], &b"fi_shm://1:0:0\0"[..]));
    }

    #[test]
    fn other_bytes_are_refused_at_once() {
        let bytes = answer(b"x").encode();
        for at in [0, 3, 4] {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert!(matches!(Partial::of(&other[..=at]), Partial::Invalid(_)), "byte {at} changed");
        }
        for (at, byte) in [(6, 0), (7, 1), (22, 1)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert!(matches!(Partial::of(&other), Partial::Invalid(_)), "byte {at} changed");
        }
        assert!(is_question(&QUESTION) && !is_question(b"GET / HT"));
    }

    #[test]
    fn names_are_read_as_written() {
        for at in ["10.1.2.3:4711", "[fd00::1]:1"] {
            let at: SocketAddr = at.parse().expect("an address");
            let longest = Raw::new(&[3; MAX_ADDRESS]).expect("fits");
            let written = name(at, &longest).expect("fits");
            let (tcp, address) = read_name(written.bytes()).expect("a name");
            assert_eq!((tcp, address.bytes()), (at, longest.bytes()));
            assert!(read_name(&written.bytes()[..TCP_ADDRESS]).is_none(), "without an address");
        }
    }

    proptest! {
        #[test]
        fn fuzz_decoders(mut bytes: Vec<u8>, good in 0..=HEAD) {
            let _ = (Partial::of(&bytes), read_name(&bytes));
            let answer = answer(b"address").encode();
            let good = good.min(bytes.len());
            bytes[..good].copy_from_slice(&answer[..good]);
            let _ = Partial::of(&bytes);
        }
    }
}
