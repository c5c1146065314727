//! What two devices say to each other besides the bytes of messages: the handshake, the doorbells, and the 64 bits that
//! go with every message. Described for readers of captures in `docs/libfabric.md`. Everything here is checked before
//! it is believed, and nothing here touches libfabric.

/// First bytes of every handshake.
pub const MAGIC: [u8; 4] = *b"DATF";
/// Version of everything in this file. Another version is refused.
pub const VERSION: u8 = 1;

/// Bytes of a [`Hello`] without private data.
pub const HELLO: usize = 48;

/// What a handshake message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A wish to connect.
    Request,
    /// The wish is granted.
    Accept,
    /// Refused by the consumer.
    Reject,
    /// Refused by the provider.
    Refuse,
    /// Datagrams: the request arrived and will be answered; tells where the peer is from now on.
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
    /// Request: quality of service asked for.
    pub qos: u32,
    /// Receives the sender has posted.
    pub posted: u32,
    /// [`room_code`] of the smallest of them.
    pub room: u32,
    /// Where the sender's control page is for the peer's writes (connected endpoints), or a secret that names the
    /// channel in tags and frames (datagram endpoints).
    pub page: u64,
    /// Key of the control page; 0 with datagrams.
    pub key: u64,
    /// The sender's receives come out of a shared queue: they are asked for ([`Bell::Want`]).
    pub shared: bool,
}

impl Hello {
    /// Written out, with private data.
    pub fn encode(&self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[VERSION, self.kind.code()]);
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        for word in [self.chan, self.qos, self.posted, self.room] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.page.to_le_bytes());
        out.extend_from_slice(&self.key.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.shared), 0, 0, 0, 0, 0, 0, 0]);
        out.extend_from_slice(data);
    }

    /// Read, with the private data; a message that is not exactly one is none.
    pub fn decode(bytes: &[u8]) -> Option<(Hello, &[u8])> {
        let (head, data) = bytes.split_at_checked(HELLO)?;
        if head[..4] != MAGIC || head[4] != VERSION || head[40] > 1 || head[41..48] != [0; 7] {
            return None;
        }
        let len = u16::from_le_bytes([head[6], head[7]]) as usize;
        // A transport may deliver more than was sent, never less.
        let data = data.get(..len)?;
        let hello = Hello {
            kind: Kind::of(head[5])?,
            chan: word(head, 8),
            qos: word(head, 12),
            posted: word(head, 16),
            room: word(head, 20),
            page: long(head, 24),
            key: long(head, 32),
            shared: head[40] == 1,
        };
        Some((hello, data))
    }
}

/// Bytes of a short [`Hello`] without private data: for fabrics that carry little of it. What is posted is said when the
/// connection is up, and no doorbell needs the sender's channel.
pub const SHORT_HELLO: usize = 5;

/// Most private data after a short handshake: 7 bits tell how much.
pub const SHORT_DATA: usize = 127;

impl Hello {
    /// Written out short, with private data.
    pub fn encode_short(&self, data: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC[..1]);
        out.extend_from_slice(&MAGIC[3..]);
        out.push(VERSION << 4 | self.kind.code());
        out.push(data.len() as u8 | u8::from(self.shared) << 7);
        out.push(self.qos as u8);
        out.extend_from_slice(data);
    }

    /// As [`Hello::decode`], of a short one.
    pub fn decode_short(bytes: &[u8]) -> Option<(Hello, &[u8])> {
        let (head, data) = bytes.split_at_checked(SHORT_HELLO)?;
        if head[..2] != [MAGIC[0], MAGIC[3]] || head[2] >> 4 != VERSION {
            return None;
        }
        let hello = Hello {
            kind: Kind::of(head[2] & 0xF)?,
            chan: 0,
            qos: head[4].into(),
            posted: 0,
            room: u32::MAX,
            page: 0,
            key: 0,
            shared: head[3] >> 7 == 1,
        };
        Some((hello, data.get(..usize::from(head[3] & 0x7F))?))
    }
}

/// The head of a frame on connected endpoints ([`crate::framed`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A piece of a message of `len` bytes, in order; the last one's [`Mark`] counts.
    Message { len: u32, mark: u64 },
    /// Something said; its payload follows.
    Bell { bell: Bell, arg: u32 },
}

