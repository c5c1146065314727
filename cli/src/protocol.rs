//! Wire protocol of ping and perf: private data of the connect, and control messages of one fixed size.
//!
//! Numbers are little-endian. The connecting side sends commands, the listening side answers.

use dat::RmrTriplet;

/// Length of every control message.
pub const CONTROL: usize = 32;
/// Length of the private data of the connect.
pub const HELLO: usize = 48;
/// Length of the private data of the accept.
pub const WELCOME: usize = 24;

const MAGIC: u32 = u32::from_le_bytes(*b"DATp");
const VERSION: u32 = 3;
/// Bits of the flags word.
const WAIT: u32 = 1;
const HEAP: u32 = 2;

/// Private data of the connecting side: parameters and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Largest operation.
    pub size: u32,
    /// Operations under way at most, in each direction.
    pub depth: u32,
    /// Whether to sleep for completions.
    pub wait: bool,
    /// Whether to use ordinary memory.
    pub heap: bool,
    /// Buffers for messages of one direction at most.
    pub buffers: u32,
    /// Memory the other side may write to and read from.
    pub window: RmrTriplet,
}

impl Hello {
    /// As private data.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut out = [0; HELLO];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &VERSION.to_le_bytes());
        put(&mut out, 8, &self.size.to_le_bytes());
        put(&mut out, 12, &self.depth.to_le_bytes());
        let how = (WAIT * u32::from(self.wait)) | (HEAP * u32::from(self.heap));
        put(&mut out, 16, &how.to_le_bytes());
        put(&mut out, 20, &self.buffers.to_le_bytes());
        put(&mut out, 24, &encode_window(self.window));
        out
    }

    /// From private data; the error is for the other side.
    pub fn decode(data: &[u8]) -> Result<Hello, String> {
        if data.len() < HELLO || word(data, 0) != MAGIC {
            return Err("this is `dat ping` or `dat perf`; the connecting program is neither".into());
        }
        match word(data, 4) {
            VERSION => {}
            other => {
                return Err(format!(
                    "the peer's `dat` has protocol version {VERSION}, yours {other}: use the same version"
                ));
            }
        }
        let (size, depth) = (word(data, 8), word(data, 12));
        let (how, buffers) = (word(data, 16), word(data, 20));
        if size == 0 || size > 1 << 30 || !(1..=4096).contains(&depth) || buffers == 0 {
            return Err(format!("size {size}, depth {depth} or {buffers} buffers: out of range"));
        }
        let (wait, heap) = (how & WAIT != 0, how & HEAP != 0);
        Ok(Hello { size, depth, wait, heap, buffers, window: decode_window(&data[24..]) })
    }
}

/// The listening side's memory, as private data of the accept.
pub fn encode_window(window: RmrTriplet) -> [u8; WELCOME] {
    let mut out = [0; WELCOME];
    put(&mut out, 0, &window.address.to_le_bytes());
    put(&mut out, 8, &window.length.to_le_bytes());
    put(&mut out, 12, &window.context.to_le_bytes());
    out
}

/// The reverse of [`encode_window`]; data too short is an empty window.
pub fn decode_window(data: &[u8]) -> RmrTriplet {
    if data.len() < WELCOME {
        return RmrTriplet::default();
    }
    RmrTriplet { address: long(data, 0), length: word(data, 8), context: word(data, 12) }
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The next message has the pattern `seed` in all its `length` bytes; answer with the pattern of `seed + 1`.
    Echo {
        /// Which pattern.
        seed: u32,
        /// Bytes.
        length: u32,
    },
    /// Your window was written to: check it for the pattern.
    Verify {
        /// Which pattern.
        seed: u32,
        /// Bytes.
        length: u32,
    },
    /// Write the pattern into your window: it will be read.
    Fill {
        /// Which pattern.
        seed: u32,
        /// Bytes.
        length: u32,
    },
    /// Answer each message with one as long.
    PingPong {
        /// How many.
        messages: u32,
        /// Bytes.
        length: u32,
    },
    /// Take messages, answer [`Control::Done`] after each batch.
    Sink {
        /// Messages per batch.
        messages: u32,
        /// How many batches.
        batches: u32,
    },
    /// When the last byte of `length` in your window changes, write the same number of bytes into mine.
    WritePong {
        /// How often.
        writes: u32,
        /// Bytes.
        length: u32,
    },
    /// Ready, or finished.
    Done,
    /// The bytes were not those of the pattern.
    Mismatch {
        /// Where the first wrong byte was.
        offset: u32,
        /// What it was.
        found: u32,
    },
    /// After this connection comes another of the same work; answer [`Control::Done`].
    More,
}

