//! What goes over a connection's socket: frames, each one packet, with descriptors where a kind has them.
//!
//! A packet comes from a stranger: every length is checked, every descriptor is owned at once, and a malformed packet is
//! an error of that connection. Descriptors that are not used are closed elsewhere: see [`crate::foreign`].

mod codec;

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use dat_plugin::SockAddr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::data::slab::Place;
use crate::foreign::ForeignFd;

pub(crate) use codec::MAX_DATA;
use codec::{Reader, Writer};

const MAGIC: u32 = 0x4d54_4144;
const VERSION: u16 = 7;
const MAX_FRAME: usize = 1024;
const MAX_FDS: usize = 3;
/// The kernel passes no more at once. With less room it would close the rest, on the thread that receives.
const MOST_FDS: usize = 253;

/// What each side says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hello {
    /// Random number of its device.
    pub(crate) device: u128,
    /// How its receive queue and its send queue are woken.
    pub(crate) wake: [Wake; 2],
    /// Its port and address.
    pub(crate) port: u64,
    pub(crate) addr: Addr,
    /// Protection domain of the channel.
    pub(crate) domain: u32,
    /// [`MEMBARRIER`] and [`CMA`].
    pub(crate) flags: u32,
    /// Where `nonce` is in its memory.
    pub(crate) probe: u64,
    pub(crate) nonce: u64,
    /// Reads it lets the peer have under way.
    pub(crate) reads_in: u32,
}

/// A queue, seen from a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wake {
    /// Its number, 0 for none.
    pub(crate) queue: u64,
    /// The number of its bitmap, and the channel's place there.
    pub(crate) bitmap: u32,
    pub(crate) slot: u32,
    /// What a datagram that wakes its sleeper must carry.
    pub(crate) secret: u64,
}

/// Takes part in global expedited memory barriers, as target and as initiator.
pub(crate) const MEMBARRIER: u32 = 1;
/// May be reached by `process_vm_readv` and `process_vm_writev` as far as it is concerned.
pub(crate) const CMA: u32 = 2;

/// An address that compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addr(pub(crate) SockAddr);

impl Default for Addr {
    fn default() -> Addr {
        Addr(SockAddr::UNSPECIFIED)
    }
}

/// Which descriptors come with a packet, in this order. The receiver has omitted ones from another connection. The
/// memory of the segment; the ready bitmaps; the key table, which only a trusted peer gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct With(pub(crate) u16);

impl With {
    pub(crate) const MEMORY: With = With(1);
    pub(crate) const DEVICE: With = With(2);
    pub(crate) const KEYS: With = With(4);

    pub(crate) fn has(self, part: With) -> bool {
        self.0 & part.0 != 0
    }

    pub(crate) fn add(&mut self, part: With) {
        self.0 |= part.0;
    }
}

/// The descriptors that came with a packet, by purpose.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    pub(crate) memory: Option<ForeignFd>,
    pub(crate) bitmaps: Option<ForeignFd>,
    pub(crate) keys: Option<ForeignFd>,
}

impl Parts {
    /// `None`: there are more or fewer than `with` says.
    pub(crate) fn new(with: With, fds: Vec<ForeignFd>) -> Option<Parts> {
        let mut fds = fds.into_iter();
        let mut parts = Parts::default();
        for (part, place) in [
            (With::MEMORY, &mut parts.memory),
            (With::DEVICE, &mut parts.bitmaps),
            (With::KEYS, &mut parts.keys),
        ] {
            if with.has(part) {
                *place = Some(fds.next()?);
            }
        }
        fds.next().is_none().then_some(parts)
    }
}

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    /// With descriptors.
    Request {
        with: With,
        ring: u32,
        place: Place,
        port: u64,
        qos: u32,
        hello: Hello,
        /// The receiver's device, if the sender has its bitmaps and key table; 0 for none.
        holds: u128,
        data: Vec<u8>,
    },
    /// The receiver of a request lacks something that was left out of it: it is to be sent once more, with everything.
    Again,
    /// With descriptors.
    Accept {
        with: With,
        hello: Hello,
        cma: bool,
        data: Vec<u8>,
    },
    /// The active side's word that it is connected.
    Confirm {
        cma: bool,
    },
    Reject {
        consumer: bool,
        data: Vec<u8>,
    },
    Disconnect,
    Error,
    Kick,
    /// Asks for memory `map` of the peer's device.
    MapRequest {
        map: u64,
        write: bool,
    },
    /// Descriptor: the memory, if `ok`.
    MapReply {
        map: u64,
        write: bool,
        len: u64,
        ok: bool,
    },
    /// Memory `map` of the sender's device is free: a mapping of it only keeps its pages.
    Unmap {
        map: u64,
    },
}

