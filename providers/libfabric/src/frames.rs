//! Frames: how devices with datagram endpoints make connections and ring each other. A frame is one datagram, checked
//! before it is believed; the secret of the channel it is for tells its peer from a stranger.

use crate::wire::{Bell, HELLO, Hello, Kind, MAGIC, PAYLOAD, VERSION, long, word};

/// Most bytes of a device's address in a frame.
pub const MAX_NAME: usize = 128;

/// Bytes of a frame's head.
pub const HEAD: usize = 24;

/// Most bytes of a frame.
pub const FRAME: usize = HEAD + 2 + MAX_NAME + HELLO + dat_plugin::MAX_PRIVATE_DATA;

/// A frame read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Channel it is for, and its secret. A request is for nobody: both 0.
    pub to: u32,
    pub secret: u64,
    /// Bell: its argument.
    pub arg: u32,
    pub body: Body<'a>,
}

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A request, or an answer to one: the sender's address, the handshake, private data.
    Hello {
        name: &'a [u8],
        hello: Hello,
        data: &'a [u8],
    },
    Bell {
        bell: Bell,
        payload: [u8; PAYLOAD],
    },
}

const HANDSHAKE: u8 = 1;
const BELL: u8 = 2;

impl<'a> Frame<'a> {
    /// Read; anything that is not exactly a frame is none.
    pub fn decode(bytes: &'a [u8]) -> Option<Frame<'a>> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        if head[..4] != MAGIC || head[4] != VERSION {
            return None;
        }
        let (to, arg, secret) = (word(head, 8), word(head, 12), long(head, 16));
        let body = match head[5] {
            HANDSHAKE => {
                let len = usize::from(u16::from_le_bytes([head[6], head[7]]));
                let (name, rest) = rest.split_at_checked(len).filter(|_| len <= MAX_NAME)?;
                let (hello, data) = Hello::decode(rest)?;
                let request = hello.kind == Kind::Request;
                if request != (to == 0) || data.len() > dat_plugin::MAX_PRIVATE_DATA {
                    return None;
                }
                Body::Hello { name, hello, data }
            }
            BELL => {
                let payload: [u8; PAYLOAD] = rest.get(..PAYLOAD)?.try_into().ok()?;
                Body::Bell { bell: Bell::of(head[6]).filter(|_| to != 0)?, payload }
            }
            _ => return None,
        };
        Some(Frame { to, secret, arg, body })
    }

    /// Written out; how many bytes. `None`: it does not fit, which no frame of this device's does.
    pub fn encode(&self, out: &mut [u8; FRAME]) -> Option<usize> {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = VERSION;
        head[8..12].copy_from_slice(&self.to.to_le_bytes());
        head[12..16].copy_from_slice(&self.arg.to_le_bytes());
        head[16..24].copy_from_slice(&self.secret.to_le_bytes());
        let len = match self.body {
            Body::Bell { bell, payload } => {
                head[5] = BELL;
                head[6] = bell.code();
                out.get_mut(HEAD..HEAD + PAYLOAD)?.copy_from_slice(&payload);
                HEAD + PAYLOAD
            }
            Body::Hello { name, hello, data } => {
                head[5] = HANDSHAKE;
                head[6..8].copy_from_slice(&u16::try_from(name.len()).ok()?.to_le_bytes());
                let mut rest = Vec::with_capacity(HELLO + data.len());
                hello.encode(data, &mut rest);
                let end = HEAD + name.len() + rest.len();
                out.get_mut(HEAD..HEAD + name.len())?.copy_from_slice(name);
                out.get_mut(HEAD + name.len()..end)?.copy_from_slice(&rest);
                end
            }
        };
        out[..HEAD].copy_from_slice(&head);
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(data: &[u8]) -> ([u8; FRAME], usize) {
        let hello = Hello {
            kind: Kind::Request,
            chan: 9,
            qos: 1,
            posted: 4,
            room: 5,
            page: 6,
            key: 0,
            shared: false,
        };
        let frame = Frame { to: 0, secret: 0, arg: 0, body: Body::Hello { name: b"name", hello, data } };
        let mut out = [0; FRAME];
        let len = frame.encode(&mut out).unwrap();
        assert_eq!(Frame::decode(&out[..len]), Some(frame));
        (out, len)
    }

    #[test]
    fn a_request_is_read_as_written() {
        request(b"");
        request(&[7; dat_plugin::MAX_PRIVATE_DATA]);
    }

    #[test]
    fn a_bell_is_read_as_written() {
        let body = Body::Bell { bell: Bell::Ask, payload: [3; PAYLOAD] };
        let frame = Frame { to: 5, secret: u64::MAX, arg: 77, body };
        let mut out = [0; FRAME];
        let len = frame.encode(&mut out).unwrap();
        assert_eq!(Frame::decode(&out[..len]), Some(frame));
        assert_eq!(Frame::decode(&out[..len - 1]), None);
    }

    #[test]
    fn one_cut_short_is_none() {
        let (frame, len) = request(&[1; 200]);
        for cut in 0..len {
            assert_eq!(Frame::decode(&frame[..cut]), None, "{cut} bytes");
        }
    }

    /// A million frames, half of them random bytes, half a good frame with some bytes changed: none is fatal, and what
    /// is accepted says what its bytes say.
    #[test]
    fn a_million_random_frames() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let (good, len) = request(&[1; 100]);
        let mut accepted = 0u32;
        for round in 0..1_000_000u32 {
            let mut frame = good;
            let mut cut = len;
            if round % 2 == 0 {
                frame.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&random().to_le_bytes()));
                cut = random() as usize % (FRAME + 1);
                // Past the first check, so that the others have something to do.
                if round % 4 == 0 {
                    frame[..5].copy_from_slice(&[MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION]);
                    frame[5] = frame[5] % 3 + 1;
                }
            } else {
                for _ in 0..random() % 4 {
                    frame[random() as usize % len] = random() as u8;
                }
            }
            let Some(read) = Frame::decode(&frame[..cut]) else { continue };
            accepted += 1;
            let mut again = [0; FRAME];
            let len = read.encode(&mut again).expect("what was read can be written");
            assert!(len <= cut);
            assert_eq!(Frame::decode(&again[..len]), Some(read));
        }
        assert!(accepted > 100_000, "only {accepted} were read: the test tests nothing");
    }

    proptest! {
        #[test]
        fn bytes_of_any_length(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
        }
    }
}