impl Control {
    /// As a message.
    pub fn encode(self) -> [u8; CONTROL] {
        let (kind, a, b) = match self {
            Control::Echo { seed, length } => (1, seed, length),
            Control::Verify { seed, length } => (2, seed, length),
            Control::Fill { seed, length } => (3, seed, length),
            Control::PingPong { messages, length } => (4, messages, length),
            Control::Sink { messages, batches } => (5, messages, batches),
            Control::WritePong { writes, length } => (6, writes, length),
            Control::Done => (7, 0, 0),
            Control::Mismatch { offset, found } => (8, offset, found),
            Control::More => (9, 0, 0),
        };
        let mut out = [0; CONTROL];
        put(&mut out, 0, &MAGIC.to_le_bytes());
        put(&mut out, 4, &u32::to_le_bytes(kind));
        put(&mut out, 8, &a.to_le_bytes());
        put(&mut out, 12, &b.to_le_bytes());
        out
    }

    /// From a message; `None` when it is no control message.
    pub fn decode(data: &[u8]) -> Option<Control> {
        if data.len() != CONTROL || word(data, 0) != MAGIC {
            return None;
        }
        let (a, b) = (word(data, 8), word(data, 12));
        Some(match word(data, 4) {
            1 => Control::Echo { seed: a, length: b },
            2 => Control::Verify { seed: a, length: b },
            3 => Control::Fill { seed: a, length: b },
            4 => Control::PingPong { messages: a, length: b },
            5 => Control::Sink { messages: a, batches: b },
            6 => Control::WritePong { writes: a, length: b },
            7 => Control::Done,
            8 => Control::Mismatch { offset: a, found: b },
            9 => Control::More,
            _ => return None,
        })
    }
}

/// Fills a buffer with bytes that differ between rounds and between neighbouring ranges.
pub fn pattern(seed: u32, out: &mut [u8]) {
    // A linear congruential step per byte; its high bits are well mixed.
    let mut state = seed.wrapping_mul(0x9E37_79B9) | 1;
    for byte in out {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
}

/// The pattern of a round.
pub fn bytes(seed: u32, length: u32) -> Vec<u8> {
    let mut bytes = vec![0; length as usize];
    pattern(seed, &mut bytes);
    bytes
}

/// Offset and value of the first byte that differs.
pub fn difference(expected: &[u8], found: &[u8]) -> Option<(u32, u32)> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(e, f)| e != f).unwrap_or(expected.len().min(found.len()));
    Some((at as u32, found.get(at).copied().unwrap_or_default().into()))
}

/// The last byte of a round's write: never 0, never equal to that of the round before.
#[inline]
pub fn mark(round: u32) -> u8 {
    (round % 255 + 1) as u8
}

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn word(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}

fn long(data: &[u8], at: usize) -> u64 {
    u64::from(word(data, at)) | u64::from(word(data, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let window = RmrTriplet { address: 0x1234_5678_9ABC_DEF0, length: 77, context: 0xFFFF_FFFE };
        let hello = Hello { size: 4096, depth: 64, wait: true, heap: true, buffers: 7, window };
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        assert_eq!(decode_window(&encode_window(window)), window);
        for control in [
            Control::Echo { seed: 1, length: 2 },
            Control::Verify { seed: 3, length: 4 },
            Control::Fill { seed: 5, length: 6 },
            Control::PingPong { messages: 7, length: 8 },
            Control::Sink { messages: 9, batches: 10 },
            Control::WritePong { writes: 11, length: 12 },
            Control::Done,
            Control::Mismatch { offset: 13, found: 14 },
            Control::More,
        ] {
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(Hello::decode(b"").is_err());
        assert!(Hello::decode(&[0; HELLO]).is_err());
        let window = RmrTriplet::default();
        let hello = Hello { size: 1, depth: 1, wait: false, heap: false, buffers: 1, window };
        let mut other = hello.encode();
        other[4] = 9;
        assert!(Hello::decode(&other).expect_err("another version").contains("version 3, yours 9"));
        let none = Hello { buffers: 0, ..hello }.encode();
        assert!(Hello::decode(&none).expect_err("no buffers").contains("0 buffers"));
        assert_eq!(Control::decode(&[0; CONTROL]), None);
        assert_eq!(Control::decode(&Control::Done.encode()[..CONTROL - 1]), None);
    }

    #[test]
    fn patterns_differ() {
        let (mut a, mut b) = ([0; 64], [0; 64]);
        pattern(1, &mut a);
        pattern(2, &mut b);
        assert_ne!(a, b);
        pattern(1, &mut b);
        assert_eq!(a, b);
        assert_ne!(a[..32], a[32..]);
    }
}