impl Head {
    /// Bytes of it.
    pub const SIZE: usize = 16;

    pub fn encode(&self) -> [u8; Head::SIZE] {
        let mut out = [0; Head::SIZE];
        match *self {
            Head::Message { len, mark } => {
                out[0] = 1;
                out[4..8].copy_from_slice(&len.to_le_bytes());
                out[8..].copy_from_slice(&mark.to_le_bytes());
            }
            Head::Bell { bell, arg } => {
                out[0] = 2;
                out[1] = bell.code();
                out[4..8].copy_from_slice(&arg.to_le_bytes());
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; Head::SIZE] = bytes.try_into().ok()?;
        match bytes[0] {
            1 if bytes[1..4] == [0; 3] => Some(Head::Message { len: word(bytes, 4), mark: long(bytes, 8) }),
            2 if bytes[2..4] == [0; 2] && bytes[8..] == [0; 8] => {
                Some(Head::Bell { bell: Bell::of(bytes[1])?, arg: word(bytes, 4) })
            }
            _ => None,
        }
    }
}

/// The four bytes at `at`, which the caller knows to be there.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// The eight bytes at `at`, which the caller knows to be there.
pub fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Bytes of a doorbell's payload.
pub const PAYLOAD: usize = 40;

/// Something said about a connection while it is up, besides messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// The connecting side knows that it is connected. First on every connection.
    Up,
    /// Payload: [`Books`]. Cumulative, so only the last one counts.
    Books,
    /// Which memory is key `arg`? Payload: nothing. One at a time.
    Resolve,
    /// Payload: [`Resolved`].
    Resolved,
    /// Key `arg` is no longer good; answered with [`Bell::Revoked`].
    Revoke,
    /// Nothing of key `arg` is under way any more.
    Revoked,
    /// Has message number `arg` room? Payload: its length, eight bytes. One at a time.
    Ask,
    /// Message number `arg` has room.
    Go,
    /// Message number `arg` has none, or its receive is unusable: the receiver has ended the connection.
    NoGo,
    /// Are you there?
    Ping,
    /// I am.
    Pong,
    /// The connection ends; `arg` is a [`Farewell`].
    Bye,
    /// Receives are wanted for all messages before number `arg`, of a peer whose receives are in a shared queue.
    Want,
}

const BELLS: [Bell; 13] = [
    Bell::Up,
    Bell::Books,
    Bell::Resolve,
    Bell::Resolved,
    Bell::Revoke,
    Bell::Revoked,
    Bell::Ask,
    Bell::Go,
    Bell::NoGo,
    Bell::Ping,
    Bell::Pong,
    Bell::Bye,
    Bell::Want,
];

impl Bell {
    /// Its number in a doorbell, not 0.
    pub fn code(self) -> u8 {
        BELLS.iter().position(|bell| *bell == self).map_or(0, |at| at as u8 + 1)
    }

    /// The bell of this number.
    pub fn of(code: u8) -> Option<Bell> {
        BELLS.get(usize::from(code.checked_sub(1)?)).copied()
    }

    /// Where in a control page its payload is, for those that have one.
    pub fn slot(self) -> usize {
        match self {
            Bell::Books => 0,
            Bell::Resolved => PAYLOAD,
            Bell::Ask => 2 * PAYLOAD,
            // Without payload; something must be written all the same.
            _ => 3 * PAYLOAD,
        }
    }

    /// Bytes of payload.
    pub fn payload(self) -> usize {
        match self {
            Bell::Books => 12,
            Bell::Resolved => PAYLOAD,
            _ => 8,
        }
    }
}

/// Bytes of a control page.
pub const PAGE: usize = 4 * PAYLOAD;

/// Most channels a device names: a doorbell has 24 bits for them.
pub const MAX_CHANS: u32 = 1 << 24;

/// A doorbell as it travels in 64 bits of immediate data.
pub fn doorbell(bell: Bell, chan: u32, arg: u32) -> u64 {
    u64::from(bell.code()) << 56 | u64::from(chan & (MAX_CHANS - 1)) << 32 | u64::from(arg)
}

