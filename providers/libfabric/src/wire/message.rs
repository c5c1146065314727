//! The immediate data of messages, and how the size of a receive is encoded.

use crate::wire::count::COUNT;

/// A message's 64 bits of immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageInfo {
    pub solicited: bool,
    pub imm: Option<u32>,
    pub detail: Detail,
}

/// Credit, or the length of a write that the message reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Low 14 bits of receives posted and messages consumed.
    Credit { posted: u32, consumed: u32 },
    /// Bytes written.
    Written(u32),
}

/// A write with immediate data must be shorter than this.
pub const MAX_WRITTEN: u64 = 1 << 28;

impl MessageInfo {
    pub fn encode(&self) -> u64 {
        let (flag, rest) = match self.detail {
            Detail::Credit { posted, consumed } => {
                (0, (u64::from(posted) & COUNT) << 14 | u64::from(consumed) & COUNT)
            }
            Detail::Written(len) => (4, u64::from(len) & (MAX_WRITTEN - 1)),
        };
        let flags = u64::from(self.solicited) | u64::from(self.imm.is_some()) << 1 | flag;
        flags << 60 | rest << 32 | u64::from(self.imm.unwrap_or(0))
    }

    pub fn decode(data: u64) -> MessageInfo {
        let flags = data >> 60;
        let rest = data >> 32 & (MAX_WRITTEN - 1);
        MessageInfo {
            solicited: flags & 1 != 0,
            imm: (flags & 2 != 0).then_some(data as u32),
            detail: match flags & 4 {
                0 => Detail::Credit { posted: (rest >> 14) as u32, consumed: (rest & COUNT) as u32 },
                _ => Detail::Written(rest as u32),
            },
        }
    }
}

/// The code of a receive's length: 0 if it takes nothing at all, else its length plus one.
pub fn room_code(len: u64, usable: bool) -> u32 {
    if usable { (len + 1).min(u64::from(u32::MAX)) as u32 } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn message_infos_are_read_as_written(solicited: bool, imm: Option<u32>, a in 0u32..1 << 14, b in 0u32..1 << 14, written: bool) {
            let detail = match written {
                false => Detail::Credit { posted: a, consumed: b },
                true => Detail::Written(a << 14 | b),
            };
            let info = MessageInfo { solicited, imm, detail };
            prop_assert_eq!(MessageInfo::decode(info.encode()), info);
        }
    }
}
