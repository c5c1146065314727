//! Heads of frames on connected endpoints whose immediate data is too short (`channel/framed.rs`).

use crate::wire::bytes::{long, word};
use crate::wire::control::Control;

/// The head of a frame on connected endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A piece of a message of `len` bytes. Pieces arrive in order; `info` of the last one counts.
    Message { len: u32, info: u64 },
    /// A control message; its payload follows.
    Control { control: Control, arg: u32 },
}

impl Head {
    /// Bytes of a head.
    pub const SIZE: usize = 16;

    pub fn encode(&self) -> [u8; Head::SIZE] {
        let mut out = [0; Head::SIZE];
        match *self {
            Head::Message { len, info } => {
                out[0] = 1;
                out[4..8].copy_from_slice(&len.to_le_bytes());
                out[8..].copy_from_slice(&info.to_le_bytes());
            }
            Head::Control { control, arg } => {
                out[0] = 2;
                out[1] = control.code();
                out[4..8].copy_from_slice(&arg.to_le_bytes());
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<Head> {
        let bytes: &[u8; Head::SIZE] = bytes.try_into().ok()?;
        match bytes[0] {
            1 if bytes[1..4] == [0; 3] => Some(Head::Message { len: word(bytes, 4), info: long(bytes, 8) }),
            2 if bytes[2..4] == [0; 2] && bytes[8..] == [0; 8] => {
                Some(Head::Control { control: Control::of(bytes[1])?, arg: word(bytes, 4) })
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn heads_are_read_as_written(len: u32, info: u64, code in 1u8..=13) {
            let control = Control::of(code).expect("a control message");
            for head in [Head::Message { len, info }, Head::Control { control, arg: len }] {
                prop_assert_eq!(Head::decode(&head.encode()), Some(head));
            }
        }

        #[test]
        fn fuzz_decode(bytes in proptest::array::uniform16(any::<u8>())) {
            if let Some(head) = Head::decode(&bytes) {
                prop_assert_eq!(Head::decode(&head.encode()), Some(head));
            }
        }
    }
}