/// What a receive found.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "looked at where it was made, never stored")]
pub(crate) enum Received {
    /// Nothing yet.
    Empty,
    /// The peer has gone.
    Closed,
    /// A packet that makes no sense.
    Garbage(&'static str),
    Packet(Packet, Vec<ForeignFd>),
}

/// Sends a packet; never blocks, never raises a signal.
pub(crate) fn send(socket: impl AsFd, packet: &Packet, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = packet.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, flags) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map(drop).map_err(io::Error::from),
        }
    }
}

/// Takes a packet; never blocks.
pub(crate) fn receive(socket: impl AsFd) -> Received {
    let mut bytes = [0; MAX_FRAME];
    let mut resets = 0;
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let message = recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags);
        let message = match message {
            Err(rustix::io::Errno::INTR) => continue,
            Err(rustix::io::Errno::AGAIN) => return Received::Empty,
            // A peer that closed with packets unread; what it sent before is still there.
            Err(rustix::io::Errno::CONNRESET) if resets < 2 => {
                resets += 1;
                continue;
            }
            Err(_) => return Received::Closed,
            Ok(message) => message,
        };
        let mut fds = Vec::new();
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(list) = part {
                fds.extend(list.map(ForeignFd::from));
            }
        }
        if message.bytes == 0 && fds.is_empty() {
            return Received::Closed;
        }
        if message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Received::Garbage("a truncated packet");
        }
        return match Packet::decode(&bytes[..message.bytes]) {
            Some(packet) if fds.len() <= MAX_FDS => Received::Packet(packet, fds),
            Some(_) => Received::Garbage("too many descriptors"),
            None => Received::Garbage("a malformed packet"),
        };
    }
}

impl Packet {
    fn kind(&self) -> u16 {
        match self {
            Packet::Request { .. } => 1,
            Packet::Accept { .. } => 2,
            Packet::Confirm { .. } => 3,
            Packet::Reject { .. } => 4,
            Packet::Disconnect => 5,
            Packet::Error => 6,
            Packet::Kick => 7,
            Packet::MapRequest { .. } => 8,
            Packet::MapReply { .. } => 9,
            Packet::Again => 10,
            Packet::Unmap { .. } => 11,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::with_capacity(MAX_FRAME));
        out.u32(MAGIC).u16(VERSION).u16(self.kind());
        match self {
            Packet::Request { with, ring, place, port, qos, hello, holds, data } => {
                out.u16(with.0).u32(*ring);
                out.u64(place.slab).u32(place.slots).u32(place.slot).u32(place.turn);
                hello.encode(out.u64(*port).u32(*qos));
                out.u128(*holds).data(data);
            }
            Packet::Accept { with, hello, cma, data } => {
                hello.encode(out.u16(with.0));
                out.u16(*cma as u16).data(data);
            }
            Packet::Confirm { cma } => {
                out.u16(*cma as u16);
            }
            Packet::Reject { consumer, data } => {
                out.u16(*consumer as u16).data(data);
            }
            Packet::Disconnect | Packet::Error | Packet::Kick | Packet::Again => {}
            Packet::MapRequest { map, write } => {
                out.u64(*map).u16(*write as u16);
            }
            Packet::MapReply { map, write, len, ok } => {
                out.u64(*map).u16(*write as u16).u64(*len).u16(*ok as u16);
            }
            Packet::Unmap { map } => {
                out.u64(*map);
            }
        }
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Packet> {
        let mut from = Reader(bytes);
        if from.u32()? != MAGIC || from.u16()? != VERSION {
            return None;
        }
        let packet = match from.u16()? {
            1 => Packet::Request {
                with: with(from.u16()?, 7)?,
                ring: from.u32()?,
                place: Place { slab: from.u64()?, slots: from.u32()?, slot: from.u32()?, turn: from.u32()? },
                port: from.u64()?,
                qos: from.u32()?,
                hello: Hello::decode(&mut from)?,
                holds: from.u128()?,
                data: from.data()?,
            },
            2 => Packet::Accept {
                with: with(from.u16()?, 6)?,
                hello: Hello::decode(&mut from)?,
                cma: from.flag()?,
                data: from.data()?,
            },
            3 => Packet::Confirm { cma: from.flag()? },
            4 => Packet::Reject { consumer: from.flag()?, data: from.data()? },
            5 => Packet::Disconnect,
            6 => Packet::Error,
            7 => Packet::Kick,
            8 => Packet::MapRequest { map: from.u64()?, write: from.flag()? },
            9 => {
                Packet::MapReply { map: from.u64()?, write: from.flag()?, len: from.u64()?, ok: from.flag()? }
            }
            10 => Packet::Again,
            11 => Packet::Unmap { map: from.u64()? },
            _ => return None,
        };
        from.0.is_empty().then_some(packet)
    }
}

fn with(bits: u16, all: u16) -> Option<With> {
    (bits & !all == 0).then_some(With(bits))
}

impl Hello {
    fn encode(&self, out: &mut Writer) {
        out.u128(self.device);
        for wake in &self.wake {
            out.u64(wake.queue).u32(wake.bitmap).u32(wake.slot).u64(wake.secret);
        }
        out.u64(self.port);
        out.u16(self.addr.0.family).u16(self.addr.0.port).u32(self.addr.0.scope);
        out.0.extend_from_slice(&self.addr.0.bytes);
        out.u32(self.domain).u32(self.flags).u64(self.probe).u64(self.nonce).u32(self.reads_in);
    }

