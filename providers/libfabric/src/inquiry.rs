//! What is said over TCP where the addresses of a fabric are not the internet's: a peer knows an internet address and a
//! port, asks there, and is told the device's address on the fabric. Described in `docs/libfabric.md`. One question, one
//! answer; everything is checked before it is believed.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::address::Raw;
use crate::wire::{long, word};

/// Version of everything in this file.
pub const VERSION: u8 = 1;

/// The question.
pub const QUESTION: [u8; 8] = [b'D', b'A', b'T', b'Q', VERSION, 0, 0, 0];

/// Whether these bytes are a question, of any version: what comes after the version may change with it.
pub fn is_question(bytes: &[u8; QUESTION.len()]) -> bool {
    bytes[..4] == QUESTION[..4]
}

const MAGIC: [u8; 4] = *b"DATA";

/// Bytes of an answer before the address.
pub const HEAD: usize = 48;

/// Bytes of a place in a name.
const PLACE: usize = 18;

/// Most bytes of an address: with its place it is a name in a frame.
pub const MAX_ADDRESS: usize = crate::frames::MAX_NAME - PLACE;

/// What both sides must have the same of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speech {
    pub protocol: u32,
    pub version: u32,
    pub format: u32,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub speech: Speech,
    /// A port of the device where a knock tells whether it is still there.
    pub door: u16,
    /// What a request must name, so that none reaches whoever has the address later.
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
        for word in [self.speech.protocol, self.speech.version, self.speech.format, self.door.into()] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.token.to_le_bytes());
        out.extend_from_slice(&self.host);
        out.extend_from_slice(address);
        out
    }
}

/// What has come of an answer.
#[derive(Debug)]
pub enum Heard {
    /// It begins well.
    More,
    Whole(Answer),
    /// It is none, or none of this version.
    Strange(&'static str),
}

impl Heard {
    pub fn of(bytes: &[u8]) -> Heard {
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            return Heard::Strange("something else listens there");
        }
        if bytes.get(4).is_some_and(|version| *version != VERSION) {
            return Heard::Strange("the device there speaks another version");
        }
        let Some((head, rest)) = bytes.split_at_checked(HEAD) else { return Heard::More };
        let len = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let Ok(door) = u16::try_from(word(head, 20)) else { return Heard::Strange("a port that is none") };
        if len == 0 || len > MAX_ADDRESS {
            return Heard::Strange("an address of impossible length");
        }
        let Some(address) = rest.get(..len).and_then(Raw::new) else { return Heard::More };
        let mut host = [0; 16];
        host.copy_from_slice(&head[32..48]);
        Heard::Whole(Answer {
            speech: Speech { protocol: word(head, 8), version: word(head, 12), format: word(head, 16) },
            door,
            token: long(head, 24),
            host,
            address,
        })
    }
}

/// A device's name in frames: where its door is, and its address.
pub fn name(door: SocketAddr, address: &Raw) -> Option<Raw> {
    let ip = match door.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let mut out = Vec::with_capacity(PLACE + address.bytes().len());
    out.extend_from_slice(&ip.octets());
    out.extend_from_slice(&door.port().to_le_bytes());
    out.extend_from_slice(address.bytes());
    Raw::new(&out)
}

/// A name read.
pub fn read_name(name: &[u8]) -> Option<(SocketAddr, Raw)> {
    let (place, address) = name.split_at_checked(PLACE)?;
    let ip: [u8; 16] = place[..16].try_into().ok()?;
    let port = u16::from_le_bytes([place[16], place[17]]);
    let door = SocketAddr::new(IpAddr::from(Ipv6Addr::from(ip)).to_canonical(), port);
    (!address.is_empty()).then(|| Raw::new(address)).flatten().map(|address| (door, address))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(address: &[u8]) -> Answer {
        Answer {
            speech: Speech { protocol: 16, version: 1, format: 9 },
            door: 4711,
            token: u64::MAX - 4,
            host: [7; 16],
            address: Raw::new(address).expect("fits"),
        }
    }

    #[test]
    fn an_answer_is_read_as_written_and_not_before_it_is_whole() {
        let bytes = answer(b"fi_shm://1:0:0\0").encode();
        for len in 0..bytes.len() {
            assert!(matches!(Heard::of(&bytes[..len]), Heard::More), "{len} bytes of it");
        }
        let Heard::Whole(read) = Heard::of(&bytes) else { panic!("it is whole") };
        assert_eq!((read.speech, read.door, read.token), (answer(b"x").speech, 4711, u64::MAX - 4));
        assert_eq!((read.host, read.address.bytes()), ([7; 16], &b"fi_shm://1:0:0\0"[..]));
    }

    #[test]
    fn what_is_none_is_known_at_once() {
        let bytes = answer(b"x").encode();
        for at in [0, 3, 4] {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert!(matches!(Heard::of(&other[..=at]), Heard::Strange(_)), "byte {at} changed");
        }
        for (at, byte) in [(6, 0), (7, 1), (22, 1)] {
            let mut other = bytes.clone();
            other[at] = byte;
            assert!(matches!(Heard::of(&other), Heard::Strange(_)), "byte {at} changed");
        }
        assert!(is_question(&QUESTION) && !is_question(b"GET / HT"));
    }

    #[test]
    fn names_are_read_as_written() {
        for door in ["10.1.2.3:4711", "[fd00::1]:1"] {
            let door: SocketAddr = door.parse().expect("an address");
            let longest = Raw::new(&[3; MAX_ADDRESS]).expect("fits");
            let written = name(door, &longest).expect("fits");
            let (place, address) = read_name(written.bytes()).expect("a name");
            assert_eq!((place, address.bytes()), (door, longest.bytes()));
            assert!(read_name(&written.bytes()[..PLACE]).is_none(), "without an address");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_is_fatal(mut bytes: Vec<u8>, good in 0..=HEAD) {
            let _ = (Heard::of(&bytes), read_name(&bytes));
            let answer = answer(b"address").encode();
            let good = good.min(bytes.len());
            bytes[..good].copy_from_slice(&answer[..good]);
            let _ = Heard::of(&bytes);
        }
    }
}
