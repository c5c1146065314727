//! What two devices send each other besides the bytes of messages: handshakes, control messages, frames, and the 64 bits
//! of immediate data of each message. `docs/libfabric.md` describes the formats. Decoders check everything before a caller
//! sees it. Nothing here calls libfabric.

pub mod bytes;
pub mod control;
pub mod count;
pub mod datagram;
pub mod head;
pub mod hello;
pub mod message;

/// First bytes of every handshake.
pub const MAGIC: [u8; 4] = *b"DATF";

/// Version of these formats. Another version is refused.
pub const VERSION: u8 = 1;