/// Read again: bell, channel, argument.
pub fn read_doorbell(data: u64) -> Option<(Bell, u32, u32)> {
    let chan = (data >> 32) as u32 & (MAX_CHANS - 1);
    Some((Bell::of((data >> 56) as u8)?, chan, data as u32))
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// In order.
    Disconnect,
    /// Something failed.
    Broken,
}

impl Farewell {
    pub fn code(self) -> u32 {
        match self {
            Farewell::Disconnect => 0,
            Farewell::Broken => 1,
        }
    }

    /// Anything unknown is no orderly end.
    pub fn of(code: u32) -> Farewell {
        if code == 0 { Farewell::Disconnect } else { Farewell::Broken }
    }
}

/// A side's books: receives posted, messages consumed, both counted from the beginning, and the smallest receive there
/// may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    pub posted: u32,
    pub consumed: u32,
    pub room: u32,
}

impl Books {
    pub fn encode(&self) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        for (place, word) in out.chunks_exact_mut(4).zip([self.posted, self.consumed, self.room]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8; PAYLOAD]) -> Books {
        Books { posted: word(bytes, 0), consumed: word(bytes, 4), room: word(bytes, 8) }
    }
}

/// What a key of ours stands for on the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    pub rkey: u32,
    /// Rights, as the plugin interface numbers them; 0: no such key for this connection.
    pub access: u32,
    pub addr: u64,
    pub len: u64,
    /// The fabric's key, and what the fabric calls the first byte.
    pub key: u64,
    pub base: u64,
}

impl Resolved {
    pub fn encode(&self) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        out[..4].copy_from_slice(&self.rkey.to_le_bytes());
        out[4..8].copy_from_slice(&self.access.to_le_bytes());
        let longs = [self.addr, self.len, self.key, self.base];
        for (place, long) in out[8..].chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&long.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8; PAYLOAD]) -> Resolved {
        Resolved {
            rkey: word(bytes, 0),
            access: word(bytes, 4),
            addr: long(bytes, 8),
            len: long(bytes, 16),
            key: long(bytes, 24),
            base: long(bytes, 32),
        }
    }

    /// What the fabric calls `addr`, if `len` bytes there are inside and `right` was given.
    pub fn locate(&self, addr: u64, len: u64, right: u32) -> Option<u64> {
        let offset = addr.checked_sub(self.addr)?;
        let inside = offset <= self.len && self.len - offset >= len;
        (inside && self.access & right == right).then(|| self.base.wrapping_add(offset))
    }
}

/// How a receive's room is told: 0 for one that takes nothing at all, else its length and one.
pub fn room_code(len: u64, usable: bool) -> u32 {
    if usable { (len + 1).min(u64::from(u32::MAX)) as u32 } else { 0 }
}

/// Most receives a channel may have open, so that 14 bits tell how many there are.
pub const MAX_WINDOW: u32 = (1 << 13) - 1;

const COUNT: u64 = (1 << 14) - 1;

/// What goes with a message, as 64 bits of immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub solicited: bool,
    pub imm: Option<u32>,
    pub rest: Rest,
}

/// The books, or the length of a write that the message only announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Low 14 bits of receives posted and messages consumed.
    Books { posted: u32, consumed: u32 },
    /// Bytes written.
    Written(u32),
}

/// A write of so many bytes cannot be announced any more.
pub const MAX_WRITTEN: u64 = 1 << 28;

impl Mark {
    pub fn encode(&self) -> u64 {
        let (flag, rest) = match self.rest {
            Rest::Books { posted, consumed } => {
                (0, (u64::from(posted) & COUNT) << 14 | u64::from(consumed) & COUNT)
            }
            Rest::Written(len) => (4, u64::from(len) & (MAX_WRITTEN - 1)),
        };
        let flags = u64::from(self.solicited) | u64::from(self.imm.is_some()) << 1 | flag;
        flags << 60 | rest << 32 | u64::from(self.imm.unwrap_or(0))
    }

