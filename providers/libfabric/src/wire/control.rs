//! Control messages of a connection: credit, keys, room for long messages, signs of life, the end.

use crate::wire::bytes::{long, word};

/// Bytes of a control message's payload.
pub const PAYLOAD: usize = 40;

/// A control message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The connecting side is connected. The first message of every connection.
    Connected,
    /// Payload: [`CreditState`]. Counts are cumulative, so only the last one matters.
    Credit,
    /// Asks what key `arg` stands for. At most one is unanswered.
    Resolve,
    /// Payload: [`Resolved`].
    Resolved,
    /// Key `arg` has ended; answered with [`Control::Revoked`].
    Revoke,
    /// No operation with key `arg` is under way any more.
    Revoked,
    /// Asks whether the receive for message number `arg` is large enough. Payload: the message's length, eight bytes. At
    /// most one is unanswered.
    AskRoom,
    /// The receive for message number `arg` is large enough.
    ClearToSend,
    /// The receive for message number `arg` is too small or unusable; the receiver has ended the connection.
    NoRoom,
    /// Asks for a sign of life.
    Ping,
    /// Answers [`Control::Ping`].
    Pong,
    /// The connection ends; `arg` is a [`CloseReason`].
    Close,
    /// Requests receives for all messages before number `arg`, from a peer whose receives come from a shared queue.
    RequestReceives,
}

const CONTROLS: [Control; 13] = [
    Control::Connected,
    Control::Credit,
    Control::Resolve,
    Control::Resolved,
    Control::Revoke,
    Control::Revoked,
    Control::AskRoom,
    Control::ClearToSend,
    Control::NoRoom,
    Control::Ping,
    Control::Pong,
    Control::Close,
    Control::RequestReceives,
];

impl Control {
    /// Its number in immediate data, not 0.
    pub fn code(self) -> u8 {
        CONTROLS.iter().position(|control| *control == self).map_or(0, |at| at as u8 + 1)
    }

    /// The control message with this number.
    pub fn of(code: u8) -> Option<Control> {
        CONTROLS.get(usize::from(code.checked_sub(1)?)).copied()
    }

    /// The offset of its payload in a control page.
    pub fn slot(self) -> usize {
        match self {
            Control::Credit => 0,
            Control::Resolved => PAYLOAD,
            Control::AskRoom => 2 * PAYLOAD,
            // Without payload. A write needs some bytes all the same.
            _ => 3 * PAYLOAD,
        }
    }

    /// Bytes of payload.
    pub fn payload(self) -> usize {
        match self {
            Control::Credit => 12,
            Control::Resolved => PAYLOAD,
            _ => 8,
        }
    }
}

/// Bytes of a control page.
pub const PAGE: usize = 4 * PAYLOAD;

/// Most channels of a device: immediate data has 24 bits for the channel.
pub const MAX_CHANS: u32 = 1 << 24;

/// A control message as 64 bits of immediate data.
pub fn doorbell(control: Control, chan: u32, arg: u32) -> u64 {
    u64::from(control.code()) << 56 | u64::from(chan & (MAX_CHANS - 1)) << 32 | u64::from(arg)
}

/// Decodes control message, channel and argument.
pub fn decode_doorbell(data: u64) -> Option<(Control, u32, u32)> {
    let chan = (data >> 32) as u32 & (MAX_CHANS - 1);
    Some((Control::of((data >> 56) as u8)?, chan, data as u32))
}

/// Why a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// An orderly disconnect.
    Disconnect,
    /// Something failed.
    Broken,
}

impl CloseReason {
    pub fn code(self) -> u32 {
        match self {
            CloseReason::Disconnect => 0,
            CloseReason::Broken => 1,
        }
    }

    /// An unknown code counts as [`CloseReason::Broken`].
    pub fn of(code: u32) -> CloseReason {
        if code == 0 { CloseReason::Disconnect } else { CloseReason::Broken }
    }
}

/// The state of a channel's receives: receives posted and messages consumed, both counted from the beginning, and the code
/// of the smallest receive there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditState {
    pub posted: u32,
    pub consumed: u32,
    pub room: u32,
}

impl CreditState {
    pub fn encode(&self) -> [u8; PAYLOAD] {
        let mut out = [0; PAYLOAD];
        for (place, word) in out.chunks_exact_mut(4).zip([self.posted, self.consumed, self.room]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8; PAYLOAD]) -> CreditState {
        CreditState { posted: word(bytes, 0), consumed: word(bytes, 4), room: word(bytes, 8) }
    }
}

/// What an application's 32-bit key stands for on the fabric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    pub rkey: u32,
    /// Rights, as the plugin interface numbers them. 0: this connection has no such key.
    pub access: u32,
    pub addr: u64,
    pub len: u64,
    /// The fabric's key, and the fabric's address of the first byte.
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

    /// The fabric's address of `addr`, if `len` bytes there are inside and `right` was given.
    pub fn locate(&self, addr: u64, len: u64, right: u32) -> Option<u64> {
        let offset = addr.checked_sub(self.addr)?;
        let inside = offset <= self.len && self.len - offset >= len;
        (inside && self.access & right == right).then(|| self.base.wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_control_message_has_its_own_number() {
        for control in CONTROLS {
            assert_eq!(
                decode_doorbell(doorbell(control, 0xFF_FFFF, u32::MAX)),
                Some((control, 0xFF_FFFF, u32::MAX))
            );
            assert!(control.slot() + control.payload() <= PAGE);
        }
        assert_eq!(Control::of(0), None);
        assert_eq!(Control::of(CONTROLS.len() as u8 + 1), None);
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
        fn fuzz_decoders(data: u64, payload in proptest::array::uniform32(any::<u8>())) {
            if let Some((control, chan, arg)) = decode_doorbell(data) {
                prop_assert_eq!(doorbell(control, chan, arg), data);
            }
            let mut page = [0; PAYLOAD];
            page[..32].copy_from_slice(&payload);
            let credit = CreditState::decode(&page);
            prop_assert_eq!(&credit.encode()[..12], &page[..12]);
            let resolved = Resolved::decode(&page);
            prop_assert_eq!(resolved.encode(), page);
            let _ = resolved.locate(data, !data, 0x02);
        }
    }
}
