//! The memory of one peer device as this process can reach it; all connections to that device share it.

use std::sync::atomic::AtomicU32;

use crate::memory::keys::KeyView;
use crate::memory::mapped::Maps;

pub(crate) struct PeerMemory {
    /// As the socket says; 0 for a process in a process namespace that is not visible here.
    pub(crate) pid: u32,
    /// Its key table; `None` when it could not be mapped, or the peer is not trusted: it executes all operations then.
    pub(crate) keys: Option<KeyView>,
    /// Its memory that is mapped here.
    pub(crate) maps: Maps,
    /// How many of its descriptors this process asked for, over all connections that live.
    pub(crate) asked: AtomicU32,
}

impl PeerMemory {
    /// `limit` is how many bytes of its blocks are mapped at most.
    pub(crate) fn new(pid: u32, keys: Option<KeyView>, limit: u64) -> PeerMemory {
        let (maps, asked) = (Maps::new(limit), AtomicU32::new(0));
        PeerMemory { pid, keys, maps, asked }
    }
}
