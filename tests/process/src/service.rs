//! The services of the test server. A client names one in its private data.

/// Bytes of the regions of both sides.
pub const BYTES: usize = 2 << 20;

/// A client that sends small messages and wants them back.
pub const ECHO: &[u8] = b"echo";
/// A client that sends messages up to 1 MiB.
pub const SINK: &[u8] = b"sink";
/// A client that sends nothing, and shall cost little.
pub const IDLE: &[u8] = b"idle";
/// A client of many, with one small message at a time that it wants back.
pub const LIGHT: &[u8] = b"light";
/// A client whose messages find no receive.
pub const DEAF: &[u8] = b"deaf";
