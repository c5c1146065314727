//! The remote side of a request, as the host's callers name it. Not part of the binary interface.

/// The remote side of a write or read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Remote {
    /// First byte at the peer.
    pub addr: u64,
    /// Key the peer gave out.
    pub rkey: u32,
    /// Read: how many bytes.
    pub len: u32,
}
