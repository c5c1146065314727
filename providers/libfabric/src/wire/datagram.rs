//! Frames: the datagrams by which devices make connections and exchange control messages. A frame carries the secret of
//! the channel it is for, which only the channel's peer knows.

use crate::wire::bytes::{long, word};
use crate::wire::control::{Control, PAYLOAD};
use crate::wire::hello::{HELLO, Hello, Kind};
use crate::wire::{MAGIC, VERSION};

/// Most bytes of a device's address in a frame.
pub const MAX_NAME: usize = 128;

/// Bytes of a frame's head.
pub const HEAD: usize = 24;

/// Most bytes of a frame.
pub const FRAME: usize = HEAD + 2 + MAX_NAME + HELLO + dat_plugin::MAX_PRIVATE_DATA;

/// A decoded frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The channel it is for, and that channel's secret. A request is for no channel: `to` is 0.
    pub to: u32,
    pub secret: u64,
    /// The argument of a control message.
    pub arg: u32,
    pub body: Body<'a>,
}

/// What a frame carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// A request, or an answer to one: the sender's address, the handshake, private data.
    Hello {
        name: &'a [u8],
        hello: Hello,
        data: &'a [u8],
    },
    Control {
        control: Control,
        payload: [u8; PAYLOAD],
    },
}

const HANDSHAKE: u8 = 1;
const CONTROL: u8 = 2;

impl<'a> Frame<'a> {
    /// Decodes a frame; `None` unless it is well formed.
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
            CONTROL => {
                let payload: [u8; PAYLOAD] = rest.get(..PAYLOAD)?.try_into().ok()?;
                Body::Control { control: Control::of(head[6]).filter(|_| to != 0)?, payload }
            }
            _ => return None,
        };
        Some(Frame { to, secret, arg, body })
    }

    /// Encodes it and returns its length; `None` if it does not fit, which happens to no frame of this device.
    pub fn encode(&self, out: &mut [u8; FRAME]) -> Option<usize> {
        let mut head = [0; HEAD];
        head[..4].copy_from_slice(&MAGIC);
        head[4] = VERSION;
        head[8..12].copy_from_slice(&self.to.to_le_bytes());
        head[12..16].copy_from_slice(&self.arg.to_le_bytes());
        head[16..24].copy_from_slice(&self.secret.to_le_bytes());
        let len = match self.body {
            Body::Control { control, payload } => {
                head[5] = CONTROL;
                head[6] = control.code();
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
            quotient: 0,
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
    fn a_control_message_is_read_as_written() {
        let body = Body::Control { control: Control::AskRoom, payload: [3; PAYLOAD] };
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

    /// A million frames: half are random bytes, half are a good frame with some bytes changed. No frame is fatal, and an
    /// accepted frame encodes to the same frame.
    #[test]
    fn a_million_random_frames() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (good, len) = request(&[1; 100]);
        let mut accepted = 0u32;
        for round in 0..1_000_000u32 {
            let mut frame = good;
            let mut cut = len;
            if round % 2 == 0 {
                frame.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.u64(..).to_le_bytes()));
                cut = rng.usize(..=FRAME);
                // With a good start, so that the later checks run too.
                if round % 4 == 0 {
                    frame[..5].copy_from_slice(&[MAGIC[0], MAGIC[1], MAGIC[2], MAGIC[3], VERSION]);
                    frame[5] = frame[5] % 3 + 1;
                }
            } else {
                for _ in 0..rng.u32(..4) {
                    frame[rng.usize(..len)] = rng.u8(..);
                }
            }
            let Some(read) = Frame::decode(&frame[..cut]) else { continue };
            accepted += 1;
            let mut again = [0; FRAME];
            let len = read.encode(&mut again).expect("a decoded frame can be encoded");
            assert!(len <= cut);
            assert_eq!(Frame::decode(&again[..len]), Some(read));
        }
        assert!(accepted > 100_000, "only {accepted} were accepted");
    }

    proptest! {
        #[test]
        fn fuzz_decode(bytes: Vec<u8>) {
            if let Some(frame) = Frame::decode(&bytes) {
                let mut again = [0; FRAME];
                let len = frame.encode(&mut again).expect("a decoded frame can be encoded");
                prop_assert_eq!(Frame::decode(&again[..len]), Some(frame));
            }
        }
    }
}