    fn decode(from: &mut Reader<'_>) -> Option<Hello> {
        let device = from.u128()?;
        let mut wake = [Wake::default(); 2];
        for wake in &mut wake {
            let (queue, bitmap, slot) = (from.u64()?, from.u32()?, from.u32()?);
            *wake = Wake { queue, bitmap, slot, secret: from.u64()? };
        }
        let port = from.u64()?;
        let addr = SockAddr {
            family: from.u16()?,
            port: from.u16()?,
            scope: from.u32()?,
            bytes: from.take(16)?.try_into().ok()?,
        };
        Some(Hello {
            device,
            wake,
            port,
            addr: Addr(addr),
            domain: from.u32()?,
            flags: from.u32()?,
            probe: from.u64()?,
            nonce: from.u64()?,
            reads_in: from.u32()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        let addr = Addr(
            "[fe80::1%3]:77".parse::<std::net::SocketAddrV6>().map(std::net::SocketAddr::V6).unwrap().into(),
        );
        Hello {
            device: 0x0123_4567_89AB_CDEF_0011_2233_4455_6677,
            wake: [
                Wake { queue: 1, bitmap: 10, slot: 11, secret: 1 << 40 },
                Wake { queue: 2, bitmap: 12, slot: 13, secret: 2 },
            ],
            port: 3,
            addr,
            domain: 4,
            flags: 5,
            probe: 6,
            nonce: 7,
            reads_in: 8,
        }
    }

    fn packets() -> Vec<Packet> {
        vec![
            Packet::Request {
                with: With(7),
                ring: 16384,
                place: Place { slab: 1, slots: 2, slot: 3, turn: 4 },
                port: 9,
                qos: 1,
                hello: hello(),
                holds: 5 << 70,
                data: vec![1; MAX_DATA],
            },
            Packet::Accept { with: With(6), hello: hello(), cma: true, data: vec![] },
            Packet::Again,
            Packet::Confirm { cma: false },
            Packet::Reject { consumer: true, data: vec![3] },
            Packet::Disconnect,
            Packet::Error,
            Packet::Kick,
            Packet::MapRequest { map: 1, write: true },
            Packet::MapReply { map: 1, write: true, len: 4096, ok: true },
            Packet::Unmap { map: 9 },
        ]
    }

    #[test]
    fn packets_survive_the_way_and_nothing_shorter_or_longer_does() {
        for packet in packets() {
            let bytes = packet.encode();
            assert!(bytes.len() <= MAX_FRAME);
            assert_eq!(Packet::decode(&bytes), Some(packet));
            for len in 0..bytes.len() {
                assert_eq!(Packet::decode(&bytes[..len]), None, "{len} of {} bytes", bytes.len());
            }
            assert_eq!(Packet::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 16 } else { 2000 }, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_decode_to_nothing_or_to_what_encodes_to_them(which in 0usize..11, changes in prop::collection::vec((0usize..400, any::<u8>()), 0..6)) {
            let mut bytes = packets()[which].encode();
            for (at, value) in changes {
                let at = at % bytes.len();
                bytes[at] = value;
            }
            if let Some(packet) = Packet::decode(&bytes) {
                prop_assert_eq!(packet.encode(), bytes);
            }
        }
    }
}