    pub fn decode(data: u64) -> Mark {
        let flags = data >> 60;
        let rest = data >> 32 & (MAX_WRITTEN - 1);
        Mark {
            solicited: flags & 1 != 0,
            imm: (flags & 2 != 0).then_some(data as u32),
            rest: match flags & 4 {
                0 => Rest::Books { posted: (rest >> 14) as u32, consumed: (rest & COUNT) as u32 },
                _ => Rest::Written(rest as u32),
            },
        }
    }
}

/// The count whose low 14 bits are `low`, not before `known` and less than 2^13 after it; `None` for one that would be
/// before: news that other news have overtaken.
pub fn widen(known: u32, low: u32) -> Option<u32> {
    let ahead = low.wrapping_sub(known) & COUNT as u32;
    (ahead <= MAX_WINDOW).then(|| known.wrapping_add(ahead))
}

/// Whether `a` comes at or after `b` in counts that wrap.
pub fn reached(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let page = u64::MAX - 1;
        Hello { kind: Kind::Request, chan: 7, qos: 1, posted: 3, room: 65, page, key: 42, shared: true }
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
        for at in [0, 3, 4, 5, 40, 41, 47] {
            let mut other = bytes.clone();
            other[at] ^= 0x40;
            assert_eq!(Hello::decode(&other), None, "byte {at} changed");
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

    #[test]
    fn bells_have_numbers_of_their_own() {
        for bell in BELLS {
            assert_eq!(read_doorbell(doorbell(bell, 0xFF_FFFF, u32::MAX)), Some((bell, 0xFF_FFFF, u32::MAX)));
            assert!(bell.slot() + bell.payload() <= PAGE);
        }
        assert_eq!(Bell::of(0), None);
        assert_eq!(Bell::of(BELLS.len() as u8 + 1), None);
    }

    #[test]
    fn counts_grow_across_their_end() {
        assert_eq!(widen(10, 12), Some(12));
        assert_eq!(widen(10, 10), Some(10));
        assert_eq!(widen(10, 9), None, "older news");
        assert_eq!(widen(u32::MAX, 1), Some(1), "the whole count wraps");
        assert_eq!(widen(0x7FFF, 0), Some(0x8000), "the low bits wrap");
        assert!(reached(2, u32::MAX) && !reached(u32::MAX, 2));
    }

    #[test]
    fn a_key_is_good_for_its_range_and_rights() {
        let key = Resolved { rkey: 1, access: 0x02, addr: 1000, len: 100, key: 9, base: 0 };
        assert_eq!(Resolved::decode(&key.encode()), key);
        assert_eq!(key.locate(1000, 100, 0x02), Some(0));
        assert_eq!(key.locate(1099, 1, 0x02), Some(99));
        assert_eq!(key.locate(1099, 2, 0x02), None);
        assert_eq!(key.locate(999, 1, 0x02), None);
        assert_eq!(key.locate(u64::MAX, u64::MAX, 0x02), None);
        assert_eq!(key.locate(1000, 1, 0x20), None);
    }

    proptest! {
        #[test]
        fn marks_are_read_as_written(solicited: bool, imm: Option<u32>, a in 0u32..1 << 14, b in 0u32..1 << 14, written: bool) {
            let rest = match written {
                false => Rest::Books { posted: a, consumed: b },
                true => Rest::Written(a << 14 | b),
            };
            let mark = Mark { solicited, imm, rest };
            prop_assert_eq!(Mark::decode(mark.encode()), mark);
        }

        #[test]
        fn heads_are_read_as_written(len: u32, mark: u64, bell in 0..BELLS.len()) {
            for head in [Head::Message { len, mark }, Head::Bell { bell: BELLS[bell], arg: len }] {
                prop_assert_eq!(Head::decode(&head.encode()), Some(head));
            }
        }

        #[test]
        fn nothing_of_a_peer_is_fatal(bytes: Vec<u8>, data: u64, payload in proptest::array::uniform32(any::<u8>())) {
            let _ = (Hello::decode(&bytes), Hello::decode_short(&bytes), Head::decode(&bytes));
            let _ = (read_doorbell(data), Mark::decode(data));
            let mut page = [0; PAYLOAD];
            page[..32].copy_from_slice(&payload);
            let _ = Books::decode(&page);
            let _ = Resolved::decode(&page).locate(data, !data, 0x02);
        }
    }
}
